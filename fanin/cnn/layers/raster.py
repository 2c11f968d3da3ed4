"""Raster of a feature map: its layout in a ring of rows on chip, and the size of this ring.

Rows arrive one after the other. Windows read them, or add terms to them, step by step. A row's room in the ring
is used again once no later step needs the row. A *step* of a raster is a row of a convolution's blocks, or an
output row of ``im2col``; it has many steps of a ``Schedule``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.layer import ceil_div

Pair = tuple[int, int]
#: Cycles, at most, from a row's last word until a block may read the row, plus from the row's last read until
#: its room is used again. An upper bound of the components ``Lines`` and ``GradientRows`` for the size of
#: rings.
HAND_OVER = 12


@dataclass(frozen=True)
class Raster:
    """Layout of a feature map in a ring of rows on chip, and the windows that read the map.

    Column x, channel i is in memory (x div stride + i div lanes) mod ``columns``, lane i mod lanes. Two kinds
    of access therefore touch every memory at most once: ``columns`` columns at the stride by ``lanes``
    channels of a group, and up to ``columns`` neighbouring groups of one column.
    """

    height: int  #: rows of the map
    width: int  #: columns of the map
    groups: int  #: groups of ``lanes`` channels
    lanes: int  #: channels of a group, which a memory reads or writes at once
    columns: int  #: columns of a position, and number of memories
    positions: int  #: positions of an output row
    steps: int  #: steps of a frame
    step_rows: int = 1  #: output rows of a step
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    top: int = 0  #: rows of padding
    left: int = 0  #: columns of padding

    def first(self, step: int) -> int:
        """Return the first row that a step or a later one reads; ``height`` after the last step."""
        if step == self.steps:
            return self.height
        return min(max(step * self.step_rows * self.stride[0] - self.top, 0), self.height)

    def last(self, step: int) -> int:
        """Return the last row for which a step waits: at least row 0; for the last step, the map's last row."""
        if step == self.steps - 1:
            return self.height - 1
        row = ((step + 1) * self.step_rows - 1) * self.stride[0] - self.top + self.kernel[0] - 1
        return min(max(row, self.first(step) - 1, 0), self.height - 1)

    @property
    def span(self) -> int:
        """Rows that a step's windows cover, padding included."""
        return (self.step_rows - 1) * self.stride[0] + self.kernel[0]

    @property
    def column_step(self) -> int:
        """Addresses from a column to the one ``columns`` · stride columns further right."""
        return self.stride[1] * self.groups

    @property
    def row_step(self) -> int:
        """Addresses of a row in each memory."""
        return ceil_div(ceil_div(self.width, self.stride[1]), self.columns) * self.column_step

    def address(self, row: int, column: int, group: int) -> int:
        """Return the address of a column's group of channels in its memory. ``row``: index in the ring."""
        index, phase = divmod(column, self.stride[1])
        return row * self.row_step + index // self.columns * self.column_step + phase * self.groups + group

    def memory(self, column: int, group: int) -> int:
        """Return the index of the memory that holds a column's group of channels."""
        return (column // self.stride[1] + group) % self.columns

    def tap(self, kx: int) -> tuple[int, int]:
        """Return the address of kernel column ``kx`` at position 0, possibly negative, and its memory."""
        index, phase = divmod(kx - self.left, self.stride[1])
        return index // self.columns * self.column_step + phase * self.groups, index % self.columns

    def memories(self, rows: int, *, copies: int = 1) -> tuple[Memory, ...]:
        """Return the memories of a ring of ``rows`` rows. ``copies``: read ports."""
        bank = Memory(width=WORD_BITS * self.lanes, depth=rows * self.row_step, copies=copies)
        return self.columns * (bank,)

    @property
    def _breakpoints(self) -> set[int]:
        """Steps at one of which any linear function of step, ``first`` and ``last`` has its extreme.

        ``first`` and ``last`` are linear between the step at which they leave row 0 and the step at which they
        reach the last row. The steps before and at these ends are therefore enough.
        """
        rows_per_step = self.step_rows * self.stride[0]
        rows = (self.top, self.top + self.height, self.top + 1 - self.span, self.top + self.height - self.span)
        ends = (0, self.steps - 1, *(ceil_div(row, rows_per_step) for row in rows))
        return {k for end in ends for k in (end - 1, end) if 0 <= k < self.steps}

    @property
    def _freeing_steps(self) -> list[int]:
        """Steps of ``_breakpoints`` that free a row."""
        return [k for k in self._breakpoints if self.first(k) < self.first(k + 1)]

    @property
    def lags(self) -> tuple[Fraction, Fraction]:
        """Largest lags in frames, forward and backward, of evenly spaced steps on evenly spaced rows.

        The forward lag is from a position of the map to the same position of the output. The backward lag is
        from a position of the output's gradient to the same position of the map's gradient.
        """
        height, steps = self.height, self.steps
        forward = max(Fraction(self.last(k) + 1, height) - Fraction(k, steps) for k in self._breakpoints)
        backward = max(Fraction(k + 1, steps) - Fraction(self.first(k), height) for k in self._freeing_steps)
        return forward, backward

    def ring(self, period: int) -> int:
        """Return the rows of a ring that stops neither writer nor reader, with a frame every ``period`` cycles.

        Assume evenly spaced words and steps, the steps started just late enough that no step waits for a row.
        The real schedule starts earlier or at the same time. The ring holds the rows that arrive during the
        longest lifetime of a row: from its first word until its room may be used again.
        """
        # Times count from step 0, in cycles · height · steps, so that both intervals are integers.
        # ``first_word`` and ``last_read`` are of row 0: row r has each of its times r row intervals later. A
        # step that waits for row ``last`` starts at least last + 1 row intervals after row 0's first word. A
        # step that frees row ``first`` ends ``first`` row intervals after row 0's last read, or earlier.
        row_interval, step_interval, unit = self.steps * period, self.height * period, self.height * self.steps
        first_word = min(k * step_interval - (self.last(k) + 1) * row_interval for k in self._breakpoints)
        last_read = max((k + 1) * step_interval - self.first(k) * row_interval for k in self._freeing_steps)
        lifetime = last_read - first_word + HAND_OVER * unit
        return max(ceil_div(lifetime, row_interval), self.span, 2)

    def ring_back(self, period: int, latency: int) -> int:
        """Return the rows of a ring that sums the terms of overlapping windows.

        A row leaves after its last addition. Its lifetime is from its first term until its room may be used
        again.

        ``period``: cycles from frame to frame.
        ``latency``: cycles from a step's end until a complete row starts to leave.
        """
        # times of row 0, as in ``ring``
        row_interval, step_interval, unit = self.steps * period, self.height * period, self.height * self.steps
        last_term = max((k + 1) * step_interval - self.first(k) * row_interval for k in self._freeing_steps)
        first_word = last_term + latency * unit
        first_term = min(k * step_interval - (self.last(k) + 1) * row_interval for k in self._breakpoints)
        lifetime = first_word - first_term + HAND_OVER * unit
        return max(ceil_div(lifetime, row_interval), self.span, 2)
