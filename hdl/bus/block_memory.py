"""Block RAM that a host loads word by word and that an AXI4 master reads in bursts."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature, Resp
from fanin.hdl.memory import NEVER_READ_AS_WRITTEN

WORD_BITS = 32  # width of the host's bus
MAX_WIDTH = 256


class BlockMemory(wiring.Component):
    """Memory that a host accesses through AXI4-Lite and that an AXI4 master reads in bursts.

    Both ports see the same bytes at the same addresses, little endian: word n of the host is bytes 4n to 4n +
    3. The memory has one write port and one read port, so it maps to block RAM alone. A host's read therefore
    delays bursts by one beat. Bursts are INCR, have whole beats and are answered in order. A read of data that
    is being written is undefined.

    Beats outside the memory are answered with SLVERR. A host's access outside the memory, of less than a word,
    or at no multiple of 4, is answered with SLVERR, too, and writes nothing.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Port of the host. ``awready`` and ``wready`` wait for both requests.
    ``axi`` : In, AXI4 read, ``data_width`` bits
        Port of the master.

    Parameters
    ----------
    ``size`` : int, bytes; a multiple of 4 and of a beat
        Size of the memory.
    ``data_width`` : int, bits of a beat; a power of two, 8…256
        Width of ``axi``; 32 by default.
    ``address_width`` : int, bits of ``axi``'s addresses; 1…64
        Width that covers all of ``size``; 64 by default.
    ``host_address_width`` : int, bits of ``axil``'s addresses; 3…64
        Width that covers all of ``size``; 24 by default.
    ``id_width`` : int, bits; 0…32
        Width of ``axi``'s IDs; 1 by default.

    Latency
    -------
    - ``axi``: the first beat comes 3 cycles after its request is taken, then one beat a cycle. A burst of two
      beats or more follows the previous one without a pause.
    - ``axil``: a response comes 2 cycles after its request. A read and a write can start every 3 cycles.

    Source
    ------
    docs/reference/buses.md; Arm IHI 0022.
    """

    def __init__(
        self,
        *,
        size: int,
        data_width: int = 32,
        address_width: int = 64,
        host_address_width: int = 24,
        id_width: int = 1,
    ):
        if data_width not in (8 << n for n in range(exact_log2(MAX_WIDTH // 8) + 1)):
            raise ValueError(f"data_width must be a power of two from 8 to {MAX_WIDTH}, not {data_width!r}")
        row_bits = max(data_width, WORD_BITS)
        if size < 2 * row_bits // 8 or size % (row_bits // 8):
            raise ValueError(f"size must be a multiple of {row_bits // 8} bytes, at least two, not {size!r}")
        for name, width in {"address_width": address_width, "host_address_width": host_address_width}.items():
            if not (size - 1).bit_length() <= width <= 64:
                raise ValueError(f"{name} must be from {(size - 1).bit_length()} to 64, not {width!r}")
        self.size = size
        self.data_width = data_width
        self.address_width = address_width
        self.host_address_width = host_address_width
        self.id_width = id_width
        self._row_bits = row_bits
        axi = AXI4ReadSignature(data_width=data_width, address_width=address_width, id_width=id_width)
        super().__init__({"axil": In(AXI4LiteSignature(address_width=host_address_width)), "axi": In(axi)})

    def elaborate(self, platform: Any) -> Module:
        """Store rows as wide as the wider of beat and host word; the narrower one is selected after the memory.

        ``output_free``: the output of the read port does not wait for the master.
        """
        m = Module()
        rows = 8 * self.size // self._row_bits
        m.submodules.memory = memory = Memory(
            shape=self._row_bits, depth=rows, init=[], attrs=NEVER_READ_AS_WRITTEN
        )
        write = memory.write_port(granularity=WORD_BITS)
        read = memory.read_port()
        output_free = Signal()
        m.d.comb += output_free.eq(~self.axi.rvalid | self.axi.rready)
        self._write(m, write)
        host_read = self._host_read(m, read.data, output_free)
        beat = self._bursts(m, read.data, output_free, host_read)
        m.d.comb += [
            read.en.eq(output_free),
            read.addr.eq(Mux(host_read, self._row(self.axil.araddr), beat)),
        ]
        return m

    def _row(self, address: Value) -> Value:
        """Return the row of a byte address."""
        return address[exact_log2(self._row_bits // 8) : (self.size - 1).bit_length()]

    def _is_outside(self, address: Value, unit: int) -> Value:
        """Return whether an address, in units of ``unit`` bytes, is outside the memory."""
        end = self.size // unit
        if end & (end - 1):
            return address >= end
        return address[exact_log2(end) :].any()

    def _write(self, m: Module, port: Any) -> None:
        """Execute the host's writes; AW and W are taken together, in the cycle in which memory is written."""
        axil = self.axil
        is_valid = Signal()
        accept = axil.awvalid & axil.wvalid & ~axil.awready & ~axil.bvalid
        m.d.comb += [
            is_valid.eq(~self._is_outside(axil.awaddr, 1) & ~axil.awaddr[:2].any() & axil.wstrb.all()),
            axil.wready.eq(axil.awready),
            port.addr.eq(self._row(axil.awaddr)),
            port.data.eq(axil.wdata.replicate(self._row_bits // WORD_BITS)),
        ]
        word = axil.awaddr[2 : exact_log2(self._row_bits // 8)]
        for lane, enable in enumerate(port.en):
            m.d.comb += enable.eq(axil.awready & is_valid & (word == lane if len(word) else 1))
        m.d.sync += axil.awready.eq(accept)
        with m.If(axil.awready):
            m.d.sync += [axil.bvalid.eq(1), axil.bresp.eq(Mux(is_valid, Resp.OKAY, Resp.SLVERR))]
        with m.Elif(axil.bready):
            m.d.sync += axil.bvalid.eq(0)

    def _host_read(self, m: Module, row: Value, output_free: Value) -> Signal:
        """Execute the host's reads; return whether one uses the read port in this cycle.

        Its row comes with ``arready``.
        """
        axil = self.axil
        host_read = Signal()
        m.d.comb += host_read.eq(axil.arvalid & ~axil.arready & ~axil.rvalid & output_free)
        m.d.sync += axil.arready.eq(host_read)
        word = axil.araddr[2 : exact_log2(self._row_bits // 8)]
        is_invalid = self._is_outside(axil.araddr, 1) | axil.araddr[:2].any()
        with m.If(axil.arready):
            m.d.sync += [
                axil.rvalid.eq(1),
                axil.rdata.eq(row.word_select(word, WORD_BITS) if len(word) else row),
                axil.rresp.eq(Mux(is_invalid, Resp.SLVERR, Resp.OKAY)),
            ]
        with m.Elif(axil.rready):
            m.d.sync += axil.rvalid.eq(0)
        return host_read

    def _bursts(self, m: Module, row: Value, output_free: Value, host_read: Value) -> Value:
        """Execute bursts; return the row that the read port must read next.

        ``index`` has one bit more than beats need and stops counting when that bit is set, so it does not wrap
        after the end of the memory. A request waits in the ``queued_…`` registers until the previous burst has
        its last beat.
        """
        axi = self.axi
        beat_bytes = self.data_width // 8
        first_beat = axi.araddr[exact_log2(beat_bytes) :]
        beats_bits = (self.size // beat_bytes - 1).bit_length()
        queued_index = Signal(beats_bits + 1)
        queued_beats_left = Signal(8)
        queued_id = Signal(self.id_width)
        queued = Signal()
        index = Signal.like(queued_index)
        beats_left = Signal(8)
        active = Signal()
        load = Signal()
        step = Signal()
        ends = step & (beats_left == 0)
        m.d.comb += [
            axi.arready.eq(~queued),
            load.eq(queued & (~active | ends)),
            step.eq(active & output_free & ~host_read),
        ]
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [queued.eq(1), queued_beats_left.eq(axi.arlen), queued_id.eq(axi.arid)]
            m.d.sync += queued_index.eq(Cat(first_beat[:beats_bits], self._is_outside(first_beat, beat_bytes)))
        with m.Elif(load):
            m.d.sync += queued.eq(0)
        with m.If(load):
            m.d.sync += [active.eq(1), index.eq(queued_index), beats_left.eq(queued_beats_left)]
        with m.Elif(step):
            m.d.sync += [
                active.eq(beats_left != 0),
                index.eq(index + ~index[-1]),
                beats_left.eq(beats_left - 1),
            ]
        self._respond(m, row, output_free, step, index, beats_left == 0)
        current_id = Signal(self.id_width)
        with m.If(load):
            m.d.sync += current_id.eq(queued_id)
        with m.If(step):
            m.d.sync += axi.rid.eq(current_id)
        return index[exact_log2(self._row_bits // self.data_width) : beats_bits]

    def _respond(
        self, m: Module, row: Value, output_free: Value, step: Value, index: Value, last: Value
    ) -> None:
        """Respond with a beat of the row that was read in the previous cycle."""
        axi = self.axi
        part_bits = exact_log2(self._row_bits // self.data_width)
        part = Signal(part_bits)
        with m.If(output_free):
            m.d.sync += axi.rvalid.eq(step)
        with m.If(step):
            is_outside = self._is_outside(index, self.data_width // 8)
            m.d.sync += [
                part.eq(index[:part_bits]),
                axi.rlast.eq(last),
                axi.rresp.eq(Mux(is_outside, Resp.SLVERR, Resp.OKAY)),
            ]
        beat = row.word_select(part, self.data_width) if part_bits else row
        m.d.comb += axi.rdata.eq(beat)
