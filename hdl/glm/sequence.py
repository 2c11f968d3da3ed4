"""Where an engine stands in its words, and what it may take next."""

from typing import Any

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.glm.shapes import EngineShape

SLICE = 8  # bits of a counter that one comparison looks at


def position_layout(depth: int) -> data.StructLayout:
    """Position of a word: its chunk, and whether it is the first or last in each of the nested loops.

    ``first_plane``, ``last_plane``: of its chunk; ``first_chunk``, ``last_chunk``: of its micro-batch;
    ``first_micro``, ``last_micro``: whether that is the first, the last of its mini-batch. ``first_word``:
    first plane of the first chunk. ``follows``: first plane of a chunk in a mini-batch's first micro-batch, so
    that the mini-batch before must have written the chunk.
    """
    flags = [f"{end}_{loop}" for loop in ("plane", "chunk", "micro") for end in ("first", "last")]
    return data.StructLayout({"chunk": range(depth)} | dict.fromkeys([*flags, "first_word", "follows"], 1))


def follows_next(here: Any) -> Value:
    """Whether the word after this one ``follows`` a write."""
    return here.last_plane & Mux(here.last_chunk, here.last_micro, here.first_micro)


class Sequencer(wiring.Component):
    """Counts planes, chunks, micro-batches of a mini-batch and of an epoch, word by word.

    An epoch's last micro-batch is the last one of its mini-batch; the next epoch follows at once.

    Members
    -------
    ``shape`` : In, ``EngineShape``
        Constant from 4 cycles before ``start``.
    ``start`` : In(1)
        Go to the first word.
    ``step`` : In(1)
        Go to the next word.
    ``position`` : Out, ``position_layout(depth)``
        Of the word that the next ``step`` takes; registered.

    Parameters
    ----------
    ``depth`` : int, at least 1
        Chunks at most.

    Latency
    -------
    1 cycle from ``step`` to ``position``; one step a cycle.

    Source
    ------
    docs/systems/glm.md.
    """

    def __init__(self, *, depth: int):
        if depth < 1:
            raise ValueError(f"depth must be at least 1 chunk, not {depth!r}")
        self.depth = depth
        super().__init__(
            {
                "shape": In(EngineShape),
                "start": In(1),
                "step": In(1),
                "position": Out(position_layout(depth)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Nested countdowns; each loop advances when the one inside it wraps."""
        m = Module()
        here, shape = self.position, self.shape
        # ``step`` comes late: it only enables; what the registers become is told from registers.
        end_chunk = self.step & here.last_plane
        end_micro = self.step & here.last_plane & here.last_chunk
        last_mini = Signal()
        last_epoch = Signal()
        self._loop(m, "plane", shape.planes, here.last_plane, self.step, here.last_plane)
        self._loop(m, "chunk", shape.chunks, here.last_chunk, end_chunk, here.last_chunk)
        self._loop(m, "mini_batch", shape.mini_batch, last_mini, end_micro, here.last_micro)
        self._loop(m, "epoch", shape.epoch, last_epoch, end_micro, last_epoch)
        m.d.comb += here.last_micro.eq(last_mini | last_epoch)
        with m.If(self.start | self.step):
            m.d.sync += here.first_plane.eq(self.start | here.last_plane)
            m.d.sync += here.first_word.eq(self.start | (here.last_plane & here.last_chunk))
            m.d.sync += here.follows.eq(self.start | follows_next(here))
        with m.If(self.start | end_chunk):
            m.d.sync += here.first_chunk.eq(self.start | here.last_chunk)
            m.d.sync += here.chunk.eq(Mux(self.start | here.last_chunk, 0, here.chunk + 1))
        with m.If(self.start | end_micro):
            m.d.sync += here.first_micro.eq(self.start | here.last_micro)
        return m

    def _loop(self, m: Module, name: str, length: Value, last: Value, advance: Value, wrap: Value) -> None:
        """Count ``length`` steps down; ``last`` is a register, computed a step ahead.

        So that no comparison is wide, each slice of the counter is told whether the ones above it are zero
        as they were a step before; a slice takes 256 steps from a borrow to its end.
        """
        left = Signal.like(length, name=f"{name}_left", reset_less=True)
        again = self.start | wrap
        above: Value = Const(1)  # the slices above are zero in ``left``
        above_first: Value = Const(1)  # and in ``length``
        for bottom in reversed(range(SLICE, len(length), SLICE)):
            part = slice(bottom, bottom + SLICE)
            zero = Signal(name=f"{name}_zero_{bottom}", reset_less=True)
            zero_first = Signal(name=f"{name}_zero_first_{bottom}", reset_less=True)
            m.d.sync += zero_first.eq(above_first & (length[part] == 0))
            with m.If(self.start | advance):
                m.d.sync += zero.eq(Mux(again, zero_first, above & (left[part] == 0)))
            above, above_first = zero, zero_first
        is_last = Signal(name=f"{name}_is_last", reset_less=True)
        one = Signal(name=f"{name}_one", reset_less=True)
        m.d.sync += one.eq(above_first & (length[:SLICE] == 1))
        with m.If(self.start | advance):
            m.d.sync += [
                left.eq(Mux(again, length, left - 1)),
                is_last.eq(Mux(again, one, above & (left[:SLICE] == 2))),
            ]
        m.d.comb += last.eq(is_last)
