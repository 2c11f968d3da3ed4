"""Im2col: the words of each window as the channels of one position."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from fanin.cnn.layers import im2col
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.gradient_rows import GradientRows
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.lines import Lines
from fanin.hdl.layers.nest import Nest
from fanin.hdl.layers.places import WindowPlaces, window_steps
from fanin.hdl.layers.raster import may_reuse
from fanin.hdl.layers.resize import resized
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.pipeline_queue import PipelineQueue


class Im2col(wiring.Component):
    """Im2col: a window's words become the channels (row, column, channel) of a position. Gradients are summed.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients`` : present if ``layer.gradient``

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.im2col.Im2col``
    ``parallelism`` : ``Parallelism``
        The layer moves ``pi`` words a cycle inside. If ``po`` differs, a Resize follows at the output.

    Latency
    -------
    ``LATENCY`` cycles from a word's step to the output, plus the latency of the Resize. A frame takes
    ``layer.cycles(parallelism)`` cycles, each way.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    LATENCY = Lines.LATENCY + 1

    def __init__(self, *, layer: im2col.Im2col, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))
        self._raster = raster = layer.raster(parallelism)
        self._levels = {
            "row": layer.output.h,
            "c": layer.output.w,
            "r": 1,
            "ky": layer.kernel[0],
            "kx": layer.kernel[1],
            "g": raster.groups,
        }

    def elaborate(self, platform: Any) -> Module:
        """Build both ways, which take one step per word of a window, in output order."""
        m = Module()
        self._forward(m)
        if self.layer.gradient:
            self._backward(m)
        return m

    def _forward(self, m: Module) -> None:
        """Read one word of a window per step, with a place reserved in the queue after the lines."""
        p, raster = self.parallelism, self._raster
        rows = raster.ring(self.layer.cycles(p))
        m.submodules.lines = lines = Lines(raster=raster, rows=rows, words=p.pi)
        m.submodules.queue = queue = PipelineQueue(shape=lines.data.shape(), latency=Lines.LATENCY)
        connect_typed(m, flipped(self.features[0]), lines.i)
        words = self.layer.output.words
        connect_typed(m, resized(m, "resize", queue.o, words=words, i=p.pi, o=p.po), flipped(self.outputs))
        active = Signal(name="forward_active")
        step = active & queue.ok
        self._walk(m, lines, active, step, name="forward")
        m.d.comb += [queue.enter.eq(step), queue.result.eq(lines.data)]

    def _backward(self, m: Module) -> None:
        """Add one word's gradient per step, in order of arrival. Terms of a place are far enough apart."""
        layer, p, raster = self.layer, self.parallelism, self._raster
        ring = raster.ring_back(layer.cycles(p), im2col.GRADIENT_LATENCY)
        m.submodules.rows = rows = GradientRows(raster=raster, rows=ring, words=p.pi)
        connect_typed(m, rows.o, flipped(self.input_gradients[0]))
        words = layer.output.words
        gradients = resized(m, "resize_back", flipped(self.gradients), words=words, i=p.po, o=p.pi)
        active = Signal(name="backward_active")
        step = gradients.valid & gradients.ready
        nest = self._walk(m, rows, active, step, name="backward")
        position = ["ky", "kx", "g"]
        steps = layer.kernel[0] * layer.kernel[1] * self._levels["g"]
        may_add = may_reuse(m, step & nest.ends(position), steps, period=layer.position_cycles(p))
        m.d.comb += [
            gradients.ready.eq(active & may_add),
            rows.add.eq(step),
            rows.terms.eq(delayed(m, gradients.payload, WindowPlaces.LATENCY, name="term")[-1]),
            rows.first.eq(delayed(m, self._first(nest), WindowPlaces.LATENCY, name="first")[-1]),
        ]

    def _walk(self, m: Module, rows: Any, active: Signal, step: Any, *, name: str) -> Nest:
        """Walk over all windows, one word per ``step``; while ``active``, the ``rows`` in use are available."""
        nest = Nest(m, self._levels, step, name=name)
        ends = step & nest.ends(("c", "ky", "kx", "g"))
        m.d.comb += [rows.begin.eq(rows.ready & (~active | ends)), rows.end.eq(ends)]
        m.d.sync += active.eq(rows.begin | active & ~ends)
        windows = window_steps(nest, self._raster, {"g": 1}, position={"c": 1})
        m.d.comb += [rows.window[field].eq(value) for field, value in windows.items()]
        return nest

    def _first(self, nest: Nest) -> Value:
        """Return whether no earlier window covers the place: none a row above, none a column to the left."""
        (height, width), (down, right) = self.layer.kernel, self.layer.stride
        row, column = nest.walk({"row": 1}, name="output_row"), nest.walk({"c": 1}, name="output_column")
        ky, kx = nest.walk({"ky": 1}, name="ky_now"), nest.walk({"kx": 1}, name="kx_now")
        return ((row == 0) | (ky >= height - down)) & ((column == 0) | (kx >= width - right))
