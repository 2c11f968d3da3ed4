"""L2 regularisation in RTL: what each weight of a row loses in a mini-batch."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data

from fanin.fixed import MAX_DECAY
from fanin.glm import MAX_DEPTH, MAX_ENGINES, MAX_LANES
from fanin.hdl.glm.shapes import WEIGHT

DECAY_SHIFT = range(MAX_DECAY + 1)


class NodeDecay(data.Struct):
    """The fields of the register ``decay``: ``EngineDecay``'s, and the engine of the weight that is spared."""

    decay_shift: DECAY_SHIFT
    spared: 1
    spared_lane: range(MAX_LANES)
    spared_chunk: range(MAX_DEPTH)
    spared_engine: range(MAX_ENGINES)


class EngineDecay(data.Struct):
    """How the weights of an engine decay; constant from 4 cycles before ``start``.

    ``shift``: weights lose 2^-shift of themselves in each mini-batch, 0: nothing. ``spared``: not the one of
    ``lane`` in ``chunk``, a bias'.
    """

    shift: DECAY_SHIFT
    spared: 1
    lane: range(MAX_LANES)
    chunk: range(MAX_DEPTH)


class LaneDecay(data.Struct):
    """How a lane's weight of a cycle decays.

    ``valid``: it does, now; ``shift``, and ``below``, the bits of a weight that it drops, are constant.
    """

    valid: 1
    shift: DECAY_SHIFT
    below: unsigned(MAX_DECAY)


class Lost(data.Struct):
    """What a weight loses, ``quotient`` + ``up``: away from zero where bits were dropped.

    The shift rounds a negative weight away already; ``up`` does so for a positive one. They are added where
    there is a carry chain anyway.
    """

    quotient: signed(WEIGHT.width - 1)
    up: 1


def lost(m: Module, weight: Value, decay: Any, *, name: str = "lost") -> Any:
    """The register, a ``Lost``, of what a weight loses; 0 unless ``valid``. It lies behind three LUTs."""
    register = Signal(Lost, name=name)
    up = ~weight[-1] & (weight[: len(decay.below)] & decay.below).any()
    m.d.sync += [
        register.quotient.eq(Mux(decay.valid, weight >> decay.shift, 0)),
        register.up.eq(decay.valid & up),
    ]
    return register


def lane_decays(m: Module, decay: Any, lanes: int, *, chunk: Value, valid: Value) -> list[Any]:
    """The ``LaneDecay`` of every lane of a row of weights.

    ``valid``: they decay in this cycle; ``chunk``: of the row in the next cycle.
    """
    shared = Signal(LaneDecay)
    decays = Signal()
    spares = Signal()  # the row has the weight that is spared
    spared_lane = Signal(lanes)
    m.d.sync += [
        shared.shift.eq(decay.shift),
        shared.below.eq(Cat(decay.shift > bit for bit in range(MAX_DECAY))),
        decays.eq(decay.shift.any()),
        spares.eq(decay.spared & (decay.chunk == chunk)),
        spared_lane.eq(1 << decay.lane),
    ]
    rows = []
    for k in range(lanes):
        row = Signal(LaneDecay, name=f"decay_{k}")
        m.d.comb += [row.eq(shared), row.valid.eq(valid & decays & ~(spares & spared_lane[k]))]
        rows.append(row)
    return rows
