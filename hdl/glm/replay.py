"""Sequencer of backward: takes a micro-batch's words from the replay FIFO again, and controls the lanes."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.bit_serial import PairShifter, PairTerms
from fanin.hdl.arith.delay import delayed
from fanin.hdl.glm.bank import reduction_levels
from fanin.hdl.glm.sequence import Sequencer
from fanin.hdl.glm.shapes import WEIGHT, EngineShape, check_engine

RECENT = 3  # latest updates that the memory does not return yet
_ALWAYS = Const(1)


def update_layout(depth: int) -> data.StructLayout:
    """Return the layout of the request to write one chunk's weights.

    ``valid``: write the weights of ``chunk``. ``both``: write both model memories; else only the accumulating
    one.
    """
    return data.StructLayout({"valid": 1, "chunk": range(depth), "both": 1})


class LaneControl(data.Struct):
    """Control of all lanes in a cycle.

    - ``valid``: a product is added.
    - ``first``: the product is the first of a chunk.
    - ``fresh``: the product belongs to the first micro-batch of a mini-batch.
    - ``recent``: updates of the last three cycles that were of the chunk whose weights arrive. The memory does
      not return them yet; the latest one counts. Bit 0 (one cycle ago) is valid a cycle later than the other
      bits, since a lane uses it a cycle later.
    """

    valid: 1
    first: 1
    fresh: 1
    recent: RECENT


def lane_latency(banks: int) -> int:
    """Return the cycles from a chunk's last plane, at its lane, to the updated weight."""
    return 3 + reduction_levels(banks // 2)


def backward_latency(banks: int) -> int:
    """Return the cycles from the word of a chunk's last plane to the updated weights."""
    return PairShifter.LATENCY + lane_latency(banks)


class Replay(wiring.Component):
    """Sequencer of backward: steps through a micro-batch's words for its scales, and controls the lanes.

    :class:`Backward` is a ``Replay`` and its lanes.

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
    ``first`` : Out(1)
        ``take`` is for a micro-batch's first word.
    ``last`` : Out(1)
        ``take`` is for a micro-batch's last word.
    ``terms`` : Out, ``ArrayLayout(PairTerms, banks // 2)``
        Terms of the scales for ``GradientLane``, two cycles after ``take``.
    ``control`` : Out, ``LaneControl``
        Control for ``GradientLane``.
    ``chunk`` : Out, range(depth)
        Chunk whose weights the lanes need from memory in the next cycle. With ``early_reads``, weights for a
        mini-batch's first micro-batch are needed one cycle later.
    ``early`` : Out(1); with ``early_reads`` alone
        The weights that the lanes receive in this cycle were read early.
    ``update`` : Out, ``update_layout(depth)``
        Address and destination of the lanes' output in the next cycle.
    ``busy`` : Out(1)
        An update is in flight.

    Parameters
    ----------
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.
    ``depth`` : int, 1 to 4096
        Maximum number of chunks.
    ``early_reads`` : bool
        Whether weights for a mini-batch's first micro-batch are read early. No update of them is in flight
        then, so none has to be forwarded.

    Latency
    -------
    ``update`` comes ``latency`` - 1 cycles after the ``take`` of a chunk's last plane, at 8 banks 5; one word a
    cycle, no bubble between micro-batches.

    Source
    ------
    P4SGD, section IV-A2; ARCHITECTURE, the mini-batch in cycles.
    """

    def __init__(self, *, banks: int = 8, depth: int = 4096, early_reads: bool = False):
        check_engine(lanes=2, banks=banks, depth=depth)
        self.banks = banks
        self.depth = depth
        self.early_reads = early_reads
        self.latency = backward_latency(banks)
        super().__init__(self._members())

    def _members(self) -> dict[str, Any]:
        return {
            "scale": In(stream.Signature(data.ArrayLayout(WEIGHT, self.banks))),
            "shape": In(EngineShape),
            "start": In(1),
            "drop": In(1),
            "take": Out(1),
            "first": Out(1),
            "last": Out(1),
            "terms": Out(data.ArrayLayout(PairTerms, self.banks // 2)),
            "control": Out(LaneControl),
            "chunk": Out(range(self.depth)),
            "update": Out(update_layout(self.depth)),
            "busy": Out(1),
        } | ({"early": Out(1)} if self.early_reads else {})

    def elaborate(self, platform: Any) -> Module:
        """Replay a micro-batch with its scales, which are in ``scales`` from the second word on.

        The first word takes the scales directly from the stream, so that no cycle is lost between
        micro-batches.
        """
        m = Module()
        m.submodules.sequencer = sequencer = Sequencer(depth=self.depth)
        position = sequencer.position
        m.d.comb += [
            sequencer.shape.eq(self.shape),
            sequencer.start.eq(self.start),
            sequencer.step.eq(self.take),
        ]
        self._replay(m, load=position.first_plane, last=position.last_plane & position.last_chunk)
        update = Signal(update_layout(self.depth))
        m.d.comb += [
            update.valid.eq(self.take & position.last_plane),
            update.chunk.eq(position.chunk),
            update.both.eq(position.last_micro),
        ]
        self._control(m, update, load=position.first_plane, fresh=position.first_micro)
        return m

    def _replay(
        self, m: Module, *, load: Value, last: Value, ready: Value = _ALWAYS, nonzero: Value = _ALWAYS
    ) -> None:
        """Take words for a micro-batch's scales, and shift the scales plane by plane.

        - ``load``, ``last``: the next word is the first of its chunk, the last of its micro-batch.
        - ``ready``: there is a next word.
        - ``nonzero``: the next word has bits; else its terms are zero.
        """
        replaying = Signal()  # ``scales`` still has words to replay
        scales = Signal.like(self.scale.payload, reset_less=True)
        m.d.comb += [
            self.scale.ready.eq(~replaying & ready | self.drop),
            self.take.eq((replaying | self.scale.valid) & ready),
            self.first.eq(~replaying & self.take),
            self.last.eq(self.take & last),
        ]
        with m.If(self.start | self.drop):
            m.d.sync += replaying.eq(0)
        with m.Elif(self.take):
            m.d.sync += replaying.eq(~last)
        with m.If(~replaying):
            m.d.sync += scales.eq(self.scale.payload)

        m.submodules.shifter = shifter = PairShifter(inputs=self.banks)
        current = Mux(replaying, scales.as_value(), self.scale.payload.as_value())
        m.d.comb += [
            shifter.i.eq(Mux(nonzero, current, 0)),
            shifter.step.eq(self.take),
            shifter.load.eq(load),
            self.terms.eq(shifter.o),
        ]

    def _control(self, m: Module, update: Any, *, load: Value, fresh: Value) -> None:
        """Drive the lanes' control. Cycle 0 is the word's ``take``; index n of a list is n cycles later.

        ``update``: the update that the word causes, in cycle 0.

        ``recent`` handles the read-after-write hazard. One cycle before the weights are read, the word's chunk
        is compared with those of the three previous words. The next cycle adds whether these words ended in an
        update.
        """
        accumulate = self.latency - 2  # the cycle in which a lane adds a plane to its gradient
        read = accumulate - 1  # the cycle in which the memory of weights is read
        valid = delayed(m, self.take, self.latency - 1, name="valid", reset_less=False)
        first = delayed(m, load, accumulate, name="first")
        freshes = delayed(m, fresh, accumulate, name="fresh")
        updates = delayed(m, update, read + RECENT, name="update", reset_less=False)
        same_chunk = Signal(RECENT)
        recent = Signal(RECENT)
        for ago in range(1, RECENT + 1):
            m.d.sync += [
                same_chunk[ago - 1].eq(updates[read - 1 + ago].chunk == updates[read - 1].chunk),
                recent[ago - 1].eq(same_chunk[ago - 1] & updates[read + ago].valid),
            ]
        one_ago = Signal()  # a cycle after the other bits, see LaneControl
        m.d.sync += one_ago.eq(recent[0])

        control = self.control
        m.d.comb += [
            control.valid.eq(valid[accumulate]),
            control.first.eq(first[accumulate]),
            control.fresh.eq(freshes[accumulate]),
            control.recent.eq(Cat(one_ago, recent[1:])),
            self.chunk.eq(self._read_chunk(m, fresh, updates, read)),
            self.update.eq(updates[self.latency - 1]),
            self.busy.eq(Cat(valid).any()),
        ]

    def _read_chunk(self, m: Module, fresh: Value, updates: list[Any], read: int) -> Value:
        """Return the chunk to read in cycle ``read``, or a cycle earlier for a word of a first micro-batch.

        An early read never collides with a late one: the network's latency is between the last word of a
        mini-batch and the first word of the next.
        """
        chunk = updates[read].chunk
        if not self.early_reads:
            return chunk
        early = delayed(m, self.take & fresh, read, name="early", reset_less=False)
        m.d.comb += self.early.eq(early[read])
        return Mux(early[read - 1], updates[read - 1].chunk, chunk)
