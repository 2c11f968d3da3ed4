"""Interface between a layer and the store's channels for parameters in memory."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.layers.interface import word_stream


class ParameterAsks(data.Struct):
    """Request pulses: each starts one more pass over all weights or velocities, from the first to the last."""

    forward: 1  #: read all weights, for ``forward``
    backward: 1  #: read all weights, for ``backward``
    velocities: 1  #: read all velocities, and write all ``new_velocities``
    weights: 1  #: write all ``new_weights``


def parameter_memory(lanes: int, *, gradient: bool) -> wiring.Signature:
    """Return a layer's side of its parameters in memory, in streams of ``lanes`` words.

    Velocities are read only after the writes of the previous pass there are acknowledged. ``settled``: all
    requested writes are acknowledged; valid from the cycle after a request on. ``backward`` is present if
    ``gradient``.
    """
    words = word_stream(lanes)
    members = {
        "ask": Out(ParameterAsks),
        "settled": In(1),
        "forward": In(words),
        "velocities": In(words),
        "new_weights": Out(words),
        "new_velocities": Out(words),
    }
    return wiring.Signature(members | ({"backward": In(words)} if gradient else {}))
