"""Where an engine stands in its words, and what it may take next."""

from typing import Any

from amaranth import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.glm.shapes import EngineShape


def position_layout(depth: int) -> data.StructLayout:
    """Position of a word: its chunk, and whether it is the first or last in each of the nested loops.

    ``first_plane``, ``last_plane``: of its chunk; ``first_chunk``, ``last_chunk``: of its micro-batch;
    ``first_micro``, ``last_micro``: whether that is the first, the last of its mini-batch.
    """
    flags = [f"{end}_{loop}" for loop in ("plane", "chunk", "micro") for end in ("first", "last")]
    return data.StructLayout({"chunk": range(depth)} | dict.fromkeys(flags, 1))


def _countdown(m: Module, length: Value, *, restart: Value, advance: Value, name: str) -> Signal:
    """A flag for the last of ``length`` steps; it is a register, computed a step ahead."""
    left = Signal.like(length, name=f"{name}_left", reset_less=True)
    last = Signal(name=f"{name}_last", reset_less=True)
    with m.If(restart):
        m.d.sync += [left.eq(length), last.eq(length == 1)]
    with m.Elif(advance):
        m.d.sync += [left.eq(left - 1), last.eq(left == 2)]
    return last


class Sequencer(wiring.Component):
    """Counts planes, chunks, micro-batches of a mini-batch and of an epoch, word by word.

    An epoch's last micro-batch is the last one of its mini-batch; the next epoch follows at once.

    Members
    -------
    ``shape`` : In, ``EngineShape``
        Constant from ``start`` on.
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
    DESIGN section 5, shape and pipeline.
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
        here = self.position
        advance = self.step
        for loop, length in ("plane", self.shape.planes), ("chunk", self.shape.chunks):
            wrap = advance & here[f"last_{loop}"]
            last = _countdown(m, length, restart=self.start | wrap, advance=advance, name=loop)
            m.d.comb += here[f"last_{loop}"].eq(last)
            _first(m, here[f"first_{loop}"], restart=self.start | wrap, advance=advance)
            if loop == "chunk":
                with m.If(self.start | wrap):
                    m.d.sync += here.chunk.eq(0)
                with m.Elif(advance):
                    m.d.sync += here.chunk.eq(here.chunk + 1)
            advance = wrap

        last_of = {}
        for loop, length in ("mini_batch", self.shape.mini_batch), ("epoch", self.shape.epoch):
            restart = Signal(name=f"{loop}_restart")
            last_of[loop] = _countdown(m, length, restart=restart, advance=advance, name=loop)
            ends = last_of["epoch"] if loop == "epoch" else here.last_micro
            m.d.comb += restart.eq(self.start | (advance & ends))
        m.d.comb += here.last_micro.eq(last_of["mini_batch"] | last_of["epoch"])
        _first(m, here.first_micro, restart=self.start | (advance & here.last_micro), advance=advance)
        return m


def _first(m: Module, flag: Value, *, restart: Value, advance: Value) -> None:
    with m.If(restart):
        m.d.sync += flag.eq(1)
    with m.Elif(advance):
        m.d.sync += flag.eq(0)


class Credits(wiring.Component):
    """Permission to go on: a counter of what is free, and a registered flag that there is some.

    Members
    -------
    ``restart`` : In(1)
        Set the counter to ``initial``; ``give`` and ``take`` do not count in this cycle.
    ``initial`` : In, range(limit + 1)
    ``give`` : In(1)
        One more; never above ``limit``.
    ``take`` : In(1)
        One less; only while ``ok``.
    ``ok`` : Out(1)
        At least one is there; registered.

    Parameters
    ----------
    ``limit`` : int, at least 1

    Latency
    -------
    ``ok`` answers one cycle after ``give`` and ``take``, which both may happen in every cycle.

    Source
    ------
    DESIGN section 5, pipeline.
    """

    def __init__(self, *, limit: int):
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit!r}")
        self.limit = limit
        super().__init__(
            {
                "restart": In(1),
                "initial": In(range(limit + 1)),
                "give": In(1),
                "take": In(1),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The flag is computed beside the counter, not from it."""
        m = Module()
        count = Signal(range(self.limit + 1))
        with m.If(self.restart):
            m.d.sync += [count.eq(self.initial), self.ok.eq(self.initial != 0)]
        with m.Elif(self.give & ~self.take):
            m.d.sync += [count.eq(count + 1), self.ok.eq(1)]
        with m.Elif(self.take & ~self.give):
            m.d.sync += [count.eq(count - 1), self.ok.eq(count != 1)]
        return m
