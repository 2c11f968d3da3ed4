"""Trees of reference switches against docs/systems/trees.md: each step, then whole trees under faults."""

import random

import pytest

from fanin.golden.aggregation import WorkerEndpoint
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.emitted import embedded_switch
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.tree import parse_shape, tree_of, workers_of
from fanin.wire.aggregation import (
    AggPacket,
    Encap,
    Kind,
    Protocol,
    decode_payload,
    encode,
    header_length,
)
from fanin.wire.ethernet import internet_checksum
from tests.support import new_seed, slow

BASE, SLOTS = 8, 4


class Leaf:
    """The second leaf of a tree 1+2: workers at ports 0 and 1, the parent at port 2; bit 1 at the parent."""

    def __init__(self, encap=Encap.L2, protocol=Protocol.P4SGD):
        self.encap = encap
        root, _, leaf = tree_of((1, 2), job=7, base=BASE, slots=SLOTS).switches
        self.parent, self.own, self.part = root.endpoint, leaf.endpoint, leaf.part
        self.switch = ReferenceSwitch(endpoint=leaf.endpoint, ports=3, encap=encap, protocol=protocol)
        self.switch.add_job(leaf.part)

    def frame(self, kind, bitmap, *, round=1, values=(0,) * 8, slot=BASE):
        packet = AggPacket(kind, 7, slot, round, bitmap, tuple(values))
        return encode(packet, encap=self.encap, source=self.parent, destination=self.own)

    def send(self, port, kind, bitmap=None, **fields):
        """(port, packet) of each answer."""
        bitmap = 1 << port if bitmap is None else bitmap
        out = self.switch.inject(port, self.frame(kind, bitmap, **fields), 0)
        return [(to, decode_payload(frame[header_length(self.encap) :])) for to, frame, _ in out]

    def down(self, kind, **fields):
        return self.send(2, kind, 0b11, **fields)

    @property
    def counted(self):
        both = self.switch.job_counters(7).as_dict() | self.switch.counters().as_dict()
        return {name: value for name, value in both.items() if value}


def test_the_last_members_agg_goes_up_with_the_sums_and_the_own_bit():
    leaf = Leaf()
    assert leaf.send(0, Kind.AGG, values=range(8)) == []
    assert leaf.send(1, Kind.AGG, values=[10] * 8) == [
        (2, AggPacket(Kind.AGG, 7, BASE, 1, 0b10, tuple(v + 10 for v in range(8))))
    ]
    assert leaf.counted == {"aggregated": 2, "to_parent": 1}


def test_a_duplicate_goes_up_again_until_the_total_is_known():
    leaf = Leaf()
    leaf.send(0, Kind.AGG, values=[1] * 8)
    assert leaf.send(0, Kind.AGG, values=[1] * 8) == [], "not all have contributed"
    ((_, up),) = leaf.send(1, Kind.AGG, values=[2] * 8)
    assert leaf.send(0, Kind.AGG, values=[1] * 8) == [(2, up)]
    total = AggPacket(Kind.RESULT, 7, BASE, 1, 0b11, (100,) * 8)
    assert leaf.down(Kind.RESULT, values=[100] * 8) == [(0, total), (1, total)]
    assert leaf.send(1, Kind.AGG, values=[2] * 8) == [(1, total)], "alone, and the total"
    assert leaf.counted == {
        "aggregated": 2,
        "to_parent": 1,
        "duplicate": 3,
        "to_parent_again": 1,
        "results": 1,
        "replies": 1,
    }


def test_a_repeated_result_and_one_of_another_round_are_dropped():
    leaf = Leaf()
    for number in (1, 2):
        for port in (0, 1):
            leaf.send(port, Kind.AGG, round=number, values=[number] * 8)
        if number == 1:
            assert len(leaf.down(Kind.RESULT, values=[9] * 8)) == 2
            assert leaf.down(Kind.RESULT, values=[9] * 8) == []
    for number in (1, 3):
        assert leaf.down(Kind.RESULT, round=number, values=[9] * 8) == []
    ((to, up),) = leaf.send(0, Kind.AGG, round=2)
    assert (to, up.kind, up.values) == (2, Kind.AGG, (4,) * 8), "the sums are still those of round 2"
    assert leaf.counted["stale"] == 2


def test_acks_go_up_and_a_confirm_comes_down_once():
    leaf = Leaf()
    for port in (0, 1):
        leaf.send(port, Kind.AGG)
    leaf.down(Kind.RESULT)
    assert leaf.send(1, Kind.ACK) == []
    up = (2, AggPacket(Kind.ACK, 7, BASE, 1, 0b10))
    assert leaf.send(0, Kind.ACK) == [up]
    assert leaf.send(0, Kind.ACK) == [up]
    confirm = AggPacket(Kind.CONFIRM, 7, BASE, 1, 0b11)
    assert leaf.down(Kind.CONFIRM) == [(0, confirm), (1, confirm)]
    assert leaf.down(Kind.CONFIRM) == []
    assert leaf.send(0, Kind.ACK) == [(0, confirm)]
    leaf.send(0, Kind.AGG, round=2)
    assert leaf.send(1, Kind.ACK) == [(1, confirm)], "its CONFIRM was lost, and the other has gone on"
    assert leaf.counted == {
        "aggregated": 3,
        "acknowledged": 2,
        "to_parent": 2,
        "to_parent_again": 1,
        "duplicate": 4,
        "results": 1,
        "confirms": 1,
        "replies": 2,
    }


@pytest.mark.parametrize(
    ("port", "kind", "bitmap"),
    [
        (0, Kind.RESULT, 0b11),  # a worker's port
        (2, Kind.RESULT, 0b01),  # without the own bit
        (2, Kind.AGG, 0b01),  # the parent is no member
        (0, Kind.CONFIRM, 0b11),
        (2, Kind.ACK, 0b10),
    ],
)
def test_answers_come_from_the_parent_alone_and_requests_from_members(port, kind, bitmap):
    leaf = Leaf()
    assert leaf.send(port, kind, bitmap) == []
    assert leaf.counted == {"foreign": 1}


def test_a_result_for_a_slot_of_another_job_is_foreign():
    leaf = Leaf()
    assert leaf.down(Kind.RESULT, slot=BASE + SLOTS) == []
    assert leaf.counted == {"foreign": 1}


def test_what_goes_up_has_the_parents_addresses():
    leaf = Leaf(encap=Encap.UDP)
    leaf.send(0, Kind.AGG)
    ((port, frame, _),) = leaf.switch.inject(1, leaf.frame(Kind.AGG, 2), 0)
    assert port == 2
    assert frame[:12] == leaf.parent.mac.to_bytes(6, "big") + leaf.own.mac.to_bytes(6, "big")
    assert frame[26:34] == leaf.own.ip.to_bytes(4, "big") + leaf.parent.ip.to_bytes(4, "big")
    assert internet_checksum(frame[14:34]) == 0


def test_a_leaf_of_one_job_may_be_the_root_of_another():
    leaf = Leaf()
    members = tuple(Member(port, 1 << port, leaf.part.members[port].endpoint) for port in (0, 1))
    leaf.switch.add_job(Job(9, 16, 4, members))
    out = []
    for port in (0, 1):
        packet = AggPacket(Kind.AGG, 9, 16, 1, 1 << port, (5,) * 8)
        out += leaf.switch.inject(
            port, encode(packet, encap=Encap.L2, source=leaf.own, destination=leaf.own), 0
        )
    answers = [(to, decode_payload(frame[header_length(Encap.L2) :])) for to, frame, _ in out]
    total = AggPacket(Kind.RESULT, 9, 16, 1, 0b11, (10,) * 8)
    assert answers == [(0, total), (1, total)]


class Fabric:
    """A tree of switches with golden workers; a frame in flight is lost, copied or overtaken at random."""

    def __init__(self, shape, protocol, rng, faults, target=None):
        self.rng, self.faults, self.protocol = rng, faults, protocol
        switches = tree_of(shape, job=1, base=BASE, slots=SLOTS).switches
        self.switches, self.ends = {}, {}
        for switch in switches:
            self.switches[switch.name] = self.make_switch(switch.endpoint, target)
            self.switches[switch.name].add_job(switch.part)
        by_name = {switch.name: switch for switch in switches}
        self.worker_at, self.bit = {}, {}
        for switch in switches:
            for member, name in zip(switch.part.members, switch.members, strict=True):
                other = ("worker", name) if isinstance(name, int) else (name, by_name[name].part.uplink.port)
                self.ends[switch.name, member.port], self.ends[other] = other, (switch.name, member.port)
                self.bit[name] = member.bitmap
        self.workers = [
            WorkerEndpoint(
                job=1, base=BASE, slots=SLOTS, member=self.bit[w], values=2, protocol=protocol, retries=10**9
            )
            for w in range(workers_of(shape))
        ]
        self.flying = []

    def make_switch(self, endpoint, target):
        """The reference switch, or the emitted program of a target."""
        if target is None:
            return ReferenceSwitch(endpoint=endpoint, ports=33, values=2, protocol=self.protocol)
        config = ProgramConfig(
            target=target, protocol=self.protocol, workers=4, slots=16, values=2, encap=Encap.L2
        )
        return embedded_switch(config, endpoint=endpoint, ports=range(5))

    def send(self, source, frame):
        if self.rng.random() < self.faults:
            return
        self.flying += [(self.ends[source], frame)] * (1 + (self.rng.random() < self.faults))

    def run(self, operations, contribution):
        """FAs of each worker."""
        fas = [[] for _ in self.workers]
        for _ in range(200_000):
            if all(len(each) == operations for each in fas) and all(worker.idle for worker in self.workers):
                return fas
            if self.flying and self.rng.random() < 0.8:
                first = min(len(self.flying), 5) if self.rng.random() < self.faults else 1
                self.arrive(*self.flying.pop(self.rng.randrange(first)), fas)
                continue
            number = self.rng.randrange(len(self.workers))
            worker, packets = self.workers[number], []
            if worker.submitted < operations and worker.can_submit():
                packets = worker.submit(contribution(number, worker.submitted))
            elif worker.waiting() and len(self.flying) < 50:
                packets = worker.timeout(self.rng.choice(worker.waiting()))
            self.emit(number, packets)
        raise AssertionError("the tree hangs")

    def arrive(self, end, frame, fas):
        name, port = end
        if name == "worker":
            received = self.workers[port].receive(decode_payload(frame[header_length(Encap.L2) :], 2))
            fas[port] += received.delivered
            self.emit(port, received.packets)
            return
        for to, answer, _ in self.switches[name].inject(port, frame, 0):
            self.send((name, to), answer)

    def emit(self, number, packets):
        for packet in packets:
            end = self.ends["worker", number]
            source = self.switches[end[0]].endpoint  # no switch looks at addresses
            self.send(("worker", number), encode(packet, encap=Encap.L2, source=source, destination=source))


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("text", ["8", "2x4", "1+2", "2x2x2", "1x2x1x2", *slow("4x8", "8x4", "2x2x2x2")])
@pytest.mark.parametrize("faults", [0, 0.05, *slow(0.2)])
def test_every_worker_gets_every_sum_once_and_in_order(text, protocol, faults):
    rng = random.Random(new_seed())
    fabric = Fabric(parse_shape(text), protocol, rng, faults)
    terms = [[(rng.randrange(-99, 99), rng.randrange(-99, 99)) for _ in fabric.workers] for _ in range(12)]
    fas = fabric.run(12, lambda worker, operation: terms[operation][worker])
    expected = [tuple(map(sum, zip(*values, strict=True))) for values in terms]
    assert fas == [expected] * len(fabric.workers)
    if not faults:
        root = fabric.switches["switch"].job_counters(1)
        assert root.results == 12
        assert (root.to_parent, root.to_parent_again) == (0, 0)


@pytest.mark.parametrize("target", list(Target))
@pytest.mark.parametrize("protocol", list(Protocol))
def test_emitted_programs_make_a_tree(target, protocol):
    fabric = Fabric(parse_shape("2x1+2"), protocol, random.Random(new_seed()), 0.05, target)
    fas = fabric.run(12, lambda worker, operation: (worker * operation, -worker))
    assert fas == [[(15 * operation, -15) for operation in range(12)]] * 6
