"""Weight gradient of a convolution."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.hdl.arith.array import AdderArray, LaneArray, Trees, lane_latency
from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.fp32 import FP32Adder
from fanin.hdl.emit import shared
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.lines import Lines
from fanin.hdl.layers.places import window_steps
from fanin.hdl.layers.way import WayLoops
from fanin.hdl.layers.word_supply import SUPPLY_MEMBERS
from fanin.hdl.stream.connect import connect_typed


def weight_gradient_trees(schedule: Schedule) -> Trees:
    """Return, by weight of a memory word, the products (word of the input, word of the output's gradient)."""
    columns, inputs, outputs = range(schedule.p.ph), schedule.lanes_in, schedule.lanes_out
    if schedule.depthwise:
        pairs = [(o, o) for o in range(outputs)]
    else:
        pairs = list(product(range(inputs), range(outputs)))
    return tuple(tuple((j * inputs + i, j * outputs + o) for j in columns) for i, o in pairs)


class WeightGradient(wiring.Component):
    """Accumulator of the weight gradient in the velocities: v = v + x · dy, by position.

    A block begins when its input rows and its gradients are complete, and then runs to its end. If velocities
    are streamed, in the order of the steps, each step also waits for its own velocities.

    Members
    -------
    ``replay`` : In, stream of pi words
        The saved input.
    ``gradients`` : In, stream of po words
        Gradients of the output.
    ``velocity_address`` : Out, range(weight_words)
    ``velocities`` : In, ``weight_lanes`` words
        Velocities, one cycle after their address. They include a write in the cycle of the address.
    ``write`` : Out(1)
        Write ``new_velocities`` to ``write_address``.
    ``write_address`` : Out, range(weight_words)
    ``new_velocities`` : Out, ``weight_lanes`` words
    ``finished`` : Out(1)
        Pulse: the last velocities of a frame are being written.

    Parameters
    ----------
    ``schedule`` : Schedule
    ``streamed`` : bool
        Velocities are streamed in the order of the steps. ``ok`` and ``take`` replace ``write`` and the
        addresses. ``ok``, In(1): the next velocities are available. ``take``, Out(1): a step takes velocities,
        which ``velocities`` holds ``to_sums`` cycles later. ``room``, In(1): new velocities have room.
        ``give``, Out(1): a step is the last one of its velocities, and ``new_velocities`` holds them
        ``latency`` cycles later. The steps of a group's first frame take velocities, those of its last frame
        give them.

    Latency
    -------
    A frame takes ``schedule.blocks`` · ``schedule.block_cycles(Way.WEIGHT_GRADIENT)`` cycles, or as long as its
    words take in. ``finished`` follows the last step by ``latency`` cycles.

    Source
    ------
    docs/systems/layers.md, "The convolution"; NADA, section III.
    """

    def __init__(self, *, schedule: Schedule, streamed: bool = False):
        self.schedule, self.streamed = schedule, streamed
        word = data.ArrayLayout(WORD_BITS, schedule.weight_lanes)
        address = range(schedule.weight_words)
        memory = {"velocity_address": Out(address), "write": Out(1), "write_address": Out(address)}
        super().__init__(
            {
                "replay": In(word_stream(schedule.p.pi)),
                "gradients": In(word_stream(schedule.p.po)),
                **(SUPPLY_MEMBERS | {"room": In(1), "give": Out(1)} if streamed else memory),
                "velocities": In(word),
                "new_velocities": Out(word),
                "finished": Out(1),
            }
        )

    @cached_property
    def _trees(self) -> Trees:
        return weight_gradient_trees(self.schedule)

    @property
    def to_sums(self) -> int:
        """Cycles from a step to the addition to its velocities."""
        return Lines.LATENCY + lane_latency(self._trees)

    @property
    def latency(self) -> int:
        """Cycles from a step to the write of its velocities."""
        return self.to_sums + FP32Adder.LATENCY

    def elaborate(self, platform: Any) -> Module:
        """Build the loops, and the datapath at a fixed number of cycles after them."""
        m = Module()
        schedule, p = self.schedule, self.schedule.p
        inputs, outputs = schedule.features, schedule.outputs
        m.submodules.lines = lines = Lines(raster=inputs, rows=schedule.feature_rows, words=p.pi)
        m.submodules.blocks = blocks = Lines(raster=outputs, rows=schedule.output_rows, words=p.po)
        connect_typed(m, wiring.flipped(self.replay), lines.i)
        connect_typed(m, wiring.flipped(self.gradients), blocks.i)

        go = Signal()
        available: Any = Signal() if self.streamed else None
        loops = WayLoops(m, schedule, Way.WEIGHT_GRADIENT, go=go, available=available, tiled=self.streamed)
        if self.streamed:
            m.d.comb += [
                available.eq((self.ok | ~loops.takes) & (self.room | ~loops.gives)),
                self.take.eq(loops.step & loops.takes),
                self.give.eq(loops.step & loops.gives),
            ]
        m.d.comb += [
            go.eq(blocks.ready & (lines.ready | ~loops.row_begins)),
            lines.begin.eq(loops.start & loops.row_begins),
            lines.end.eq(loops.row_ends),
            blocks.begin.eq(loops.start),
            blocks.end.eq(loops.ends),
        ]
        position = {"c": 1, "block": schedule.row_positions}
        windows = window_steps(loops.nest, inputs, {"g": schedule.igs, **loops.input_groups}, position=position)
        m.d.comb += [lines.window[name].eq(value) for name, value in windows.items()]
        m.d.comb += [blocks.window[name].eq(value) for name, value in loops.output_window().items()]
        self._accumulate(m, loops, lines.data, blocks.data)
        return m

    def _accumulate(self, m: Module, loops: WayLoops, inputs: Any, gradients: Any) -> None:
        m.submodules.products = products = shared(LaneArray(trees=self._trees))
        m.submodules.sums = sums = shared(AdderArray(lanes=self.schedule.weight_lanes))
        step = delayed(m, loops.step, self.latency, name="step", reset_less=False)
        m.d.comb += [
            products.a.eq(inputs),
            products.b.eq(gradients),
            products.valid.eq(step[Lines.LATENCY]),
            sums.b.eq(products.o),
            sums.valid.eq(step[self.to_sums]),
            self.new_velocities.eq(sums.o),
            self.finished.eq(delayed(m, loops.frame_ends, self.latency, name="finished", reset_less=False)[-1]),
        ]
        if self.schedule.p.frames > 1:
            self._sums_of_tile(m, loops, sums, step)
        else:
            m.d.comb += sums.a.eq(self.velocities)
        if not self.streamed:
            address = delayed(m, loops.weight_address(), self.latency, name="address")
            m.d.comb += [
                self.velocity_address.eq(address[self.to_sums - 1]),
                self.write.eq(step[-1]),
                self.write_address.eq(address[-1]),
            ]

    def _sums_of_tile(self, m: Module, loops: WayLoops, sums: AdderArray, step: Any) -> None:
        """Keep a tile's sums between its frames. The first frame's step adds to the velocities themselves."""
        depth = prod(self.schedule.weight_tile)
        m.submodules.tile = memory = Memory(shape=self.velocities.shape(), depth=depth, init=[])
        write = memory.write_port()
        read = memory.read_port(transparent_for=(write,))
        entry = Signal(range(depth))
        with m.If(step[self.to_sums - 1]):
            m.d.sync += entry.eq(Mux(entry == depth - 1, 0, entry + 1))
        takes = delayed(m, loops.takes, self.to_sums, name="takes")[-1]
        m.d.comb += [
            read.addr.eq(entry),
            sums.a.eq(Mux(takes, self.velocities, read.data)),
            write.addr.eq(delayed(m, entry, self.latency - self.to_sums + 1, name="entry")[-1]),
            write.data.eq(sums.o),
            write.en.eq(step[-1]),
        ]
