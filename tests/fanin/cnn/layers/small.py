"""A small layer of any kind, so that a new kind is in every test of all kinds by itself."""

from dataclasses import fields

from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

_SIZES = {"kernel": (2, 2), "stride": (1, 1), "output_channels": 2}


def small_layer(kind, shape):
    """One with a gradient; all of its inputs have this shape."""
    names = {field.name for field in fields(kind)}
    inputs = (1 + (kind.joins or kind is SoftCrossLoss)) * (shape,)
    return kind(inputs=inputs, gradient=True, **{name: size for name, size in _SIZES.items() if name in names})


def other_layers(layers, shape):
    """By kind, a small layer of each kind with hardware that ``layers`` are not of."""
    known = {layer.kind for layer in layers}
    found = layer_kinds().items()
    return {kind: small_layer(cls, shape) for kind, cls in found if cls.component and kind not in known}
