"""The Python endpoint by itself, and beside the RTL: the same packets in, the same decisions out."""

import random
from dataclasses import replace

import pytest

from fanin.golden.aggregation import RoundWrap, State, TransportTimeout, Verdict, WorkerEndpoint
from fanin.hdl.aggregation.transport import AggTransport
from fanin.wire.aggregation import ROUND_MAX, AggPacket, Kind, Protocol
from tests.hdl.aggregation.bench import BASE, JOB, Wire, config, packet_of, to_worker
from tests.support import new_seed, simulate, slow

SLOTS = 4


def endpoint(**other):
    return WorkerEndpoint(**{"job": JOB, "base": BASE, "slots": SLOTS, "member": 1} | other)


def pa(n):
    return (n + 1,) * 8


def answer(packet, values=(7,) * 8):
    return replace(packet, kind=Kind(packet.kind + 1), values=values)


def test_an_operation_takes_slot_and_round_from_its_number():
    worker = endpoint()
    seen = []
    for n in range(9):
        (agg,) = worker.submit(pa(n))
        seen.append((agg.slot - BASE, agg.round))
        (ack,) = worker.receive(answer(agg)).packets
        worker.receive(answer(ack))
    assert seen == [(n % SLOTS, n // SLOTS + 1) for n in range(9)]
    assert worker.idle


def test_fas_are_handed_on_once_and_in_order():
    worker = endpoint()
    aggs = [worker.submit(pa(n))[0] for n in range(SLOTS)]
    assert not worker.can_submit()
    results = [answer(agg, pa(10 + n)) for n, agg in enumerate(aggs)]
    assert worker.receive(results[1]).delivered == ()
    assert worker.receive(results[0]).delivered == (pa(10), pa(11))
    assert worker.receive(results[0]).verdict is Verdict.DUPLICATE
    assert worker.receive(results[3]).delivered == ()
    assert worker.receive(results[2]).delivered == (pa(12), pa(13))


def test_a_slot_whose_fa_waits_is_not_used_again():
    worker = endpoint(slots=2)
    first, second = worker.submit(pa(0))[0], worker.submit(pa(1))[0]
    (ack,) = worker.receive(answer(second)).packets
    worker.receive(answer(ack))
    assert not worker.can_submit()
    (ack,) = worker.receive(answer(first)).packets
    assert not worker.can_submit()
    worker.receive(answer(ack))
    assert worker.can_submit()


def test_what_does_not_match_changes_nothing():
    worker = endpoint()
    (agg,) = worker.submit(pa(0))
    result = answer(agg)
    for packet, verdict in (
        (replace(result, version=2), Verdict.MALFORMED),
        (replace(result, kind=Kind.AGG), Verdict.MALFORMED),
        (replace(result, round=0), Verdict.MALFORMED),
        (replace(result, job=JOB + 1), Verdict.OTHER_JOB),
        (replace(result, slot=BASE + SLOTS), Verdict.SLOT_RANGE),
        (replace(result, round=2), Verdict.STALE),
        (replace(result, slot=BASE + 1), Verdict.STALE),
        (replace(result, kind=Kind.CONFIRM), Verdict.STALE),
    ):
        before = worker.snapshot()
        assert worker.receive(packet).verdict is verdict
        assert worker.snapshot() == before


def test_r_retransmissions_of_one_packet_then_timeout():
    worker = endpoint(retries=2)
    (agg,) = worker.submit(pa(0))
    assert worker.timeout(0) == worker.timeout(0) == [agg]
    (ack,) = worker.receive(answer(agg)).packets
    assert worker.timeout(0) == worker.timeout(0) == [ack]
    with pytest.raises(TransportTimeout, match="unanswered after 2"):
        worker.timeout(0)
    assert worker.timeout(1) == []


def test_the_round_never_wraps():
    worker = endpoint(slots=1, first_round=ROUND_MAX)
    (agg,) = worker.submit(pa(0))
    worker.receive(answer(worker.receive(answer(agg)).packets[0]))
    assert worker.idle
    assert not worker.can_submit()
    with pytest.raises(RoundWrap):
        worker.submit(pa(1))


def test_switchml_begins_an_operation_once_the_fa_of_a_window_before_was_handed_on():
    """Slots are used round by round; an FA that waits for an earlier one opens nothing."""
    worker = endpoint(protocol=Protocol.SWITCHML)
    assert worker.window == SLOTS // 2
    seen, aggs = [], []
    for n in range(3 * SLOTS):
        assert worker.can_submit()
        aggs += worker.submit(pa(n))
        seen.append((aggs[-1].slot - BASE, aggs[-1].round))
        if n % 2:
            assert not worker.can_submit()
            assert worker.receive(answer(aggs[n])).delivered == ()
            assert not worker.can_submit()
            assert worker.waiting() == [aggs[n - 1].slot - BASE]
            received = worker.receive(answer(aggs[n - 1]))
            assert (len(received.delivered), received.packets) == (2, ())
    assert seen == [(n % SLOTS, n // SLOTS + 1) for n in range(3 * SLOTS)]
    assert worker.idle


def test_switchml_has_no_confirm():
    worker = endpoint(protocol=Protocol.SWITCHML)
    (agg,) = worker.submit(pa(0))
    assert worker.receive(replace(answer(agg), kind=Kind.CONFIRM)).verdict is Verdict.MALFORMED
    assert worker.receive(answer(agg)).verdict is Verdict.RESULT
    assert worker.receive(answer(agg)).verdict is Verdict.DUPLICATE
    assert worker.receive(replace(answer(agg), kind=Kind.CONFIRM)).verdict is Verdict.MALFORMED
    assert worker.timeout(0) == []


def test_switchml_needs_two_slots():
    with pytest.raises(ValueError, match="slots must be at least 2, not 1"):
        endpoint(slots=1, protocol=Protocol.SWITCHML)


def test_a_snapshot_restores_everything_and_hashes():
    worker = endpoint()
    (agg,) = worker.submit(pa(0))
    before = worker.snapshot()
    worker.receive(answer(agg))
    assert worker.snapshot() not in {before}
    worker.restore(before)
    assert worker.snapshot() in {before}
    assert worker.receive(answer(agg)).verdict is Verdict.RESULT


class Trace:
    """Random events for the RTL and the model at once; whatever the RTL does must be the model's decision."""

    def __init__(self, dut, rng, events):
        self.dut, self.rng, self.events = dut, rng, events
        self.model = endpoint(protocol=dut.protocol)
        self.before = self.model.snapshot()
        self.wire = Wire(dut, self.exchange, rng)
        self.due: list[AggPacket] = []  # packets that the model has sent and the RTL has not
        self.arriving: list[bytes] = []
        self.history: list[AggPacket] = []
        self.expected: dict[str, int] = {}
        self.fas: list[tuple[int, ...]] = []
        self.got: list[tuple[int, ...]] = []
        self.retransmitted = 0

    def exchange(self, frames, now):
        for packet in map(packet_of, frames):
            if packet in self.due:
                self.due.remove(packet)
            else:
                index = packet.slot - BASE
                if self.model.timeout(index) != [packet]:  # it crossed the packet that has just arrived
                    crossed = endpoint(protocol=self.dut.protocol)
                    crossed.restore(self.before)
                    assert crossed.timeout(index) == [packet]
                self.retransmitted += 1
            self.history.append(packet)
        arriving, self.arriving = self.arriving, []
        return arriving

    def packet(self):
        """An answer to something sent, lately or long ago, perhaps with one field changed."""
        sent = self.rng.choice(self.history[-2 * SLOTS :] or [AggPacket(Kind.AGG, JOB, BASE, 1, 1)])
        packet = answer(sent, tuple(self.rng.randint(-9, 9) for _ in range(8)))
        change = self.rng.choice([""] * 6 + ["kind", "round", "slot", "job"])
        if change == "kind":
            return replace(packet, kind=self.rng.randrange(5))
        return (
            replace(packet, **{change: getattr(packet, change) + self.rng.choice([-1, 1])})
            if change
            else packet
        )

    def _arrive(self, packet):
        self.before = self.model.snapshot()
        received = self.model.receive(packet)
        self.due += received.packets
        self.fas += received.delivered
        self.expected[received.verdict.value] = self.expected.get(received.verdict.value, 0) + 1
        self.arriving.append(to_worker(packet))

    async def process(self, ctx):
        dut, pas = self.dut, 0
        ctx.set(dut.fa.ready, 1)
        await ctx.tick().repeat(30)
        for _ in range(self.events):
            can, offered = self.model.can_submit(), self.rng.random() < 0.4
            if can and offered:
                self.due += self.model.submit(pa(pas))
            else:
                self._arrive(self.packet())
            ctx.set(dut.pa.payload, list(pa(pas)))
            ctx.set(dut.pa.valid, can and offered)
            pas += can and offered
            _, _, ready = await ctx.tick().sample(dut.pa.ready)
            assert ready == can
            ctx.set(dut.pa.valid, 0)
            for _ in range(12):
                _, _, valid, values = await ctx.tick().sample(dut.fa.valid, dut.fa.payload)
                if valid:
                    self.got.append(tuple(values[k] for k in range(8)))
            assert not self.due
            assert self.got == self.fas


@pytest.mark.parametrize("protocol", [Protocol.P4SGD, *slow(Protocol.SWITCHML)])
def test_the_rtl_decides_as_the_model_does(protocol):
    seed = new_seed()
    dut = AggTransport(slots=SLOTS, protocol=protocol)
    trace = Trace(dut, random.Random(seed), events=400)
    simulate(
        dut,
        settings={"job": config(log2_slots=2, timeout=300)},
        processes=[trace.wire.process, trace.process],
        seed=seed,
        idle=30 + 13 * 400 + 20,
    )
    counted = {name: trace.wire.counts[name] for name in trace.expected}
    assert counted == trace.expected
    without = set() if protocol.acknowledges else {Verdict.CONFIRM}
    assert set(trace.expected) == {verdict.value for verdict in set(Verdict) - without}
    assert trace.retransmitted == trace.wire.counts["retransmissions"] > 0
    assert trace.model.submitted > 3 * SLOTS
    assert all(slot.state in State for slot in trace.model.snapshot().slots)
