"""L2 regularisation in RTL: the amount that decay takes off each weight of a row, once per mini-batch."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data

from fanin.fixed import MAX_DECAY
from fanin.glm.facts import MAX_DEPTH, MAX_ENGINES, MAX_LANES
from fanin.hdl.glm.shapes import WEIGHT

DECAY_SHIFT = range(MAX_DECAY + 1)


class NodeDecay(data.Struct):
    """Fields of the register ``decay``: those of ``EngineDecay``, and the engine of the spared weight."""

    decay_shift: DECAY_SHIFT
    spared: 1
    spared_lane: range(MAX_LANES)
    spared_chunk: range(MAX_DEPTH)
    spared_engine: range(MAX_ENGINES)


class EngineDecay(data.Struct):
    """Decay of an engine's weights; constant from 4 cycles before ``start``.

    - ``shift``: weights lose 2^-shift of themselves in each mini-batch; 0: nothing.
    - ``spared``: the weight at ``lane`` in ``chunk``, a bias, loses nothing.
    """

    shift: DECAY_SHIFT
    spared: 1
    lane: range(MAX_LANES)
    chunk: range(MAX_DEPTH)


class LaneDecay(data.Struct):
    """Decay of a lane's weight in a cycle.

    - ``valid``: the weight decays in this cycle, unless it is spared.
    - ``row_spares`` and ``lane_spared``: the weight is spared if both are high (the row has a spared weight; it
      is in this lane).
    - ``shift``: shift of the weight; constant.
    - ``dropped_mask``: mask of the weight's bits that the shift drops; constant.
    """

    valid: 1
    row_spares: 1
    lane_spared: 1
    shift: DECAY_SHIFT
    dropped_mask: unsigned(MAX_DECAY)


class DecayLoss(data.Struct):
    """Amount that decay takes off a weight, ``quotient`` + ``round_up``.

    The amount is weight / 2^shift, rounded away from zero. The arithmetic shift already rounds a negative
    weight away from zero; a positive one may need ``round_up``. The two parts are added where a carry chain
    exists anyway.
    """

    quotient: signed(WEIGHT.width - 1)
    round_up: 1


def decay_loss(m: Module, weight: Value, decay: Any, *, name: str = "decay_loss") -> Any:
    """Return a register with the ``DecayLoss`` of ``weight``; 0 if the weight does not decay.

    Four LUTs in series lie before the register.
    """
    register = Signal(DecayLoss, name=name)
    decays = decay.valid & ~(decay.row_spares & decay.lane_spared)
    round_up = ~weight[-1] & (weight[: len(decay.dropped_mask)] & decay.dropped_mask).any()
    m.d.sync += [
        register.quotient.eq(Mux(decays, weight >> decay.shift, 0)),
        register.round_up.eq(decays & round_up),
    ]
    return register


def lane_decays(m: Module, decay: Any, lanes: int, *, chunk: Value, valid: Value) -> list[Any]:
    """Return the ``LaneDecay`` of every lane of a row of weights; registered, except ``valid``.

    ``valid``: the weights decay in this cycle. ``chunk``: chunk of the row, a cycle earlier. With shift 0 all
    weights are spared.
    """
    row = Signal(LaneDecay)
    lane_spared = Signal(lanes)
    disabled = decay.shift == 0
    m.d.comb += row.valid.eq(valid)
    m.d.sync += [
        row.row_spares.eq(disabled | decay.spared & (decay.chunk == chunk)),
        row.shift.eq(decay.shift),
        row.dropped_mask.eq(Cat(decay.shift > bit for bit in range(MAX_DECAY))),
        lane_spared.eq(Mux(disabled, -1, 1 << decay.lane)),
    ]
    per_lane = []
    for k in range(lanes):
        lane_decay = Signal(LaneDecay, name=f"decay_{k}")
        m.d.comb += [lane_decay.eq(row), lane_decay.lane_spared.eq(lane_spared[k])]
        per_lane.append(lane_decay)
    return per_lane
