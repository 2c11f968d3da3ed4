# amaranth: UnusedElaboratable=no
"""SlotStates against slots that know their round as a number and their state as a name."""

import random

import pytest

from fanin.hdl.aggregation.slots import SlotState, SlotStates
from fanin.wire.aggregation import ROUND_MAX, Kind, Protocol
from tests.support import new_seed, simulate, slow

FREE, WAIT_RESULT, WAIT_CONFIRM = SlotState
DECISIONS = ["result", "confirm", "duplicate", "stale"]


def run(schedule, *, n, slots=16, first_round=1, protocol=Protocol.P4SGD, seed=0):
    """``(decision, free, scanned)`` of each cycle; the decision on its packet stands a cycle later.

    A cycle of ``schedule`` may have ``packet`` (kind, slot, round, current), ``scan`` (slot, round),
    ``delivered``, and ``clear`` (slot). Whatever is not valid is random.
    """
    rng = random.Random(seed)
    dut = SlotStates(slots=slots, first_round=first_round, protocol=protocol)
    seen = []

    def use(slot, round_):
        return {"index": slot, "parity": round_ & 1}

    def noise():
        return use(rng.randrange(n), rng.getrandbits(1))

    async def process(ctx):
        packets = [cycle.get("packet") for cycle in schedule]
        ctx.set(dut.ahead, use(*packets[0][1:3]) if packets[0] else noise())
        await ctx.tick()
        for cycle, packet, following in zip(schedule, packets, [*packets[1:], None], strict=True):
            kind, _, _, current = packet or (rng.choice(protocol.to_worker), 0, 0, rng.getrandbits(1))
            confirm = kind == Kind.CONFIRM
            ctx.set(dut.packet, {"valid": packet is not None, "confirm": confirm, "current": current})
            ctx.set(dut.ahead, use(*following[1:3]) if following else noise())
            ctx.set(dut.scan, use(*cycle["scan"]) if "scan" in cycle else noise())
            ctx.set(dut.delivered, cycle.get("delivered", 0))
            cleared = cycle.get("clear")
            ctx.set(
                dut.clear,
                {"en": cleared is not None, "index": rng.randrange(n) if cleared is None else cleared},
            )
            _, _, free, scanned = await ctx.tick().sample(dut.free, dut.scanned)
            made = [name for name in DECISIONS if ctx.get(getattr(dut, name))]
            judged = ctx.get(dut.use)
            assert not packet or (judged.index, judged.parity) == (packet[1], packet[2] & 1)
            seen.append(("+".join(made), free, scanned))

    simulate(dut, settings={"mask": n - 1}, processes=[process], idle=len(schedule) + 3)
    assert len(seen) == len(schedule)
    return seen


class Slots:
    """Operations in their slots, by the protocol: what each packet is, and when each slot becomes free."""

    def __init__(self, n, first_round, protocol):
        self.n, self.window, self.protocol = n, n // protocol.slots_per_operation, protocol
        self.round = [first_round - 1] * n
        self.state = [FREE] * n
        self.first_round = first_round
        self.begun, self.delivered, self.freed = 0, 0, 0
        self.delivered_at, self.confirmed_at, self.freed_at = {}, {}, -1

    def of(self, operation):
        return operation % self.n

    def begin(self):
        slot = self.of(self.begun)
        assert self.state[slot] is FREE
        self.round[slot] = self.begun // self.n + self.first_round
        self.state[slot] = WAIT_RESULT
        self.begun += 1

    def receive(self, kind, slot, round_, now):
        if round_ != self.round[slot]:
            return "stale"
        match self.state[slot], kind:
            case (SlotState.WAIT_RESULT, Kind.RESULT):
                self.state[slot] = WAIT_CONFIRM if self.protocol.acknowledges else FREE
                return "result"
            case (SlotState.WAIT_RESULT, Kind.CONFIRM):
                return "stale"
            case (SlotState.WAIT_CONFIRM, Kind.CONFIRM):
                self.state[slot] = FREE
                self.confirmed_at[slot + self.n * (round_ - self.first_round)] = now
                return "confirm"
        return "duplicate"

    def frees(self, now):
        """The last of: 3 cycles after the CONFIRM, 1 after the delivery, 1 after the operation before.

        Where there is no CONFIRM, at the delivery.
        """
        if not self.protocol.acknowledges:
            self.freed = self.delivered
            return now in self.delivered_at.values()
        times = [self.confirmed_at.get(self.freed), self.delivered_at.get(self.freed)]
        if None in times or now < max(times[0] + 3, times[1] + 1, self.freed_at + 1):
            return False
        self.freed, self.freed_at = self.freed + 1, now
        return True


def random_job(rng, *, n, first_round, protocol, cycles, load):
    """A schedule, and what must be seen of it."""
    slots = Slots(n, first_round, protocol)
    schedule, expected, scanned = [], [], FREE
    freed_before = False
    has_result = set()
    for now in range(cycles):
        if slots.begun - slots.freed + freed_before < slots.window and rng.random() < 0.8:
            slots.begin()
        cycle, decision = {}, ""
        if rng.random() < load:
            last = schedule[-1].get("packet") if schedule else None
            slot = last[1] if last and rng.random() < 0.4 else rng.randrange(n)
            round_ = slots.round[slot] + rng.choice([0] * 6 + [-2, -1, 1, 2])
            kind = rng.choice(protocol.to_worker)
            cycle["packet"] = (kind, slot, round_, round_ == slots.round[slot])
            decision = slots.receive(kind, slot, round_, now)
        if slots.delivered in has_result and rng.random() < 0.6:
            cycle["delivered"] = 1
            slots.delivered_at[slots.delivered] = now
            slots.delivered += 1
        if decision == "result":
            has_result.add(slot + n * (round_ - first_round))
        freed_before = slots.frees(now)
        expected.append((decision, freed_before, scanned))
        look = slot if decision and rng.random() < 0.5 else rng.randrange(n)
        cycle["scan"] = (look, slots.round[look])
        scanned = slots.state[look]
        schedule.append(cycle)
    return schedule, expected


@pytest.mark.parametrize(
    ("first_round", "load"),
    [(ROUND_MAX - 40, 0.3), (1, 1), *slow((1, 0.3), (2, 0.3), (2, 1), (ROUND_MAX - 40, 1))],
)
@pytest.mark.parametrize(
    ("protocol", "slots", "n"),
    [
        *((Protocol.P4SGD, *size) for size in [(2, 1), (16, 4)]),
        *slow((Protocol.P4SGD, 2, 2), (Protocol.P4SGD, 8, 8)),
        *((Protocol.SWITCHML, *size) for size in [(2, 2), (16, 4)]),
    ],
)
def test_every_decision_and_every_state_is_the_protocols(protocol, slots, n, first_round, load):
    seed = new_seed()
    rng = random.Random(seed)
    schedule, expected = random_job(
        rng, n=n, first_round=first_round, protocol=protocol, cycles=400 * n, load=load
    )
    without = set() if protocol.acknowledges else {"confirm"}
    assert {decision for decision, *_ in expected} - {""} == set(DECISIONS) - without
    assert sum(free for _, free, _ in expected) > 4 * n, "several rounds"
    seen = run(schedule, n=n, slots=slots, first_round=first_round, protocol=protocol, seed=seed)
    assert seen[1:] == expected[1:]


@pytest.mark.parametrize("first_round", [1, 2])
@pytest.mark.parametrize(
    ("before", "kind", "decision"),
    [
        ([], Kind.RESULT, "result"),
        ([], Kind.CONFIRM, "stale"),
        ([Kind.RESULT], Kind.RESULT, "duplicate"),
        ([Kind.RESULT], Kind.CONFIRM, "confirm"),
        ([Kind.RESULT, Kind.CONFIRM], Kind.RESULT, "duplicate"),
        ([Kind.RESULT, Kind.CONFIRM], Kind.CONFIRM, "duplicate"),
    ],
)
def test_a_packet_is_judged_in_its_own_cycle_by_all_that_came_before(before, kind, decision, first_round):
    """Packets of one slot, one a cycle; one that is not current changes nothing."""
    for round_ in (first_round, first_round + 1):
        last_round = [(k, 1, first_round, True) for k in (Kind.RESULT, Kind.CONFIRM) if round_ != first_round]
        packets = [*last_round, *((k, 1, round_, True) for k in before)]
        for strange in (round_ + 2, round_ - 1):
            tries = [(kind, 1, strange, False)] * 2 + [(kind, 1, round_, True)]
            seen = run([{"packet": p} for p in [*packets, *tries]], n=4, first_round=first_round)
            assert [d for d, *_ in seen[-3:]] == ["stale", "stale", decision]


def test_the_last_round_counts_as_received_until_the_next_begins():
    packets = [(kind, 1, 2, True) for kind in (Kind.RESULT, Kind.CONFIRM)]
    assert [d for d, *_ in run([{"packet": p} for p in packets], n=4, first_round=3)] == ["duplicate"] * 2


def test_nothing_is_decided_without_a_packet():
    seen = run([{"scan": (k % 4, 1)} for k in range(100)], n=4)
    assert [entry[:2] for entry in seen] == [("", 0)] * 100
    assert {scanned for *_, scanned in seen[1:]} == {WAIT_RESULT}


def test_a_scan_sees_the_packet_of_its_own_cycle_one_cycle_later():
    script = [(None, WAIT_RESULT), (Kind.RESULT, WAIT_CONFIRM), (None, WAIT_CONFIRM), (Kind.CONFIRM, FREE)]
    schedule = [
        {"scan": (2, 1)} | ({"packet": (kind, 2, 1, True)} if kind else {})
        for kind, _ in [*script, (None, FREE)]
    ]
    seen = [scanned for *_, scanned in run(schedule, n=4)]
    assert seen[1:] == [state for _, state in script]


def test_a_scan_is_of_the_round_that_it_asks_for():
    """A slot between rounds is free as of the one, and waits as of the next."""
    looks = [{"scan": (2, 1)}, {"scan": (2, 2)}]
    seen = run([*confirmed(2), *looks, {"packet": (Kind.RESULT, 2, 2, True)}, *looks[1:], {}], n=4)
    assert [seen[k][2] for k in (3, 4, 6)] == [FREE, WAIT_RESULT, WAIT_CONFIRM]


def confirmed(slot, round_=1):
    return [{"packet": (kind, slot, round_, True)} for kind in (Kind.RESULT, Kind.CONFIRM)]


def test_a_slot_is_free_3_cycles_after_its_confirm():
    seen = run([*confirmed(0)[:1], {"delivered": 1}, {}, {}, *confirmed(0)[1:], {}, {}, {}, {}], n=4)
    assert [free for _, free, _ in seen] == [0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_a_slot_is_not_free_before_its_fa_is_delivered():
    seen = run([*confirmed(0), *[{}] * 10, {"delivered": 1}, {}, {}], n=4)
    assert [cycle for cycle, (_, free, _) in enumerate(seen) if free] == [13]


@pytest.mark.parametrize("n", [1, 2, 16])
def test_one_slot_a_cycle_becomes_free_in_the_order_of_the_operations(n):
    """The oldest is confirmed last, then all go at once; for two rounds."""
    schedule = []
    for round_ in (1, 2):
        for slot in reversed(range(n)):
            schedule += confirmed(slot, round_)
            schedule[-1 if slot else -2]["delivered"] = 1
        schedule += [{}] * (n + 3)
    seen = run(schedule, n=n)
    frees = [cycle for cycle, (_, free, _) in enumerate(seen) if free]
    last = 2 * n - 1
    period = 3 * n + 3
    assert frees == [begin + last + 3 + k for begin in (0, period) for k in range(n)]


@pytest.mark.parametrize("first_round", [1, 2])
def test_a_cleared_slot_is_as_at_first_and_the_others_as_before(first_round):
    """Scanned a cycle after the clear, and again when all is done."""
    seed = new_seed()
    rng = random.Random(seed)
    n = 16
    history = [rng.randrange(3) for _ in range(n)]
    cleared = rng.sample(range(n), n // 2)
    packets = [packet for slot in range(n) for packet in confirmed(slot, first_round)[: history[slot]]]
    looked = [{"scan": (slot, first_round)} for slot in cleared]
    clears = [{"clear": slot} for slot in cleared]
    at_once = [a | b for a, b in zip([*clears, {}], [{}, *looked], strict=True)]
    looks = [{"scan": (slot, round_)} for round_ in (first_round, first_round - 1) for slot in range(n)]
    seen = run([*packets, {}, *at_once, *looks, {}], n=n, first_round=first_round, seed=seed)
    states = [scanned for *_, scanned in seen[len(packets) + 3 :]]
    assert states[: len(cleared)] == [WAIT_RESULT] * len(cleared)
    reached = [0 if slot in cleared else history[slot] for slot in range(n)]
    this_round = [[WAIT_RESULT, WAIT_CONFIRM, FREE][count] for count in reached]
    assert states[len(cleared) : len(cleared) + n] == this_round
    last_round = states[len(cleared) + n :]
    assert [state for state, count in zip(last_round, reached, strict=True) if count == 0] == [
        FREE
    ] * reached.count(0)


@pytest.mark.parametrize("first_round", [1, 2])
def test_a_cleared_slot_takes_the_packets_of_the_first_round(first_round):
    both = [Kind.CONFIRM, Kind.RESULT, Kind.RESULT, Kind.CONFIRM, Kind.CONFIRM]
    packets = [{"packet": (kind, 3, first_round, True)} for kind in both]
    seen = run([*packets, {"clear": 3}, {}, *packets, {"clear": 2}, {}, *packets], n=4, first_round=first_round)
    once = ["stale", "result", "duplicate", "confirm", "duplicate"]
    assert [d for d, *_ in seen] == [*once, "", "", *once, "", "", *["duplicate"] * 5]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"slots": 1}, "slots must be a power of two from 2 to 65536, not 1"),
        ({"slots": 12}, "slots must be a power of two from 2 to 65536, not 12"),
        ({"slots": 4, "first_round": 0}, "first_round must be 1 to 4294967295, not 0"),
        ({"slots": 4, "first_round": ROUND_MAX + 1}, "first_round must be 1 to 4294967295, not 4294967296"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        SlotStates(**parameters)
