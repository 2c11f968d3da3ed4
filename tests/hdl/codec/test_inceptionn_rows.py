# amaranth: UnusedElaboratable=no
"""RowWalk: it goes where the rows say, and a row is open as soon as it has come."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.codec import GROUPS, Inceptionn
from fanin.hdl.codec.inceptionn.rows import REACH, SLOTS, RowWalk
from tests.support import new_seed, slow

CYCLES = 3000
HELD = SLOTS - 4  # rows that may still be wanted


class Model:
    """Rows by the absolute number of their burst, the one that is open, and the place in it."""

    def __init__(self, group, rng):
        self.size = 4 * group
        self.inside = self.size - Inceptionn(group=group).tag_bytes
        self.rng = rng
        self.rows = []
        self.open = self.place = 0
        self.known = True  # what is open

    @property
    def valid(self):
        return self.known and self.open < len(self.rows)

    @property
    def bursts(self):
        """How many the group at the place goes on by."""
        return self.rows[self.open][self.place][1] + (self.place >= self.inside)

    def row(self):
        """Mostly short ways, and now and then to the last places."""
        share = self.rng.choice((0.02, 0.3, 0.9))
        near = self.rng.random() < 0.3
        return [
            (
                self.rng.randrange(self.inside if near else 0, self.size),
                self.rng.random() < (0.5 if n >= self.inside else share),
            )
            for n in range(self.size)
        ]

    def go(self):
        bursts, self.place = self.bursts, self.rows[self.open][self.place][0]
        self.open += bursts

    def targets(self):
        """Bursts to turn to: at most two further than the next row's, and what has not been overwritten."""
        return max(0, self.open - 2, len(self.rows) - HELD), len(self.rows) + 2


@pytest.mark.parametrize(
    ("group", "pace"),
    [(8, 0.6), *slow(*((g, p) for g in GROUPS for p in (0.2, 0.6, 1.0) if (g, p) != (8, 0.6)))],
)
def test_every_row_is_the_burst_s_own(group, pace):
    dut = RowWalk(group=group)
    seed = new_seed()
    rng = random.Random(seed)
    model = Model(group, rng)
    entry = len(dut.end.as_value())
    seen = dict.fromkeys(("go", "by 0", "by 1", "by 2", "turn", "lost", "stay", "waited", "at once"), 0)

    def packed(row):
        return sum((place | on << entry - 1) << entry * n for n, (place, on) in enumerate(row))

    async def bench(ctx):
        outside = 0
        for cycle in range(CYCLES):
            comes = rng.random() < pace and len(model.rows) < model.open + HELD
            row = model.row()
            turns = not model.known or rng.random() < 0.1
            goes = not turns and model.valid and rng.random() < 0.8
            kind = "turn" if turns else "go" if goes else "stay"
            target, known = rng.randint(*model.targets()), not turns or rng.random() < 0.8
            # of a row that is open and there it does not change
            outside = outside & 1 if model.valid else rng.getrandbits(1)
            outside |= rng.getrandbits(2) << 1
            ctx.set(dut.row.valid, comes)
            ctx.set(dut.row.ends.as_value(), packed(row))
            ctx.set(dut.go, goes)
            ctx.set(dut.turn, turns)
            ctx.set(dut.to.valid, known if turns else rng.random() < 0.5)
            ctx.set(dut.outside, outside)
            ctx.set(dut.to.last, (target - 1) % SLOTS)
            for n, number in enumerate(dut.to.numbers):
                ctx.set(number, (target + n) % SLOTS)
            before, bursts = len(model.rows), 0
            if goes:
                end = ctx.get(dut.end.as_value())
                assert end == packed([model.rows[model.open][model.place]]), f"seed {seed}, cycle {cycle}"
                bursts = model.bursts
                seen[f"by {bursts}"] += 1
                model.go()
            if comes:
                model.rows.append(row)
            if turns:
                model.open, model.place, model.known = target, 0, known
            past = not turns and outside >> bursts & 1
            outside = outside >> bursts
            await ctx.tick()
            where = f"seed {seed}, cycle {cycle}, {kind}"
            assert ctx.get(dut.valid) == model.valid, where
            assert ctx.get(dut.place) == model.place, where
            assert ctx.get(dut.tail) == (model.place >= model.inside), where
            if model.known:
                numbers = [ctx.get(number) for number in dut.open]
                assert numbers == [(model.open + n) % SLOTS for n in range(REACH)], where
                assert ctx.get(dut.past) == past, where
            if turns:
                outside = 0
            if model.valid:
                assert ctx.get(dut.end.as_value()) == packed([model.rows[model.open][model.place]]), where
            seen[kind] += 1
            seen["lost"] += not model.known
            seen["waited"] += not model.valid
            seen["at once"] += model.valid and model.open == before
        assert all(seen.values()), seen

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
