"""The hosts' transport in a tiny event network: bytes arrive once, in order, whatever happens to segments."""

import heapq
import itertools
import random
from dataclasses import replace

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from fanin.base.errors import CheckFailed
from fanin.inceptionn.facts import TransportConfig
from fanin.job import worker_endpoint
from fanin.sim.inceptionn.transport import Connection, _distance
from fanin.wire.tcp import ACK, PSH, Segment, decode_tcp
from tests.support import new_seed

MICROSECOND = 10**6
CONFIG = TransportConfig(mss=8, window=6, timeout=100e-6, retries=3, probe=1e-3)


class Pipe:
    """Two connected ends; ``fate(segment)`` says after how many ps each copy of a frame arrives."""

    def __init__(self, config=CONFIG, fate=lambda segment: [MICROSECOND]):
        self.now, self._order, self._events, self.fate = 0, itertools.count(), [], fate
        self.sent = []  # time, end, segment
        addresses = [worker_endpoint(0), worker_endpoint(1)]
        self.ends = [
            Connection(
                addresses[end],
                addresses[1 - end],
                config,
                scheduler=self,
                transmit=lambda frame, end=end: self._carry(end, frame),
                tos=0x28,
                names=(f"node {end}", f"node {1 - end}"),
            )
            for end in (0, 1)
        ]

    def at(self, time, then):
        heapq.heappush(self._events, (time, next(self._order), then))

    def _carry(self, end, frame):
        segment = decode_tcp(frame)
        self.sent.append((self.now, end, segment))
        for delay in self.fate(segment):
            self.at(self.now + delay, lambda: self.ends[1 - end].receive(segment))

    def run(self):
        """Until nothing is left to happen."""
        while self._events:
            self.now, _, then = heapq.heappop(self._events)
            then()

    def transfer(self, *messages, end=0):
        """What arrives of messages that one end sends."""
        arrived = []
        for message in messages:
            self.ends[end].send(message)
            self.ends[1 - end].read(len(message), arrived.append)
            self.run()
        return arrived

    def of(self, end, kind=bool):
        """The segments of one end that have a payload, or with ``kind`` of ``not_`` none."""
        return [segment for _, sender, segment in self.sent if sender == end and kind(segment.payload)]


def not_(payload):
    return not payload


def test_a_message_is_cut_and_acknowledged_and_the_next_begins_a_segment():
    pipe = Pipe()
    assert pipe.transfer(bytes(range(20)), b"more") == [bytes(range(20)), b"more"]
    first, *_, last = segments = pipe.of(0)
    assert [(segment.sequence, len(segment.payload)) for segment in segments] == [
        (0, 8),
        (8, 8),
        (16, 4),
        (20, 4),
    ]
    assert [segment.flags for segment in segments] == [ACK, ACK, ACK | PSH, ACK | PSH]
    assert (first.tos, first.window, last.acknowledgement) == (0x28, 48, 0)
    answers = pipe.of(1, not_)
    assert [(answer.acknowledgement, answer.tos) for answer in answers] == [(16, 0), (20, 0), (24, 0)]


def test_scapy_sees_flags_and_numbers():
    pipe, frames = Pipe(), []
    pipe.ends[0]._transmit = frames.append
    pipe.ends[0].send(b"12345678abcd")
    one, two = (Ether(frame) for frame in frames)
    assert (one[TCP].flags, one[TCP].seq, one[IP].tos) == ("A", 0, 0x28)
    assert (two[TCP].flags, two[TCP].seq, bytes(two[TCP].payload)) == ("PA", 8, b"abcd")


def test_no_more_than_the_window_is_in_flight():
    pipe = Pipe()
    pipe.transfer(bytes(8 * 50))
    flying = most = 0
    for _, end, segment in pipe.sent:
        if end == 0:
            flying = segment.sequence + 8
        else:
            acknowledged = segment.acknowledgement
            most = max(most, flying - acknowledged)
    assert most <= 8 * 6
    assert pipe.ends[0].counters.segments == 50
    assert pipe.ends[0].idle


def test_a_window_of_one_does_not_wait_for_a_timer():
    pipe = Pipe(TransportConfig(mss=8, window=1, timeout=1e-3))
    pipe.transfer(bytes(80))
    assert pipe.ends[0].counters.timeouts == 0
    assert pipe.sent[-1][0] < 30 * MICROSECOND


@pytest.mark.parametrize("rate", [0.05, 0.3])
@pytest.mark.parametrize("fault", ["loss", "duplication", "reordering", "all"])
def test_bytes_arrive_once_and_in_order(fault, rate):
    rng = random.Random(new_seed())

    def fate(segment):
        copies = 0 if fault in ("loss", "all") and rng.random() < rate else 1
        copies += copies and fault in ("duplication", "all") and rng.random() < rate
        late = 20 if fault in ("reordering", "all") else 1
        return [MICROSECOND * rng.randint(1, late if rng.random() < rate else 1) for _ in range(copies)]

    pipe = Pipe(TransportConfig(mss=8, window=6, timeout=100e-6, retries=100), fate)
    messages = [rng.randbytes(rng.randint(1, 400)) for _ in range(20)]
    back = [rng.randbytes(rng.randint(1, 400)) for _ in range(20)]
    arrived, returned = [], []
    for there, here in zip(messages, back, strict=True):
        pipe.ends[0].send(there)
        pipe.ends[1].send(here)
        pipe.ends[1].read(len(there), arrived.append)
        pipe.ends[0].read(len(here), returned.append)
        pipe.run()
    assert (arrived, returned) == (messages, back)
    assert all(end.idle for end in pipe.ends)


def test_a_hole_is_filled_before_the_timer_by_acknowledgements_alike():
    lost = iter([True])
    pipe = Pipe(fate=lambda s: [] if s.sequence == 8 and s.payload and next(lost, False) else [MICROSECOND])
    assert pipe.transfer(bytes(range(64))) == [bytes(range(64))]
    assert pipe.ends[0].counters.timeouts == 0
    assert [segment.sequence for segment in pipe.of(0)].count(8) == 2
    assert pipe.ends[0].counters.repeated == 1
    assert pipe.sent[-1][0] < 20 * MICROSECOND


def test_several_holes_take_a_round_trip_each():
    lost = [8, 16, 32]

    def fate(segment):
        if segment.payload and segment.sequence in lost:
            lost.remove(segment.sequence)
            return []
        return [MICROSECOND]

    pipe = Pipe(TransportConfig(mss=8, window=12, timeout=1.0), fate)
    assert pipe.transfer(bytes(range(96))) == [bytes(range(96))]
    assert (pipe.ends[0].counters.repeated, pipe.ends[0].counters.timeouts) == (3, 0)


def test_the_last_segment_is_sent_again_when_the_timer_runs_out():
    lost = iter([True])
    pipe = Pipe(fate=lambda s: [] if s.flags & PSH and next(lost, False) else [MICROSECOND])
    assert pipe.transfer(bytes(16)) == [bytes(16)]
    times = [time for time, end, segment in pipe.sent if end == 0 and segment.sequence == 8]
    assert len(times) == 2
    assert 100 * MICROSECOND <= times[1] - times[0] <= 110 * MICROSECOND
    assert pipe.ends[0].counters.timeouts == 1


def test_a_peer_that_never_answers_ends_it_with_its_name():
    pipe = Pipe(fate=lambda segment: [])
    pipe.ends[0].send(bytes(80))
    cause = r"node 0 has no acknowledgement of byte 0 after 3 retries, 0\.0001 s apart"
    with pytest.raises(CheckFailed, match=f"^node 1 has stopped answering: {cause}$"):
        pipe.run()
    assert pipe.now == 400 * MICROSECOND


def test_a_peer_that_is_waited_for_is_asked_and_answers_however_long_it_computes():
    pipe, arrived = Pipe(), []
    pipe.ends[1].read(3, arrived.append)
    pipe.at(20_000 * MICROSECOND, lambda: pipe.ends[0].send(b"now"))
    pipe.run()
    assert arrived == [b"now"]
    assert pipe.ends[1].counters.acknowledgements in range(15, 25)  # one probe a millisecond


def test_a_peer_that_is_waited_for_and_gone_is_named():
    pipe = Pipe(fate=lambda segment: [])
    pipe.ends[1].read(3, lambda data: None)
    message = r"^node 0 has stopped answering: node 1 has no answer after 3 retries, 0\.001 s apart$"
    with pytest.raises(CheckFailed, match=message):
        pipe.run()
    assert pipe.now == 4_000 * MICROSECOND


def test_a_segment_is_sent_again_in_time_by_a_node_that_waits_for_bytes_too():
    """Its next look at the peer was due after the longer time of a probe."""
    lost = iter([True])
    pipe = Pipe(fate=lambda s: [] if s.payload and next(lost, False) else [MICROSECOND])
    pipe.ends[0].read(1, lambda data: None)
    assert pipe.ends[0]._alarm == 1_000 * MICROSECOND
    pipe.ends[0].send(bytes(8))
    pipe.ends[1].read(8, lambda data: pipe.ends[1].send(b"!"))
    pipe.run()
    again = next(time for time, end, segment in pipe.sent[1:] if end == 0 and segment.payload)
    assert again == 100 * MICROSECOND


def test_what_lies_beyond_the_window_is_not_taken():
    pipe = Pipe()
    own, peer = worker_endpoint(1), worker_endpoint(0)
    early = Segment(peer, own, 40, 0, payload=b"12345678")
    pipe.ends[1].receive(replace(early, sequence=48))
    assert pipe.sent == []
    pipe.ends[1].receive(early)
    assert [segment.acknowledgement for segment in pipe.of(1, not_)] == [0]


def test_a_blocking_send_waits_for_the_last_acknowledgement():
    lost, drained = iter([True]), []
    pipe = Pipe(fate=lambda s: [] if s.flags & PSH and next(lost, False) else [MICROSECOND])
    pipe.ends[0].drain(lambda: drained.append(pipe.now))
    assert drained == [0]
    pipe.ends[0].send(bytes(80))
    pipe.ends[0].drain(lambda: drained.append(pipe.now))
    pipe.run()
    assert drained[1] == pipe.sent[-1][0] + MICROSECOND > 100 * MICROSECOND
    assert pipe.ends[0].idle


def test_sequence_numbers_go_round():
    pipe = Pipe()
    for end in pipe.ends:
        end._next = end._expected = end._recover = (1 << 32) - 20
    message = bytes(range(100))
    assert pipe.transfer(message) == [message]
    assert {segment.sequence for segment in pipe.of(0)} >= {(1 << 32) - 20, 4}
    assert _distance(3, (1 << 32) - 5) == (1 << 32) + 3
    assert _distance((1 << 32) - 5, (1 << 32) + 3) == (1 << 32) - 5
