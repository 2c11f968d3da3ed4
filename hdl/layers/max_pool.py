"""Maximum pooling: the largest word of every window."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn.layers import max_pool
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import REUSE, Parallelism
from fanin.cnn.layers.schedule import Way
from fanin.codec.facts import FRACTION_BITS, SPECIAL_EXPONENT
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.gradient_rows import GradientRows
from fanin.hdl.layers.input_gradient import add_windows
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.lines import Lines, Results
from fanin.hdl.layers.places import window_steps
from fanin.hdl.layers.raster import give_and_save
from fanin.hdl.layers.way import WayLoops
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.join import StreamJoin

_INFINITY = SPECIAL_EXPONENT << FRACTION_BITS


#: Operand of a comparison. Keys order as the numbers do; subnormals count as zeros.
_Compared = data.StructLayout({"key": WORD_BITS, "nan": 1})


def _compare(compared: Any, x: Value) -> tuple[Any, ...]:
    """Return assignments that set ``compared`` to the operand of the binary32 number ``x``."""
    magnitude = Mux(x[FRACTION_BITS:-1].any(), x[:-1], 0)
    negative = x[-1] & x[FRACTION_BITS:-1].any()
    key = Cat(Mux(negative, ~magnitude, magnitude), ~negative)
    return compared.key.eq(key), compared.nan.eq(x[:-1] > _INFINITY)


class Maxima(wiring.Component):
    """Running maxima of ``depth`` places. Each round brings one word per lane for every place, in fixed order.

    Of equal words the first wins. A NaN wins over every number, and the first NaN stays. Two words of a place
    are at least ``REUSE`` cycles apart.

    Members
    -------
    ``valid`` : In(1)
        ``i`` holds the words of the next place.
    ``first``, ``last`` : In(1)
        The words belong to the first or last round.
    ``round`` : In, range(rounds)
        Number of the round.
    ``counts`` : In(1)
        The words are candidates; otherwise they are padding.
    ``i`` : In, ``lanes`` words
    ``o_valid`` : Out(1)
        ``o`` and ``o_rounds`` hold a place's results.
    ``o`` : Out, ``lanes`` words
        Largest candidates; undefined if the place had none.
    ``o_rounds`` : Out, ``lanes`` words
        Round of each largest candidate.

    Parameters
    ----------
    ``lanes`` : int, at least 1
        Words of a place.
    ``depth`` : int, at least 1
        Places.
    ``rounds`` : int, at least 1
        Rounds of a frame's window.

    Latency
    -------
    ``LATENCY``, 3 cycles from a place's last words to its maxima; a word of each lane a cycle.

    Source
    ------
    docs/systems/layers.md, "Numbers": max_pool.
    """

    LATENCY = max_pool.LATENCY
    assert LATENCY < REUSE

    def __init__(self, *, lanes: int, depth: int, rounds: int):
        self.lanes, self.depth, self.rounds = lanes, depth, rounds
        words = data.ArrayLayout(WORD_BITS, lanes)
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "last": In(1),
                "round": In(range(rounds)),
                "counts": In(1),
                "i": In(words),
                "o_valid": Out(1),
                "o": Out(words),
                "o_rounds": Out(words),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read a place's maximum so far, compare it with the new word, and write the larger one."""
        m = Module()
        candidate = data.StructLayout({"word": WORD_BITS, "round": range(self.rounds)})
        entry_shape = data.StructLayout({"has_candidate": 1, "lanes": data.ArrayLayout(candidate, self.lanes)})
        m.submodules.memory = memory = Memory(shape=entry_shape, depth=self.depth, init=[])
        read, write = memory.read_port(), memory.write_port()
        entry = Signal(range(self.depth))
        with m.If(self.valid):
            m.d.sync += entry.eq(Mux(entry == self.depth - 1, 0, entry + 1))
        valid = delayed(m, self.valid, self.LATENCY, name="valid", reset_less=False)
        ends = delayed(m, self.last, self.LATENCY, name="ends")[-1]
        m.d.comb += [
            read.addr.eq(entry),
            write.addr.eq(delayed(m, entry, self.LATENCY, name="entry")[-1]),
            write.en.eq(valid[-1]),
            self.o_valid.eq(valid[-1] & ends),
        ]
        delayed_inputs = {
            name: delayed(m, value, 2, name=name)
            for name, value in (("first", self.first), ("counts", self.counts), ("round", self.round))
        }
        words = delayed(m, self.i, 2, name="word")
        has_candidate = Signal()  # the place already has a candidate
        m.d.sync += [
            has_candidate.eq(read.data.has_candidate & ~delayed_inputs["first"][1]),
            write.data.has_candidate.eq(has_candidate | delayed_inputs["counts"][2]),
        ]
        for lane in range(self.lanes):
            stored, updated = read.data.lanes[lane], write.data.lanes[lane]
            word_key, stored_key = (
                Signal(_Compared, name=f"{name}_{lane}", reset_less=True) for name in ("word_key", "stored_key")
            )
            stored_delayed = Signal(candidate, name=f"stored_{lane}", reset_less=True)
            m.d.sync += [
                stored_delayed.eq(stored),
                *_compare(stored_key, stored.word),
                *_compare(word_key, words[1][lane]),
            ]
            replaces = delayed_inputs["counts"][2] & (
                ~has_candidate | ~stored_key.nan & (word_key.nan | (word_key.key > stored_key.key))
            )
            m.d.sync += updated.word.eq(Mux(replaces, words[2][lane], stored_delayed.word))
            m.d.sync += updated.round.eq(Mux(replaces, delayed_inputs["round"][2], stored_delayed.round))
            m.d.comb += [
                self.o[lane].eq(updated.word),
                self.o_rounds[lane].eq(updated.round),
            ]
        return m


class MaxPool(wiring.Component):
    """Maximum pooling by channel: the largest word of every window. The gradient returns to that word's place.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients``, ``save``, ``replay`` : present if ``layer.gradient``
        Mode TRAIN saves the place of each largest word in its window.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.max_pool.MaxPool``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    A frame takes ``layer.cycles(parallelism)`` cycles, each way. The outputs of a block leave ``LATENCY``
    cycles after its last step.

    Source
    ------
    docs/systems/layers.md, "Numbers", "The convolution".
    """

    LATENCY = Lines.LATENCY + Maxima.LATENCY + Results.LATENCY + 1

    def __init__(self, *, layer: max_pool.MaxPool, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        self._schedule = layer.schedule(parallelism)
        self._pairs = layer.pairs(parallelism)
        super().__init__(layer_members(layer, parallelism))

    def elaborate(self, platform: Any) -> Module:
        """Build both ways with the loops of a depthwise convolution, and comparisons instead of products."""
        m = Module()
        self._forward(m)
        if self.layer.gradient:
            self._backward(m)
        return m

    def _forward(self, m: Module) -> None:
        """Compare the words of each window, one round for each position in the kernel.

        Results and saved positions pass through one buffer: each pair has a word of both.
        """
        schedule, lanes = self._schedule, self.parallelism.po
        raster = schedule.features
        m.submodules.lines = lines = Lines(raster=raster, rows=schedule.feature_rows, words=lanes)
        m.submodules.results = results = Results(raster=self._pairs, rows=schedule.result_rows, words=2 * lanes)
        taps = self.layer.kernel[0] * self.layer.kernel[1]
        depth = schedule.round_steps(Way.FORWARD)
        m.submodules.maxima = maxima = Maxima(lanes=lanes, depth=depth, rounds=taps)
        go = Signal()
        loops = WayLoops(m, schedule, Way.FORWARD, go=go)
        tap = loops.nest.walk({"ky": self.layer.kernel[1], "kx": 1}, name="tap_number")
        aligned = {
            name: delayed(m, value, Lines.LATENCY, name=name, reset_less=False)[-1]
            for name, value in (
                ("step", loops.step),
                ("first", loops.first),
                ("last", loops.last),
                ("number", tap),
            )
        }
        connect_typed(m, flipped(self.features[0]), lines.i)
        m.d.comb += [
            go.eq(results.room & (lines.ready | ~loops.row_begins)),
            results.begin.eq(loops.start),
            lines.begin.eq(loops.start & loops.row_begins),
            lines.end.eq(loops.row_ends),
            maxima.valid.eq(aligned["step"]),
            maxima.first.eq(aligned["first"]),
            maxima.last.eq(aligned["last"]),
            maxima.round.eq(aligned["number"]),
            maxima.counts.eq(lines.mask),
            maxima.i.eq(lines.data),
            results.valid.eq(maxima.o_valid),
            results.data.eq(Cat(maxima.o, maxima.o_rounds)),
        ]
        position = {"c": 1, "block": schedule.row_positions}
        for name, value in window_steps(loops.nest, raster, {"g": 1}, position=position).items():
            m.d.comb += lines.window[name].eq(value)
        words = Value.cast(results.o.payload)
        half = len(words) // 2
        ready = give_and_save(m, self, words[:half], words[half:], results.o.valid)
        m.d.comb += results.o.ready.eq(ready)

    def _backward(self, m: Module) -> None:
        """Add each gradient to the input at the saved position of its window, and 0 to the other inputs."""
        schedule, lanes = self._schedule, self.parallelism.po
        inputs, pairs = schedule.features, self._pairs
        latency = Lines.LATENCY + 1
        m.submodules.join = join = StreamJoin(shape=self.gradients.payload.shape())
        m.submodules.blocks = blocks = Lines(raster=pairs, rows=schedule.output_rows, words=2 * lanes)
        m.submodules.rows = rows = GradientRows(raster=inputs, rows=schedule.input_gradient_rows, words=lanes)
        connect_typed(m, flipped(self.gradients), join.i[0])
        connect_typed(m, flipped(self.replay), join.i[1])
        connect_typed(m, rows.o, flipped(self.input_gradients[0]))
        go = Signal()
        loops = WayLoops(m, schedule, Way.INPUT_GRADIENT, go=go)
        m.d.comb += [
            blocks.i.payload.eq(join.o.payload),
            blocks.i.valid.eq(join.o.valid),
            join.o.ready.eq(blocks.i.ready),
            go.eq(blocks.ready & (rows.ready | ~loops.row_begins)),
            rows.begin.eq(loops.start & loops.row_begins),
            blocks.begin.eq(loops.start),
            blocks.end.eq(loops.ends),
        ]
        m.d.comb += [blocks.window[name].eq(value) for name, value in loops.output_window().items()]
        height, width = self.layer.kernel
        down = {"ky": -width, "kx": -1}
        tap = loops.nest.walk(down, base=height * width - 1, name="tap_number")
        number = delayed(m, tap, Lines.LATENCY, name="number")[-1]
        terms = Signal(data.ArrayLayout(WORD_BITS, lanes), reset_less=True)
        for lane, term in enumerate(terms):
            m.d.sync += term.eq(Mux(blocks.data[lanes + lane] == number, blocks.data[lane], 0))
        add_windows(m, schedule, loops, rows, terms, latency)
