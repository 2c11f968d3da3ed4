"""How a layer reaches parameters that lie in memory, and the store's channels for them."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.layers.interface import word_stream


class ParameterAsks(data.Struct):
    """Pulses: pass once more over all weights or velocities, from the first to the last."""

    forward: 1  #: weights are read, for ``forward``
    backward: 1  #: weights are read, for ``backward``
    velocities: 1  #: velocities are read, and as many ``new_velocities`` written
    weights: 1  #: as many ``new_weights`` are written


def parameter_memory(lanes: int, *, gradient: bool) -> wiring.Signature:
    """A layer's side of its parameters in memory, in streams of ``lanes`` words.

    Velocities are read when all that an earlier pass wrote there has been acknowledged. ``settled``: so has
    everything that was asked to be written; from the cycle after an ask on. ``backward`` is there with
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
