# amaranth: UnusedElaboratable=no
"""RowStore: whatever is opened, its row is the one that came for it, and valid as soon as it has come."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.codec import GROUPS
from fanin.hdl.codec.inceptionn.rows import REACH, SLOTS, RowStore
from tests.support import new_seed, slow

CYCLES = 1500
HELD = SLOTS - 4  # rows that may still be wanted


class Model:
    """Rows by the absolute number of their burst, and the burst that is open."""

    def __init__(self):
        self.rows = []
        self.open = 0

    @property
    def valid(self):
        return self.open < len(self.rows)


def command(model, rng, pace):
    """What a cycle brings: a row or not, and going on, turning to another burst, or neither."""
    row = rng.getrandbits(60) if rng.random() < pace and len(model.rows) < model.open + HELD else None
    kind = rng.choice(("go", "go", "go", "turn", "stay"))
    if kind == "go" and model.valid:
        return row, "go", rng.randrange(REACH)
    if kind == "turn":
        # at most two further than the next row's; back to what has not been overwritten
        first = max(0, model.open - 2, len(model.rows) - HELD)
        return row, "turn", rng.randint(first, len(model.rows) + 2)
    return row, "stay", rng.randrange(REACH)


@pytest.mark.parametrize(
    ("group", "pace"),
    [(8, 0.6), *slow(*((g, p) for g in GROUPS for p in (0.2, 0.6, 1.0) if (g, p) != (8, 0.6)))],
)
def test_every_row_is_the_burst_s_own(group, pace):
    dut = RowStore(group=group)
    width = len(dut.ends.as_value())
    seed = new_seed()
    rng = random.Random(seed)
    model = Model()
    seen = dict.fromkeys(("go", "turn", "stay", "waited", "at once"), 0)

    async def bench(ctx):
        for cycle in range(CYCLES):
            row, kind, argument = command(model, rng, pace)
            content = int.from_bytes(random.Random(row).randbytes(width // 8), "little")
            ctx.set(dut.row.valid, row is not None)
            ctx.set(dut.row.ends.as_value(), content)
            ctx.set(dut.go, kind == "go")
            ctx.set(dut.bursts, argument if kind != "turn" else rng.randrange(REACH))
            ctx.set(dut.turn.valid, kind == "turn")
            target = argument if kind == "turn" else rng.randrange(SLOTS)
            for n, number in enumerate(dut.turn.to):
                ctx.set(number, (target + n) % SLOTS)
            before = len(model.rows)
            if row is not None:
                model.rows.append(content)
            if kind == "turn":
                model.open = argument
            elif kind == "go":
                model.open += argument
            await ctx.tick()
            where = f"seed {seed}, cycle {cycle}, {kind} {argument}"
            numbers = [ctx.get(number) for number in dut.open]
            assert numbers == [(model.open + n) % SLOTS for n in range(REACH)], where
            assert ctx.get(dut.valid) == model.valid, where
            if model.valid:
                assert ctx.get(dut.ends.as_value()) == model.rows[model.open], where
            seen[kind] += 1
            seen["waited"] += not model.valid
            seen["at once"] += model.valid and model.open == before
        assert all(seen.values()), seen

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
