# amaranth: UnusedElaboratable=no
"""A board's services as they are put together, and what stands around them: hosts' frames, and a bus."""

import random

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from fanin.golden.control import BoardModel, Destination, Offer, destination
from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp
from fanin.hdl.net.control.demultiplexer import Demultiplexer
from fanin.hdl.net.control.headers import AboutWords, ResponderEvents
from fanin.hdl.net.control.responder import Responder
from fanin.hdl.stream.packet import packet_stream
from fanin.sim.rtl.monitor import Monitored
from fanin.sim.rtl.stalls import Side, Stalls
from fanin.wire.control import (
    CONTROL_PORT,
    ControlFrame,
    Kind,
    Status,
    decode_control,
    encode_control,
    hello_request,
)
from fanin.wire.ethernet import Endpoint, encode_udp
from tests.hdl.aggregation.bench import beats_of
from tests.support import simulate

OWN = Endpoint(0x02_00_00_00_12_99, 0x0A_01_02_99, CONTROL_PORT)
ABOUT = (0x0001_0005, 0xDEAD_BEEF, 77, 3)
PAYLOAD = 42  # bytes in front of it
WINDOW, HOLE = 0x100, 0xE000_0000
QUIET = 60  # cycles in which a frame that is not answered has been looked at
MAX_LEASE = 1 << 32


def host(number):
    return Endpoint(0x02_00_00_00_00_10 + number, 0x0A_01_02_10 + number, 40_000 + number)


def control_frame(kind, sequence, *words, lease=1, count=0, source=None, **header):
    """A request's frame, of host 0 unless ``source`` is another endpoint."""
    frame = ControlFrame(kind, lease, sequence, count, words, **header)
    return encode_udp(encode_control(frame), source=source or host(0), destination=OWN)


def hello(sequence, *, lease=0, source=0):
    """A hello's frame."""
    payload = encode_control(hello_request(sequence, lease=lease))
    return encode_udp(payload, source=host(source), destination=OWN)


def offer_of(frame):
    """The lease that a reply to hello offers, None for other frames."""
    reply = decode_control(frame[PAYLOAD:])
    offers = reply is not None and (reply.kind, reply.status) == (Kind.HELLO, Status.DONE)
    return reply.words[-1] if offers else None


class Bus:
    """Words that can be written, a window that counts, a hole; ``log`` has every access."""

    def __init__(self):
        self.words = {}
        self.log = []

    def __getitem__(self, address):
        self.log.append(address)
        if address >= HOLE:
            raise KeyError(address)
        return len(self.log) if address == WINDOW else self.words.get(address, address ^ 0x5A5A_1234)

    def __setitem__(self, address, data):
        self.log.append((address, data))
        if address >= HOLE:
            raise KeyError(address)
        self.words[address] = data


class Services(wiring.Component):
    """Demultiplexer and responder."""

    def __init__(self, **parameters):
        self.responder = Responder(**parameters)
        frames = packet_stream(32)
        super().__init__(
            {
                "i": In(frames),
                "node": Out(frames),
                "o": Out(frames),
                "axil": Out(AXI4LiteSignature(address_width=32)),
                "own_mac": In(48),
                "own_ip": In(32),
                "about": In(AboutWords),
                "holder": Out(32),
                "events": Out(ResponderEvents),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.demultiplexer = demultiplexer = Demultiplexer()
        m.submodules.responder = responder = self.responder
        wiring.connect(m, wiring.flipped(self.i), demultiplexer.i)
        wiring.connect(m, demultiplexer.node, wiring.flipped(self.node))
        wiring.connect(m, demultiplexer.board, responder.i)
        wiring.connect(m, responder.o, wiring.flipped(self.o))
        wiring.connect(m, responder.axil, wiring.flipped(self.axil))
        for part in (demultiplexer, responder):
            m.d.comb += [part.own_mac.eq(self.own_mac), part.own_ip.eq(self.own_ip)]
        m.d.comb += [
            responder.about.eq(self.about),
            self.holder.eq(responder.holder),
            self.events.eq(responder.events),
        ]
        return m


class Slave:
    """The bus behind an AXI4-Lite port, with pauses on every channel. ``silent``: it answers nothing."""

    def __init__(self, axil, bus, *, patience=0.5, seed=0):
        self.axil, self.bus, self.patience = axil, bus, patience
        self.rng = random.Random(seed)
        self.silent = False

    async def process(self, ctx):
        axil = self.axil
        while True:
            await ctx.tick()
            if self.silent:
                continue
            if ctx.get(axil.awvalid) or ctx.get(axil.wvalid):
                taken = {}
                for channel in self.rng.sample(("aw", "w"), 2):
                    taken |= await self._take(ctx, channel)
                assert taken["wstrb"] == 0b1111
                await self._answer(ctx, "b", self._access(taken["awaddr"], taken["wdata"]))
            elif ctx.get(axil.arvalid):
                taken = await self._take(ctx, "ar")
                await self._answer(ctx, "r", self._access(taken["araddr"], None))

    async def _pause(self, ctx):
        while self.rng.random() < self.patience:
            await ctx.tick()

    async def _take(self, ctx, channel):
        await self._pause(ctx)
        axil = self.axil
        names = [
            n for n in axil.signature.members if n.startswith(channel) and n[-5:] not in ("valid", "ready")
        ]
        ctx.set(getattr(axil, f"{channel}ready"), 1)
        values = (
            await ctx.tick().sample(*(getattr(axil, n) for n in names)).until(getattr(axil, f"{channel}valid"))
        )
        ctx.set(getattr(axil, f"{channel}ready"), 0)
        assert not ctx.get(getattr(axil, f"{channel}valid")), f"{channel} is offered again"
        return dict(zip(names, values, strict=True))

    def _access(self, address, data):
        try:
            if data is None:
                return {"rresp": Resp.OKAY, "rdata": self.bus[address]}
            self.bus[address] = data
            return {"bresp": Resp.OKAY}
        except KeyError:
            bad = self.rng.choice((Resp.SLVERR, Resp.DECERR))
            return {"bresp" if data is not None else "rresp": bad}

    async def _answer(self, ctx, channel, values):
        await self._pause(ctx)
        for name, value in values.items():
            ctx.set(getattr(self.axil, name), value)
        ctx.set(getattr(self.axil, f"{channel}valid"), 1)
        await ctx.tick().until(getattr(self.axil, f"{channel}ready"))
        ctx.set(getattr(self.axil, f"{channel}valid"), 0)


class Expected:
    """What the model makes of a trace of frames: replies, frames of the node, counters, accesses.

    It offers a number of its own until ``show`` has the board's: the bytes of its replies are final then.
    """

    def __init__(self, frames=()):
        self.bus = Bus()
        self.model = BoardModel(
            self.bus, own=OWN, about=lambda: ABOUT, lease_time=float("inf"), draw=self._draw
        )
        self.replies, self.node, self.answered = [], [], []
        self.offers = []  # that the board has shown
        self._hidden = []  # of replies: where they stand, the model's offer, and the last lease then
        self._drawn = 0xF00D_0000
        for frame in frames:
            self.add(frame)

    def _draw(self):
        self._drawn += 1
        self._hidden.append((len(self.replies), self._drawn, self.model.lease))
        return self._drawn

    @property
    def offer(self):
        """The offer that the board has shown and that stands; None if there is none."""
        return None if self._hidden else self.model.offer

    def add(self, frame):
        """The next frame; it is returned."""
        whose = destination(frame, OWN)
        reply = self.model.answer(frame, 0) if whose is Destination.BOARD else None
        self.answered.append(reply is not None)
        if reply is not None:
            self.replies.append(reply)
        if whose is Destination.NODE:
            self.node.append(frame)
        return frame

    def show(self, replies):
        """All of the board's replies so far: its offers are the model's."""
        for number, placeholder, lease in self._hidden:
            shown = offer_of(replies[number])
            assert shown not in (None, 0, lease, *self.offers)
            self.offers.append(shown)
            self.replies[number] = self.replies[number][:-4] + shown.to_bytes(4, "big")
            if self.model.offer is not None and self.model.offer.lease == placeholder:
                self.model.offer = Offer(shown, self.model.offer.host)
        self._hidden = []


def run(groups, expected, *, bus, stall=0.3, seed=0, patience=0.5, limit=60_000, **parameters):
    """Send groups of frames, each when the one before has been answered; what comes out, and what is counted.

    ``groups`` yields a group when its turn has come; ``expected`` has been given its frames by then.
    """
    dut = Services(**parameters)
    counted = dict.fromkeys(ResponderEvents.members, 0)
    slave = Slave(dut.axil, bus, patience=patience, seed=seed)
    stalls = Stalls(stall, f"{seed} i")
    state = {"cycle": 0, "done": False}
    leaving, at_node = [], []  # beats

    async def tick(ctx, *more):
        o, node, events = dut.o, dut.node, dut.events
        _, _, valid, ready, beat, n_valid, n_ready, seen, *rest = await ctx.tick().sample(
            o.valid, o.ready, o.p, node.valid, node.ready, events, *more
        )
        if valid and ready:
            leaving.append((0, beat))
        if n_valid and n_ready:
            at_node.append(0)
        state["cycle"] += 1
        for name in counted:
            counted[name] += seen[name]
        return rest

    async def send(ctx):
        for group in groups:
            for frame in group:
                for beat in stream_beats(frame):
                    while stalls.pauses("i", Side.SOURCE, state["cycle"]):
                        await tick(ctx)
                    ctx.set(dut.i.payload, beat)
                    ctx.set(dut.i.valid, 1)
                    while not (await tick(ctx, dut.i.ready))[0]:
                        pass
                    ctx.set(dut.i.valid, 0)
            while len(leaving) < beats(expected.replies):
                await tick(ctx)
            for _ in range(QUIET):
                await tick(ctx)
            expected.show(frames_of(leaving))
        while len(at_node) < beats(expected.node):
            await tick(ctx)
        state["done"] = True
        while True:
            await tick(ctx)

    log = simulate(
        dut,
        collect={"o": None, "node": None},
        finished=lambda: state["done"],
        settings={"own_mac": OWN.mac, "own_ip": OWN.ip, "about": ABOUT},
        processes=[slave.process, send],
        stall=stall,
        seed=seed,
        limit=limit,
        idle=QUIET,
    )
    return {name: frames_of(log[name]) for name in ("o", "node")}, counted


def frames_of(transfers):
    """The frames of a stream's beats; all bytes but the last beat's are kept."""
    frames, frame = [], b""
    for _, beat in transfers:
        keep = beat.keep
        assert keep in (1, 3, 7, 15)
        assert beat.last or keep == 0b1111
        frame += beat.data.to_bytes(4, "little")[: keep.bit_length()]
        if beat.last:
            frames.append(frame)
            frame = b""
    assert frame == b""
    return frames


def beats(frames):
    return sum(-(-len(frame) // 4) for frame in frames)


def stream_beats(frame):
    """A frame as payloads of a packet stream without ``error``."""
    return [{name: beat[name] for name in ("data", "keep", "last")} for beat in beats_of(frame, 32)]


def latency(frames):
    """Cycles from the last beat of the last frame to the first one of its reply, at a responder of its own."""
    waited = []
    talk(frames, None, gaps=(0,) * len(frames), waited=waited)
    return waited[-1]


def talk(frames, slave, *, gaps, waited=None, **parameters):
    """Frames to a responder alone, each ``gaps`` cycles after the reply to the one before; the replies.

    A frame that depends on the board's offers is a function of them. Each frame has a reply.
    """
    dut = Responder(**{"lease_cycles": MAX_LEASE} | parameters)
    replies = []

    async def main(ctx):
        ctx.set(dut.own_mac, OWN.mac)
        ctx.set(dut.own_ip, OWN.ip)
        ctx.set(dut.about, ABOUT)
        ctx.set(dut.o.ready, 1)
        for frame, gap in zip(frames, gaps, strict=True):
            await ctx.tick().repeat(gap + 1)
            offers = [offer for offer in map(offer_of, replies) if offer is not None]
            for beat in stream_beats(frame(offers) if callable(frame) else frame):
                ctx.set(dut.i.payload, beat)
                ctx.set(dut.i.valid, 1)
                await ctx.tick()
            ctx.set(dut.i.valid, 0)
            cycles, reply, last = 0, [], False
            while not last:
                _, _, valid, beat = await ctx.tick().sample(dut.o.valid, dut.o.p)
                cycles += not reply
                assert cycles < 2000
                if valid:
                    reply.append((0, beat))
                    last = beat.last
            replies.extend(frames_of(reply))
            if waited is not None:
                waited.append(cycles)
            await ctx.tick().repeat(4)

    async def bus(ctx):
        await slave(ctx, dut.axil)

    sim = Simulator(Monitored(dut))
    sim.add_clock(1e-8)
    sim.add_testbench(main)
    if slave is not None:
        sim.add_testbench(bus, background=True)
    sim.run()
    return replies
