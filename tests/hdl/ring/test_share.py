"""How much a side of the link that was idle has saved: what the bounds of the sum say, and no more."""

import pytest
from amaranth.sim import Simulator

from fanin.hdl.ring.share import LinkShare

WIDTH, MAX_FRAME = 64, 128
BOUND = 4096  # the power of two above 16 · (128 + 24)
FRAME_BEATS, COST = 16, 128 + 24  # of a frame of 128 bytes
IDLE_FRAMES = 200
LATENCY = 7


def frames_until(owed, *, idle_host, share):
    """Frames of the side that was idle, sent one after the other, until ``owed`` is as given."""
    dut = LinkShare(width=WIDTH, max_frame=MAX_FRAME)
    found = []

    async def process(ctx):
        ctx.set(dut.share, share)

        async def frame(host):
            for beat in range(FRAME_BEATS):
                ctx.set(dut.beat, {"valid": 1, "host": host, "last": beat == FRAME_BEATS - 1, "keep": 0xFF})
                await ctx.tick()
            ctx.set(dut.beat, {"valid": 0, "host": 0, "last": 0, "keep": 0})
            await ctx.tick().repeat(LATENCY)

        for _ in range(IDLE_FRAMES):
            await frame(not idle_host)
        for count in range(1, 200):
            await frame(idle_host)
            if ctx.get(dut.owed) == owed:
                found.append(count)
                return

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(process)
    simulator.run()
    return found[0]


@pytest.mark.parametrize("share", [1, 4, 8, 15])
def test_a_side_that_was_idle_has_saved_the_bound_and_no_more(share):
    catch_up = frames_until(0, idle_host=True, share=share)
    assert catch_up == pytest.approx(BOUND / ((16 - share) * COST), abs=1)
    catch_up = frames_until(1, idle_host=False, share=share)
    assert catch_up == pytest.approx(BOUND / (share * COST), abs=1)
