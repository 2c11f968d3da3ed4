"""Rows of an input gradient: summed block by block of windows, and read as a stream of pixels."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.latencies import GRADIENT_ROWS, SUM_WRITE
from fanin.cnn.layers.raster import Raster
from fanin.hdl.arith.array import AdderArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.banks import BLOCK, connect_read, located, place_layout, read_port
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.lines import LineReader, released_rows, rows_suffice
from fanin.hdl.layers.nest import Nest
from fanin.hdl.layers.places import WindowPlaces, table, window_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.lanes import rotated


class SumBanks(wiring.Component):
    """Memories organised as in ``Banks``: a block port adds to them, and a pixel port reads them.

    Terms are rotated to their memories before the addition, so a sum may take its next term ``REUSE`` cycles
    later. Nothing stalls. The pixel port doubles the memories.

    Members
    -------
    ``add`` : In(1)
        Add ``terms`` at ``place``.
    ``place`` : In, :func:`place_layout` of a block port
    ``terms`` : In, ``columns`` · ``lanes`` words: column · lanes + lane
    ``first`` : In(columns)
        The column's terms are the first of their sums, which begin at +0.
    ``read`` : In, :func:`read_port`
        Pixel port.

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Rows of the ring.
    ``words`` : int
        Words of the pixel port.

    Latency
    -------
    ``Banks.READ`` cycles from ``read.place`` to data. A read includes every term whose place came at least
    ``READ_DELAY``, 9 cycles before the place of the read.

    Source
    ------
    docs/systems/layers.md, "The convolution".
    """

    READ_DELAY = SUM_WRITE

    def __init__(self, *, raster: Raster, rows: int, words: int):
        self.raster, self.rows, self.words = raster, rows, words
        super().__init__(
            {
                "add": In(1),
                "place": In(place_layout(raster, rows, BLOCK)),
                "terms": In(data.ArrayLayout(WORD_BITS, raster.columns * raster.lanes)),
                "first": In(raster.columns),
                "read": In(read_port(raster, rows, words)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Align places and terms at the memories; a read returns a sum that is written in the same cycle."""
        m = Module()
        raster = self.raster
        word, bits = data.ArrayLayout(WORD_BITS, raster.lanes), WORD_BITS * raster.lanes
        m.submodules.sums = sums = shared(AdderArray(lanes=raster.columns * raster.lanes))
        terms = delayed(m, rotated(Value.cast(self.terms), self.place.rotate, unit=bits), 3, name="terms")
        first = delayed(m, rotated(self.first, self.place.rotate, unit=1), 3, name="first")[-1]
        add = delayed(m, self.add, 3 + sums.latency, name="add", reset_less=False)
        m.d.comb += [sums.b.eq(terms[-1]), sums.valid.eq(add[3])]
        memories = []
        for column, (address, hit) in enumerate(located(m, raster, self.place, BLOCK, "add")):
            memory = Memory(shape=word, depth=self.rows * raster.row_step, init=[])
            m.submodules[f"memory{column}"] = memory
            memories.append(memory)
            write = memory.write_port()
            read = memory.read_port(transparent_for=(write,))
            stored = Value.cast(sums.a).word_select(column, bits)
            is_hit = delayed(m, hit, 1 + sums.latency, name=f"hit_{column}")[-1]
            m.d.comb += [
                read.addr.eq(address),
                stored.eq(Mux(first[column], 0, read.data)),
                write.addr.eq(delayed(m, address, 1 + sums.latency, name=f"address_{column}")[-1]),
                write.data.eq(Value.cast(sums.o).word_select(column, bits)),
                write.en.eq(add[-1] & is_hit),
            ]
        connect_read(m, raster, memories, self.read, self.words, "read")
        return m


class GradientRows(wiring.Component):
    """Accumulator of an input gradient, block by block of windows; finished rows leave as a stream of pixels.

    A row is finished when no later window covers it. Pixels that no window covers are +0.

    Members
    -------
    ``ready`` : Out(1)
        All rows to which the next row of blocks adds have room; registered.
    ``begin`` : In(1)
        The next row of blocks begins; only while ``ready``. Its first step follows in the next cycle or later.
    ``add`` : In(1)
        A step adds terms.
    ``window`` : In, :func:`window_layout`
        Window of the step.
    ``end`` : In(1)
        The step is the last one of a row of blocks.
    ``terms`` : In, ``columns`` · ``lanes`` words: column · lanes + lane
        Terms of the step, ``WindowPlaces.LATENCY`` cycles after its window.
    ``first`` : In(columns)
        With ``terms``: the column's terms are the first of their places.
    ``o`` : Out, stream of ``words`` words

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Rows of the ring.
    ``words`` : int
        Words of a transfer.

    Latency
    -------
    ``LATENCY``, 19 cycles from ``end`` to the first word on ``o``; a transfer a cycle. 2 cycles from a row's
    last read to ``ready``. One cycle after ``begin``, ``ready`` refers to the next row of blocks.

    Source
    ------
    docs/systems/layers.md, "The convolution".
    """

    _STEP_TO_READER = WindowPlaces.LATENCY + SumBanks.READ_DELAY
    LATENCY = GRADIENT_ROWS

    def __init__(self, *, raster: Raster, rows: int, words: int):
        self.raster, self.rows, self.words = raster, rows, words
        place = data.ArrayLayout(WORD_BITS, raster.columns * raster.lanes)
        super().__init__(
            {
                "ready": Out(1),
                "begin": In(1),
                "add": In(1),
                "window": In(window_layout(raster)),
                "end": In(1),
                "terms": In(place),
                "first": In(raster.columns),
                "o": Out(word_stream(words)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count rows when a row of blocks begins and ends, and when they leave."""
        m = Module()
        raster, rows = self.raster, self.rows
        m.submodules.places = places = WindowPlaces(raster=raster, rows=rows)
        m.submodules.banks = banks = SumBanks(raster=raster, rows=rows, words=self.words)
        m.submodules.reader = reader = LineReader(raster=raster, rows=rows, words=self.words)
        connect_typed(m, reader.read, banks.read)
        m.d.comb += [
            places.window.eq(self.window),
            places.end.eq(self.end),
            banks.add.eq(delayed(m, self.add, WindowPlaces.LATENCY, name="add", reset_less=False)[-1]),
            banks.place.eq(places.place),
            banks.terms.eq(self.terms),
            banks.first.eq(self.first),
        ]
        finished = released_rows(m, raster, self.end)
        m.d.comb += [
            self.ready.eq(rows_suffice(m, raster, rows, begin=self.begin, initial=rows, added=reader.freed)),
            reader.filled.eq(delayed(m, finished, self._STEP_TO_READER, name="finished", reset_less=False)[-1]),
        ]
        self._send(m, reader)
        return m

    def _send(self, m: Module, reader: LineReader) -> None:
        """Send zeros for pixels that no window covers, as the memories are undefined there."""
        raster = self.raster
        covered_rows = _covered(
            raster.height, raster.steps * raster.step_rows, raster.kernel[0], raster.stride[0], raster.top
        )
        outputs = raster.positions * raster.columns
        covered_columns = _covered(raster.width, outputs, raster.kernel[1], raster.stride[1], raster.left)
        transfer = reader.o.valid & reader.o.ready
        words = raster.groups * raster.lanes // self.words  # transfers of a pixel
        nest = Nest(m, {"y": raster.height, "x": raster.width, "word": words}, transfer, name="out")
        is_covered: Value = Const(1, 1)
        for level, flags in ("y", covered_rows), ("x", covered_columns):
            if not all(flags):
                is_covered &= table(nest.walk({level: 1}, name=f"at_{level}"), flags)
        m.d.comb += [
            self.o.valid.eq(reader.o.valid),
            self.o.payload.eq(Mux(is_covered, reader.o.payload, 0)),
            reader.o.ready.eq(self.o.ready),
        ]


def _covered(size: int, outputs: int, kernel: int, stride: int, padding: int) -> list[int]:
    """Return, by row or column, 1 if any of the ``outputs`` windows covers it."""
    covered = {place * stride + k - padding for place in range(outputs) for k in range(kernel)}
    return [int(index in covered) for index in range(size)]
