"""One-sided writes over a network that loses, repeats and reorders: the golden model against plain copies."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from fanin.rdma.facts import check_regions
from fanin.rdma.golden.nic import (
    Arrival,
    Completion,
    Connection,
    Region,
    Requester,
    Responder,
    Status,
    Write,
    psn_after,
    psn_distance,
)
from fanin.wire.rdma import Nak, Opcode, RdmaPacket
from tests.support import new_seed

QUEUE_PAIRS = 16
REGION = 1 << 16  # bytes that each queue pair may write
FAULTS = {"loss": 0.01, "duplicate": 0.01, "reorder": 0.01}
OPENING = 0x00FF_FFF0  # so that sequence numbers wrap around soon


class Network:
    """Packets both ways, each of which may be lost, doubled, or overtaken by what comes within a few steps."""

    def __init__(self, rng, faults=FAULTS):
        self.rng, self.faults = rng, faults
        self.flying = []  # (when, order, forward, packet)
        self.now = self.sent = 0

    def send(self, forward, packet):
        if self.rng.random() < self.faults["loss"]:
            return
        for _ in range(1 + (self.rng.random() < self.faults["duplicate"])):
            late = self.rng.randrange(1, 40) if self.rng.random() < self.faults["reorder"] else 0
            self.sent += 1
            self.flying.append((self.now + 10 + late, self.sent, forward, packet))

    def deliver(self):
        self.now += 1
        due = sorted(entry for entry in self.flying if entry[0] <= self.now)
        self.flying = [entry for entry in self.flying if entry[0] > self.now]
        return [(forward, packet) for _, _, forward, packet in due]


def run(network, requesters, responders, timeout=200, limit=400_000):
    """Until every write has ended. ``requesters`` and ``responders`` by queue pair."""
    quiet = Counter()
    for _ in range(limit):
        if all(requester.idle for requester in requesters.values()):
            return
        for number, requester in requesters.items():
            packet = next(requester.packets(), None)
            if packet is not None:
                network.send(True, (number, packet))
            quiet[number] += 1
            if quiet[number] >= timeout:
                quiet[number] = 0
                requester.timeout()
        for forward, (number, packet) in network.deliver():
            if forward:
                answer = responders[number].receive(packet)
                if answer is not None:
                    network.send(False, (number, answer))
            else:
                quiet[number] = 0
                requesters[number].receive(packet)
    raise AssertionError("writes did not end")


def random_writes(rng, number, count, local_size):
    """Of 1 byte up, sizes log-uniform, any alignment, into the queue pair's own region."""
    for tag in range(count):
        length = int(math.exp(rng.uniform(0, math.log(min(REGION, local_size)))))
        yield Write(
            tag=number << 20 | tag,
            local=rng.randrange(local_size - length + 1),
            remote=number * REGION + rng.randrange(REGION - length + 1),
            rkey=1000 + number,
            length=length,
            immediate=rng.getrandbits(32) if rng.random() < 0.3 else None,
        )


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
def test_random_writes_arrive_once_whatever_the_network_does(mtu):
    seed = new_seed()
    rng = random.Random(seed)
    local = bytearray(rng.randbytes(1 << 16))
    remote, model = bytearray(QUEUE_PAIRS * REGION), bytearray(QUEUE_PAIRS * REGION)
    regions = [Region(n * REGION, REGION, 1000 + n, frozenset({n})) for n in range(QUEUE_PAIRS)]
    check_regions(regions)
    requesters, responders, arrivals = {}, {}, []
    for n in range(QUEUE_PAIRS):
        connection = Connection(n, OPENING + n, OPENING + n, mtu)
        requesters[n] = Requester(connection, local)
        responders[n] = Responder(n, connection, remote, regions, arrivals)
    expected = []
    for n in range(QUEUE_PAIRS):
        for write in random_writes(rng, n, 20, len(local)):
            requesters[n].post(write)
            model[write.remote : write.remote + write.length] = local[write.local : write.local + write.length]
            if write.immediate is not None:
                expected.append(Arrival(n, write.immediate, write.length))
    run(Network(rng), requesters, responders)
    assert remote == model, seed
    for n, requester in requesters.items():
        assert requester.completions == [Completion(n << 20 | tag, Status.DONE) for tag in range(20)], seed
    assert Counter(arrivals) == Counter(expected), seed


@pytest.mark.parametrize("length", [1, 256, 257, 1 << 16])
def test_nothing_is_sent_twice_where_nothing_is_lost(length):
    connection = Connection(0, mtu=256, window=16)
    requester = Requester(connection, bytearray(1 << 16))
    responder = Responder(0, connection, bytearray(1 << 16), [Region(0, 1 << 16, 7, frozenset({0}))])
    requester.post(Write(0, 0, 0, 7, length))
    network = Network(random.Random(0), dict.fromkeys(FAULTS, 0.0))
    run(network, {0: requester}, {0: responder})
    packets = -(-length // 256)
    answers = len({n for n in range(packets) if n % 4 == 0} | {packets - 1})
    assert network.sent == packets + answers


def _responder(mtu=256, **region):
    fields = {"base": 100, "length": 1000, "rkey": 7, "queue_pairs": frozenset({3})} | region
    return Responder(3, Connection(9, receive_psn=5, mtu=mtu), bytearray(2000), [Region(**fields)])


def _only(psn=5, **fields):
    payload = fields.pop("payload", bytes(range(1, 101)))
    defaults = {"address": 100, "rkey": 7, "length": len(payload)}
    return RdmaPacket(Opcode.WRITE_ONLY, 3, psn, True, payload=payload, **defaults | fields)


def _first(psn=5, **fields):
    defaults = {"address": 100, "rkey": 7, "length": 600, "payload": b"\1" * 256}
    return RdmaPacket(Opcode.WRITE_FIRST, 3, psn, **defaults | fields)


VIOLATIONS = {
    "key": ([_only(rkey=8)], Nak.REMOTE_ACCESS),
    "in front of the region": ([_only(address=99)], Nak.REMOTE_ACCESS),
    "behind the region": ([_only(address=1001)], Nak.REMOTE_ACCESS),
    "around the address space": ([_only(address=(1 << 64) - 50)], Nak.REMOTE_ACCESS),
    "a middle without a first": (
        [RdmaPacket(Opcode.WRITE_MIDDLE, 3, 5, payload=bytes(256))],
        Nak.INVALID_REQUEST,
    ),
    "a last without a first": ([RdmaPacket(Opcode.WRITE_LAST, 3, 5, payload=b"1")], Nak.INVALID_REQUEST),
    "a first within a message": ([_first(), _first(6)], Nak.INVALID_REQUEST),
    "an only within a message": ([_first(), _only(6)], Nak.INVALID_REQUEST),
    "a first that is short": ([_first(payload=b"\1" * 252)], Nak.INVALID_REQUEST),
    "a first that would be an only": ([_first(length=256)], Nak.INVALID_REQUEST),
    "an only longer than it says": ([_only(length=99)], Nak.INVALID_REQUEST),
    "an only longer than the mtu": ([_only(payload=b"\1" * 257)], Nak.INVALID_REQUEST),
    "a middle that should be last": (
        [_first(length=512), RdmaPacket(Opcode.WRITE_MIDDLE, 3, 6, payload=b"\1" * 256)],
        Nak.INVALID_REQUEST,
    ),
    "a last that is too short": (
        [_first(), RdmaPacket(Opcode.WRITE_LAST, 3, 6, payload=b"\1" * 100)],
        Nak.INVALID_REQUEST,
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_refused_and_changes_no_byte(name):
    packets, nak = VIOLATIONS[name]
    responder = _responder()
    for packet in packets[:-1]:
        responder.receive(packet)
    before = bytes(responder.memory)
    answer = responder.receive(packets[-1])
    assert (answer.syndrome, answer.psn, answer.queue_pair) == (nak.syndrome, packets[-1].psn, 9)
    assert responder.memory == before
    assert responder.receive(_only(packets[-1].psn)) is None, "the queue pair is in error"
    assert responder.memory == before


def test_a_region_without_the_right_or_of_another_queue_pair_is_refused():
    for region in ({"writable": False}, {"queue_pairs": frozenset({4})}):
        assert _responder(**region).receive(_only()).syndrome == Nak.REMOTE_ACCESS.syndrome


def test_a_duplicate_is_acknowledged_and_not_written_again():
    responder = _responder()
    assert responder.receive(_only()).psn == 5
    responder.memory[100] = 77
    again = responder.receive(_only())
    assert (again.psn, again.syndrome, again.msn) == (5, 0x1F, 1)
    assert responder.memory[100] == 77


def test_a_gap_is_refused_once_until_it_is_filled():
    responder = _responder()
    assert responder.receive(_only(7)).syndrome == Nak.SEQUENCE.syndrome
    assert responder.receive(_only(8)) is None
    assert responder.receive(_only(5)).psn == 5
    assert responder.receive(_only(7)).psn == 6


def test_a_write_of_no_bytes_needs_no_right():
    assert _responder().receive(_only(payload=b"", rkey=0, address=0)).syndrome == 0x1F


def test_retries_are_bounded_and_what_follows_is_flushed():
    requester = Requester(Connection(1, retries=2), bytearray(100))
    for tag in range(3):
        requester.post(Write(tag, 0, 0, 7, 10))
    for _ in range(3):
        assert len(list(requester.packets())) == 3
        requester.timeout()
    statuses = [Status.RETRIES, Status.FLUSHED, Status.FLUSHED]
    assert requester.completions == [Completion(tag, status) for tag, status in enumerate(statuses)]
    requester.post(Write(3, 0, 0, 7, 10))
    assert requester.completions[-1] == Completion(3, Status.FLUSHED)
    assert list(requester.packets()) == []


def test_a_refusal_ends_its_own_write_and_those_in_front_are_done():
    requester = Requester(Connection(1), bytearray(100))
    for tag in range(3):
        requester.post(Write(tag, 0, 0, 7, 10))
    list(requester.packets())
    requester.receive(RdmaPacket(Opcode.ACKNOWLEDGE, 1, 1, syndrome=Nak.REMOTE_ACCESS.syndrome))
    statuses = [Status.DONE, Status.ACCESS, Status.FLUSHED]
    assert requester.completions == [Completion(tag, status) for tag, status in enumerate(statuses)]


@pytest.mark.parametrize("psn", [psn_after(0, -1), 1, 1000, 1 << 23])
def test_an_answer_to_what_is_not_in_flight_is_ignored(psn):
    requester = Requester(Connection(1), bytearray(100))
    requester.post(Write(0, 0, 0, 7, 10))
    list(requester.packets())
    for syndrome in (0x1F, Nak.REMOTE_ACCESS.syndrome):
        requester.receive(RdmaPacket(Opcode.ACKNOWLEDGE, 1, psn, syndrome=syndrome))
    assert requester.completions == []
    assert not requester.failed


def test_the_window_holds():
    requester = Requester(Connection(1, mtu=256, window=8), bytearray(1 << 16))
    requester.post(Write(0, 0, 0, 7, 1 << 16))
    sent = list(requester.packets())
    assert len(sent) == 8
    assert any(packet.acknowledge for packet in sent)
    requester.receive(RdmaPacket(Opcode.ACKNOWLEDGE, 1, 3))
    assert [packet.psn for packet in requester.packets()] == [8, 9, 10, 11]


def test_sequence_numbers_wrap():
    assert psn_after((1 << 24) - 1, 1) == 0
    assert psn_distance(0, (1 << 24) - 1) == 1
    assert psn_distance((1 << 24) - 1, 0) == -1


def test_bad_regions_and_connections_are_refused():
    region = Region(0, 100, 1, frozenset({0}))
    with pytest.raises(ValueError, match=r"regions 0x1 and 0x2 overlap at 0x63"):
        check_regions([region, replace(region, base=99, rkey=2)])
    with pytest.raises(ValueError, match="exceed the address space"):
        check_regions([replace(region, base=(1 << 64) - 99)])
    with pytest.raises(ValueError, match="two regions have the key 0x1"):
        check_regions([region, replace(region, base=100)])
    for bad in ({"mtu": 1500}, {"window": 0}, {"retries": 8}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Connection(1, **bad)
    with pytest.raises(ValueError, match="write 5"):
        Requester(Connection(1), bytearray(1)).post(Write(5, 0, 0, 0, (1 << 31) + 1))
