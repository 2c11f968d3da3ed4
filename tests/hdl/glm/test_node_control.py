"""NodeControl: a run ends, whatever happens to it, and the host hears of every failure."""

import pytest

from fanin.hdl.aggregation.job import FailureCause
from fanin.hdl.glm.node_control import SETTLE, NodeControl
from fanin.hdl.glm.node_registers import Failure
from tests.support import simulate

BEGIN = SETTLE + 3


def _run(script, *, cycles=4 * SETTLE, training=20):
    """Drive the control with ``script`` (cycle → inputs); the worker trains for ``training`` cycles.

    Returns, per cycle, busy, begin, abort, enable, failed, cause.
    """
    dut = NodeControl()
    log = []

    async def process(ctx):
        ctx.set(dut.ok, 1)
        left = 0
        for cycle in range(cycles):
            ctx.set(dut.start, 0)
            ctx.set(dut.reset, 0)
            for name, value in script.get(cycle, {}).items():
                port = dut
                for part in name.split("."):
                    port = getattr(port, part)
                ctx.set(port, value)
            ctx.set(dut.training, left > 0)
            row = (dut.busy, dut.begin, dut.abort, dut.enable, dut.failed, dut.cause)
            _, _, begin, abort, *values = await ctx.tick().sample(dut.begin, dut.abort, *row)
            left = training if begin else 0 if abort else max(0, left - 1)
            log.append(values)

    simulate(dut, processes=[process], limit=cycles, collect={}, seed=0, idle=cycles + 2)
    return log


def test_a_run_begins_after_the_check_and_ends_with_the_training():
    log = _run({0: {"start": 1}})
    busy, begin, abort, enable, failed, _ = zip(*log, strict=True)
    assert [cycle for cycle, value in enumerate(begin) if value] == [BEGIN]
    assert busy[1]
    assert not busy[-1]
    assert enable[-1]
    assert not any(abort)
    assert not any(failed)


@pytest.mark.parametrize("when", range(1, BEGIN + 15))
def test_a_reset_at_any_time_ends_the_run_without_a_failure(when):
    log = _run({0: {"start": 1}, when: {"reset": 1}})
    busy, begin, abort, enable, failed, _ = zip(*log, strict=True)
    assert not busy[-1]
    assert not enable[-1]
    assert not any(failed)
    assert sum(abort) == sum(begin)


@pytest.mark.parametrize(
    ("cause", "failure"),
    [(FailureCause.TIMEOUT, Failure.TIMEOUT), (FailureCause.ROUND_WRAP, Failure.ROUND_WRAP)],
)
@pytest.mark.parametrize("when", [BEGIN + 8, BEGIN + 60])
def test_a_transport_that_fails_in_a_run_or_after_it_is_reported(when, cause, failure):
    log = _run({0: {"start": 1}, when: {"transport.failed": 1, "transport.cause": cause}})
    assert log[when - 1][4] == 0
    assert log[-1][0] == 0
    assert log[-1][4:] == [1, failure]


def test_a_failed_run_needs_a_reset_before_the_next():
    fault = {0: {"start": 1}, BEGIN + 8: {"bus_error": 1}, BEGIN + 9: {"bus_error": 0}}
    again = 3 * SETTLE
    refused = _run(fault | {again: {"start": 1}}, cycles=6 * SETTLE)
    assert sum(row[1] for row in refused) == 1
    assert refused[-1][4:] == [1, Failure.BUS]
    accepted = _run(fault | {again - 1: {"reset": 1}, again: {"start": 1}}, cycles=6 * SETTLE)
    assert sum(row[1] for row in accepted) == 2
    assert accepted[-1][4] == 0


def test_what_the_node_cannot_do_is_refused_and_the_next_start_may_be_right():
    log = _run({0: {"start": 1, "ok": 0}, 2 * SETTLE: {"start": 1, "ok": 1}}, cycles=6 * SETTLE)
    assert log[2 * SETTLE - 1][4:] == [1, Failure.SHAPE]
    assert sum(row[1] for row in log) == 1
    assert log[-1][4] == 0
