"""Backward propagation of one engine: from scales and replayed words to the updated model.

The scale of a sample is the factor γ/B · df of its gradient. ``Replay`` takes a micro-batch's words again from
the replay FIFO, in forward's order, and shifts the scales by one bit per plane. One ``GradientLane`` per
feature adds up scale >> j for each sample and plane j whose bit is set; after a chunk's last plane it subtracts
the sum from the feature's weight. ``Backward`` is one ``Replay`` and its lanes.
"""

from typing import Any

from amaranth import Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.arith.adder_tree import SumTree, add_up
from fanin.hdl.arith.bit_serial import OPERAND_BITS, PairLanes, PairTerms
from fanin.hdl.emit import shared
from fanin.hdl.glm.bank import TREE_RADIX, tree_outputs
from fanin.hdl.glm.decay import EngineDecay, LaneDecay, decay_loss, lane_decays
from fanin.hdl.glm.replay import LaneControl, Replay, backward_latency, lane_latency, update_layout
from fanin.hdl.glm.shapes import WEIGHT, EngineShape, check_engine
from fanin.hdl.stream.connect import connect_typed


class GradientLane(wiring.Component):
    """Gradient and weight of one feature: g = Σ_samples Σ_j b_j · (scale >> j), weight − g.

    g is exact; the difference saturates to 32 bits. With ``l2``, decay is subtracted together with the g of a
    mini-batch's first micro-batch. If a micro-batch is one word, the same weight changes in every cycle, but
    the memory returns an update only some cycles later. A lane therefore forwards its last three updates.

    Members
    -------
    ``terms`` : In, ``ArrayLayout(PairTerms, banks // 2)``
        Terms of the scales, shared by all lanes.
    ``bits`` : In(banks)
        Bit of the feature in every sample, in the same cycle as ``terms``.
    ``control`` : In, ``LaneControl``
        Control of the word, ``tree`` + 1 cycles after ``bits``, where ``tree`` is the number of levels of the
        adder tree.
    ``stored`` : In(signed(32))
        Weight from the accumulating memory, in the same cycle as ``control``. With ``l2`` and ``control.fresh``
        it comes a cycle earlier, when no update of its chunk is in flight.
    ``override`` : In(1)
        Set the weight to ``override_value``.
    ``override_value`` : In(signed(32))
        Weight for ``override``.
    ``weight`` : Out(signed(32))
        Weight minus the gradient so far; the updated weight only in the cycle given by ``latency``.
    ``decay`` : In, ``LaneDecay``; with ``l2`` alone
        Decay of ``stored``, a cycle before the ``control`` with ``fresh``.

    Parameters
    ----------
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.
    ``l2`` : bool
        Whether weights can decay.

    Latency
    -------
    ``latency`` = 3 + ``tree``: 4 cycles at 8 banks from a chunk's last plane to ``weight`` (select, 4 → 2,
    accumulate, subtract); 1 from ``override``. One plane a cycle, for any sequence of chunks.

    Source
    ------
    P4SGD, section IV-A2 ("gradient accumulation", "model update"); docs/reference/numbers.md.
    """

    def __init__(self, *, banks: int = 8, l2: bool = False):
        check_engine(lanes=2, banks=banks)
        self.banks = banks
        self.l2 = l2
        self.latency = lane_latency(banks)
        super().__init__(
            {
                "terms": In(data.ArrayLayout(PairTerms, banks // 2)),
                "bits": In(banks),
                "control": In(LaneControl),
                "stored": In(WEIGHT),
                "override": In(1),
                "override_value": In(WEIGHT),
                "weight": Out(WEIGHT),
            }
            | ({"decay": In(LaneDecay)} if l2 else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Select, add up, subtract; the only feedback is from one value of the weight to the next.

        An update reaches the memory three cycles after its weight was read. ``control.recent`` marks updates of
        the same chunk. The lane then takes its weight from the register ``weight`` (one cycle ago) or from an
        earlier value of that register (two or three cycles ago).
        """
        m = Module()
        control = self.control
        decay, in_memory = self._decay(m) if self.l2 else (None, self.stored)
        gradient = summed_gradient(m, self.terms, self.bits, control, decay)
        weight = Signal(WEIGHT, reset_less=True)
        previous_weight = Signal(WEIGHT, reset_less=True)  # ``weight``, one cycle ago
        stored = Signal(WEIGHT, reset_less=True)
        one_ago, two_ago, three_ago = control.recent
        m.d.sync += [
            previous_weight.eq(weight),
            stored.eq(Mux(two_ago, weight, Mux(three_ago, previous_weight, in_memory))),
        ]
        difference = Signal(signed(len(gradient) + 1))
        m.d.comb += difference.eq(Mux(one_ago, weight, stored) - gradient)
        m.d.sync += weight.eq(Mux(self.override, self.override_value, saturated(difference)))
        m.d.comb += self.weight.eq(weight)
        return m

    def _decay(self, m: Module) -> tuple[Signal, Value]:
        """Return the amount that decay takes off the weight, and the weight; both arrive with ``control``."""
        early_stored = Signal(WEIGHT, reset_less=True)
        m.d.sync += early_stored.eq(self.stored)
        return decay_loss(m, self.stored, self.decay), Mux(self.control.fresh, early_stored, self.stored)


def summed_gradient(m: Module, terms: Any, bits: Any, control: Any, decay: Any = None) -> Signal:
    """Return the register that adds up a feature's gradient over samples and planes; exact.

    With ``decay``, a ``DecayLoss``, the sum starts with that amount, so the lane needs no second subtraction.
    """
    banks = len(bits)
    pairs = banks // 2
    m.submodules.lanes = lanes = PairLanes(inputs=banks)
    m.submodules.tree = tree = SumTree(
        inputs=pairs, operand=signed(OPERAND_BITS), radix=TREE_RADIX, outputs=tree_outputs(pairs)
    )
    m.d.comb += [lanes.terms.eq(terms), lanes.bits.eq(bits), tree.i.eq(lanes.o)]
    products = [tree.o[k] for k in range(tree.outputs)]
    if decay is None:
        gradient = Signal(gradient_shape(banks), reset_less=True)
        total = Mux(control.first, 0, gradient) + add_up(products)
    else:
        gradient = Signal(signed(gradient_shape(banks).width + 1), reset_less=True)
        begin = Mux(control.first, decay.quotient, gradient)
        total = add_up([begin, control.first & decay.round_up, *products])
    with m.If(control.valid):
        m.d.sync += gradient.eq(total)
    return gradient


def gradient_shape(banks: int) -> Shape:
    """Return the shape of a micro-batch's gradient.

    |Σ_j scale >> j| < 2^31 for each sample, so 8 samples need 3 bits more.
    """
    return signed(OPERAND_BITS + (banks - 1).bit_length())


def saturated(value: Signal) -> Any:
    """Return a signed value, saturated to the range of a weight."""
    width = WEIGHT.width
    excess = value[width - 1 :]
    negative = value[-1]
    fits = (excess == 0) | excess.all()
    limit = Mux(negative, -(1 << width - 1), (1 << width - 1) - 1)
    return Mux(fits, value[:width].as_signed(), limit)


class Backward(wiring.Component):
    """Backward pass: replays a micro-batch's words with its scales, and updates the weights.

    Backward never waits for a word. Scales arrive only after their micro-batch's PA, so all of its words are in
    the replay FIFO by then.

    Members
    -------
    ``scale`` : In, stream of ``ArrayLayout(signed(32), banks)``
        Scales of a micro-batch, γ/B · df of every sample.
    ``shape`` : In, ``EngineShape``
        Loop counts.
    ``start`` : In(1)
        Pulse: start an epoch and drop the rest of the previous one.
    ``drop`` : In(1)
        End the replay; take and drop scales.
    ``take`` : Out(1)
        The next word leaves the replay FIFO.
    ``word`` : In(lanes * banks)
        Word from the replay FIFO, two cycles after its ``take``.
    ``chunk`` : Out, range(depth)
        Chunk whose weights are needed from the accumulating memory.
    ``stored`` : In, ``ArrayLayout(signed(32), lanes)``
        Weights of the chunk, one cycle after ``chunk``.
    ``override`` : In(1)
        Set all weights to ``override_value``.
    ``override_value`` : In(signed(32))
        Weight for ``override``.
    ``update`` : Out, ``update_layout(depth)``
        Address and destination of ``weights`` in the next cycle.
    ``weights`` : Out, ``ArrayLayout(signed(32), lanes)``
        Updated weights.
    ``first`` : Out(1)
        ``take`` is for a micro-batch's first word.
    ``last`` : Out(1)
        ``take`` is for a micro-batch's last word.
    ``busy`` : Out(1)
        An update is in flight.
    ``decay`` : In, ``EngineDecay``; with ``l2`` alone
        Decay of the engine's weights. The first scale of a mini-batch must come after the last update of the
        previous one.

    Parameters
    ----------
    ``lanes`` : int, a power of two, 2 to 64
        Features of a word.
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.
    ``depth`` : int, 1 to 4096
        Maximum number of chunks.
    ``l2`` : bool
        Whether weights can decay.

    Latency
    -------
    At 8 banks: 5 cycles from ``scale`` to the first gradient (in a register of its lane); ``latency`` = 6 from
    a chunk's last plane to ``weights``. One word a cycle, no bubble between micro-batches.

    Source
    ------
    P4SGD, section IV-A2; ARCHITECTURE, the mini-batch in cycles.
    """

    def __init__(self, *, lanes: int = 64, banks: int = 8, depth: int = 4096, l2: bool = False):
        check_engine(lanes=lanes, banks=banks, depth=depth)
        self.lanes = lanes
        self.banks = banks
        self.depth = depth
        self.l2 = l2
        self.latency = backward_latency(banks)
        super().__init__(self._members())

    def _members(self) -> dict[str, Any]:
        return {
            "scale": In(stream.Signature(data.ArrayLayout(WEIGHT, self.banks))),
            "shape": In(EngineShape),
            "start": In(1),
            "drop": In(1),
            "take": Out(1),
            "word": In(self.lanes * self.banks),
            "chunk": Out(range(self.depth)),
            "stored": In(data.ArrayLayout(WEIGHT, self.lanes)),
            "override": In(1),
            "override_value": In(WEIGHT),
            "update": Out(update_layout(self.depth)),
            "weights": Out(data.ArrayLayout(WEIGHT, self.lanes)),
            "first": Out(1),
            "last": Out(1),
            "busy": Out(1),
        } | ({"decay": In(EngineDecay)} if self.l2 else {})

    def elaborate(self, platform: Any) -> Module:
        """Build the sequencer, and a lane for every feature of a word."""
        m = Module()
        m.submodules.replay = replay = self._make_replay(m)
        connect_typed(m, flipped(self.scale), replay.scale)
        m.d.comb += [replay.start.eq(self.start), replay.drop.eq(self.drop)]
        m.d.comb += [
            getattr(self, name).eq(getattr(replay, name))
            for name in ("take", "first", "last", "chunk", "update", "busy")
        ]
        lanes = [shared(GradientLane(banks=self.banks, l2=self.l2)) for _ in range(self.lanes)]
        for k, lane in enumerate(lanes):
            m.submodules[f"lane_{k}"] = lane
            m.d.comb += [
                lane.terms.eq(replay.terms),
                lane.bits.eq(self.word[k :: self.lanes]),
                lane.control.eq(replay.control),
                lane.stored.eq(self.stored[k]),
                lane.override.eq(self.override),
                lane.override_value.eq(self.override_value),
                self.weights[k].eq(lane.weight),
            ]
        if self.l2:
            decays = lane_decays(m, self.decay, self.lanes, chunk=replay.chunk, valid=replay.early)
            m.d.comb += [lane.decay.eq(decay) for lane, decay in zip(lanes, decays, strict=True)]
        return m

    def _make_replay(self, m: Module) -> Replay:
        """Return the sequencer, connected to the loop counts."""
        replay = Replay(banks=self.banks, depth=self.depth, early_reads=self.l2)
        m.d.comb += replay.shape.eq(self.shape)
        return replay
