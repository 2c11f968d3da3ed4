"""The twin of a node of one-sided writes: two of them over a lossy wire."""

import time

import numpy as np
import pytest

from fanin.rdma.driver import Arrival
from fanin.rdma.facts import DROPPED, FIRST_QUEUE_PAIR, Connection, Ending, Region, Write
from fanin.sim.nic.rdma_model import RdmaNicModel
from fanin.wire.ethernet import Endpoint
from tests.support import new_seed

A, B = (
    Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01, 0xC000),
    Endpoint(0x02_00_00_00_00_02, 0x0A_00_00_02, 0xC000),
)
SIZE, KEY = 1 << 16, 7
TIMEOUT = 0.01


class Wire:
    """Two nodes, and what is on the way between them; ``drop`` of it is lost."""

    def __init__(self, rng, drop=0.0):
        self.rng, self.drop = rng, drop
        self.under_way, self.arrivals = [], []
        self.nodes = [
            RdmaNicModel(own, bytearray(rng.bytes(SIZE)), timeout=TIMEOUT, send=self.sender(n))
            for n, own in enumerate((A, B))
        ]
        self.nodes[1].on_arrival = self.arrivals.append
        for node, peer in zip(self.nodes, (B, A), strict=True):
            node.connect(0, Connection(FIRST_QUEUE_PAIR, mtu=256, window=8), peer, lambda: None)
            node.set_regions([Region(0, SIZE, KEY, frozenset({FIRST_QUEUE_PAIR}))], lambda: None)

    def sender(self, node):
        return lambda frame: self.under_way.append((1 - node, frame))

    def run(self, done):
        end = time.monotonic() + 20
        while not done():
            assert time.monotonic() < end
            while self.under_way:
                to, frame = self.under_way.pop(0)
                if self.rng.random() >= self.drop:
                    self.nodes[to].receive(frame)
            for node in self.nodes:
                node.check_timeouts()


@pytest.mark.parametrize("drop", [0.0, 0.2])
def test_what_is_lost_is_sent_again_and_every_byte_arrives(drop):
    rng = np.random.default_rng(new_seed())
    wire = Wire(rng, drop)
    a, b = wire.nodes
    expected, ended = bytearray(b.memory), []
    for number in range(12):
        local, remote = rng.integers(0, SIZE // 2, 2).tolist()
        length = int(rng.integers(0, 4000))
        expected[remote : remote + length] = a.memory[local : local + length]
        a.post(0, Write(0, local, remote, KEY, length, number), ended.append)
    wire.run(lambda: len(ended) == 12)
    assert ended == [Ending.DONE] * 12
    assert b.memory == expected
    assert [message.immediate for message in wire.arrivals] == list(range(12))
    assert isinstance(wire.arrivals[0], Arrival)
    assert (a.counters["timed_out"] > 0) == (drop > 0)


def test_a_write_that_is_refused_ends_its_queue_pair_until_it_is_connected_anew():
    wire = Wire(np.random.default_rng(new_seed()))
    a, b = wire.nodes
    ended = []
    a.post(0, Write(0, 0, 0, KEY + 1, 10), ended.append)
    a.post(0, Write(0, 0, 0, KEY, 10), ended.append)
    wire.run(lambda: len(ended) == 2)
    assert ended == [Ending.ACCESS, Ending.FLUSHED]
    assert a.counters["failed"] == 1
    for node, peer in ((a, B), (b, A)):
        node.connect(0, Connection(FIRST_QUEUE_PAIR, mtu=256), peer, lambda: None)
    a.post(0, Write(0, 0, 100, KEY, 10), ended.append)
    wire.run(lambda: len(ended) == 3)
    assert ended[2] is Ending.DONE
    assert b.memory[100:110] == a.memory[:10]


def test_a_peer_that_is_silent_ends_a_write_and_a_new_connection_flushes_it():
    wire = Wire(np.random.default_rng(new_seed()), drop=1.0)
    a, _ = wire.nodes
    ended = []
    a.post(0, Write(0, 0, 0, KEY, 10), ended.append)
    wire.run(lambda: ended)
    assert ended == [Ending.RETRIES]
    assert a.counters["timed_out"] == 8
    a.connect(0, Connection(FIRST_QUEUE_PAIR, mtu=256), B, lambda: None)
    a.post(0, Write(0, 0, 0, KEY, 10), ended.append)
    a.connect(0, Connection(FIRST_QUEUE_PAIR, mtu=256), B, lambda: None)
    assert ended[1:] == [Ending.FLUSHED]


def test_frames_of_others_are_dropped():
    wire = Wire(np.random.default_rng(new_seed()))
    a, b = wire.nodes
    a.post(0, Write(0, 0, 0, KEY, 10), lambda ending: None)
    ((_, frame),) = wire.under_way
    wrong = (
        b"",
        bytes(60),
        frame[:-1],
        bytes(6) + frame[6:],
        frame[:-10] + bytes([frame[-10] ^ 1]) + frame[-9:],
    )
    for other in wrong:
        b.receive(other)
    assert sum(b.counters[name] for name in DROPPED.values()) == len(wrong)
    assert not wire.arrivals
