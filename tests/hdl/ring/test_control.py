# amaranth: UnusedElaboratable=no
"""RingControl: how jobs begin, fail, and give way to the next."""

import pytest

from fanin.hdl.net.link.job import LinkFailure
from fanin.hdl.ring.control import CHECKED, SETTLE, RingControl
from fanin.hdl.ring.registers import Failure
from tests.support import simulate

IDLE = {"running": 0, "idle": 1, "failed": 0, "cause": 0}
OUTPUTS = ("halt", "reset", "latch", "silence", "begin", "running", "changing", "failed", "cause")


def trace(script, *, cycles=60, **settings):
    """What comes out, per cycle; ``script`` maps cycles to inputs that change there, one-cycle pulses apart."""
    dut, seen = RingControl(), []

    async def drive(ctx):
        for cycle in range(cycles):
            for name in ("start", "stop"):
                ctx.set(getattr(dut, name), script.get(cycle, {}).get(name, 0))
            for name, value in script.get(cycle, {}).items():
                if name not in ("start", "stop"):
                    ctx.set(getattr(dut, name), value)
            _, _, *values = await ctx.tick().sample(*(getattr(dut, name) for name in OUTPUTS))
            seen.append(dict(zip(OUTPUTS, values, strict=True)))

    simulate(dut, processes=[drive], idle=cycles, settings={"valid_settings": 1, "link": IDLE} | settings)
    return seen


def cycles_of(seen, name):
    return [cycle for cycle, values in enumerate(seen) if values[name]]


def test_a_job_begins_with_one_reset_and_then_the_link():
    seen = trace({5: {"start": 1}})
    assert cycles_of(seen, "begin") == [5 + SETTLE + CHECKED + 5]
    assert cycles_of(seen, "reset") == cycles_of(seen, "latch") == [5 + SETTLE + 4]
    assert cycles_of(seen, "running")[0] == cycles_of(seen, "begin")[0]
    assert not seen[-1]["halt"]
    assert not seen[-1]["changing"]


def test_memory_is_waited_for_before_anything_is_reset():
    seen = trace({5: {"start": 1, "moving": 1}, 30: {"moving": 0}})
    assert cycles_of(seen, "reset")[0] > 30 + SETTLE
    assert all(seen[cycle]["halt"] and seen[cycle]["changing"] for cycle in range(8, 30))


def test_a_frame_of_the_last_job_leaves_before_the_settings_of_the_next_are_taken():
    seen = trace({5: {"start": 1, "link": IDLE | {"idle": 0}}, 30: {"link": IDLE}})
    assert cycles_of(seen, "latch")[0] > 30 + SETTLE


def test_of_start_and_stop_at_once_start_counts():
    seen = trace({5: {"start": 1, "stop": 1}})
    assert (seen[-1]["running"], len(cycles_of(seen, "begin"))) == (1, 1)


def test_settings_that_no_ring_can_have_end_the_job_before_it_begins():
    seen = trace({5: {"start": 1}}, valid_settings=0)
    assert cycles_of(seen, "begin") == []
    assert (seen[-1]["failed"], seen[-1]["cause"], seen[-1]["halt"]) == (1, Failure.SETTINGS, 1)


FAILED = {"running": 0, "idle": 0, "failed": 1}


@pytest.mark.parametrize(
    ("inputs", "cause"),
    [
        ({"mismatch": 1}, Failure.MISMATCH),
        ({"memory_error": 1}, Failure.MEMORY),
        ({"link": FAILED | {"cause": LinkFailure.TIMEOUT}}, Failure.TIMEOUT),
        ({"link": FAILED | {"cause": LinkFailure.MISMATCH}}, Failure.MISMATCH),
    ],
)
def test_a_failure_halts_the_engine_and_silences_the_link_until_the_next_start(inputs, cause):
    good = {"mismatch": 0, "memory_error": 0, "link": IDLE}
    seen = trace({5: {"start": 1}, 25: inputs, 30: good, 40: {"start": 1}})
    assert (seen[29]["failed"], seen[29]["cause"], seen[29]["running"], seen[29]["halt"]) == (1, cause, 0, 1)
    assert cycles_of(seen, "silence")[1] in range(26, 29)
    assert len(cycles_of(seen, "begin")) == 2
    assert not seen[-1]["failed"]


def test_stop_ends_a_job_and_a_start_right_behind_it_counts():
    stopped = trace({5: {"start": 1}, 25: {"stop": 1}})
    assert (stopped[-1]["running"], stopped[-1]["halt"], stopped[-1]["changing"]) == (0, 1, 0)
    restarted = trace({5: {"start": 1}, 25: {"stop": 1}, 30: {"start": 1}}, cycles=80)
    assert (restarted[-1]["running"], restarted[-1]["changing"]) == (1, 0)
