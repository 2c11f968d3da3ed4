"""Exchange of a data-parallel engine with the network: sends gradients, applies their totals."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.glm.backward import saturated
from fanin.hdl.glm.decay import EngineDecay, decay_loss, lane_decays
from fanin.hdl.glm.gradient import sum_shape
from fanin.hdl.glm.replay import update_layout
from fanin.hdl.glm.shapes import WEIGHT, EngineShape, check_engine

DECAY_LATENCY = 2  # cycles to compute a weight's decay and to subtract it


def group_layout(banks: int, gradient_values: int) -> data.StructLayout:
    """Return the layout of a group: gradients of neighbouring features.

    ``last``: the group is the engine's last one of this mini-batch.
    """
    return data.StructLayout({"values": data.ArrayLayout(sum_shape(banks), gradient_values), "last": 1})


def check_groups(*, lanes: int, banks: int, depth: int, gradient_values: int) -> None:
    """Raise ValueError unless a chunk's lanes are whole groups."""
    check_engine(lanes=lanes, banks=banks, depth=depth)
    if gradient_values < 1 or lanes % gradient_values:
        raise ValueError(f"lanes must be a multiple of gradient_values, {gradient_values!r}, not {lanes!r}")


class GradientSender(wiring.Component):
    """Sender of a mini-batch's gradients: reads them row by row and emits them group by group.

    Members
    -------
    ``complete`` : In(1)
        Pulse: the rows of all chunks are in memory.
    ``shape`` : In, ``EngineShape``
        Loop counts.
    ``read`` : Out(1)
        Read the row of ``chunk``.
    ``chunk`` : Out, range(depth)
        Chunk to read.
    ``row`` : In, ``ArrayLayout(sum_shape(banks), lanes)``
        Gradients of the chunk, one cycle after ``read``.
    ``o`` : Out, stream of ``group_layout(banks, gradient_values)``
        Groups, chunk by chunk, lowest lanes first.

    Parameters
    ----------
    ``lanes`` : int, a multiple of ``gradient_values``
        Features of a row.
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.
    ``depth`` : int, at least 1
        Maximum number of chunks.
    ``gradient_values`` : int, at least 1
        Gradients of a group.

    Latency
    -------
    The first group comes 3 cycles after ``complete``; a chunk takes lanes / gradient_values + 2 cycles.

    Source
    ------
    P4SGD, section V-C; docs/systems/glm.md, "Data-parallel mode".
    """

    def __init__(self, *, lanes: int = 64, banks: int = 8, depth: int = 4096, gradient_values: int = 8):
        check_groups(lanes=lanes, banks=banks, depth=depth, gradient_values=gradient_values)
        self.lanes = lanes
        self.banks = banks
        self.depth = depth
        self.gradient_values = gradient_values
        super().__init__(
            {
                "complete": In(1),
                "shape": In(EngineShape),
                "read": Out(1),
                "chunk": Out(range(depth)),
                "row": In(data.ArrayLayout(sum_shape(banks), lanes)),
                "o": Out(stream.Signature(group_layout(banks, gradient_values))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read a row per chunk, load it into a shift register, and send it as groups, lowest lanes first."""
        m = Module()
        row = Signal.like(self.row.as_value(), reset_less=True)
        values = self.o.payload.values.as_value()
        group = Signal(range(self.lanes // self.gradient_values))
        last_group = group == self.lanes // self.gradient_values - 1
        top_chunk = Signal.like(self.chunk, reset_less=True)
        m.d.sync += top_chunk.eq(self.shape.chunks - 1)
        last_chunk = self.chunk == top_chunk
        m.d.comb += [values.eq(row), self.o.payload.last.eq(last_group & last_chunk)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += self.chunk.eq(0)
                with m.If(self.complete):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.read.eq(1)
                m.next = "LOAD"
            with m.State("LOAD"):
                m.d.sync += row.eq(self.row)
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [row.eq(row >> len(values)), group.eq(group + 1)]
                    with m.If(last_group):
                        m.d.sync += self.chunk.eq(self.chunk + 1)
                        m.next = "READ"
                        with m.If(last_chunk):
                            m.next = "IDLE"
        return m


class TotalsUpdate(wiring.Component):
    """Model update from the sums of all workers' gradients.

    The sums are subtracted from the weights chunk by chunk; the result saturates.

    With ``l2``, decay of the weights is subtracted in the same step.

    Members
    -------
    ``complete`` : In(1)
        Pulse: the gradients of a mini-batch are complete, and their ``totals`` will arrive.
    ``shape`` : In, ``EngineShape``
        Loop counts.
    ``totals`` : In, stream of ``ArrayLayout(signed(32), gradient_values)``
        Sums of gradients, chunk by chunk and lane by lane; always ready.
    ``last`` : Out(1)
        The next item of ``totals`` is the last of this mini-batch.
    ``chunk`` : Out, range(depth)
        Chunk whose weights are needed.
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
    ``busy`` : Out(1)
        High from ``complete`` until the last ``weights``.
    ``decay`` : In, ``EngineDecay``; with ``l2`` alone
        Decay of the engine's weights.

    Parameters
    ----------
    ``lanes`` : int, a multiple of ``gradient_values``
        Features of a row.
    ``depth`` : int, at least 1
        Maximum number of chunks.
    ``gradient_values`` : int, at least 1
        Sums of an item of ``totals``.
    ``l2`` : bool
        Whether weights can decay.

    Latency
    -------
    A chunk's ``weights`` come 2 cycles after its last ``totals``, 4 with ``l2``; one of these a cycle.

    Source
    ------
    P4SGD, section V-C; docs/systems/glm.md, "Data-parallel mode".
    """

    def __init__(self, *, lanes: int = 64, depth: int = 4096, gradient_values: int = 8, l2: bool = False):
        check_groups(lanes=lanes, banks=2, depth=depth, gradient_values=gradient_values)
        self.lanes = lanes
        self.depth = depth
        self.gradient_values = gradient_values
        self.l2 = l2
        row = data.ArrayLayout(WEIGHT, lanes)
        super().__init__(
            {
                "complete": In(1),
                "shape": In(EngineShape),
                "totals": In(stream.Signature(data.ArrayLayout(WEIGHT, gradient_values))),
                "last": Out(1),
                "chunk": Out(range(depth)),
                "stored": In(row),
                "override": In(1),
                "override_value": In(WEIGHT),
                "update": Out(update_layout(depth)),
                "weights": Out(row),
                "busy": Out(1),
            }
            | ({"decay": In(EngineDecay)} if l2 else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Shift groups into the row ``totals``; subtract the row in the cycle after its last group.

        ``pending`` is high from ``complete`` until the mini-batch's last group has arrived.
        """
        m = Module()
        totals = Signal.like(self.weights, reset_less=True)
        group = Signal(range(self.lanes // self.gradient_values))
        last_group = group == self.lanes // self.gradient_values - 1
        top_chunk = Signal.like(self.chunk, reset_less=True)
        m.d.sync += top_chunk.eq(self.shape.chunks - 1)
        last_chunk = self.chunk == top_chunk
        m.d.comb += [self.totals.ready.eq(1), self.last.eq(last_group & last_chunk)]
        summed = Signal(update_layout(self.depth))  # valid: ``totals`` is complete, ``stored`` has its weights
        m.d.comb += summed.both.eq(1)
        m.d.sync += summed.valid.eq(self.totals.valid & last_group)
        with m.If(self.totals.valid):
            later_groups = totals.as_value()[len(self.totals.payload.as_value()) :]
            m.d.sync += [
                totals.as_value().eq(Cat(later_groups, self.totals.payload)),
                group.eq(group + 1),
                summed.chunk.eq(self.chunk),
            ]
            with m.If(last_group):
                m.d.sync += [group.eq(0), self.chunk.eq(self.chunk + 1)]
                with m.If(last_chunk):
                    m.d.sync += self.chunk.eq(0)

        updates = delayed(m, summed, DECAY_LATENCY * self.l2, name="update", reset_less=False)
        m.d.comb += self.update.eq(updates[-1])
        pending = Signal()
        with m.If(self.complete):
            m.d.sync += pending.eq(1)
        with m.Elif(self.totals.valid & self.last):
            m.d.sync += pending.eq(0)
        m.d.comb += self.busy.eq(pending | Cat(update.valid for update in updates).any())

        stored = self._decayed(m, summed) if self.l2 else self.stored
        delayed_totals = delayed(m, totals, DECAY_LATENCY * self.l2, name="totals")[-1]
        for k in range(self.lanes):
            difference = stored[k] - delayed_totals[k]
            m.d.sync += self.weights[k].eq(Mux(self.override, self.override_value, saturated(difference)))
        return m

    def _decayed(self, m: Module, summed: Any) -> Any:
        """Return the weights of ``stored`` minus their decay, ``DECAY_LATENCY`` cycles after ``stored``."""
        decays = lane_decays(m, self.decay, self.lanes, chunk=self.chunk, valid=summed.valid)
        decayed = Signal.like(self.stored, reset_less=True)
        for k, decay in enumerate(decays):
            weight = Signal(WEIGHT, name=f"weight_{k}", reset_less=True)
            amount = decay_loss(m, self.stored[k], decay, name=f"lost_{k}")
            m.d.sync += [weight.eq(self.stored[k]), decayed[k].eq(weight - amount.quotient - amount.round_up)]
        return decayed
