"""Backward pass of the data-parallel engine: sums a mini-batch's gradients in a memory beside the model."""

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.glm.facts import MAX_RUN_MICRO_BATCHES
from fanin.hdl.arith.bit_serial import PairTerms
from fanin.hdl.emit import shared
from fanin.hdl.glm.backward import gradient_shape, summed_gradient
from fanin.hdl.glm.replay import LaneControl, Replay, lane_latency
from fanin.hdl.glm.shapes import WEIGHT, EngineShape, check_engine
from fanin.hdl.stream.connect import connect_typed


def sum_shape(banks: int) -> Any:
    """Return the shape of a mini-batch's gradient: exact for up to ``MAX_RUN_MICRO_BATCHES`` micro-batches."""
    return signed(gradient_shape(banks).width + (MAX_RUN_MICRO_BATCHES - 1).bit_length())


class SumLane(wiring.Component):
    """Gradient of one feature, summed over the micro-batches of a mini-batch; each mini-batch starts at zero.

    ``GradientLane`` is the counterpart that subtracts each gradient from the weight at once.

    Members
    -------
    ``terms`` : In, ``ArrayLayout(PairTerms, banks // 2)``
        Terms of the scales, shared by all lanes.
    ``bits`` : In(banks)
        Bit of the feature in every sample, in the same cycle as ``terms``.
    ``control`` : In, ``LaneControl``
        Control of the word, timed as for ``GradientLane``.
    ``stored`` : In, ``sum_shape(banks)``
        Sum from memory, in the same cycle as ``control``.
    ``sum`` : Out, ``sum_shape(banks)``
        Updated sum.

    Parameters
    ----------
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.

    Latency
    -------
    As ``GradientLane``: 4 cycles at 8 banks from a chunk's last plane to ``sum``; one plane a cycle.

    Source
    ------
    P4SGD, section V-C; docs/systems/glm.md, "Data-parallel mode".
    """

    def __init__(self, *, banks: int = 8):
        check_engine(lanes=2, banks=banks)
        self.banks = banks
        self.latency = lane_latency(banks)
        super().__init__(
            {
                "terms": In(data.ArrayLayout(PairTerms, banks // 2)),
                "bits": In(banks),
                "control": In(LaneControl),
                "stored": In(sum_shape(banks)),
                "sum": Out(sum_shape(banks)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Forward the last three sums, as ``GradientLane`` does, since the memory does not return them yet."""
        m = Module()
        control = self.control
        gradient = summed_gradient(m, self.terms, self.bits, control)
        previous_sum = Signal.like(self.sum, reset_less=True)
        stored = Signal.like(self.sum, reset_less=True)
        first_micro = Signal()
        one_ago, two_ago, three_ago = control.recent
        m.d.sync += [
            first_micro.eq(control.fresh),
            previous_sum.eq(self.sum),
            stored.eq(Mux(two_ago, self.sum, Mux(three_ago, previous_sum, self.stored))),
            self.sum.eq(gradient + Mux(first_micro, 0, Mux(one_ago, self.sum, stored))),
        ]
        return m


class GradientSums(wiring.Component):
    """Backward pass that replays words with their scales and sums the gradients of each mini-batch.

    The sums may be read from ``complete`` until the next mini-batch's first scale.

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
    ``first`` : Out(1)
        ``take`` is for a micro-batch's first word.
    ``last`` : Out(1)
        ``take`` is for a micro-batch's last word.
    ``busy`` : Out(1)
        A sum is in flight. Also high in the cycle of ``complete``.
    ``complete`` : Out(1)
        Pulse: all sums of a mini-batch are in memory.
    ``read`` : In(1)
        Read the row of ``chunk``; only while not ``busy``.
    ``chunk`` : In, range(depth)
        Chunk to read.
    ``row`` : Out, ``ArrayLayout(sum_shape(banks), lanes)``
        Sums of the chunk, one cycle after ``read``.

    Parameters
    ----------
    ``lanes`` : int, a power of two, 2 to 64
        Features of a word.
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.
    ``depth`` : int, 1 to 4096
        Maximum number of chunks.

    Latency
    -------
    As ``Backward``; ``complete`` comes 7 cycles after the last ``take`` at 8 banks. One word a cycle.

    Source
    ------
    P4SGD, section V-C; docs/systems/glm.md, "Data-parallel mode".
    """

    def __init__(self, *, lanes: int = 64, banks: int = 8, depth: int = 4096):
        check_engine(lanes=lanes, banks=banks, depth=depth)
        self.lanes = lanes
        self.banks = banks
        self.depth = depth
        super().__init__(
            {
                "scale": In(stream.Signature(data.ArrayLayout(WEIGHT, banks))),
                "shape": In(EngineShape),
                "start": In(1),
                "drop": In(1),
                "take": Out(1),
                "word": In(lanes * banks),
                "first": Out(1),
                "last": Out(1),
                "busy": Out(1),
                "complete": Out(1),
                "read": In(1),
                "chunk": In(range(depth)),
                "row": Out(data.ArrayLayout(sum_shape(banks), lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the sequencer, a lane per feature and the memory of sums.

        Lanes and ``read`` share the memory's read port: backward is idle while its sums are read.
        """
        m = Module()
        m.submodules.replay = replay = Replay(banks=self.banks, depth=self.depth)
        connect_typed(m, flipped(self.scale), replay.scale)
        m.d.comb += [replay.shape.eq(self.shape), replay.start.eq(self.start), replay.drop.eq(self.drop)]
        m.d.comb += [getattr(self, name).eq(getattr(replay, name)) for name in ("take", "first", "last")]

        m.submodules.sums = memory = Memory(shape=self.row.as_value().shape(), depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        row = Signal.like(self.row)
        m.d.sync += [write.en.eq(replay.update.valid), write.addr.eq(replay.update.chunk)]
        m.d.comb += [
            write.data.eq(row),
            read.addr.eq(Mux(self.read, self.chunk, replay.chunk)),
            self.row.as_value().eq(read.data),
        ]
        for k in range(self.lanes):
            m.submodules[f"lane_{k}"] = lane = shared(SumLane(banks=self.banks))
            m.d.comb += [
                lane.terms.eq(replay.terms),
                lane.bits.eq(self.word[k :: self.lanes]),
                lane.control.eq(replay.control),
                lane.stored.eq(self.row[k]),
                row[k].eq(lane.sum),
            ]
        final = Signal()
        last_chunk = Signal.like(replay.update.chunk)
        m.d.sync += last_chunk.eq(self.shape.chunks - 1)
        m.d.comb += self.busy.eq(replay.busy | final | self.complete)
        m.d.sync += [
            final.eq(replay.update.valid & replay.update.both & (replay.update.chunk == last_chunk)),
            self.complete.eq(final),
        ]
        return m
