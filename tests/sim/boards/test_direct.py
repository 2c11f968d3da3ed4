"""Control straight at a PHY, in simulated time; and what a trace of events says."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fanin.golden.control import BoardModel
from fanin.hdl.boards.top import BOARD_EVENTS
from fanin.host.board import BoardClient, BoardLost
from fanin.sim.boards.board import Transmission
from fanin.sim.boards.direct import DirectChannel, wire_time
from fanin.sim.boards.events import read_events
from fanin.wire.control import CONTROL_PORT
from fanin.wire.ethernet import MIN_FRAME_BYTES, Endpoint, encode_udp

OWN, HOST = Endpoint(2, 0x0A00_0002, CONTROL_PORT), Endpoint(4, 0x0A00_0003, 40_000)
LATENCY = 5_000_000
TIMEOUT = 0.001


class World:
    """A world and its boards in one: board 1 answers as the golden model, and talks to others, too."""

    def __init__(self):
        self.time = 0
        self.model = BoardModel(defaultdict(int), own=OWN)
        self.sent = [[], []]
        self.due = []

    def send(self, board, frame):
        assert board == 1
        reply = self.model.answer(frame.ljust(MIN_FRAME_BYTES, b"\0"), self.time)
        for data in (bytes(MIN_FRAME_BYTES), reply.ljust(MIN_FRAME_BYTES, b"\0")):
            self.due.append(Transmission(1, 0, self.time + LATENCY, 12, data, ""))

    def run(self, until):
        self.time = until
        self.sent[1] += [one for one in self.due if one.time < until]
        self.due = [one for one in self.due if one.time >= until]


def channel(world):
    return DirectChannel(world, world, 1, endpoint=OWN, host=HOST)


def test_a_client_works_on_a_board_without_sockets():
    world = World()
    with BoardClient("board 1", timeout=TIMEOUT, tries=1, channel=channel(world)) as client:
        client.load(0x100, range(1000))
        assert client.dump(0x100, 1000) == list(range(1000))
        assert client.local_host == "10.0.0.3"
        assert world.model.holder(0) == HOST.ip
    assert world.model.holder(0) == 0
    assert world.time == world.model.counters["requests"] * 6_000_000  # a reply is seen every 2 µs


def test_a_board_without_an_answer_is_lost_in_simulated_time():
    world = World()
    world.send = lambda board, frame: None
    client = BoardClient("number 1", timeout=TIMEOUT, tries=3, channel=channel(world))
    with pytest.raises(BoardLost, match=r"^board number 1: no answer to 3 requests in 0\.003 s$"):
        client.hello()
    assert world.time == 3_000_000_000


def test_only_datagrams_of_the_control_are_replies():
    """An ARP reply, an echo reply, other ports, another board's datagram, a fault, and a short frame."""
    world = World()
    datagram = encode_udp(b"reply", source=OWN, destination=HOST).ljust(MIN_FRAME_BYTES, b"\0")
    arp = datagram[:12] + b"\x08\x06" + datagram[14:]
    echo = datagram[:23] + b"\x01" + datagram[24:]
    ports = [
        encode_udp(b"other", source=replace(OWN, port=1), destination=HOST),
        encode_udp(b"other", source=OWN, destination=replace(HOST, port=1)),
        encode_udp(b"other", source=replace(OWN, ip=1), destination=HOST),
    ]
    world.send = lambda board, frame: world.due.extend(
        Transmission(1, 0, world.time + LATENCY, 12, data, fault)
        for data, fault in (
            (datagram, "FCS"),
            *((data, "") for data in (arp, echo, *ports, arp[:40], datagram)),
        )
    )
    assert list(channel(world).exchange(b"", TIMEOUT)) == [b"reply"]


def test_a_frame_s_time_on_the_wire_counts_preamble_padding_and_fcs():
    assert wire_time(bytes(86)) == 8000 * (8 + 86 + 4)
    assert wire_time(bytes(14)) == wire_time(bytes(60)) == 8000 * 72


def test_events_are_at_the_edges_that_end_their_cycles(tmp_path):
    """Each bit alone: one cycle, three in a row, two apart; the period is no whole number of ps."""
    period = Fraction(1_000_000, 99)
    names = list(BOARD_EVENTS.members)
    seen = dict(zip(names, ([7], [5, 6, 7], [], [5, 9]), strict=True))
    values = [sum((cycle in seen[name]) << BOARD_EVENTS[name].offset for name in names) for cycle in range(12)]
    rows = [
        (int(1000 * (777 + cycle * period)), value)
        for cycle, value in enumerate(values)
        if cycle and value != values[cycle - 1]
    ]
    np.array(rows, dtype=np.uint64).tofile(tmp_path / "trace")
    found = read_events(tmp_path / "trace", period)
    for name, cycles in seen.items():
        np.testing.assert_allclose(found[name], [777 + float((n + 1) * period) for n in cycles], atol=1.01)
