"""Read port and write port of the store to AXI4; each serves the bursts of many channels in turn."""

from __future__ import annotations

from typing import Any

from amaranth import Array, Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.port import BEAT_BITS
from fanin.cnn.memory import ADDRESS_BITS, BEAT_BYTES
from fanin.hdl.bus.axi4 import (
    CACHE_BUFFERABLE_MODIFIABLE,
    OUTSTANDING,
    AXI4ReadSignature,
    AXI4WriteSignature,
    Burst,
    Resp,
)
from fanin.hdl.layers.burst_arbiter import BurstArbiter
from fanin.hdl.layers.burst_requests import BurstRequest
from fanin.hdl.stream.fifo import StreamFIFO

_BEAT_SIZE = BEAT_BYTES.bit_length() - 1


def _claim_layout(count: int) -> data.StructLayout:
    """Return the layout of a burst's claim: its channel, and whether it is the last of its frame."""
    return data.StructLayout({"channel": range(count), "last": 1})


def _address(m: Module, axi: Any, prefix: str, request: Any, *, go: Signal, free: Signal) -> None:
    """Move a request into the registers of an address channel on ``go``; ``free``: they can take a request."""

    def port(name: str) -> Any:
        return getattr(axi, f"{prefix}{name}")

    m.d.comb += [
        free.eq(~port("valid") | port("ready")),
        port("size").eq(_BEAT_SIZE),
        port("burst").eq(Burst.INCR),
        port("cache").eq(CACHE_BUFFERABLE_MODIFIABLE),
    ]
    with m.If(port("ready")):
        m.d.sync += port("valid").eq(0)
    with m.If(go):
        m.d.sync += [
            port("valid").eq(1),
            port("addr").eq(Cat(Const(0, _BEAT_SIZE), request.address)),
            port("len").eq(request.length),
        ]


class ReadPort(wiring.Component):
    """Read port that executes the bursts of many channels, in turn.

    All bursts have the ID 0, so data arrive in the order of requests. ``rready`` is always high: a channel
    requests only data for which it has room.

    Members
    -------
    ``requests`` : In, array of ``count`` streams of BurstRequest
    ``beat`` : Out(512), the data
    ``arrived`` : Out(count), one-hot: the channel to which ``beat`` belongs
    ``finished`` : Out(count)
        One-hot: the channel to which ``beat`` belongs, if ``beat`` is the last of a frame.
    ``error`` : Out(1), a response was not OKAY in the previous cycle
    ``stop`` : In(1)
        Begin no burst. Bursts that have begun finish.
    ``quiet`` : Out(1)
        No burst was in flight in the previous cycle.
    ``axi`` : Out, :class:`AXI4ReadSignature`

    Parameters
    ----------
    ``count`` : int, channels; at least 1

    Latency
    -------
    5 cycles from a request to ``arvalid``; 1 cycle from ``rvalid`` to ``arrived``. A burst every 4 cycles, a
    beat a cycle.

    Source
    ------
    docs/systems/cluster.md, "Store"; Arm IHI 0022.
    """

    def __init__(self, *, count: int):
        self.count = count
        super().__init__(
            {
                "requests": In(stream.Signature(BurstRequest)).array(count),
                "beat": Out(BEAT_BITS),
                "arrived": Out(count),
                "finished": Out(count),
                "error": Out(1),
                "stop": In(1),
                "quiet": Out(1),
                "axi": Out(AXI4ReadSignature(data_width=BEAT_BITS, address_width=ADDRESS_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Queue a claim for each burst until its data arrive."""
        m = Module()
        m.submodules.arbiter = arbiter = BurstArbiter(count=self.count)
        m.submodules.claims = claims = StreamFIFO(shape=_claim_layout(self.count), depth=OUTSTANDING)
        for outer, inner in zip(self.requests, arbiter.requests, strict=True):
            wiring.connect(m, wiring.flipped(outer), inner)
        axi, grant = self.axi, arbiter.o
        m.d.comb += arbiter.stop.eq(self.stop)
        m.d.sync += self.quiet.eq(~(grant.valid | axi.arvalid | claims.level.any()))
        go = Signal()
        free = Signal()
        _address(m, axi, "ar", grant.payload.request, go=go, free=free)
        m.d.comb += [
            go.eq(grant.valid & free & claims.i.ready),
            grant.ready.eq(free & claims.i.ready),
            claims.i.valid.eq(grant.valid & free),
            claims.i.payload.channel.eq(grant.payload.channel),
            claims.i.payload.last.eq(grant.payload.request.last),
            claims.o.ready.eq(axi.rvalid & axi.rlast),
            axi.rready.eq(1),
        ]
        m.d.sync += [self.beat.eq(axi.rdata), self.error.eq(axi.rvalid & (axi.rresp != Resp.OKAY))]
        for index in range(self.count):
            for_channel = axi.rvalid & (claims.o.payload.channel == index)
            m.d.sync += [
                self.arrived[index].eq(for_channel),
                self.finished[index].eq(for_channel & axi.rlast & claims.o.payload.last),
            ]
        return m


class WritePort(wiring.Component):
    """Write port that executes the bursts of many channels, in turn.

    All bursts have the ID 0, so responses arrive in the order of requests. ``bready`` is always high. A channel
    requests only bursts whose data it holds, so no burst stalls.

    Members
    -------
    ``requests`` : In, array of ``count`` streams of BurstRequest
    ``beats`` : In, array of ``count`` streams of 512 bits
        Data; all beats of a burst are available from its request on. ``ready`` follows ``axi.wready`` within
        the cycle.
    ``acknowledged`` : Out(count)
        One-hot: the channel of the burst that was acknowledged in the previous cycle.
    ``landed`` : Out(count)
        One-hot: the channel of the acknowledged burst, if the burst is the last of a frame.
    ``error`` : Out(1), a response was not OKAY in the previous cycle
    ``stop`` : In(1)
        Begin no burst. Bursts that have begun finish.
    ``quiet`` : Out(1)
        No burst was in flight in the previous cycle.
    ``axi`` : Out, :class:`AXI4WriteSignature`

    Parameters
    ----------
    ``count`` : int, channels; at least 1

    Latency
    -------
    5 cycles from a request to ``awvalid``, 1 more to ``wvalid``. A burst every 4 cycles, a beat a cycle.

    Source
    ------
    docs/systems/cluster.md, "Store"; Arm IHI 0022.
    """

    def __init__(self, *, count: int):
        self.count = count
        super().__init__(
            {
                "requests": In(stream.Signature(BurstRequest)).array(count),
                "beats": In(stream.Signature(BEAT_BITS)).array(count),
                "acknowledged": Out(count),
                "landed": Out(count),
                "error": Out(1),
                "stop": In(1),
                "quiet": Out(1),
                "axi": Out(AXI4WriteSignature(data_width=BEAT_BITS, address_width=ADDRESS_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Send a granted burst to the AW channel, to the data path, and to the queue of awaited responses."""
        m = Module()
        m.submodules.arbiter = arbiter = BurstArbiter(count=self.count)
        m.submodules.bursts = bursts = StreamFIFO(shape=arbiter.o.payload.shape(), depth=OUTSTANDING)
        m.submodules.claims = claims = StreamFIFO(shape=_claim_layout(self.count), depth=OUTSTANDING)
        for outer, inner in zip(self.requests, arbiter.requests, strict=True):
            wiring.connect(m, wiring.flipped(outer), inner)
        grant = arbiter.o
        m.d.comb += arbiter.stop.eq(self.stop)
        busy = grant.valid | self.axi.awvalid | self.axi.wvalid | bursts.level.any() | claims.level.any()
        m.d.sync += self.quiet.eq(~busy)
        go = Signal()
        free = Signal()
        _address(m, self.axi, "aw", grant.payload.request, go=go, free=free)
        m.d.comb += [
            go.eq(grant.valid & free & bursts.i.ready & claims.i.ready),
            grant.ready.eq(free & bursts.i.ready & claims.i.ready),
            bursts.i.valid.eq(grant.valid & free & claims.i.ready),
            bursts.i.payload.eq(grant.payload),
            claims.i.valid.eq(grant.valid & free & bursts.i.ready),
            claims.i.payload.channel.eq(grant.payload.channel),
            claims.i.payload.last.eq(grant.payload.request.last),
        ]
        self._words(m, bursts.o)
        self._responses(m, claims.o)
        return m

    def _words(self, m: Module, bursts: Any) -> None:
        """Send the beats of the oldest burst from its channel."""
        axi = self.axi
        burst = bursts.payload
        beat = Signal.like(burst.request.length)
        last = beat == burst.request.length
        moves = Signal()
        m.d.comb += [
            moves.eq(bursts.valid & (~axi.wvalid | axi.wready)),
            bursts.ready.eq(moves & last),
            axi.wstrb.eq(~Const(0, BEAT_BYTES)),
        ]
        with m.If(axi.wready):
            m.d.sync += axi.wvalid.eq(0)
        with m.If(moves):
            m.d.sync += [
                axi.wvalid.eq(1),
                axi.wdata.eq(Array(port.payload for port in self.beats)[burst.channel]),
                axi.wlast.eq(last),
                beat.eq(beat + 1),
            ]
            with m.If(last):
                m.d.sync += beat.eq(0)
        for index, port in enumerate(self.beats):
            m.d.comb += port.ready.eq(moves & (burst.channel == index))

    def _responses(self, m: Module, claims: Any) -> None:
        """Report each response to the channel of the oldest burst without one."""
        axi = self.axi
        m.d.comb += [axi.bready.eq(1), claims.ready.eq(axi.bvalid)]
        m.d.sync += self.error.eq(axi.bvalid & (axi.bresp != Resp.OKAY))
        for index in range(self.count):
            for_channel = axi.bvalid & (claims.payload.channel == index)
            m.d.sync += [
                self.acknowledged[index].eq(for_channel),
                self.landed[index].eq(for_channel & claims.payload.last),
            ]
