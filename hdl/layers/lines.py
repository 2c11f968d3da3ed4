"""Buffers of map rows on chip: written by pixel and read by block, or written by block and read by pixel."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.latencies import LINE_READER, LINES, READ_AHEAD, RESULT_LINES
from fanin.cnn.layers.raster import Raster
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.banks import BLOCK, Banks, read_port, write_port
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.nest import Nest
from fanin.hdl.layers.places import PixelPlaces, WindowPlaces, table, window_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO


def row_gate(m: Module, *, rows: int, initial: int, added: Any, ends: Any, name: str) -> Signal:
    """Return a register that is high while a row is open. A row opens as soon as one is available.

    ``added``: rows that become available in this cycle. ``ends``: the open row ends.
    """
    is_open = Signal(name=f"{name}_open")
    available = Signal(range(rows + 1), init=initial, name=f"{name}_left")
    take = Signal(name=f"{name}_take")
    m.d.comb += take.eq((ends | ~is_open) & (available != 0))
    m.d.sync += available.eq(available + added - take)
    with m.If(take):
        m.d.sync += is_open.eq(1)
    with m.Elif(ends):
        m.d.sync += is_open.eq(0)
    return is_open


def rows_suffice(m: Module, raster: Raster, rows: int, *, begin: Value, initial: int, added: Value) -> Value:
    """Return whether the ``initial`` rows and those added since include all that the next row of blocks needs.

    ``added``: rows added in this cycle. ``begin``: the next row of blocks begins.
    """
    needed_rows = [raster.last(k) + 1 for k in range(raster.steps)]  # numbers of rows, by row of blocks
    needed_rows.append(raster.height + needed_rows[0])
    deltas = [b - a for a, b in pairwise(needed_rows)]
    step = Nest(m, {"step": raster.steps}, begin, name="begin").walk({"step": 1}, name="index")
    # Rows beyond the needed ones; negative: rows still missing.
    surplus = Signal(range(-max(*deltas, needed_rows[0]), rows + 1), init=initial - needed_rows[0])
    m.d.sync += surplus.eq(surplus + added - Mux(begin, table(step, deltas), 0))
    return surplus >= 0


def released_rows(m: Module, raster: Raster, end: Value) -> Value:
    """Return, with the ``end`` of a row of blocks, the number of rows that no later one uses; else 0."""
    step = Nest(m, {"step": raster.steps}, end, name="end").walk({"step": 1}, name="index")
    released = [raster.first(k + 1) - raster.first(k) for k in range(raster.steps)]
    return Mux(end, table(step, released), 0)


class LineWriter(wiring.Component):
    """Writer of a stream to a ring of rows; it waits while the ring is full.

    Members
    -------
    ``i`` : In, stream of ``words`` words
        Consecutive frames, each in raster order.
    ``freed`` : In, range(rows + 1)
        Rows that become free in this cycle.
    ``wrote`` : Out(1)
        Pulse: a row has been written. A read whose place comes in a later cycle returns all of the row.
    ``write`` : Out, :func:`write_port`

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Rows of the ring.
    ``words`` : int
        Words of a transfer.

    Latency
    -------
    1 cycle from ``i`` to ``write`` and ``wrote``; a transfer a cycle. 2 cycles from ``freed`` to ``i.ready``.

    Source
    ------
    docs/systems/layers.md, "The convolution".
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
        """Gate rows by free space, and step the write place with each transfer."""
        m = Module()
        m.submodules.places = places = PixelPlaces(raster=self.raster, rows=self.rows, words=self.words)
        transfer = Signal()
        ends = Signal()
        is_open = row_gate(m, rows=self.rows, initial=self.rows, added=self.freed, ends=ends, name="row")
        m.d.comb += [
            self.i.ready.eq(is_open),
            transfer.eq(self.i.valid & is_open),
            ends.eq(transfer & places.last),
            places.step.eq(transfer),
        ]
        m.d.sync += [
            self.write.en.eq(transfer),
            self.write.place.eq(places.place),
            self.write.data.eq(self.i.payload),
            self.wrote.eq(ends),
        ]
        return m


class LineReader(wiring.Component):
    """Reader of a ring's rows as a stream.

    Members
    -------
    ``filled`` : In, range(rows + 1)
        Rows that become readable after this cycle.
    ``freed`` : Out(1)
        Pulse: a row has been read. A write whose place comes in this cycle or later does not affect the read.
    ``read`` : Out, :func:`read_port`
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
    ``LATENCY``, 7 cycles from ``filled`` to the first word on ``o``; a transfer a cycle.

    Source
    ------
    docs/systems/layers.md, "The convolution".
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
        """Reserve a place in the queue before each read."""
        m = Module()
        layout = data.ArrayLayout(WORD_BITS, self.words)
        m.submodules.places = places = PixelPlaces(raster=self.raster, rows=self.rows, words=self.words)
        m.submodules.queue = queue = StreamFIFO(shape=layout, depth=READ_AHEAD)
        m.submodules.credits = credits = Credits(limit=READ_AHEAD, full=True)
        ends = Signal()
        is_open = row_gate(m, rows=self.rows, initial=0, added=self.filled, ends=ends, name="row")
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
    """Buffer of a map's rows for windows: written as a stream, read by block.

    Members
    -------
    ``i`` : In, stream of ``words`` words
    ``ready`` : Out(1)
        All rows that the next row of blocks reads are in the buffer; registered.
    ``begin`` : In(1)
        The next row of blocks begins; only while ``ready``. Its first step follows in the next cycle or later.
    ``window`` : In, :func:`window_layout`
        Window of a step.
    ``end`` : In(1)
        The step is the last one of a row of blocks.
    ``data`` : Out, ``columns`` · ``lanes`` words: column · lanes + lane
        Words of the window.
    ``mask`` : Out(columns)
        High for columns in the map, low for padding.

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Rows of the ring.
    ``words`` : int
        Words of a transfer.

    Latency
    -------
    ``LATENCY``, 7 cycles from ``window`` to ``data`` and ``mask``. 2 cycles from a row's last word to
    ``ready``, 3 from ``end`` to ``i.ready``. One cycle after ``begin``, ``ready`` refers to the next row of
    blocks.

    Source
    ------
    docs/systems/layers.md, "The convolution".
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
        """Count rows when they are written, and when a row of blocks begins and ends."""
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

        m.d.sync += writer.freed.eq(released_rows(m, raster, self.end))
        m.d.comb += self.ready.eq(
            rows_suffice(m, raster, rows, begin=self.begin, initial=0, added=writer.wrote)
        )
        return m


class Results(wiring.Component):
    """Buffer that turns blocks of results into a stream.

    Members
    -------
    ``room`` : Out(1)
        The buffer has room for a block's results; registered.
    ``begin`` : In(1)
        Reserve room for a block; only while ``room``.
    ``valid`` : In(1)
        ``data`` holds results.
    ``data`` : In, ``columns`` · ``lanes`` words: column · lanes + lane
        Channel group of a position; all positions of a group come before the next group.
    ``o`` : Out, stream of ``words`` words

    Parameters
    ----------
    ``raster`` : Raster
        Raster of the results; a block is a row.
    ``rows`` : int
        Blocks that fit in the buffer.
    ``words`` : int
        Words of a transfer.

    Latency
    -------
    ``LATENCY``, 8 cycles from a block's last ``data`` to its first word on ``o``; a transfer a cycle. 2 cycles
    from the last word's read to ``room``.

    Source
    ------
    docs/systems/layers.md, "The convolution".
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
        """Write without a gate: each block reserves its room before it begins."""
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
