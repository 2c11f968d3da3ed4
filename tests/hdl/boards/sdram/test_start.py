# amaranth: UnusedElaboratable=no
"""SdramStart: the commands that the chips want, in order, each after its time; then none."""

from dataclasses import replace

from amaranth.sim import Simulator

from fanin.boards.sdram import SDRAM_8M
from fanin.hdl.boards.sdram.start import SdramStart

TIMING = replace(SDRAM_8M.timing(50e6), start=37)
PRECHARGE, REFRESH, MODE = 0b101, 0b110, 0b111  # ras, cas, we


def test_the_chips_are_started_once_and_in_their_time():
    dut = SdramStart(timing=TIMING)
    seen, done = [], []

    async def watch(ctx):
        for cycle in range(200):
            command = ctx.get(dut.ras) << 2 | ctx.get(dut.cas) << 1 | ctx.get(dut.we)
            if command:
                seen.append((cycle, command, ctx.get(dut.a)))
            if ctx.get(dut.done):
                done.append(cycle)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(20e-9)
    simulator.add_testbench(watch)
    simulator.run()
    first = TIMING.start
    refreshes = [first + TIMING.precharge + n * TIMING.refresh_cycle for n in range(8)]
    mode = refreshes[-1] + TIMING.refresh_cycle
    assert seen == [
        (first, PRECHARGE, 1 << 10),
        *((cycle, REFRESH, 0) for cycle in refreshes),
        (mode, MODE, 2 << 4),
    ]
    assert done == list(range(mode + TIMING.mode, 200))
