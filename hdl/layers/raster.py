"""Common parts of layers that fold over the raster or process it word by word."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal, Value
from amaranth.lib import wiring

from fanin.cnn.layers.layer import REUSE
from fanin.hdl.arith.array import LaneArray
from fanin.hdl.emit import shared
from fanin.hdl.layers.interface import Mode
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_bits, connect_typed
from fanin.hdl.stream.fork import StreamFork


def may_reuse(m: Module, used_last: Any, rows: int, *, period: int = REUSE) -> Value:
    """Return whether the next of ``rows`` accumulators, used in turn, may be used.

    The result is low until each use is at least ``period`` cycles after the previous one. ``used_last``: the
    last accumulator is used in this cycle.
    """
    gap = max(period - rows, 0)
    if not gap:
        return Value.cast(1)
    cycles_left = Signal(range(gap + 1), name="cycles_left")
    allowed = Signal(name="may_reuse", init=1)
    with m.If(used_last):
        m.d.sync += [cycles_left.eq(gap - 1), allowed.eq(0)]
    with m.Elif(cycles_left == 0):
        m.d.sync += allowed.eq(1)
    with m.Else():
        m.d.sync += cycles_left.eq(cycles_left - 1)
    return allowed


def give_and_save(
    m: Module, layer: Any, output_words: Any, saved_words: Any, valid: Any, packer: Any = None
) -> Value:
    """Send words to ``layer.outputs`` and, in mode TRAIN, to ``layer.save``, both registered.

    Return whether the words are taken. A layer without a gradient has no ``save``.

    ``packer``: a ``Gearbox`` before ``save``, with ``saved_words`` as its input; None: ``save`` takes them as
    they are.
    """
    words = layer.outputs.payload.shape()
    m.submodules.outputs = outputs = RegisterSlice(shape=words)
    connect_typed(m, outputs.o, wiring.flipped(layer.outputs))
    m.d.comb += outputs.i.payload.eq(output_words)
    if not layer.layer.saved_words:
        m.d.comb += outputs.i.valid.eq(valid)
        return outputs.i.ready
    m.submodules.save = save = packer or RegisterSlice(shape=words)
    m.submodules.fork = fork = StreamFork(shape=0)
    connect_bits(m, save.o, layer.save)
    training = layer.control.mode == Mode.TRAIN
    m.d.comb += [
        fork.i.valid.eq(valid),
        outputs.i.valid.eq(fork.o[0].valid),
        fork.o[0].ready.eq(outputs.i.ready),
        Value.cast(save.i.payload).eq(saved_words),
        save.i.valid.eq(fork.o[1].valid & training),
        fork.o[1].ready.eq(save.i.ready | ~training),
    ]
    return fork.i.ready


def scaled(m: Module, words: Any, factor: int, valid: Any, *, name: str) -> tuple[Any, int]:
    """Return every word times the binary32 number with the bits ``factor``, and the latency in cycles."""
    trees = tuple(((lane, 0),) for lane in range(len(words)))
    m.submodules[name] = array = shared(LaneArray(trees=trees))
    m.d.comb += [array.a.eq(words), array.b[0].eq(factor), array.valid.eq(valid)]
    return array.o, array.latency
