# amaranth: UnusedElaboratable=no
"""Watch: beside counting in Python."""

import random

import pytest

from fanin.hdl.layers.watch import Watch
from tests.support import new_seed, simulate

FINITE, ODD = (0, 0x80000000, 0x7F7FFFFF, 0x00000001), (0x7F800000, 0xFF800000, 0x7FC00000)
LANES, TRANSFERS = 2, 3


class Expected:
    """What a watch says of what it saw since it was cleared."""

    def __init__(self, timed):
        self.timed, self.times = timed, {"first": 0, "last": 0, "update": 0}
        self.busy = self.starved = self.blocked = self.transfers = 0
        self.first = None

    def see(self, enable, taken, given, odd, now, updated):
        """A cycle: (valid, ready) of input and output, whether the payload is not finite; time; an update."""
        frame = self.transfers // TRANSFERS
        if enable:
            if given == (1, 0):
                self.blocked += 1
            elif taken == (0, 1):
                self.starved += 1
            else:
                self.busy += 1
        if given == (1, 1):
            self.transfers += 1
            if odd and self.first is None:
                self.first = frame
            if self.transfers % TRANSFERS == 0:
                for name, timed in zip(("first", "last"), self.timed, strict=True):
                    if frame == timed:
                        self.times[name] = now + 1
        if updated and self.times["last"] not in (0, now + 1) and not self.times["update"]:
            self.times["update"] = now + 1

    @property
    def outputs(self):
        return {
            "busy": self.busy,
            "starved": self.starved,
            "blocked": self.blocked,
            "frames": self.transfers // TRANSFERS,
            "nonfinite": self.first is not None,
            "nonfinite_frame": self.first or 0,
            **self.times,
        }


def test_every_cycle_counts_once_and_the_first_bad_frame_is_kept():
    rng = random.Random(new_seed())
    dut = Watch(lanes=LANES, transfers=TRANSFERS)
    checked = []

    async def process(ctx):
        for _ in range(4):
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            timed = sorted(rng.randrange(5) for _ in range(2))
            expected = Expected(timed)
            ctx.set(dut.timed_first, timed[0])
            ctx.set(dut.timed_last, timed[1])
            for now in range(50, rng.randrange(100, 200)):
                enable, taken, given = rng.random() < 0.8, _handshake(rng), _handshake(rng)
                odd = rng.random() < 0.04
                payload = [rng.choice(FINITE) for _ in range(LANES)]
                if odd:
                    payload[rng.randrange(LANES)] = rng.choice(ODD)
                updated = rng.random() < 0.1
                expected.see(enable, taken, given, odd, now, updated)
                _drive(ctx, dut, enable, taken, given)
                ctx.set(dut.now, now)
                ctx.set(dut.updated, updated)
                ctx.set(dut.payload, payload)
                await ctx.tick()
            _drive(ctx, dut, False, (0, 0), (0, 0))
            ctx.set(dut.now, now + 1)
            ctx.set(dut.updated, 0)
            await ctx.tick()
            found = {name: ctx.get(getattr(dut, name)) for name in expected.outputs}
            assert found == expected.outputs
            checked.append(expected.first)

    simulate(dut, processes=[process], idle=600)
    assert len(checked) == 4


def _handshake(rng):
    return rng.randrange(2), rng.randrange(2)


def _drive(ctx, dut, enable, taken, given):
    ctx.set(dut.enable, enable)
    for name, (valid, ready) in (("input", taken), ("output", given)):
        ctx.set(getattr(dut, f"{name}_valid"), valid)
        ctx.set(getattr(dut, f"{name}_ready"), ready)


def test_a_frame_of_no_transfers_is_refused():
    with pytest.raises(ValueError, match="transfers must be at least 1, not 0"):
        Watch(lanes=4, transfers=0)
