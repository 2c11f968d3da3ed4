# amaranth: UnusedElaboratable=no
"""GroupPointer: it goes where the rows say, and a row is open as soon as it has come."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.codec.facts import GROUPS, Inceptionn
from fanin.hdl.codec.inceptionn.pointer import GroupPointer
from fanin.hdl.codec.inceptionn.shapes import SLOTS
from tests.support import new_seed, slow

CYCLES = 3000
HELD = SLOTS - 4  # rows that may still be needed


class Model:
    """Rows by the absolute number of their burst, and the position: a burst and an offset."""

    def __init__(self, group, rng):
        self.size = 4 * group
        self.crossing = self.size - Inceptionn(group=group).tag_bytes  # from this offset on, tags cross
        self.rng = rng
        self.rows = []
        self.burst = self.offset = 0
        self.found = True  # the burst; not after a jump without a frame's end
        self.past_end = False

    @property
    def valid(self):
        return self.found and self.burst < len(self.rows)

    @property
    def end(self):
        """Where the group at the position ends."""
        offset, carry = self.rows[self.burst][self.offset]
        return self.burst + carry + (self.offset >= self.crossing), offset

    def row(self):
        """Mostly short groups, and now and then such as end near a burst's end."""
        share = self.rng.choice((0.02, 0.3, 0.9))
        least = self.crossing if self.rng.random() < 0.3 else 0
        return [
            (
                self.rng.randrange(least, self.size),
                self.rng.random() < (0.5 if n >= self.crossing else share),
            )
            for n in range(self.size)
        ]

    def targets(self):
        """First bursts of a next frame: up to two after the next row's, and none that has been overwritten."""
        return max(0, self.burst - 2, len(self.rows) - HELD), len(self.rows) + 2


@pytest.mark.parametrize(
    ("group", "pace"),
    [(8, 0.6), *slow(*((g, p) for g in GROUPS for p in (0.2, 0.6, 1.0) if (g, p) != (8, 0.6)))],
)
def test_every_row_is_the_burst_s_own(group, pace):
    dut = GroupPointer(group=group)
    seed = new_seed()
    rng = random.Random(seed)
    model = Model(group, rng)
    width = len(dut.row.ends[0].as_value())
    kinds = ("advance", "by 0", "by 1", "by 2", "jump", "lost", "stay", "waited", "at once", "past end")
    seen = dict.fromkeys(kinds, 0)

    def packed(row):
        return sum((offset | carry << width - 1) << width * n for n, (offset, carry) in enumerate(row))

    def end():
        burst, offset = model.end
        return burst % SLOTS * model.size + offset

    async def bench(ctx):
        for cycle in range(CYCLES):
            comes = rng.random() < pace and len(model.rows) < model.burst + HELD
            row = model.row()
            jumps = not model.found or rng.random() < 0.1
            advances = not jumps and model.valid and rng.random() < 0.8
            kind = "jump" if jumps else "advance" if advances else "stay"
            target, known = rng.randint(*model.targets()), rng.random() < 0.8
            ctx.set(dut.row.valid, comes)
            ctx.set(dut.row.ends.as_value(), packed(row))
            ctx.set(dut.advance, advances)
            ctx.set(dut.jump, jumps)
            ctx.set(dut.may_jump, jumps or (not advances and rng.random() < 0.5))
            ctx.set(dut.frame_end, {"valid": known, "next": target % SLOTS})
            opens, before = jumps or not model.valid, len(model.rows)
            if advances:
                where = f"seed {seed}, cycle {cycle}"
                assert ctx.get(dut.end.as_value()) == end(), where
                burst, model.offset = model.end
                seen[f"by {burst - model.burst}"] += 1
                opens = burst != model.burst
                model.burst = burst
            if comes:
                model.rows.append(row)
            if jumps:
                model.burst, model.offset, model.found = target, 0, known
            if opens:
                after = (model.burst - target) % SLOTS
                model.past_end = not jumps and known and after in (0, 1)
            await ctx.tick()
            where = f"seed {seed}, cycle {cycle}, {kind}"
            assert ctx.get(dut.valid) == model.valid, where
            assert ctx.get(dut.position.offset) == model.offset, where
            assert ctx.get(dut.past_end) == model.past_end, where
            if model.found:
                assert ctx.get(dut.position.burst) == model.burst % SLOTS, where
            if model.valid:
                assert ctx.get(dut.end.as_value()) == end(), where
            seen[kind] += 1
            seen["lost"] += not model.found
            seen["waited"] += not model.valid
            seen["at once"] += model.valid and model.burst == before
            seen["past end"] += model.past_end
        assert all(seen.values()), seen

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
