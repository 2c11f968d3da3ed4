"""AXI4 write master: writes a stream to a run of memory."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import (
    CACHE_BUFFERABLE_MODIFIABLE,
    OUTSTANDING,
    AXI4WriteSignature,
    Burst,
    Resp,
    check_bursts,
)
from fanin.hdl.bus.axi_reader import COUNT_BITS, BurstSplitter
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO

_ADDRESS_LEAD = 16  # bursts whose address may be issued before their data


def command_layout(address_width: int) -> data.StructLayout:
    """Return the layout of a writer's command: write ``beats`` words from byte ``address`` on."""
    return data.StructLayout({"address": address_width, "beats": COUNT_BITS})


def word_layout(data_width: int) -> data.StructLayout:
    """Return the layout of a word, with a ``strobe`` bit for each byte that is written."""
    return data.StructLayout({"data": data_width, "strobe": data_width // 8})


class AxiWriter(wiring.Component):
    """AXI4 write master that writes a stream to consecutive words of memory.

    A command writes the next ``beats`` words of ``i`` from ``address`` on; zero beats do nothing. ``address``
    counts bytes and must be a multiple of the word; its lower bits are taken as 0. The run must not wrap past
    the end of the address space. Commands are executed in order. Addresses and words of a command may be sent
    while responses to earlier commands are outstanding.

    Bursts are INCR and end at multiples of ``burst`` words. ``burst`` is at most 4 KiB, so no burst crosses a 4
    KiB boundary. All bursts have the ID 0, so responses return in order; ``bready`` is always high. AW and W
    are independent: the words of a burst are offered whether or not its address has been taken. A burst is
    requested when its command arrives, not when its words do: within a burst the interconnect may have to wait
    for ``i``.

    Members
    -------
    ``command`` : In, stream of :func:`command_layout`
        Runs to write.
    ``i`` : In, stream of :func:`word_layout`
        Words to write. ``ready`` follows ``axi.wready`` within the cycle.
    ``busy`` : Out(1)
        High from the cycle after a command is taken until 1 cycle after its last response.
    ``done`` : Out(1)
        Pulse in the cycle after a command's last response, one for each command with words.
    ``landed`` : Out, range(burst + 1)
        Number of words whose response came in the previous cycle. These words and all earlier ones are in
        memory.
    ``error`` : Out(1)
        A response was not OKAY since the last command that was taken while not ``busy``.
    ``axi`` : Out, :class:`AXI4WriteSignature`
        Port to memory; registered.

    Parameters
    ----------
    ``data_width`` : int, bits; a power of two, 8…1024
        Width of a word; 256 by default.
    ``address_width`` : int, bits; 12…64
        Width of an address; 40 by default.
    ``burst`` : int, words; a power of two, 1…256, and at most 4 KiB
        Longest burst; 16 by default.
    ``outstanding`` : int, bursts; at least 1
        Maximum number of bursts without a response; 64 by default.

    Latency
    -------
    - The first ``awvalid`` is 6 cycles after the command, its first word on ``axi`` 1 cycle later.
    - From then on a word is on ``axi`` 1 cycle after it is on ``i``.
    - One word a cycle across bursts, while ``outstanding`` bursts cover the time until a response.
    - One word a cycle across commands. A command takes 3 cycles more than it has bursts.

    Source
    ------
    docs/reference/buses.md; Arm IHI 0022.
    """

    def __init__(
        self, *, data_width: int = 256, address_width: int = 40, burst: int = 16, outstanding: int = OUTSTANDING
    ):
        axi = AXI4WriteSignature(data_width=data_width, address_width=address_width)
        check_bursts(data_width=data_width, address_width=address_width, burst=burst, outstanding=outstanding)
        self.data_width = data_width
        self.address_width = address_width
        self.burst = burst
        self.outstanding = outstanding
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(address_width))),
                "i": In(stream.Signature(word_layout(data_width))),
                "busy": Out(1),
                "done": Out(1),
                "landed": Out(range(burst + 1)),
                "error": Out(1),
                "axi": Out(axi),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Send each burst to three queues.

        Its address goes to AW, its length to ``lengths`` for the words, and to ``awaited`` for the responses.
        """
        m = Module()
        splitter = BurstSplitter(
            word_bytes=self.data_width // 8, address_width=self.address_width, burst=self.burst
        )
        m.submodules.splitter = splitter
        m.submodules.bursts = bursts = RegisterSlice(shape=splitter.o.payload.shape())
        m.submodules.lengths = lengths = StreamFIFO(shape=bursts.o.payload.length.shape(), depth=_ADDRESS_LEAD)
        awaited_shape = data.StructLayout({"length": bursts.o.payload.length.shape(), "last": 1})
        m.submodules.awaited = awaited = StreamFIFO(shape=awaited_shape, depth=self.outstanding)
        connect_typed(m, splitter.o, bursts.i)
        m.d.comb += [
            splitter.command.valid.eq(self.command.valid),
            splitter.command.payload.address.eq(self.command.payload.address),
            splitter.command.payload.beats.eq(self.command.payload.beats),
            splitter.command.payload.repeats.eq(1),
            self.command.ready.eq(splitter.command.ready),
        ]
        self._addresses(m, bursts.o, lengths.i, awaited.i)
        self._words(m, lengths.o)
        accept = self.command.valid & self.command.ready
        m.d.sync += self.busy.eq(accept | splitter.busy | splitter.o.valid | bursts.o.valid | awaited.o.valid)
        self._responses(m, awaited.o, accept & ~self.busy)
        return m

    def _addresses(self, m: Module, bursts: Any, lengths: Any, awaited: Any) -> None:
        """Move a burst to AW, ``lengths`` and ``awaited`` when all three have room for it."""
        axi = self.axi
        free = ~axi.awvalid | axi.awready
        m.d.comb += [
            lengths.valid.eq(bursts.valid & free & awaited.ready),
            lengths.payload.eq(bursts.payload.length),
            awaited.valid.eq(bursts.valid & free & lengths.ready),
            awaited.payload.last.eq(bursts.payload.last),
            awaited.payload.length.eq(bursts.payload.length),
            bursts.ready.eq(free & lengths.ready & awaited.ready),
            axi.awsize.eq((self.data_width // 8).bit_length() - 1),
            axi.awburst.eq(Burst.INCR),
            axi.awcache.eq(CACHE_BUFFERABLE_MODIFIABLE),
        ]
        with m.If(axi.awready):
            m.d.sync += axi.awvalid.eq(0)
        with m.If(bursts.valid & bursts.ready):
            m.d.sync += [
                axi.awvalid.eq(1),
                axi.awaddr.eq(bursts.payload.address),
                axi.awlen.eq(bursts.payload.length),
            ]

    def _words(self, m: Module, lengths: Any) -> None:
        """Move words into the W registers while a burst's length is available; count them to set ``wlast``."""
        axi = self.axi
        beat = Signal.like(lengths.payload)
        last = beat == lengths.payload
        free = ~axi.wvalid | axi.wready
        move = Signal()
        m.d.comb += [
            move.eq(self.i.valid & lengths.valid & free),
            self.i.ready.eq(lengths.valid & free),
            lengths.ready.eq(self.i.valid & free & last),
        ]
        with m.If(axi.wready):
            m.d.sync += axi.wvalid.eq(0)
        with m.If(move):
            m.d.sync += [
                axi.wvalid.eq(1),
                axi.wdata.eq(self.i.payload.data),
                axi.wstrb.eq(self.i.payload.strobe),
                axi.wlast.eq(last),
                beat.eq(beat + 1),
            ]
            with m.If(last):
                m.d.sync += beat.eq(0)

    def _responses(self, m: Module, awaited: Any, restart: Any) -> None:
        """Match responses with bursts, in the same order, one a cycle; ``restart`` clears ``error``."""
        axi = self.axi
        m.d.comb += [axi.bready.eq(1), awaited.ready.eq(axi.bvalid)]
        is_response = axi.bvalid & awaited.valid
        m.d.sync += [
            self.done.eq(is_response & awaited.payload.last),
            self.landed.eq(Mux(is_response, awaited.payload.length + 1, 0)),
        ]
        with m.If(axi.bvalid & (axi.bresp != Resp.OKAY)):
            m.d.sync += self.error.eq(1)
        with m.Elif(restart):
            m.d.sync += self.error.eq(0)
