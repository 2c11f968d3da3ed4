# amaranth: UnusedElaboratable=no
"""The transport without acknowledgements: what differs from test_transport.py, and the same dangers again."""

from functools import partial

import pytest

from fanin.hdl.aggregation.job import FailureCause
from fanin.wire.aggregation import ROUND_MAX, AggPacket, Encap, Kind, Protocol
from tests.hdl.aggregation import test_transport as common
from tests.hdl.aggregation.bench import BASE, JOB, config, packet_of, to_worker
from tests.hdl.aggregation.test_transport import ALL_FAULTS, Mirror
from tests.support import slow

PROTOCOL = Protocol.SWITCHML
KINDS = [Kind.AGG, Kind.RESULT]
run = partial(common.run, protocol=PROTOCOL)
run_with = partial(common.run_with, protocol=PROTOCOL)
alone = partial(common.alone, protocol=PROTOCOL)


@pytest.mark.parametrize(("width", "encap"), [(512, Encap.L2), *slow((64, Encap.UDP))])
def test_every_fa_takes_one_packet_each_way(width, encap):
    wire = run(width=width, encap=encap, operations=20, timeout=500)
    assert wire.counts["agg_sent"] == wire.counts["results"] == 20
    assert wire.counts["ack_sent"] == wire.counts["confirms"] == wire.counts["retransmissions"] == 0
    assert len(wire.sent) == len(wire.arrived) == 20


@pytest.mark.parametrize(("width", "encap", "operations"), slow((512, Encap.UDP, 25), (512, Encap.L2, 60)))
def test_loss_duplication_delay_and_corruption_change_no_fa(width, encap, operations):
    wire = run(width=width, encap=encap, operations=operations, odds=ALL_FAULTS, timeout=250)
    if operations == 60:
        for name in ("retransmissions", "duplicates", "mac_error"):
            assert wire.counts[name], name


@pytest.mark.parametrize("log2_slots", [2, *slow(1, 4)])
def test_any_number_of_slots_from_two_up_to_the_parameter(log2_slots):
    run(log2_slots=log2_slots, operations=20, odds=ALL_FAULTS, timeout=200)


def test_premature_timeouts_are_harmless():
    wire = run(timeout=6, delay=(40, 80), operations=20)
    assert wire.counts["retransmissions"] > 20
    assert wire.counts["duplicates"] > 10


@pytest.mark.parametrize("kind", KINDS)
def test_one_lost_packet_hangs_nobody(kind):
    wire, _ = run_with(kind, [])
    assert wire.counts["retransmissions"] >= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("late", [280, *slow(5, 60)])
def test_a_late_copy_changes_nothing_whether_its_slot_was_used_again_or_not(kind, late):
    """Few slots: after 60 cycles the next round is under way, after 280 the one in which a bit would repeat."""
    wire, switch = run_with(kind, [0, late], log2_slots=1)
    assert wire.counts["retransmissions"] == 0
    assert wire.counts["duplicates"] + wire.counts["stale"] + switch.duplicate + switch.stale >= 1


def test_half_of_the_slots_are_in_flight_and_the_oldest_fa_opens_the_next():
    """Answers but the first are there; nothing begins until that one's FA is handed on."""
    slots, held = 8, []

    def hold_the_first(out, now):
        answers = switch.exchange(out, now)
        if now < 100:
            held.extend(a for a in answers if packet_of(a).slot == BASE)
            return [a for a in answers if packet_of(a).slot != BASE]
        return [*(held.pop() for _ in list(held)), *answers]

    switch = Mirror(delay=5)
    wire, log, _ = alone(hold_the_first, operations=12, cycles=250, job=config(log2_slots=3), slots=slots)
    assert sum(cycle < 100 for cycle, _ in log["pa"]) == slots // 2
    assert [value for _, value in log["fa"]] == list(range(1, 13))
    opened = log["pa"][slots // 2][0]
    assert opened == log["fa"][0][0] + 3, "handed on, noted, free, open"
    uses = [(packet_of(frame).slot - BASE, packet_of(frame).round) for _, _, frame in wire.sent]
    assert uses == [(n % slots, n // slots + 1) for n in range(12)]


def test_an_fa_that_is_not_taken_keeps_the_window_shut():
    """Handed on is what counts, not received."""

    def never(dut):
        async def process(ctx):
            for _ in range(80):
                ctx.set(dut.fa.ready, 0)
                await ctx.tick()
            ctx.set(dut.fa.ready, 1)

        return process

    _, log, _ = alone(
        Mirror(delay=5).exchange, operations=8, cycles=200, job=config(log2_slots=2), processes=[never]
    )
    assert sum(cycle < 80 for cycle, _ in log["pa"]) == 2
    assert len(log["fa"]) == 8


def test_a_confirm_is_malformed():
    frame = to_worker(AggPacket(Kind.CONFIRM, JOB, BASE, 1, 1))
    wire, _, _ = alone(
        lambda out, now: [frame] if now == 40 else [], operations=1, cycles=80, job=config(log2_slots=2)
    )
    assert wire.counts["malformed"] == 1
    assert wire.counts["stale"] == wire.counts["confirms"] == 0


def test_a_dead_switch_ends_in_timeout_after_r_retransmissions():
    wire, log, status = alone(
        lambda out, now: [], operations=6, cycles=1000, job=config(log2_slots=2, timeout=50, retries=3)
    )
    assert status[-1].cause == FailureCause.TIMEOUT
    frames = [frame for _, _, frame in wire.sent]
    assert len(log["pa"]) == len(set(frames)) == 2
    assert max(frames.count(frame) for frame in frames) == 4


@pytest.mark.parametrize("log2_slots", [1, 2])
def test_the_round_never_wraps(log2_slots):
    wire, log, status = alone(
        Mirror(delay=3).exchange,
        operations=11,
        cycles=300,
        job=config(log2_slots=log2_slots),
        first_round=ROUND_MAX - 1,
    )
    assert len(log["pa"]) == len(log["fa"]) == len(wire.sent) == 2 << log2_slots
    assert status[-1].idle
    assert status[-1].cause == FailureCause.ROUND_WRAP


def test_latency_and_rate_are_those_of_the_docstring():
    """PA n is accepted in cycle c + n; its frame leaves in c + n + 2; RESULT to FA takes 3 cycles."""
    n = 16
    wire, log, _ = alone(
        Mirror(delay=20).exchange, operations=n, cycles=150, job=config(log2_slots=5), slots=32
    )
    accepted = [cycle for cycle, _ in log["pa"]]
    assert accepted == list(range(accepted[0], accepted[0] + n)), "one PA a cycle"
    assert [last for _, last, _ in wire.sent] == [cycle + 2 for cycle in accepted]
    results = [last for last, _ in wire.arrived]
    assert [cycle for cycle, _ in log["fa"]] == [cycle + 3 for cycle in results]
    assert results == list(range(results[0], results[0] + n)), "one RESULT, one FA a cycle"


def test_the_wire_sustains_an_operation_every_frame():
    n = 200
    _, log, _ = alone(Mirror(delay=5).exchange, operations=n, cycles=400, job=config(log2_slots=6), slots=64)
    cycles = [cycle for cycle, _ in log["fa"]]
    assert len(cycles) == n
    assert cycles[-1] - cycles[0] == n - 1
