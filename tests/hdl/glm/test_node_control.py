"""NodeControl: a run ends, whatever happens to it, and the host hears of every failure."""

import pytest

from fanin.hdl.aggregation.job import FailureCause
from fanin.hdl.glm.node_control import SETTLE, NodeControl
from fanin.hdl.glm.node_registers import Failure
from tests.support import simulate

BEGIN = SETTLE + 3
CLEARING = 50  # cycles that a worker takes to clear its model


def _run(script, *, cycles=4 * SETTLE, training=20):
    """Drive the control with ``script`` (cycle → inputs); the worker trains for ``training`` cycles.

    Returns, per cycle, busy, begin, abort, enable, failed, cause, clear_model.
    """
    dut = NodeControl()
    log = []

    async def process(ctx):
        left = clearing = 0
        for cycle in range(cycles):
            for command in (dut.start, dut.clear, dut.reset):
                ctx.set(command, 0)
            for name, value in script.get(cycle, {}).items():
                port = dut
                for part in name.split("."):
                    port = getattr(port, part)
                ctx.set(port, value)
            ctx.set(dut.training, left > 0)
            ctx.set(dut.occupied, left > 0 or clearing > 0)
            row = (dut.busy, dut.begin, dut.abort, dut.enable, dut.failed, dut.cause)
            pulses = dut.begin, dut.abort, dut.clear_model
            _, _, begin, abort, clears, *values = await ctx.tick().sample(*pulses, *row)
            left = training if begin else 0 if abort else max(0, left - 1)
            clearing = CLEARING if clears else max(0, clearing - 1)
            assert not (clears and left), "the model is cleared in a run"
            assert not (begin and clearing), "a run begins while the model is cleared"
            log.append([*values, clears])

    simulate(dut, processes=[process], limit=cycles, collect={}, seed=0, idle=cycles + 2)
    return log


def test_a_run_begins_after_the_check_and_ends_with_the_training():
    log = _run({0: {"start": 1}})
    busy, begin, abort, enable, failed, *_ = zip(*log, strict=True)
    assert [cycle for cycle, value in enumerate(begin) if value] == [BEGIN]
    assert busy[1]
    assert not busy[-1]
    assert enable[-1]
    assert not any(abort)
    assert not any(failed)


@pytest.mark.parametrize("when", range(1, BEGIN + 15))
def test_a_reset_at_any_time_ends_the_run_without_a_failure(when):
    log = _run({0: {"start": 1}, when: {"reset": 1}})
    busy, begin, abort, enable, failed, *_ = zip(*log, strict=True)
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
    assert log[-1][4:6] == [1, failure]


def test_a_failed_run_needs_a_reset_before_the_next():
    fault = {0: {"start": 1}, BEGIN + 8: {"bus_error": 1}, BEGIN + 9: {"bus_error": 0}}
    again = 3 * SETTLE
    refused = _run(fault | {again: {"start": 1}}, cycles=6 * SETTLE)
    assert sum(row[1] for row in refused) == 1
    assert refused[-1][4:6] == [1, Failure.BUS]
    accepted = _run(fault | {again - 1: {"reset": 1}, again: {"start": 1}}, cycles=6 * SETTLE)
    assert sum(row[1] for row in accepted) == 2
    assert accepted[-1][4] == 0


@pytest.mark.parametrize("cause", [Failure.SHAPE, Failure.ADDRESS])
def test_what_the_node_cannot_do_is_refused_and_the_next_start_may_be_right(cause):
    refused = {"start": 1, "refusal": cause}
    log = _run({0: refused, 2 * SETTLE: {"start": 1, "refusal": Failure.NONE}}, cycles=6 * SETTLE)
    assert log[2 * SETTLE - 1][4:6] == [1, cause]
    assert sum(row[1] for row in log) == 1
    assert log[-1][4] == 0


def _pulses(log, column):
    return [cycle for cycle, row in enumerate(log) if row[column]]


@pytest.mark.parametrize("reset", [0, 1])
def test_one_write_resets_then_clears_then_starts(reset):
    log = _run({0: {"start": 1, "clear": 1, "reset": reset}}, cycles=6 * SETTLE)
    (cleared,), (begun,) = _pulses(log, 6), _pulses(log, 1)
    assert cleared == 2
    assert begun > cleared + CLEARING
    assert all(row[0] for row in log[1:begun])
    assert log[begun][3]


def test_commands_of_a_run_that_is_reset_wait_for_its_end():
    """Each in a write of its own, in the cycles after the reset, while words still come from memory."""
    when = BEGIN + 10
    moving = {when: {"reset": 1, "moving": 1}, when + 60: {"moving": 0}}
    for later in range(1, 6):
        script = {0: {"start": 1}} | moving | {when + later: {"start": 1, "clear": 1}}
        log = _run(script, cycles=12 * SETTLE, training=1000)
        (cleared,), begun = _pulses(log, 6), _pulses(log, 1)
        assert len(begun) == 2
        assert when + 60 < cleared < begun[1]


def test_a_second_reset_cancels_a_start_that_waits():
    when = BEGIN + 10
    script = {0: {"start": 1}, when: {"reset": 1}, when + 2: {"start": 1, "clear": 1}, when + 4: {"reset": 1}}
    log = _run(script, cycles=8 * SETTLE, training=1000)
    assert len(_pulses(log, 1)) == len(_pulses(log, 6)) == 1
    assert not log[-1][0]


def test_commands_of_a_run_that_goes_on_are_ignored():
    when = BEGIN + 5
    log = _run({0: {"start": 1}, when: {"start": 1, "clear": 1}}, cycles=8 * SETTLE)
    assert len(_pulses(log, 1)) == 1
    assert not _pulses(log, 6)
