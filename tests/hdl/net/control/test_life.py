# amaranth: UnusedElaboratable=no
"""A board's services live: resets at any cycle, hosts that begin anew, old frames; the model's replies."""

import random

import pytest
from amaranth import Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, flipped
from amaranth.sim import Simulator

from fanin.hdl.bus.axi4 import Resp
from fanin.sim.rtl.monitor import Monitored
from fanin.wire.control import decode_control
from tests.hdl.net.control.bench import (
    ABOUT,
    MAX_LEASE,
    OWN,
    PAYLOAD,
    QUIET,
    Bus,
    Expected,
    Services,
    frames_of,
    offer_of,
    stream_beats,
)
from tests.hdl.net.control.test_responder import Hosts
from tests.support import new_seed

PATIENCE = 500_000  # cycles until a reply; a damaged request may ask for a checksum of 65,535 words


class Resettable(wiring.Component):
    """The services, in reset while ``reset`` is high: as the board's button has them, with MAC and bus."""

    def __init__(self, **parameters):
        self.services = Services(**parameters)
        super().__init__({**self.services.signature.members, "reset": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.services = ResetInserter(self.reset)(self.services)
        for name in self.services.signature.members:
            inner, outer, member = (
                getattr(self.services, name),
                getattr(self, name),
                self.signature.members[name],
            )
            if member.is_port:
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
            elif member.flow == In:
                wiring.connect(m, flipped(outer), inner)
            else:
                wiring.connect(m, inner, flipped(outer))
        return m


class OldHosts(Hosts):
    """Hosts whose frames may come once more however old they are."""

    def _frame(self):
        if self.sent and self.rng.random() < 0.15:
            return self.rng.choice(self.sent)
        return super()._frame()


class Life:
    """Steps of a board's life: a frame and its reply, or a reset in the middle of either."""

    def __init__(self, *, seed, steps, resets):
        self.rng = random.Random(seed)
        self.steps, self.resets = steps, resets
        self.dut = Resettable(lease_cycles=MAX_LEASE)
        self.hosts = OldHosts(self.rng)
        self.bus = Bus()
        self.cycle = 0
        self.cut = None  # the cycle of the next reset
        self.beats = []  # of the frame that leaves
        self.replies = []
        self.offered = set()  # leases, each with the address to which the board has sent it
        self.counts = {"frames": 0, "replies": 0, "resets": 0, "longer": 0}

    async def tick(self, ctx):
        """A cycle, and what leaves in it. True if a reset has begun."""
        o = self.dut.o
        ctx.set(o.ready, self.rng.random() < 0.7)
        _, _, valid, ready, beat = await ctx.tick().sample(o.valid, o.ready, o.p)
        self.cycle += 1
        if valid and ready:
            self.beats.append((0, beat))
            if beat.last:
                self.replies += frames_of(self.beats)
                self.beats = []
        return self.cut is not None and self.cycle >= self.cut

    async def reset(self, ctx):
        """Everything stops, the MAC's half frames too; the hosts' memory of the board does not."""
        ctx.set(self.dut.reset, 1)
        ctx.set(self.dut.i.valid, 0)
        await ctx.tick().repeat(self.rng.randint(1, 3))
        ctx.set(self.dut.reset, 0)
        self.beats, self.replies, self.cut = [], [], None
        board = self.hosts.board = Expected()
        board.bus.words, board.bus.log = dict(self.bus.words), list(self.bus.log)
        self.counts["resets"] += 1

    async def frame(self, ctx):
        """One frame in, and its reply, if it has one. False if a reset came in between."""
        dut, board = self.dut, self.hosts.board
        frame = self.hosts.frame()
        expected = board.replies[-1:] if board.answered[-1] else []
        for beat in stream_beats(frame):
            ctx.set(dut.i.payload, beat)
            ctx.set(dut.i.valid, 1)
            ready = False
            while not ready:
                ready = ctx.get(dut.i.ready)
                if await self.tick(ctx):
                    return False
            ctx.set(dut.i.valid, 0)
        self.counts["frames"] += 1
        end = self.cycle + (PATIENCE if expected else QUIET)  # a frame that comes too early may be dropped
        while self.cycle < end and not (expected and self.replies):
            if await self.tick(ctx):
                return False
        for _ in range(8):
            if await self.tick(ctx):
                return False
        if expected:
            board.show(board.replies[:-1] + self.replies)
            expected = board.replies[-1:]
        self.check_size(frame)
        assert self.replies == expected, (frame.hex(), [reply.hex() for reply in self.replies], expected)
        assert self.bus.words == board.bus.words
        assert self.bus.log == board.bus.log
        self.counts["replies"] += len(expected)
        self.replies = []
        return True

    def check_size(self, frame):
        """A reply that is longer than its request goes to whom its lease was offered; note such offers."""
        source = frame[6:12] + frame[26:30]  # MAC and IPv4 address
        for reply in self.replies:
            if (offer := offer_of(reply)) is not None:
                self.offered.add((offer, source))
            if len(reply) > len(frame):
                assert (decode_control(reply[PAYLOAD:]).lease, source) in self.offered
                self.counts["longer"] += 1

    async def main(self, ctx):
        dut = self.dut
        for name, value in (("own_mac", OWN.mac), ("own_ip", OWN.ip), ("about", ABOUT)):
            ctx.set(getattr(dut, name), value)
        ctx.set(dut.node.ready, 1)
        for _ in range(self.steps):
            if self.rng.random() < self.resets:
                self.cut = self.cycle + self.rng.randint(1, self.rng.choice([20, 100, 600]))
            if not await self.frame(ctx):
                await self.reset(ctx)

    async def slave(self, ctx):
        """The bus: an access in some cycles, abandoned by a reset as its registers are."""
        axil, rng = self.dut.axil, self.rng
        names = ("awvalid", "wvalid", "arvalid", "awaddr", "wdata", "araddr")
        signals = [getattr(axil, name) for name in names]
        while True:
            for name in ("awready", "wready", "arready", "bvalid", "rvalid"):
                ctx.set(getattr(axil, name), 0)
            _, _, reset, *sampled = await ctx.tick().sample(self.dut.reset, *signals)
            asked = dict(zip(names, sampled, strict=True))
            writes = asked["awvalid"] and asked["wvalid"]
            if reset or not (writes or asked["arvalid"]) or rng.random() < 0.3:
                continue
            for name in ("awready", "wready") if writes else ("arready",):
                ctx.set(getattr(axil, name), 1)
            _, _, reset = await ctx.tick().sample(self.dut.reset)
            if reset:
                continue
            try:
                if writes:
                    self.bus[asked["awaddr"]] = asked["wdata"]
                else:
                    ctx.set(axil.rdata, self.bus[asked["araddr"]])
                response = Resp.OKAY
            except KeyError:
                response = Resp.SLVERR
            for name in ("awready", "wready", "arready"):
                ctx.set(getattr(axil, name), 0)
            ctx.set(axil.bresp if writes else axil.rresp, response)
            ctx.set(axil.bvalid if writes else axil.rvalid, 1)
            await ctx.tick()

    def run(self):
        around = [f"Resettable.{name}" for name in ("i", "node", "o")]  # a reset reaches the monitors inside
        simulator = Simulator(Monitored(self.dut, excused=around))
        simulator.add_clock(1e-8)
        simulator.add_testbench(self.main)
        simulator.add_testbench(self.slave, background=True)
        simulator.run()
        print(self.counts, self.cycle)
        return self.counts


def test_any_life_has_the_models_replies():
    Life(seed=new_seed(), steps=12, resets=0.2).run()


@pytest.mark.slow
@pytest.mark.parametrize("resets", [0.02, 0.3])
def test_long_lives_have_the_models_replies(resets):
    counts = Life(seed=new_seed(), steps=600, resets=resets).run()
    assert counts["resets"] > 0  # 12 of 600 steps, on average, where they are rare
    assert counts["longer"] > 0
