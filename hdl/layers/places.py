"""Places at which a port of Banks reads or writes: windows by block, rows by pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.latencies import PLACES
from fanin.cnn.layers.raster import Raster
from fanin.hdl.layers.banks import BLOCK, place_layout
from fanin.hdl.layers.nest import Nest


def window_layout(raster: Raster) -> data.StructLayout:
    """Return the layout of one step of a window: a tap of the kernel, at ``columns`` columns of one position.

    ``row``: row in the windows of the row of blocks, counted from its first row, padding included.
    ``tap``: kx, the kernel's column.
    ``column``: column of the map for the position's first column; negative in the padding.
    ``address``: position · ``column_step`` + group.
    ``rotate``: group mod ``columns``.
    """
    last = (raster.positions - 1) * raster.columns * raster.stride[1] + raster.kernel[1] - 1
    return data.StructLayout(
        {
            "row": range(raster.span),
            "tap": range(raster.kernel[1]),
            "column": range(-raster.left, last - raster.left + 1),
            "address": range((raster.positions - 1) * raster.column_step + raster.groups),
            "rotate": range(raster.columns),
        }
    )


def window_steps(
    nest: Nest, raster: Raster, groups: dict[str, int], *, position: dict[str, int], down: bool = False
) -> dict[str, Signal]:
    """Return the fields of a :func:`window_layout` for a nest with the levels ky, kx (``down``: falling) and r.

    ``groups`` and ``position``: strides, by level, of the channel group and of the position in its row.
    """
    sign = -1 if down else 1
    rows, columns = raster.kernel
    column_strides = {level: n * raster.columns * raster.stride[1] for level, n in position.items()}
    address_strides = {level: n * raster.column_step for level, n in position.items()}
    edge = columns - 1 if down else 0
    return {
        "row": nest.walk({"ky": sign, "r": raster.stride[0]}, base=rows - 1 if down else 0, name="row"),
        "tap": nest.walk({"kx": sign}, base=edge, name="tap"),
        "column": nest.walk({"kx": sign, **column_strides}, base=edge - raster.left, name="column"),
        "address": nest.walk({**address_strides, **groups}, name="window_address"),
        "rotate": nest.walk(groups, modulo=raster.columns, name="rotate"),
    }


class WindowPlaces(wiring.Component):
    """Converter of the steps of windows to places of a block port, through all rows of blocks and frames.

    Members
    -------
    ``window`` : In, :func:`window_layout`
        Window of the step.
    ``end`` : In(1)
        The step is the last one of a row of blocks.
    ``place`` : Out, :func:`place_layout` of a block port

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Rows of the ring.

    Latency
    -------
    ``LATENCY``, 3 cycles from ``window`` to ``place``; one step a cycle.

    Source
    ------
    docs/systems/layers.md, "The convolution".
    """

    LATENCY = PLACES

    def __init__(self, *, raster: Raster, rows: int):
        self.raster, self.rows = raster, rows
        super().__init__(
            {
                "window": In(window_layout(raster)),
                "end": In(1),
                "place": Out(place_layout(raster, rows, BLOCK)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compute the address of the row and the address in the row in parallel, then add them.

        The address in the row is that of the position and group, from ``window``, plus the offset of the tap
        (:meth:`Raster.tap`).
        """
        m = Module()
        raster, window = self.raster, self.window
        ring_row, exists = self._row(m)
        wrap = Signal(range(raster.columns))
        mask = Signal(raster.columns)
        partial = Signal.like(self.place.address)
        rotate = Signal(range(raster.columns))
        offsets, memories = zip(*(raster.tap(kx) for kx in range(raster.kernel[1])), strict=True)
        tap_offset = Signal.like(self.place.address)
        address = Signal.like(window.address)
        group = Signal.like(window.rotate)
        tap_wrap = Signal.like(wrap)
        m.d.sync += [
            tap_offset.eq(table(window.tap, offsets)),
            tap_wrap.eq(table(window.tap, memories)),
            address.eq(window.address),
            group.eq(window.rotate),
            mask.eq(
                Cat(
                    (window.column >= -j * raster.stride[1])
                    & (window.column < raster.width - j * raster.stride[1])
                    for j in range(raster.columns)
                )
            ),
        ]
        rotation = tap_wrap + group
        later_mask = Signal.like(mask)
        m.d.sync += [
            partial.eq(address + tap_offset),
            rotate.eq(table(rotation, [n % raster.columns for n in range(2 * raster.columns - 1)])),
            wrap.eq(tap_wrap),
            later_mask.eq(mask),
        ]
        m.d.sync += [
            self.place.address.eq(partial + ring_row),
            self.place.rotate.eq(rotate),
            self.place.wrap.eq(wrap),
            self.place.mask.eq(Mux(exists, later_mask, 0)),
        ]
        return m

    def _row(self, m: Module) -> tuple[Signal, Signal]:
        """Return the address of the window's ring row, and the row's existence, 2 cycles after ``window``."""
        raster, rows = self.raster, self.rows
        nest = Nest(m, {"step": raster.steps}, self.end, name="row")
        down = raster.step_rows * raster.stride[0]
        first = nest.walk({"step": down}, name="first")  # row of the windows' first row, padding included
        slot = nest.walk({"step": down}, base=-raster.top, modulo=rows, drift=raster.height, name="slot")
        at = Signal(range(rows + raster.span - 1))  # row of the ring, before its wrap
        row = Signal(range(raster.height + raster.top + raster.span + down))
        m.d.sync += [at.eq(slot + self.window.row), row.eq(first + self.window.row)]
        ring_row = Signal.like(self.place.address)
        exists = Signal()
        m.d.sync += [
            ring_row.eq(table(at, [n % rows * raster.row_step for n in range(rows + raster.span - 1)])),
            exists.eq((row >= raster.top) & (row < raster.top + raster.height)),
        ]
        return ring_row, exists


class PixelPlaces(wiring.Component):
    """Counter of a pixel port's places, in raster order, with the ring's wrap.

    Members
    -------
    ``step`` : In(1)
        Advance to the next place.
    ``place`` : Out, :func:`place_layout` of a port of ``words``
    ``last`` : Out(1)
        ``place`` is the last one of its row.

    Parameters
    ----------
    ``raster`` : Raster
    ``rows`` : int
        Rows of the ring.
    ``words`` : int
        Neighbouring channels of a transfer.

    Latency
    -------
    1 cycle from ``step`` to the next place.

    Source
    ------
    docs/systems/layers.md, "The convolution".
    """

    def __init__(self, *, raster: Raster, rows: int, words: int):
        self.raster, self.rows, self.words = raster, rows, words
        super().__init__(
            {
                "step": In(1),
                "place": Out(place_layout(raster, rows, words)),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count columns in two ways, since a row may end in the middle of a set.

        A *set* is the ``columns`` · stride columns between two addresses that are ``column_step`` apart. Column
        x is (set · ``columns`` + column) · stride + phase; ``place`` counts in these parts, ``pixels`` counts
        x.
        """
        m = Module()
        raster = self.raster
        groups, parts = max(self.words // raster.lanes, 1), max(raster.lanes // self.words, 1)
        last = Signal()
        pixel = {"group": raster.groups // groups, "part": parts}
        columns = {"set": raster.width, "column": raster.columns, "phase": raster.stride[1]}
        place = Nest(m, columns | pixel, self.step, restart=last, name="place")
        pixels = Nest(m, {"row": self.rows, "x": raster.width} | pixel, self.step, name="pixel")
        m.d.comb += last.eq(pixels.ends(("x", "group", "part")))

        address = place.walk(
            {"set": raster.column_step, "phase": raster.groups, "group": groups}, name="address"
        )
        m.d.comb += [
            self.last.eq(last),
            self.place.address.eq(address + pixels.walk({"row": raster.row_step}, name="row_address")),
            self.place.rotate.eq(
                place.walk({"column": 1, "group": groups}, modulo=raster.columns, name="rotate")
            ),
            self.place.part.eq(place.walk({"part": 1}, name="part_index")),
        ]
        return m


def table(index: Value, values: Sequence[int]) -> Value:
    """Return the constant for the value of ``index``; negative constants wrap at the assignment."""
    return Array(Const(value) for value in values)[index]
