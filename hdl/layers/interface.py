"""Interface of every layer's component: streams of words, and control (NADA, table II)."""

from typing import Any

from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Layer, Parallelism
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

FRAME_BITS = 24  #: bits of a number of frames


class Mode(enum.Enum, shape=2):  # type: ignore[call-arg]
    """Mode of a job."""

    EVALUATE = 0  #: frames pass forward; nothing is saved or learned
    TRAIN = 1  #: frames pass forward and backward; parameters are updated after each batch
    LOAD = 2  #: parameters and state are loaded
    DUMP = 3  #: parameters and state are dumped


class LayerControl(data.Struct):
    """Job of a layer. All fields except ``start`` are stable from ``start`` until the job is done."""

    mode: Mode
    start: 1  #: a pulse; the job begins in the next cycle
    frames: FRAME_BITS  #: frames of the job
    batch: FRAME_BITS  #: frames of a batch; the last batch has the remaining frames
    eta: WORD_BITS  #: −learning rate / batch, binary32
    last_eta: WORD_BITS  #: −learning rate / frames of the last batch, binary32
    momentum: WORD_BITS  #: momentum μ, binary32


def word_stream(lanes: int) -> stream.Signature:
    """Return a stream of ``lanes`` consecutive channels of one position a transfer."""
    return unit_stream(WORD_BITS, lanes)


def unit_stream(bits: int, lanes: int) -> stream.Signature:
    """Return a stream of ``lanes`` values of ``bits`` bits a transfer."""
    return stream.Signature(data.ArrayLayout(bits, lanes))


def layer_members(layer: Layer, p: Parallelism) -> dict[str, Any]:
    """Return the members of a layer's component (docs/systems/layers.md, "Interface of a layer").

    A loss has no ``gradients``, and no input gradient for its labels.
    """
    loss = isinstance(layer, SoftCrossLoss)
    count = len(layer.inputs)
    members: dict[str, Any] = {
        "features": In(word_stream(p.pi)).array(count),
        "outputs": Out(word_stream(p.po)),
        "control": In(LayerControl),
    }
    if layer.trains and not loss:
        members["gradients"] = In(word_stream(p.po))
    if layer.gradient:
        members["input_gradients"] = Out(word_stream(p.pi)).array(1 if loss else count)
    if layer.saved_words:
        members["save"] = Out(word_stream(layer.save_lanes(p)))
        members["replay"] = In(word_stream(layer.save_lanes(p)))
    if layer.state_words:
        members["load"] = In(stream.Signature(WORD_BITS))
        members["dump"] = Out(stream.Signature(WORD_BITS))
    if layer.parameters:
        members |= {"updated": Out(1), "done": Out(1)}
    return members
