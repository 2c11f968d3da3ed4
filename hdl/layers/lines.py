"""Rows of maps on chip: a stream in by pixel and out by block, or in by block and out as a stream."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.latencies import LINE_READER, LINES, READ_AHEAD, RESULT_LINES
from fanin.cnn.layers.schedule import Raster
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.banks import BLOCK, Banks, read_port, write_port
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.nest import Nest
from fanin.hdl.layers.places import PixelPlaces, WindowPlaces, table, window_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO


def row_gate(m: Module, *, rows: int, initial: int, more: Any, ends: Any, name: str) -> Signal:
    """Whether a row may be worked on, a register: there are rows to take, or the one that was taken goes on.

    ``more``: rows that come in this cycle; ``ends``: the row that was taken ends.
    """
    is_open = Signal(name=f"{name}_open")
    left = Signal(range(rows + 1), init=initial, name=f"{name}_left")
    take = Signal(name=f"{name}_take")
    m.d.comb += take.eq((ends | ~is_open) & (left != 0))
    m.d.sync += left.eq(left + more - take)
    with m.If(take):
        m.d.sync += is_open.eq(1)
    with m.Elif(ends):
        m.d.sync += is_open.eq(0)
    return is_open


def rows_suffice(m: Module, raster: Raster, rows: int, *, begin: Value, initial: int, more: Value) -> Value:
    """Whether all rows that the next row of blocks waits for are among ``initial`` and those that came since.

    ``more``: rows that come in this cycle. ``begin``: that row of blocks begins.
    """
    waits = [raster.last(k) + 1 for k in range(raster.steps)]  # rows of the frame
    waits.append(raster.height + waits[0])
    deltas = [b - a for a, b in pairwise(waits)]
    begun = Nest(m, {"step": raster.steps}, begin, name="begun").walk({"step": 1}, name="index")
    spare = Signal(range(-max(*deltas, waits[0]), rows + 1), init=initial - waits[0])  # beyond those awaited
    m.d.sync += spare.eq(spare + more - Mux(begin, table(begun, deltas), 0))
    return spare >= 0


def rows_left(m: Module, raster: Raster, end: Value) -> Value:
    """Rows that no later row of blocks sees, in the cycle of a row's ``end``; else 0."""
    ended = Nest(m, {"step": raster.steps}, end, name="ended").walk({"step": 1}, name="index")
    left = [raster.first(k + 1) - raster.first(k) for k in range(raster.steps)]
    return Mux(end, table(ended, left), 0)


class LineWriter(wiring.Component):
    """A stream, written to a ring of rows as far as they have room.

    Members
    -------
    ``i`` : In, stream of ``words`` words
        A frame in raster order, after the other.
    ``freed`` : In, range(rows + 1)
        Rows that are free again.
    ``wrote`` : Out(1)
        A row has been written: reads with a place of a later cycle see all of it.
    ``write`` : Out, :func:`write_port`

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Of the ring.
    ``words`` : int
        Of a transfer.

    Latency
    -------
    1 cycle to ``write`` and ``wrote``; a transfer a cycle. 2 cycles from ``freed`` to ``i.ready``.

    Source
    ------
    docs/systems/cluster.md, "The convolution".
    """

    def __init__(self, *, raster: Raster, rows: int, words: int):
        self.raster, self.rows, self.words = raster, rows, words
        super().__init__(
            {
                "i": In(word_stream(words)),
                "freed": In(range(rows + 1)),
                "wrote": Out(1),
                "write": Out(write_port(raster, rows, words)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A gate for rows, and places that follow the transfers."""
        m = Module()
        m.submodules.places = places = PixelPlaces(raster=self.raster, rows=self.rows, words=self.words)
        taken = Signal()
        ends = Signal()
        is_open = row_gate(m, rows=self.rows, initial=self.rows, more=self.freed, ends=ends, name="row")
        m.d.comb += [
            self.i.ready.eq(is_open),
            taken.eq(self.i.valid & is_open),
            ends.eq(taken & places.last),
            places.step.eq(taken),
        ]
        m.d.sync += [
            self.write.en.eq(taken),
            self.write.place.eq(places.place),
            self.write.data.eq(self.i.payload),
            self.wrote.eq(ends),
        ]
        return m


class LineReader(wiring.Component):
    """Rows of a ring as a stream.

    Members
    -------
    ``filled`` : In, range(rows + 1)
        Rows more that can be read, with places of later cycles.
    ``freed`` : Out(1)
        A row has been read: writes with a place of this cycle or a later one do not change what was read.
    ``read`` : Out, :func:`read_port`
    ``o`` : Out, stream of ``words`` words

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Of the ring.
    ``words`` : int
        Of a transfer.

    Latency
    -------
    ``LATENCY``, 7 cycles from ``filled`` to the first word on ``o``; a transfer a cycle.

    Source
    ------
    docs/systems/cluster.md, "The convolution".
    """

    LATENCY = LINE_READER

    def __init__(self, *, raster: Raster, rows: int, words: int):
        self.raster, self.rows, self.words = raster, rows, words
        super().__init__(
            {
                "filled": In(range(rows + 1)),
                "freed": Out(1),
                "read": Out(read_port(raster, rows, words)),
                "o": Out(word_stream(words)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Every read has a place in the queue before it begins."""
        m = Module()
        layout = data.ArrayLayout(WORD_BITS, self.words)
        m.submodules.places = places = PixelPlaces(raster=self.raster, rows=self.rows, words=self.words)
        m.submodules.queue = queue = StreamFIFO(shape=layout, depth=READ_AHEAD)
        m.submodules.credits = credits = Credits(limit=READ_AHEAD, full=True)
        ends = Signal()
        is_open = row_gate(m, rows=self.rows, initial=0, more=self.filled, ends=ends, name="row")
        arrives = delayed(m, places.step, Banks.READ, name="arrives", reset_less=False)[-1]
        connect_typed(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [
            places.step.eq(is_open & credits.ok),
            ends.eq(places.step & places.last),
            credits.take.eq(places.step),
            credits.give.eq(self.o.valid & self.o.ready),
            self.read.place.eq(places.place),
            queue.i.valid.eq(arrives),
            queue.i.payload.eq(self.read.data),
        ]
        m.d.sync += self.freed.eq(ends)
        return m


class Lines(wiring.Component):
    """A map's rows for windows: written as a stream, read by block.

    Members
    -------
    ``i`` : In, stream of ``words`` words
    ``ready`` : Out(1)
        All rows are there that the next row of blocks reads; registered.
    ``begin`` : In(1)
        That row of blocks begins, the first step comes in the next cycle or later; only while ``ready``.
    ``window`` : In, :func:`window_layout`
        A step.
    ``end`` : In(1)
        This is the last step of a row of blocks.
    ``data`` : Out, ``columns`` · ``lanes`` words: column · lanes + lane
    ``mask`` : Out(columns)
        Which columns lie in the map, and not in the padding.

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Of the ring.
    ``words`` : int
        Of a transfer.

    Latency
    -------
    ``LATENCY``, 7 cycles from ``window`` to ``data`` and ``mask``. 2 cycles from a row's last word to
    ``ready``, 3 from ``end`` to ``i.ready``; ``ready`` is for the next row of blocks one cycle after ``begin``.

    Source
    ------
    docs/systems/cluster.md, "The convolution".
    """

    LATENCY = LINES

    def __init__(self, *, raster: Raster, rows: int, words: int):
        self.raster, self.rows, self.words = raster, rows, words
        super().__init__(
            {
                "i": In(word_stream(words)),
                "ready": Out(1),
                "begin": In(1),
                "window": In(window_layout(raster)),
                "end": In(1),
                "data": Out(data.ArrayLayout(WORD_BITS, raster.columns * raster.lanes)),
                "mask": Out(raster.columns),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Rows are counted when they are written, when a row of blocks begins, and when it ends."""
        m = Module()
        raster, rows = self.raster, self.rows
        m.submodules.writer = writer = LineWriter(raster=raster, rows=rows, words=self.words)
        m.submodules.places = places = WindowPlaces(raster=raster, rows=rows)
        m.submodules.banks = banks = Banks(raster=raster, rows=rows, writes=self.words, reads=(BLOCK,))
        connect_typed(m, wiring.flipped(self.i), writer.i)
        connect_typed(m, writer.write, banks.write)
        m.d.comb += [
            places.window.eq(self.window),
            places.end.eq(self.end),
            banks.read0.place.eq(places.place),
            self.data.eq(banks.read0.data),
            self.mask.eq(delayed(m, places.place.mask, Banks.READ, name="mask")[-1]),
        ]

        m.d.sync += writer.freed.eq(rows_left(m, raster, self.end))
        m.d.comb += self.ready.eq(rows_suffice(m, raster, rows, begin=self.begin, initial=0, more=writer.wrote))
        return m


class Results(wiring.Component):
    """Blocks of results, as a stream.

    Members
    -------
    ``room`` : Out(1)
        A block's results have room; registered.
    ``begin`` : In(1)
        Reserve it; only while ``room``.
    ``valid`` : In(1)
    ``data`` : In, ``columns`` · ``lanes`` words: column · lanes + lane
        A position's channel group: all positions of the first group, then of the next.
    ``o`` : Out, stream of ``words`` words

    Parameters
    ----------
    ``raster`` : Raster
        A block is a row.
    ``rows`` : int
        Blocks that have room.
    ``words`` : int
        Of a transfer.

    Latency
    -------
    ``LATENCY``, 8 cycles from a block's last ``data`` to its first word on ``o``; a transfer a cycle. 2 cycles
    from the last word's read to ``room``.

    Source
    ------
    docs/systems/cluster.md, "The convolution".
    """

    LATENCY = RESULT_LINES

    def __init__(self, *, raster: Raster, rows: int, words: int):
        self.raster, self.rows, self.words = raster, rows, words
        super().__init__(
            {
                "room": Out(1),
                "begin": In(1),
                "valid": In(1),
                "data": In(data.ArrayLayout(WORD_BITS, raster.columns * raster.lanes)),
                "o": Out(word_stream(words)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The writer needs no gate: a block has its room before it begins."""
        m = Module()
        raster, rows = self.raster, self.rows
        m.submodules.banks = banks = Banks(raster=raster, rows=rows, writes=BLOCK, reads=(self.words,))
        m.submodules.reader = reader = LineReader(raster=raster, rows=rows, words=self.words)
        m.submodules.credits = credits = Credits(limit=rows, full=True)
        connect_typed(m, reader.read, banks.read0)
        connect_typed(m, reader.o, wiring.flipped(self.o))
        levels = {"row": rows, "group": raster.groups, "position": raster.positions}
        nest = Nest(m, levels, self.valid, name="result")
        strides = {"row": raster.row_step, "group": 1, "position": raster.column_step}
        m.d.comb += [
            self.room.eq(credits.ok),
            credits.take.eq(self.begin),
            credits.give.eq(reader.freed),
            banks.write.en.eq(self.valid),
            banks.write.data.eq(self.data),
            banks.write.place.address.eq(nest.walk(strides, name="address")),
            banks.write.place.rotate.eq(nest.walk({"group": 1}, modulo=raster.columns, name="rotate")),
            banks.write.place.mask.eq(-1),
        ]
        m.d.sync += reader.filled.eq(self.valid & nest.ends(("group", "position")))
        return m
