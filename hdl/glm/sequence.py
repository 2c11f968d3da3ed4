"""Sequencer of an engine: the position of the next word in the nested loops."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.glm.shapes import EngineShape


def position_layout(depth: int) -> data.StructLayout:
    """Return the layout of a word's position: its chunk, and flags for the ends of each nested loop.

    - ``first_plane``, ``last_plane``: first or last plane of its chunk.
    - ``first_chunk``, ``last_chunk``: first or last chunk of its micro-batch.
    - ``first_micro``, ``last_micro``: first or last micro-batch of its mini-batch.
    - ``first_word``: first plane of the first chunk.
    - ``needs_chunk``: first plane of a chunk in a mini-batch's first micro-batch. The previous mini-batch must
      have written that chunk.
    """
    flags = [f"{end}_{loop}" for loop in ("plane", "chunk", "micro") for end in ("first", "last")]
    return data.StructLayout({"chunk": range(depth)} | dict.fromkeys([*flags, "first_word", "needs_chunk"], 1))


def next_needs_chunk(position: Any) -> Value:
    """Return whether the word after this one has ``needs_chunk``."""
    return position.last_plane & Mux(position.last_chunk, position.last_micro, position.first_micro)


class Sequencer(wiring.Component):
    """Counter of planes, chunks, micro-batches of a mini-batch and micro-batches of an epoch, word by word.

    An epoch's last micro-batch is also the last of its mini-batch. The next epoch follows without a pause.

    Members
    -------
    ``shape`` : In, ``EngineShape``
        Loop counts; constant from 4 cycles before ``start``.
    ``start`` : In(1)
        Go to the first word.
    ``step`` : In(1)
        Go to the next word.
    ``position`` : Out, ``position_layout(depth)``
        Position of the word that the next ``step`` takes; registered.

    Parameters
    ----------
    ``depth`` : int, at least 1
        Maximum number of chunks.

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
        """Build nested countdowns: planes, chunks, micro-batches; a loop advances when the loop inside it ends.

        ``step`` arrives late, so it is only an enable: the next value of every register depends on registers
        alone.
        """
        m = Module()
        position, shape = self.position, self.shape
        end_chunk = self.step & position.last_plane
        end_micro = self.step & position.last_plane & position.last_chunk
        last_mini = Signal()
        last_epoch = Signal()
        self._loop(m, "plane", shape.planes, position.last_plane, self.step, position.last_plane)
        self._loop(m, "chunk", shape.chunks, position.last_chunk, end_chunk, position.last_chunk)
        self._loop(m, "mini_batch", shape.mini_batch, last_mini, end_micro, position.last_micro)
        self._loop(m, "epoch", shape.epoch, last_epoch, end_micro, last_epoch)
        m.d.comb += position.last_micro.eq(last_mini | last_epoch)
        with m.If(self.start | self.step):
            m.d.sync += position.first_plane.eq(self.start | position.last_plane)
            m.d.sync += position.first_word.eq(self.start | (position.last_plane & position.last_chunk))
            m.d.sync += position.needs_chunk.eq(self.start | next_needs_chunk(position))
        with m.If(self.start | end_chunk):
            m.d.sync += position.first_chunk.eq(self.start | position.last_chunk)
            m.d.sync += position.chunk.eq(Mux(self.start | position.last_chunk, 0, position.chunk + 1))
        with m.If(self.start | end_micro):
            m.d.sync += position.first_micro.eq(self.start | position.last_micro)
        return m

    def _loop(self, m: Module, name: str, length: Value, last: Value, advance: Value, wrap: Value) -> None:
        """Count the iterations of one loop; drive ``last``, high in the last of ``length`` iterations.

        ``advance`` starts the next iteration; with ``wrap`` that is the first one again. ``last`` is a
        register, computed one iteration ahead.
        """
        iterations_left = Signal.like(length, name=f"{name}_left", reset_less=True)
        single = Signal(name=f"{name}_single", reset_less=True)
        is_last = Signal(name=f"{name}_is_last", reset_less=True)
        begin = self.start | wrap
        m.d.sync += single.eq(length == 1)
        with m.If(self.start | advance):
            m.d.sync += [
                iterations_left.eq(Mux(begin, length, iterations_left - 1)),
                is_last.eq(Mux(begin, single, iterations_left == 2)),
            ]
        m.d.comb += last.eq(is_last)
