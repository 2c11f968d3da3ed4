"""Update of parameters that are streamed from memory and back."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.gearbox import Gearbox
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.parameter_walk import ARITHMETIC_LATENCY, updated_parameter
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.hdl.stream.pipeline_queue import PipelineQueue


class StreamedUpdate(wiring.Component):
    """Update of streamed parameters, one a cycle: w becomes w ⊕ (``eta`` ⊗ v), and v becomes μ ⊗ v.

    Members
    -------
    ``weights``, ``velocities`` : In, streams of ``lanes`` words
    ``new_weights``, ``new_velocities`` : Out, streams of ``lanes`` words
    ``eta``, ``momentum`` : In(32)
        Stable while parameters are in flight.

    Parameters
    ----------
    ``lanes`` : int, at least 1
    ``parameters`` : int
        Parameters of the layer, a multiple of ``lanes``.

    Latency
    -------
    A parameter a cycle; ``lanes`` + 15 cycles from a transfer to its new values.

    Source
    ------
    docs/systems/layers.md, "Numbers", "Parameters in memory".
    """

    def __init__(self, *, lanes: int, parameters: int):
        self.lanes, self.parameters = lanes, parameters
        words = word_stream(lanes)
        super().__init__(
            {
                "weights": In(words),
                "velocities": In(words),
                "new_weights": Out(words),
                "new_velocities": Out(words),
                "eta": In(WORD_BITS),
                "momentum": In(WORD_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build gearboxes to single words, the operators, and gearboxes back."""
        m = Module()
        pair = data.ArrayLayout(WORD_BITS, 2)
        m.submodules.queue = queue = PipelineQueue(shape=pair, latency=ARITHMETIC_LATENCY)
        m.submodules.fork = fork = StreamFork(shape=pair)
        sources = [self._single(m, name) for name in ("weights", "velocities")]
        step = Signal()
        valid = delayed(m, step, ARITHMETIC_LATENCY, name="valid", reset_less=False)
        weight, velocity = (source.payload[0] for source in sources)
        new_weight, new_velocity = updated_parameter(m, weight, velocity, self.eta, self.momentum, valid)
        m.d.comb += [
            step.eq(sources[0].valid & sources[1].valid & queue.ok),
            *(source.ready.eq(step) for source in sources),
            queue.enter.eq(step),
            queue.result[0].eq(new_weight),
            queue.result[1].eq(new_velocity),
        ]
        connect_typed(m, queue.o, fork.i)
        for n, name in enumerate(("new_weights", "new_velocities")):
            gearbox = Gearbox(source=1, target=self.lanes, frame=self.parameters)
            m.submodules[f"{name}_gearbox"] = gearbox
            connect_typed(m, gearbox.o, wiring.flipped(getattr(self, name)))
            m.d.comb += [
                gearbox.i.payload[0].eq(fork.o[n].payload[n]),
                gearbox.i.valid.eq(fork.o[n].valid),
                fork.o[n].ready.eq(gearbox.i.ready),
            ]
        return m

    def _single(self, m: Module, name: str) -> Any:
        """Return the words of the stream ``name``, one a transfer."""
        m.submodules[f"{name}_gearbox"] = gearbox = Gearbox(source=self.lanes, target=1, frame=self.parameters)
        connect_typed(m, wiring.flipped(getattr(self, name)), gearbox.i)
        return gearbox.o
