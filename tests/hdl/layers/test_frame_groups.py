# amaranth: UnusedElaboratable=no
"""GroupGate: dummy frames complete a batch's last group, and leave again, job after job."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.layers.frame_groups import GroupGate
from fanin.hdl.layers.interface import Mode
from tests.support import new_seed, simulate

LANES, TRANSFERS, GROUP, FILL = 2, 3, 4, 0x80000000
# mode, frames, batch: whole groups, a short batch at the end, batches that end within a group, one of a frame
JOBS = [
    (Mode.TRAIN, 8, 4),
    (Mode.TRAIN, 7, 5),
    (Mode.EVALUATE, 5, 2),
    (Mode.DUMP, 3, 1),
    (Mode.TRAIN, 1, 9),
    (Mode.TRAIN, 3, 1),
]


def frames_of(mode, frames, batch, *, backward):
    """True for each frame of a job, False for each dummy, in order."""
    if mode is Mode.DUMP or (backward and mode is Mode.EVALUATE):
        return []
    sizes = [min(batch, frames - at) for at in range(0, frames, batch)] if mode is Mode.TRAIN else [frames]
    return [n < size for size in sizes for n in range(-(-size // GROUP) * GROUP)]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_dummies_fill_a_batchs_last_group(backward, removes, stall):
    seed = new_seed()
    rng = random.Random(seed)
    real, padded = [], []
    for job in JOBS:
        for is_real in frames_of(*job, backward=backward):
            words = [[rng.getrandbits(32) for _ in range(LANES)] for _ in range(TRANSFERS)]
            real += words if is_real else []
            padded += words if is_real or removes else TRANSFERS * [LANES * [FILL]]
    dut = GroupGate(
        lanes=LANES, transfers=TRANSFERS, group_frames=GROUP, fill=None if removes else FILL, backward=backward
    )

    async def jobs(ctx):
        for mode, frames, batch in JOBS:
            for name, value in (("mode", mode), ("frames", frames), ("batch", batch), ("start", 1)):
                ctx.set(getattr(dut.control, name), value)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            await ctx.tick()
            await ctx.tick().until(dut.done)

    given, expected = (padded, real) if removes else (real, padded)
    log = simulate(
        dut, drive={"i": given}, collect={"o": len(expected)}, processes=[jobs], stall=stall, seed=seed
    )
    assert [list(payload) for _, payload in log["o"]] == expected
    assert len(log["i"]) == len(given)
    if not stall:  # the first job's: a transfer a cycle, and a cycle between its two batches
        cycles, batch = [cycle for cycle, _ in log["o"]], GROUP * TRANSFERS
        gaps = [b - a for a, b in pairwise(cycles[: 2 * batch])]
        assert gaps == (batch - 1) * [1] + [2] + (batch - 1) * [1]


def test_a_group_is_a_power_of_two():
    with pytest.raises(ValueError, match="power of two of at least 2, not 3"):
        GroupGate(lanes=1, transfers=1, group_frames=3, fill=0, backward=False)
