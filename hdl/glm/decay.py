"""L2 regularisation in RTL: what each weight of a row loses in a mini-batch."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data

from fanin.fixed import MAX_DECAY
from fanin.glm.facts import MAX_DEPTH, MAX_ENGINES, MAX_LANES
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

    ``valid``: it does, now, unless the row has a weight that is spared (``row_spares``) and it is this lane's
    (``lane_spared``); ``shift``, and ``below``, the bits of a weight that it drops, are constant.
    """

    valid: 1
    row_spares: 1
    lane_spared: 1
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
    """The register, a ``Lost``, of what a weight loses; 0 where it does not decay. It lies behind four LUTs."""
    register = Signal(Lost, name=name)
    decays = decay.valid & ~(decay.row_spares & decay.lane_spared)
    up = ~weight[-1] & (weight[: len(decay.below)] & decay.below).any()
    m.d.sync += [
        register.quotient.eq(Mux(decays, weight >> decay.shift, 0)),
        register.up.eq(decays & up),
    ]
    return register


def lane_decays(m: Module, decay: Any, lanes: int, *, chunk: Value, valid: Value) -> list[Any]:
    """The ``LaneDecay`` of every lane of a row of weights; all from registers if ``valid`` is one.

    ``valid``: they decay in this cycle; ``chunk``: of the row in the next cycle. With shift 0 all are spared.
    """
    row = Signal(LaneDecay)
    lane_spared = Signal(lanes)
    none = decay.shift == 0
    m.d.comb += row.valid.eq(valid)
    m.d.sync += [
        row.row_spares.eq(none | decay.spared & (decay.chunk == chunk)),
        row.shift.eq(decay.shift),
        row.below.eq(Cat(decay.shift > bit for bit in range(MAX_DECAY))),
        lane_spared.eq(Mux(none, -1, 1 << decay.lane)),
    ]
    rows = []
    for k in range(lanes):
        of_lane = Signal(LaneDecay, name=f"decay_{k}")
        m.d.comb += [of_lane.eq(row), of_lane.lane_spared.eq(lane_spared[k])]
        rows.append(of_lane)
    return rows
