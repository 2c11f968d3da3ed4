"""Life of the NIC stages: any traffic and any settings at any time; what comes after them is exact."""

import random

import pytest

from fanin.hdl.codec.nic.parser import HeaderParser
from fanin.hdl.codec.nic.receiver import InceptionnReceiver
from fanin.hdl.codec.nic.transmitter import InceptionnTransmitter
from fanin.sim.rtl.stalls import Side, Stalls
from tests.fanin.codec.golden.packets import frame_of
from tests.hdl.codec.nic_traffic import CONFIG, host_frames, received, sent, wire_frames
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate, slow

MAX_FRAME = 510
MARKER = frame_of(b"the end of what may be anything", tos=0)  # passes, whatever the settings are
STAGES = {"transmitter": InceptionnTransmitter, "receiver": InceptionnReceiver}


class Life:
    """A stage, what it is given, and what leaves it."""

    def __init__(self, kind, rng, count):
        self.dut, self.rng, self.is_sender = STAGES[kind](max_frame=MAX_FRAME), rng, kind == "transmitter"
        self.left, self.building, self.settled = [], [], False
        self.stalls = Stalls(rng.choice([0.2, 0.5, 0.8]), rng.random())
        make = host_frames if self.is_sender else wire_frames
        lengths = [rng.choice([rng.randrange(30), rng.randrange(400)]) for _ in range(count)]
        dirty = [*make(rng, lengths, max_frame=MAX_FRAME)]
        errors = () if self.is_sender else {k for k in range(len(dirty)) if rng.random() < 0.2}
        self.dirty = [*self._beats(dirty, errors), *self._beats([MARKER])]
        clean = [*make(rng, lengths[: max(count // 3, 2)], max_frame=MAX_FRAME)]
        self.clean = [*self._beats(clean)]
        self.expected = (sent if self.is_sender else received)(clean, max_frame=MAX_FRAME)

    def _beats(self, made, errors=()):
        return beats(made, 256, errors=None if self.is_sender else errors)

    async def give(self, ctx):
        """The dirty frames; once the marker has left, the settings of the clean ones and these."""
        await self._put(ctx, self.dirty)
        while MARKER not in self.left:
            await ctx.tick()
        self.settled = True
        self._set(ctx, 1, CONFIG.bound, int(CONFIG.mode))
        self.left.clear()
        await self._put(ctx, self.clean)

    async def _put(self, ctx, items):
        port, cycle = self.dut.i, 0
        for item in items:
            while self.stalls.pauses("i", Side.SOURCE, cycle):
                await ctx.tick()
                cycle += 1
            ctx.set(port.payload, item)
            ctx.set(port.valid, 1)
            ready = False
            while not ready:
                if not self.settled and self.rng.random() < 0.03:
                    self._set(ctx, self.rng.randrange(2), self.rng.randrange(16), self.rng.randrange(2))
                _, _, ready = await ctx.tick().sample(port.ready)
                cycle += 1
            ctx.set(port.valid, 0)

    def _set(self, ctx, enable, bound, mode):
        ctx.set(self.dut.enable, enable)
        if self.is_sender:
            ctx.set(self.dut.bound, bound)
            ctx.set(self.dut.mode, mode)

    async def take(self, ctx):
        """Frames that leave, as whole ones."""
        port, cycle = self.dut.o, 0
        ctx.set(port.ready, 1)
        async for _, _, valid, ready, payload in ctx.tick().sample(port.valid, port.ready, port.payload):
            if valid and ready:
                self.building.append(payload)
                if payload.last:
                    self.left += frames(self.building)
                    self.building = []
            cycle += 1
            ctx.set(port.ready, not self.stalls.pauses("o", Side.SINK, cycle))


@pytest.mark.parametrize("kind", STAGES)
@pytest.mark.parametrize("count", [4, *slow(300)])
def test_whatever_came_before_clean_frames_are_exact(kind, count):
    seed = new_seed()
    life = Life(kind, random.Random(seed), count)
    beats_in = len(life.dirty) + len(life.clean)
    simulate(life.dut, processes=[life.give, life.take], seed=seed, idle=400 + 8 * beats_in)
    assert life.settled
    assert life.left == life.expected


def test_a_beat_that_is_offered_stays_while_headers_of_earlier_frames_come():
    """The host hardly takes beats, and the cutter hardly takes headers, while short frames begin."""
    host = [frame_of(bytes(60))] * 40
    expected = [*beats(host, 256, errors=())]
    log = simulate(
        HeaderParser(receive=False, max_frame=MAX_FRAME),
        drive={"i": expected},
        collect={"o": len(expected), "header": len(host)},
        settings={"enable": 1},
        stall={"o": 0.8, "header": 0.9},
        seed=1,
    )
    assert frames(payload for _, payload in log["o"]) == host
