"""One engine of the GLM worker: banks, model memories and replay FIFO in lock step."""

from typing import Any

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.glm.shapes import (
    WEIGHT,
    EngineEvents,
    EngineShape,
    ModelPortSignature,
    SplitSum,
    check_engine,
)


class Engine(wiring.Component):
    """Forward and backward propagation of one slice of the model, one word of bit planes a cycle.

    Members
    -------
    ``samples``: In stream(``lanes * banks``), plane j of one chunk: bit lanes·b + k is sample b, feature k.
    ``pa``: Out stream(``ArrayLayout(SplitSum, banks)``), exact partial activations, one per micro-batch.
    ``scale``: In stream(``ArrayLayout(signed(32), banks)``), γ/B · df per sample, in the PAs' order, each
    after its PA. ``shape``: In(``EngineShape``). ``start``: In(1), a pulse. ``clear``: In(1), a pulse.
    ``host``: In(``ModelPortSignature``). ``busy``: Out(1). ``events``: Out(``EngineEvents``).
    """

    def __init__(self, *, lanes: int = 64, banks: int = 8, depth: int = 4096, fifo_depth: int = 4096):
        check_engine(lanes=lanes, banks=banks, depth=depth, fifo_depth=fifo_depth)
        self.lanes = lanes
        self.banks = banks
        self.depth = depth
        self.fifo_depth = fifo_depth
        super().__init__(
            {
                "samples": In(stream.Signature(lanes * banks)),
                "pa": Out(stream.Signature(data.ArrayLayout(SplitSum, banks))),
                "scale": In(stream.Signature(data.ArrayLayout(WEIGHT, banks))),
                "shape": In(EngineShape),
                "start": In(1),
                "clear": In(1),
                "host": In(ModelPortSignature(depth=depth, lanes=lanes)),
                "busy": Out(1),
                "events": Out(EngineEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        raise NotImplementedError  # the interface first; the gates follow
