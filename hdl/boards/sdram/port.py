"""Port to a part of SDRAM for a host, which writes it word by word, and a reader of bursts."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped
from amaranth.utils import exact_log2

from fanin.boards.sdram import WORD_BYTES
from fanin.hdl.boards.sdram.signature import WORD_BITS, native_port
from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature, Resp
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO


class SdramPort(wiring.Component):
    """Port to ``size`` bytes of SDRAM from ``base`` on; to host and reader it behaves like ``BlockMemory``.

    Host and reader see the same bytes at the same addresses, little endian. Bursts are INCR and of whole beats,
    and are answered in order. A beat is a word of SDRAM, or a part of a word, which is then read for each beat.
    The host has priority over the beats. A host's write is visible to every access after its response.

    Accesses beyond the end are answered with SLVERR, beat by beat. The host also gets SLVERR for an access that
    is not a whole word at a multiple of 4. Nothing is written then.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Port of the host. ``awready`` and ``wready`` wait for both requests.
    ``axi`` : In, AXI4 read, ``beat_width`` bits
        Port of the reader.
    ``port`` : Out, :func:`~fanin.hdl.boards.sdram.signature.native_port`
        Port of litedram's crossbar.

    Parameters
    ----------
    ``base`` : int
        First byte in SDRAM, a multiple of 4.
    ``size`` : int
        Bytes, a multiple of 4, at least 8.
    ``word_address_width`` : int
        Bits of an address on ``port``.
    ``beat_width`` : int
        Bits of a beat: 8, 16 or 32. Default 32.
    ``address_width`` : int
        Bits of an address on ``axi``, enough for ``size``. Default 32.
    ``host_address_width`` : int
        Bits of an address on ``axil``, enough for ``size``. Default 24.
    ``id_width`` : int
        Bits of an ID, 0…32. Default 1.
    ``depth`` : int
        Beats and words of the host that may be in flight. Default 16.

    Latency
    -------
    ``axi``: the first command is on ``port`` 3 cycles after a burst is taken, then one a cycle, across bursts.
    A beat comes 1 cycle after its word. ``axil``: a command comes 2 cycles after the request; the response
    comes 2 cycles after the word, or after the data are taken.

    Source
    ------
    docs/systems/boards.md, "SDRAM"; Arm IHI 0022.
    """

    def __init__(
        self,
        *,
        base: int,
        size: int,
        word_address_width: int,
        beat_width: int = 32,
        address_width: int = 32,
        host_address_width: int = 24,
        id_width: int = 1,
        depth: int = 16,
    ):
        if beat_width not in (8, 16, 32):
            raise ValueError(f"beat_width must be 8, 16 or 32, not {beat_width!r}")
        if base % WORD_BYTES or size % WORD_BYTES or size < 2 * WORD_BYTES:
            raise ValueError(
                f"base and size must be multiples of {WORD_BYTES}, size at least {2 * WORD_BYTES}, "
                f"not {base!r} and {size!r}"
            )
        if base + size > WORD_BYTES << word_address_width:
            raise ValueError(f"size must be at most {(WORD_BYTES << word_address_width) - base}, not {size!r}")
        for name, width in {"address_width": address_width, "host_address_width": host_address_width}.items():
            if not (size - 1).bit_length() <= width <= 64:
                raise ValueError(f"{name} must be from {(size - 1).bit_length()} to 64, not {width!r}")
        self.base = base
        self.size = size
        self.word_address_width = word_address_width
        self.beat_width = beat_width
        self.address_width = address_width
        self.host_address_width = host_address_width
        self.id_width = id_width
        self.depth = depth
        axi = AXI4ReadSignature(data_width=beat_width, address_width=address_width, id_width=id_width)
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=host_address_width)),
                "axi": In(axi),
                "port": Out(native_port(word_address_width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Store a note for each read, and match the words from memory with their notes, in order.

        A note says who requested the word, and holds the fields of the response.
        ``free_places``: words that may still be requested, limited by the queues. A write needs no place.
        """
        m = Module()
        m.submodules.notes = notes = StreamFIFO(shape=self._note, depth=self.depth)
        m.submodules.words = words = StreamFIFO(shape=WORD_BITS, depth=self.depth)
        m.submodules.commands = commands = RegisterSlice(shape=self.port.command.payload.shape())
        connect_typed(m, commands.o, flipped(self.port.command))
        free_places = Signal(range(self.depth + 1), init=self.depth)
        writes, reads, beat, note_taken = (
            Signal(name=name) for name in ("writes", "reads", "beat", "note_taken")
        )
        may_read = commands.i.ready & (free_places != 0)
        command, note = commands.i.payload, notes.i.payload
        m.d.comb += [
            commands.i.valid.eq(writes | reads | beat),
            command.write.eq(writes),
            notes.i.valid.eq(reads | beat),
            note.host.eq(reads),
            words.i.valid.eq(self.port.word.valid),
            words.i.payload.eq(self.port.word.payload),
            note_taken.eq(words.o.valid & words.o.ready),
            notes.o.ready.eq(note_taken),
        ]
        m.d.sync += free_places.eq(free_places - notes.i.valid + note_taken)
        host_waits = self._host(m, commands.i.ready, may_read, writes, reads, words.o, notes.o.payload)
        index = self._beats(m, may_read & ~host_waits, beat, note)
        host_address = Mux(writes, self.axil.awaddr, self.axil.araddr)
        with m.If(reads):
            m.d.comb += note.outside.eq(self._is_outside(self.axil.araddr, 1) | self.axil.araddr[:2].any())
        with m.Else():
            m.d.comb += note.outside.eq(self._is_outside(index, self.beat_width // 8))
        word = Mux(writes | reads, host_address[2:], index[exact_log2(WORD_BITS // self.beat_width) :])
        m.d.comb += command.address.eq(word + self.base // WORD_BYTES)
        self._respond(m, words.o, notes.o.payload)
        return m

    @property
    def _note(self) -> data.StructLayout:
        """Layout of a note: ``host``, or the beat's part of the word and its AXI fields."""
        parts = exact_log2(WORD_BITS // self.beat_width)
        return data.StructLayout({"host": 1, "outside": 1, "last": 1, "part": parts, "id": self.id_width})

    def _is_outside(self, address: Value, unit: int) -> Value:
        """Return whether an address in units of ``unit`` bytes is beyond the end of the memory."""
        return address >= self.size // unit

    def _host(
        self, m: Module, ready: Value, may_read: Value, writes: Signal, reads: Signal, words: Any, note: Any
    ) -> Signal:
        """Process the host's accesses one at a time; return whether one waits for its command."""
        axil = self.axil
        is_waiting = Signal()
        is_valid = ~self._is_outside(axil.awaddr, 1) & ~axil.awaddr[:2].any() & axil.wstrb.all()
        m.d.comb += [self.port.data.eq(axil.wdata), axil.wready.eq(axil.awready)]
        with m.If(axil.bready):
            m.d.sync += axil.bvalid.eq(0)
        with m.If(axil.rready):
            m.d.sync += axil.rvalid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(axil.awvalid & axil.wvalid & ~axil.bvalid):
                    m.d.sync += axil.bresp.eq(Mux(is_valid, Resp.OKAY, Resp.SLVERR))
                    with m.If(is_valid):
                        m.next = "WRITE"
                    with m.Else():
                        m.next = "WRITTEN"
                with m.Elif(axil.arvalid & ~axil.rvalid):
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.comb += [is_waiting.eq(1), writes.eq(ready)]
                with m.If(writes):
                    m.next = "DATA"
            with m.State("DATA"), m.If(self.port.taken):
                m.next = "WRITTEN"
            with m.State("WRITTEN"):
                m.d.comb += axil.awready.eq(1)
                m.d.sync += axil.bvalid.eq(1)
                m.next = "IDLE"
            with m.State("READ"):
                m.d.comb += [is_waiting.eq(1), reads.eq(may_read), axil.arready.eq(reads)]
                with m.If(reads):
                    m.next = "WORD"
            with m.State("WORD"), m.If(words.valid & note.host):
                m.d.sync += [
                    axil.rvalid.eq(1),
                    axil.rdata.eq(words.payload),
                    axil.rresp.eq(Mux(note.outside, Resp.SLVERR, Resp.OKAY)),
                ]
                m.next = "IDLE"
        return is_waiting

    def _beats(self, m: Module, enable: Value, beat: Signal, note: Any) -> Signal:
        """Step through bursts, one beat in each cycle of ``enable``; return the beat's index in memory.

        A burst waits in the ``queued_…`` registers until the previous burst has requested its last beat.
        """
        axi = self.axi
        index, queued_index = (Signal(self.address_width, name=name) for name in ("index", "queued_index"))
        beats_left = Signal(8)
        queued_beats_left = Signal(8)
        queued_id = Signal(self.id_width)
        active = Signal()
        queued = Signal()
        load = Signal()
        m.d.comb += [
            axi.arready.eq(~queued),
            beat.eq(active & enable),
            load.eq(queued & (~active | beat & note.last)),
            note.last.eq(beats_left == 0),
            note.part.eq(index),
        ]
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [queued.eq(1), queued_beats_left.eq(axi.arlen), queued_id.eq(axi.arid)]
            m.d.sync += queued_index.eq(axi.araddr[exact_log2(self.beat_width // 8) :])
        with m.Elif(load):
            m.d.sync += queued.eq(0)
        current_id = Signal(self.id_width)
        m.d.comb += note.id.eq(current_id)
        with m.If(load):
            m.d.sync += [
                active.eq(1),
                index.eq(queued_index),
                beats_left.eq(queued_beats_left),
                current_id.eq(queued_id),
            ]
        with m.Elif(beat):
            m.d.sync += [active.eq(beats_left != 0), index.eq(index + 1), beats_left.eq(beats_left - 1)]
        return index

    def _respond(self, m: Module, words: Any, note: Any) -> None:
        """Send each word to its requester; the host takes a word immediately."""
        axi = self.axi
        m.d.comb += [
            axi.rvalid.eq(words.valid & ~note.host),
            words.ready.eq(note.host | axi.rready),
            axi.rdata.eq(words.payload.word_select(note.part, self.beat_width)),
            axi.rresp.eq(Mux(note.outside, Resp.SLVERR, Resp.OKAY)),
            axi.rlast.eq(note.last),
            axi.rid.eq(note.id),
        ]
