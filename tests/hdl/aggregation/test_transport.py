# amaranth: UnusedElaboratable=no
"""The transport against a switch, other workers, and links that lose, repeat, delay and corrupt."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.aggregation.job import FailureCause, FrameFaults
from fanin.hdl.aggregation.transport import AggTransport
from fanin.wire.aggregation import ROUND_MAX, AggPacket, Encap, Kind, Protocol
from tests.hdl.aggregation.bench import BASE, JOB, Network, Odds, Wire, config, packet_of, to_worker
from tests.support import new_seed, simulate, slow

ALL_FAULTS = Odds(loss=0.05, duplicate=0.05, late=0.1, corrupt=0.05)


def make_pas(rng, workers, operations, values=8):
    special = [0, 1, -1, 2**28 - 1, -(2**28)]
    return [
        [
            tuple(rng.choice([rng.choice(special), rng.randint(-(2**28), 2**28)]) for _ in range(values))
            for _ in range(operations)
        ]
        for _ in range(workers)
    ]


def sums(pas):
    return [tuple(map(sum, zip(*operation, strict=True))) for operation in zip(*pas, strict=True)]


def run(
    *,
    width=512,
    encap=Encap.L2,
    values=8,
    log2_slots=3,
    operations=30,
    odds=None,
    stall=0.3,
    timeout=400,
    delay=(5, 30),
    protocol=Protocol.P4SGD,
    meddle=None,
    job=None,
):
    """Two workers, of which one is the RTL; checks every FA. ``meddle`` may wrap the network.

    ``job`` changes the RTL's job alone.
    """
    seed = new_seed()
    rng = random.Random(seed)
    pas = make_pas(rng, 2, operations, values)
    dut = AggTransport(mac_width=width, encap=encap, values=values, slots=16, protocol=protocol)
    network = Network(
        pas=pas,
        slots=1 << log2_slots,
        rng=rng,
        odds=odds,
        encap=encap,
        values=values,
        timeout=timeout,
        delay=delay,
        protocol=protocol,
    )
    wire = Wire(dut, (meddle(network) if meddle else network).exchange, rng, stall=stall)
    log = simulate(
        dut,
        drive={"pa": pas[0]},
        collect={"fa": operations},
        stall=stall,
        settings={"job": config(log2_slots=log2_slots, **{"timeout": timeout} | (job or {}))},
        processes=[wire.process],
        seed=seed,
        limit=30_000,
        idle=timeout,
    )
    assert [tuple(fa) for _, fa in log["fa"]] == sums(pas)
    for delivered in network.delivered.values():
        assert delivered == sums(pas)[: len(delivered)]
    return wire


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("width", [512, *slow(8, 64)])
def test_every_fa_is_the_sum_of_all_pas_once_and_in_order(width, encap):
    operations = 6 if width == 8 else 20
    wire = run(width=width, encap=encap, operations=operations, timeout=2000 if width == 8 else 500)
    assert wire.counts["agg_sent"] == wire.counts["results"] == wire.counts["confirms"] == operations
    assert wire.counts["retransmissions"] == 0
    assert not any(wire.counts[name] for name in FrameFaults.as_shape().members)


@pytest.mark.parametrize(
    ("width", "encap", "operations"),
    [(512, Encap.UDP, 25), *slow((512, Encap.L2, 60), (64, Encap.L2, 20), (8, Encap.UDP, 4))],
)
def test_loss_duplication_delay_and_corruption_change_no_fa(width, encap, operations):
    timeout = 2000 if width == 8 else 250
    wire = run(width=width, encap=encap, operations=operations, odds=ALL_FAULTS, timeout=timeout)
    if operations == 60:
        for name in ("retransmissions", "duplicates", "mac_error"):
            assert wire.counts[name], name


@pytest.mark.parametrize("log2_slots", slow(0, 1, 4))  # others than this: all tests with ``run``
def test_any_number_of_slots_up_to_the_parameter(log2_slots):
    run(log2_slots=log2_slots, operations=20, odds=ALL_FAULTS, timeout=200)


@pytest.mark.parametrize("values", [1, *slow(3, 16)])
def test_any_number_of_values(values):
    run(values=values, width=128, operations=10, timeout=500)


def test_premature_timeouts_are_harmless():
    """Every packet is retransmitted several times before its answer can be there."""
    wire = run(timeout=6, delay=(40, 80), operations=20)
    assert wire.counts["retransmissions"] > 40
    assert wire.counts["duplicates"] > 20


class Meddler:
    """Between worker and network: packet ``at`` of ``kind`` arrives once per entry of ``delays``."""

    def __init__(self, network, kind, delays, at=3):
        self.network, self.kind, self.delays, self.at = network, kind, delays, at
        self.outward, self.inward = [], []
        self.seen = 0

    def exchange(self, frames, now):
        arriving = self.network.exchange(self._pass(self.outward, frames, now), now)
        return self._pass(self.inward, arriving, now)

    def _pass(self, held, frames, now):
        for frame in frames:
            held += [(now + delay, frame) for delay in self._delays_of(frame)]
        due = [frame for when, frame in held if when <= now]
        held[:] = [(when, frame) for when, frame in held if when > now]
        return due

    def _delays_of(self, frame):
        if packet_of(frame if isinstance(frame, bytes) else frame[0]).kind != self.kind:
            return [0]
        self.seen += 1
        return self.delays if self.seen == self.at else [0]


def run_with(kind, delays, **parameters):
    """Returns the wire, and how the switch counted."""
    meddlers = []

    def meddle(network):
        meddlers.append(Meddler(network, kind, delays))
        return meddlers[0]

    wire = run(operations=20, timeout=300, meddle=meddle, **parameters)
    assert meddlers[0].seen >= 3
    return wire, meddlers[0].network.switch.job_counters(JOB)


@pytest.mark.parametrize("kind", [Kind.AGG, Kind.CONFIRM, *slow(Kind.RESULT, Kind.ACK)])
def test_one_lost_packet_hangs_nobody(kind):
    wire, _ = run_with(kind, [])
    assert wire.counts["retransmissions"] >= 1


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.ACK, *slow(Kind.AGG, Kind.CONFIRM)])
def test_one_duplicated_packet_corrupts_no_activation(kind):
    wire, switch = run_with(kind, [0, 5])
    assert wire.counts["retransmissions"] == 0
    assert wire.counts["duplicates"] + wire.counts["stale"] + switch.duplicate + switch.stale >= 1


@pytest.mark.parametrize("kind", [Kind.RESULT, *slow(Kind.AGG, Kind.ACK, Kind.CONFIRM)])
def test_one_packet_60_cycles_late_corrupts_no_activation(kind):
    wire, _ = run_with(kind, [60])
    assert wire.counts["retransmissions"] == 0


@pytest.mark.parametrize("kind", [Kind.CONFIRM, *slow(Kind.AGG, Kind.RESULT, Kind.ACK)])
def test_a_copy_that_comes_after_its_slot_was_reused_changes_nothing(kind):
    wire, switch = run_with(kind, [0, 280])
    assert wire.counts["retransmissions"] == 0
    assert wire.counts["duplicates"] + wire.counts["stale"] + switch.duplicate + switch.stale >= 1


def alone(exchange, *, operations, cycles, job, watch=None, processes=(), **parameters):
    """Run the RTL for a number of cycles, without stalls, with nobody but ``exchange``.

    PA n is n + 1 in each lane. Returns the wire, the ``(cycle, first lane)`` of PAs and FAs, and what
    ``watch(dut)`` was in each cycle.
    """
    dut = AggTransport(**{"slots": 4} | parameters)
    wire = Wire(dut, exchange, random.Random(0))
    log = {"pa": [], "fa": []}
    seen = []

    async def feed(ctx):
        for n in range(operations):
            ctx.set(dut.pa.payload, [n + 1] * 8)
            ctx.set(dut.pa.valid, 1)
            while not (await ctx.tick().sample(dut.pa.ready))[-1]:
                pass
        ctx.set(dut.pa.valid, 0)

    async def note(ctx):
        ctx.set(dut.fa.ready, 1)
        ports = [(dut.pa, log["pa"]), (dut.fa, log["fa"])]
        values = [(port.valid & port.ready, port.payload[0]) for port, _ in ports]
        cycle = 0
        async for _, _, watched, *samples in ctx.tick().sample(
            watch(dut) if watch else dut.status, *(value for pair in values for value in pair)
        ):
            seen.append(watched)
            for (_, entries), moved, value in zip(ports, samples[::2], samples[1::2], strict=True):
                if moved:
                    entries.append((cycle, value))
            cycle += 1

    simulate(
        dut,
        settings={"job": job},
        processes=[wire.process, feed, note, *(process(dut) for process in processes)],
        seed=0,
        idle=cycles,
    )
    return wire, log, seen


class Mirror:
    """A switch with one member, answering ``delay`` cycles later."""

    def __init__(self, delay=0, encap=Encap.L2):
        self.delay, self.encap, self.queue = delay, encap, []

    def exchange(self, frames, now):
        for frame in frames:
            packet = packet_of(frame, encap=self.encap)
            answer = AggPacket(packet.kind + 1, JOB, packet.slot, packet.round, 1, packet.values)
            self.queue.append((now + self.delay, to_worker(answer, encap=self.encap)))
        due = [frame for when, frame in self.queue if when <= now]
        self.queue = [item for item in self.queue if item[0] > now]
        return due


@pytest.mark.parametrize("retries", [0, 3])
def test_a_dead_switch_ends_in_timeout_after_r_retransmissions(retries):
    timeout, slots = 50, 4
    wire, log, status = alone(
        lambda out, now: [],
        operations=6,
        cycles=1000,
        job=config(log2_slots=2, timeout=timeout, retries=retries),
    )
    assert status[-1].failed
    assert status[-1].cause == FailureCause.TIMEOUT
    assert len(log["pa"]) == slots
    stopped = next(cycle for cycle, s in enumerate(status) if s.failed)
    assert stopped <= wire.sent[0][0] + (retries + 1) * (timeout + slots + 20)
    assert wire.sent[-1][1] <= stopped + 2
    frames = [frame for _, _, frame in wire.sent]
    assert max(frames.count(frame) for frame in frames) == retries + 1
    assert len(set(frames)) == slots


def test_an_unanswered_ack_ends_in_timeout_too():
    switch = Mirror(delay=5)

    def no_confirm(out, now):
        return switch.exchange([frame for frame in out if packet_of(frame).kind == Kind.AGG], now)

    wire, log, status = alone(
        no_confirm, operations=6, cycles=1000, job=config(log2_slots=2, timeout=50, retries=3)
    )
    assert status[-1].cause == FailureCause.TIMEOUT
    assert len(log["fa"]) == 4
    acks = [frame for _, _, frame in wire.sent if packet_of(frame).kind == Kind.ACK]
    assert acks.count(acks[0]) == 4


def test_reset_after_a_timeout_begins_a_new_job_at_operation_0():
    switch, alive = Mirror(delay=5), []

    def dead_then_alive(out, now):
        return switch.exchange(out, now) if alive else []

    def restart(dut):
        async def process(ctx):
            await ctx.tick().until(dut.status.failed)
            ctx.set(dut.reset, 1)
            await ctx.tick()
            ctx.set(dut.reset, 0)
            alive.append(True)

        return process

    wire, log, status = alone(
        dead_then_alive,
        operations=12,
        cycles=600,
        job=config(log2_slots=2, timeout=40, retries=1),
        processes=[restart],
    )
    assert [value for _, value in log["fa"]] == list(range(6, 13)), "four were sent, and one waited"
    first = packet_of(wire.arrived[0][1])
    assert (first.slot, first.round) == (BASE, 1)
    assert status[-1].idle
    assert not status[-1].failed


@pytest.mark.parametrize("log2_slots", [0, 2])
def test_the_round_never_wraps(log2_slots):
    """All that may begin does, and ends with its CONFIRM, before the next PA stops the transport."""
    wire, log, status = alone(
        Mirror(delay=3).exchange,
        operations=11,
        cycles=300,
        job=config(log2_slots=log2_slots),
        first_round=ROUND_MAX - 1,
    )
    assert len(log["pa"]) == len(log["fa"]) == 2 << log2_slots
    assert {packet_of(frame).round for _, _, frame in wire.sent} == {ROUND_MAX - 1, ROUND_MAX}
    assert [packet_of(frame).kind for _, _, frame in wire.sent].count(Kind.ACK) == 2 << log2_slots
    assert status[-1].idle
    assert status[-1].cause == FailureCause.ROUND_WRAP


def test_latency_and_rate_are_those_of_the_docstring():
    """PA n is accepted in cycle c + n; its frame leaves in c + n + 2; RESULT to FA takes 3 cycles."""
    n = 16
    wire, log, _ = alone(
        Mirror(delay=20).exchange, operations=n, cycles=150, job=config(log2_slots=4), slots=16
    )
    accepted = [cycle for cycle, _ in log["pa"]]
    assert accepted == list(range(accepted[0], accepted[0] + n)), "one PA a cycle"
    agg = [last for _, last, frame in wire.sent if packet_of(frame).kind == Kind.AGG]
    assert agg == [cycle + 2 for cycle in accepted]
    results = [last for last, frame in wire.arrived if packet_of(frame).kind == Kind.RESULT]
    assert [cycle for cycle, _ in log["fa"]] == [cycle + 3 for cycle in results]
    assert results == list(range(results[0], results[0] + n)), "one RESULT, one FA a cycle"


def test_an_ack_is_chosen_3_cycles_behind_its_slot():
    """RetryScanner needs that. A RESULT is judged 2 cycles after it came; a frame leaves 2 after its choice."""
    wire, _, _ = alone(Mirror(delay=20).exchange, operations=1, cycles=100, job=config(log2_slots=0))
    ((result, _), *_) = wire.arrived
    acks = [first for first, _, frame in wire.sent if packet_of(frame).kind == Kind.ACK]
    assert acks == [result + 2 + 3 + 2]


def test_udp_takes_three_cycles_more_on_receive():
    wire, log, _ = alone(
        Mirror(encap=Encap.UDP).exchange, operations=6, cycles=150, job=config(log2_slots=2), encap=Encap.UDP
    )
    begun = [first for first, _, frame in wire.sent if packet_of(frame, encap=Encap.UDP).kind == Kind.AGG]
    assert begun[0] == log["pa"][0][0] + 2
    results = [c for c, frame in wire.arrived if packet_of(frame, encap=Encap.UDP).kind == Kind.RESULT]
    assert [cycle for cycle, _ in log["fa"]] == [cycle + 6 for cycle in results]
    assert len(results) == 6


def test_the_wire_sustains_an_operation_every_two_frames():
    n = 200
    _, log, _ = alone(Mirror(delay=5).exchange, operations=n, cycles=600, job=config(log2_slots=6), slots=64)
    cycles = [cycle for cycle, _ in log["fa"]]
    assert len(cycles) == n
    assert cycles[-1] - cycles[64] <= 2 * (n - 64) + 4


def test_events_mark_the_first_agg_of_an_operation_and_its_fa():
    wire, log, events = alone(
        Mirror(delay=60).exchange,
        operations=4,
        cycles=300,
        job=config(log2_slots=2, timeout=25),
        watch=lambda dut: dut.events,
        mac_width=64,
    )
    first = {}
    for _, last, frame in wire.sent:
        first.setdefault(frame, last)
    aggs = sorted(cycle for frame, cycle in first.items() if packet_of(frame).kind == Kind.AGG)
    assert wire.counts["retransmissions"] > 0
    assert [cycle for cycle, event in enumerate(events) if event.agg] == aggs
    assert [cycle for cycle, event in enumerate(events) if event.fa] == [cycle for cycle, _ in log["fa"]]


@pytest.mark.parametrize("log2_slots", [2, *slow(0, 4)])
def test_a_retransmission_is_punctual(log2_slots):
    timeout = 100
    wire, _, _ = alone(
        lambda out, now: [],
        operations=1,
        cycles=1000,
        slots=16,
        job=config(log2_slots=log2_slots, timeout=timeout),
    )
    gaps = [b[0] - a[0] for a, b in pairwise(wire.sent)]
    assert len(gaps) > 5
    assert timeout <= min(gaps)
    assert max(gaps) <= timeout + (1 << log2_slots) + 6


def test_a_disabled_transport_neither_sends_nor_accepts():
    frame = to_worker(AggPacket(Kind.RESULT, JOB, BASE, 1, 1))
    wire, log, _ = alone(
        lambda out, now: [frame] if now == 40 else [],
        operations=4,
        cycles=100,
        job=config(log2_slots=2, enable=0),
    )
    assert not wire.sent
    assert log == {"pa": [], "fa": []}
    assert wire.counts["other_job"] == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"slots": 3}, "slots must be a power of two from 2 to 65536, not 3"),
        ({"slots": 1 << 17}, "slots must be a power of two from 2 to 65536, not 131072"),
        ({"mac_width": 24}, "mac_width must be a power of two from 8 to 512, not 24"),
        ({"values": 0}, "values must be 1 to 256, not 0"),
        ({"first_round": 0}, "first_round must be 1 to 4294967295, not 0"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        AggTransport(**parameters)
