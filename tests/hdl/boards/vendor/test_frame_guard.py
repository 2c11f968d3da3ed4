# amaranth: UnusedElaboratable=no
"""The guard behind a MAC: what it lets through, what it ends, and that it never joins two frames."""

import random

import pytest

from fanin.hdl.boards.vendor.frame_guard import FrameGuard
from fanin.sim.rtl.stalls import Side, Stalls
from tests.hdl.stream.frames import beats
from tests.support import new_seed, simulate

WIDTH = 64
STEP = WIDTH // 8
CYCLES = 2000
UNDER_WAY = 3  # frames at most, when the simulation ends


class Run:
    """A guard behind a MAC that never waits: the frames sent, those that left with and without error."""

    def __init__(self, *, stall, cuts=0.0, gaps=0.2):
        self.rng = random.Random(new_seed())
        self.stall, self.cuts, self.gaps = stall, cuts, gaps
        self.dut = FrameGuard(width=WIDTH)
        self.sent, self.tried, self.good, self.bad, self.lost = [], [], [], [], 0
        simulate(self.dut, processes=[self._send, self._take], idle=CYCLES)

    async def _send(self, ctx):
        rng, i = self.rng, self.dut.i
        while True:
            frame = rng.randbytes(rng.choice([1, STEP, STEP + 1, 3 * STEP, rng.randrange(1, 80)]))
            self.sent.append(frame)
            self.tried.append(frame)
            whole = True
            for beat in beats([frame], WIDTH):
                cut = rng.random() < self.cuts
                ctx.set(i.payload, beat)
                ctx.set(i.valid, 1)
                ctx.set(self.dut.cut, cut)
                await ctx.tick()
                ctx.set(i.valid, 0)
                ctx.set(self.dut.cut, 0)
                if cut and not beat["last"]:
                    whole = False
                    break
                while rng.random() < self.gaps:
                    ctx.set(self.dut.cut, cut := not beat["last"] and rng.random() < self.cuts)
                    await ctx.tick()
                    ctx.set(self.dut.cut, 0)
                    whole = whole and not cut
                    if cut:
                        break
                if not whole:
                    break
            if not whole:
                self.sent[-1] = None

    async def _take(self, ctx):
        stalls, o, frame = Stalls(self.stall, self.rng.random()), self.dut.o, b""
        for cycle in range(10**9):
            ctx.set(o.ready, not stalls.pauses("o", Side.SINK, cycle))
            _, _, valid, ready, payload, lost = await ctx.tick().sample(o.valid, o.ready, o.p, self.dut.lost)
            self.lost += lost
            if valid and ready:
                frame += payload.data.to_bytes(STEP, "little")[: payload.keep.bit_count()]
                if payload.last:
                    (self.bad if payload.error else self.good).append(frame)
                    frame = b""


def test_a_sink_that_keeps_up_gets_every_frame():
    run = Run(stall=0)
    assert run.good == run.sent[: len(run.good)]
    assert len(run.good) >= len(run.sent) - UNDER_WAY
    assert (run.bad, run.lost) == ([], 0)


@pytest.mark.parametrize("stall", [0.2, 0.6])
@pytest.mark.parametrize("cuts", [0.0, 0.1])
def test_a_frame_leaves_as_it_came_or_with_an_error_or_not_at_all(stall, cuts):
    run = Run(stall=stall, cuts=cuts)
    sent = iter(run.sent)
    assert all(frame in sent for frame in run.good)  # in order, each at most once
    assert len(run.good) > 30
    assert len(run.bad) > 5
    tried = iter(run.tried)
    for *begun, _ in run.bad:  # what came of it, in order, and a byte for its end; each once
        assert begun
        assert any(frame.startswith(bytes(begun)) for frame in tried)
    missing = len(run.sent) - len(run.good)
    assert abs(run.lost - missing) <= UNDER_WAY


def test_latency_is_a_cycle():
    offered = list(beats([bytes(range(STEP)), bytes(range(3 * STEP))], WIDTH))
    log = simulate(FrameGuard(width=WIDTH), drive={"i": offered}, collect={"o": len(offered)}, stall=0)
    assert {out - into for (into, _), (out, _) in zip(log["i"], log["o"], strict=True)} == {1}
