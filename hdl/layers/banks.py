"""Memories that are written by pixel and read by block, or written by block and read by pixel."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.latencies import BANK_READ
from fanin.cnn.layers.raster import Raster
from fanin.cnn.layers.window import pixel_fits
from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.lanes import rotated

BLOCK = 0  #: instead of a pixel port's words: the port is a block port


def place_layout(raster: Raster, rows: int, words: int) -> data.StructLayout:
    """Return the layout of a port's place in a ring of ``rows`` rows.

    ``words``: words of the port if it is a pixel port, else BLOCK.

    ``address``: :meth:`Raster.address` of the first column and group, modulo its range if the column does not
    exist.
    ``rotate``: :meth:`Raster.memory` of the first column and group.
    ``wrap`` (block port): (x div stride) mod ``columns`` of the first column x. The addresses of the last
    ``wrap`` columns are greater by ``column_step``, since the column after memory ``columns`` − 1 is in memory
    0.
    ``mask`` (block port): a bit per column that exists.
    ``part`` (pixel port): index of the ``words`` among a group's lanes, if they are fewer.
    """
    fields: dict[str, Any] = {
        "address": ceil_log2(rows * raster.row_step),
        "rotate": range(raster.columns),
    }
    if words == BLOCK:
        fields |= {"wrap": range(raster.columns), "mask": raster.columns}
    else:
        fields |= {"part": range(max(raster.lanes // words, 1))}
    return data.StructLayout(fields)


def read_port(raster: Raster, rows: int, words: int) -> wiring.Signature:
    """Return the reader's side of a read port: ``place`` out, ``data`` in."""
    return wiring.Signature(
        {"place": Out(place_layout(raster, rows, words)), "data": In(_data_layout(raster, words))}
    )


def write_port(raster: Raster, rows: int, words: int) -> wiring.Signature:
    """Return the writer's side of a write port: ``en``, ``place`` and ``data``."""
    place, layout = place_layout(raster, rows, words), _data_layout(raster, words)
    return wiring.Signature({"en": Out(1), "place": Out(place), "data": Out(layout)})


def _data_layout(raster: Raster, words: int) -> data.ArrayLayout:
    return data.ArrayLayout(WORD_BITS, words or raster.columns * raster.lanes)


class Banks(wiring.Component):
    """Ring of rows in ``columns`` memories of ``lanes`` words, with the layout of :class:`Raster`.

    A block port carries ``lanes`` channels of ``columns`` columns at the stride: word column · lanes + lane. A
    pixel port carries neighbouring channels of one column. An access at either port touches every memory at
    most once, so nothing stalls. Columns that are not in a block's ``mask`` read as +0 and are not written.

    Members
    -------
    ``write`` : In, :func:`write_port`
    ``read0``, ``read1`` : In, :func:`read_port`
        Read ports, one for each of ``reads``.

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Rows of the ring.
    ``writes`` : int
        Words of the write port if it is a pixel port, or BLOCK.
    ``reads`` : tuple of int
        Words of each read port if it is a pixel port, or BLOCK. Each port after the first needs a further copy
        of the memories.

    Latency
    -------
    ``READ``, 4 cycles from ``place`` to ``data``. A read includes all writes whose place came in an earlier
    cycle.

    Source
    ------
    docs/systems/layers.md, "The convolution".
    """

    READ = BANK_READ

    def __init__(self, *, raster: Raster, rows: int, writes: int, reads: tuple[int, ...]):
        for words in (writes, *reads):
            if words != BLOCK and not pixel_fits(words, raster.lanes, raster.columns):
                raise ValueError(
                    f"a port of {words} words does not fit {raster.columns} memories of {raster.lanes}"
                )
        self.raster, self.rows, self.writes, self.reads = raster, rows, writes, reads
        members: dict[str, Any] = {"write": In(write_port(raster, rows, writes))}
        for index, words in enumerate(reads):
            members[f"read{index}"] = In(read_port(raster, rows, words))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Send each place to all memories, rotated by its ``rotate``, and rotate the read data back."""
        m = Module()
        memories = []
        for column in range(self.raster.columns):
            memory = Memory(shape=data.ArrayLayout(WORD_BITS, self.raster.lanes), depth=self._depth, init=[])
            m.submodules[f"memory{column}"] = memory
            memories.append(memory)
        self._write(m, memories)
        for index, words in enumerate(self.reads):
            connect_read(m, self.raster, memories, getattr(self, f"read{index}"), words, f"read{index}")
        return m

    @property
    def _depth(self) -> int:
        return self.rows * self.raster.row_step

    def _write(self, m: Module, memories: list[Memory]) -> None:
        words, lanes = self.writes, self.raster.lanes
        place, write_data = self.write.place, Value.cast(self.write.data)
        part = words if words != BLOCK and words < lanes else lanes
        if words == BLOCK or words > lanes:
            padding = Const(0, WORD_BITS * self.raster.columns * lanes - len(write_data))
            write_data = rotated(Cat(write_data, padding), place.rotate, unit=WORD_BITS * lanes)
        else:  # the words may belong to any memory
            write_data = write_data.replicate(self.raster.columns * lanes // words)
        delayed_data = delayed(m, write_data, 2, name="written")[2]
        enabled = delayed(m, self.write.en, 2, name="en", reset_less=False)[2]
        if part < lanes:
            enables = Cat(place.part == n for n in range(lanes // part))
            parts = delayed(m, enables, 2, name="part")[2]
        else:
            parts = Const(1, 1)
        for column, (address, hit) in enumerate(located(m, self.raster, place, words, "write")):
            port = memories[column].write_port(granularity=part)
            m.d.comb += [
                port.addr.eq(address),
                port.data.eq(delayed_data.word_select(column, WORD_BITS * lanes)),
                port.en.eq(Mux(enabled & hit, parts, 0)),
            ]


def located(m: Module, raster: Raster, place: Any, words: int, name: str) -> list[tuple[Value, Value]]:
    """Return, by memory, its address and whether the place hits the memory, two cycles after ``place``.

    A code has a hit bit and a distance from the place's address. The codes of a block port are those of its
    columns, the codes of a pixel port those of its channel groups, before the rotation that moves them to their
    memories.
    """
    columns = raster.columns
    if words == BLOCK:
        codes = [Cat(place.mask[j], place.wrap >= columns - j) for j in range(columns)]
    else:
        groups = max(words // raster.lanes, 1)
        width = ceil_log2(groups)
        codes = [Cat(Const(j < groups, 1), Const(j % groups, width)) for j in range(columns)]
    unit = len(codes[0])
    code = Signal(columns * unit, name=f"{name}_code")
    address = Signal.like(place.address, name=f"{name}_address", reset_less=True)
    m.d.sync += [code.eq(rotated(Cat(*codes), place.rotate, unit=unit)), address.eq(place.address)]

    places = []
    for column in range(columns):
        hit, distance = code.word_select(column, unit)[0], code.word_select(column, unit)[1:]
        if words == BLOCK:
            distance = Mux(distance, raster.column_step, 0)
        column_address = Signal.like(address, name=f"{name}_address_{column}", reset_less=True)
        is_hit = Signal(name=f"{name}_hit_{column}", reset_less=True)
        m.d.sync += [column_address.eq(address + distance), is_hit.eq(hit)]
        places.append((column_address, is_hit))
    return places


def connect_read(m: Module, raster: Raster, memories: list[Memory], bus: Any, words: int, name: str) -> None:
    """Connect ``bus``, a :func:`read_port`, to the memories of its raster; latency: ``Banks.READ`` cycles."""
    lanes = raster.lanes
    read_words = []
    for memory, (address, _) in zip(memories, located(m, raster, bus.place, words, name), strict=True):
        port = memory.read_port()
        m.d.comb += port.addr.eq(address)
        read_words.append(Value.cast(port.data))
    rotate = delayed(m, bus.place.rotate, 3, name=f"{name}_rotate")[3]
    straight = rotated(Cat(*read_words), rotate, unit=-WORD_BITS * lanes)
    if words == BLOCK:
        mask = delayed(m, bus.place.mask, 3, name=f"{name}_mask")[3]
        column_mask = Cat(bit.replicate(WORD_BITS * lanes) for bit in mask)
        straight &= column_mask
    elif words < lanes:
        part = delayed(m, bus.place.part, 3, name=f"{name}_part")[3]
        straight = straight[: WORD_BITS * lanes].word_select(part, WORD_BITS * words)
    m.d.sync += Value.cast(bus.data).eq(straight)  # a pixel port takes the first words
