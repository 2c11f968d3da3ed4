"""Data-parallel worker, for comparison: the network adds up gradients, not activations."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, flipped

from fanin.fixed import VALUE_BITS, clamp_bits
from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.forward import Forward
from fanin.hdl.glm.gradient import GradientSums
from fanin.hdl.glm.gradient_exchange import GradientSender, TotalsUpdate, check_groups, group_layout
from fanin.hdl.glm.model import ModelMemories
from fanin.hdl.glm.shapes import WEIGHT
from fanin.hdl.glm.worker import GlmWorker
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed

BITS_PER_CYCLE = 8  # bits counted in one cycle


class GradientEngine(Engine):
    """Engine that sends its gradients to the network and applies their sum over all workers.

    The local model changes once per mini-batch. When backward has finished, ``gradients`` carries the gradients
    of all features, chunk by chunk and lane by lane. The returned sums are subtracted from the weights, with
    saturation. Forward of the next mini-batch follows chunk by chunk.

    Members
    -------
    ``gradients`` : Out, stream of ``group_layout(banks, gradient_values)``
        Gradients of a mini-batch.
    ``totals`` : In, stream of ``ArrayLayout(signed(32), gradient_values)``
        Sums of the gradients over all workers, in the order of ``gradients``; always ready.
    ``totals_last`` : Out(1)
        The next item of ``totals`` is the last of this mini-batch.
    ``samples``, ``pa``, ``scale``, ``shape``, ``start``, ``drop``, ``clear``, ``host``, ``busy``, ``events``,
    ``decay``
        See ``Engine``. ``busy`` also stays high until all ``totals`` have arrived.

    Parameters
    ----------
    ``lanes``, ``banks``, ``depth``, ``fifo_depth``, ``l2``
        See ``Engine``. ``lanes`` must be a multiple of ``gradient_values``.
    ``gradient_values`` : int, at least 1
        Gradients, or sums, of one stream item.

    Latency
    -------
    As ``Engine`` up to the gradients; then lanes / gradient_values + 2 cycles a chunk. A word that waits for a
    chunk is accepted 3 cycles after the last of its ``totals``, 5 with ``l2``.

    Source
    ------
    P4SGD, section V-C; docs/systems/glm.md, "Data-parallel mode".
    """

    def __init__(
        self,
        *,
        lanes: int = 64,
        banks: int = 8,
        depth: int = 4096,
        fifo_depth: int = 4096,
        l2: bool = False,
        gradient_values: int = 8,
    ):
        check_groups(lanes=lanes, banks=banks, depth=depth, gradient_values=gradient_values)
        self.gradient_values = gradient_values
        super().__init__(lanes=lanes, banks=banks, depth=depth, fifo_depth=fifo_depth, l2=l2)

    def _members(self) -> dict[str, Any]:
        return super()._members() | {
            "gradients": Out(stream.Signature(group_layout(self.banks, self.gradient_values))),
            "totals": In(stream.Signature(data.ArrayLayout(WEIGHT, self.gradient_values))),
            "totals_last": Out(1),
        }

    def elaborate(self, platform: Any) -> Module:
        """Connect forward as in ``Engine``; the sender reads backward's sums, the updater takes the totals."""
        m = Module()
        size = {"lanes": self.lanes, "banks": self.banks, "depth": self.depth}
        m.submodules.forward = forward = Forward(**size, fifo_depth=self.fifo_depth)
        m.submodules.backward = backward = GradientSums(**size)
        m.submodules.model = model = ModelMemories(lanes=self.lanes, depth=self.depth)
        sender = GradientSender(**size, gradient_values=self.gradient_values)
        updater = TotalsUpdate(
            lanes=self.lanes, depth=self.depth, gradient_values=self.gradient_values, l2=self.l2
        )
        m.submodules.sender = ResetInserter(self.start)(sender)
        m.submodules.updater = ResetInserter(self.start)(updater)
        connect_typed(m, flipped(self.samples), forward.samples)
        connect_typed(m, forward.pa, flipped(self.pa))
        connect_typed(m, flipped(self.scale), backward.scale)
        connect_typed(m, flipped(self.host), model.host)
        connect_typed(m, sender.o, flipped(self.gradients))
        connect_typed(m, flipped(self.totals), updater.totals)
        for part in forward, backward, sender, updater:
            m.d.comb += part.shape.eq(self.shape)
        m.d.comb += [
            forward.start.eq(self.start),
            backward.start.eq(self.start),
            forward.drop.eq(self.drop),
            backward.drop.eq(self.drop),
            forward.freed.eq(backward.take),
            sender.complete.eq(backward.complete),
            backward.read.eq(sender.read),
            backward.chunk.eq(sender.chunk),
            sender.row.eq(backward.row),
            updater.complete.eq(backward.complete),
            self.totals_last.eq(updater.last),
        ]
        m.d.comb += [
            model.forward_chunk.eq(forward.chunk),
            forward.weights.eq(model.forward_weights),
            forward.written.eq(model.written),
            model.backward_chunk.eq(updater.chunk),
            updater.stored.eq(model.backward_weights),
            updater.override.eq(model.override),
            updater.override_value.eq(model.override_value),
            model.update.eq(updater.update),
            model.weights.eq(updater.weights),
            model.clear.eq(self.clear),
        ]
        if self.l2:
            m.d.comb += updater.decay.eq(self.decay)
        replay_pending = self._replay(m, forward, backward)
        summing = Signal()  # the sums cover part of a mini-batch, even while no sample arrives
        with m.If(self.start | backward.complete):
            m.d.sync += summing.eq(0)
        with m.Elif(backward.take):
            m.d.sync += summing.eq(1)
        m.d.sync += self.busy.eq(
            replay_pending | backward.busy | summing | updater.busy | model.clearing | self.clear
        )
        self._events(m, forward, backward)
        return m


class DataParallelWorker(GlmWorker):
    """Worker that trains its own model on its share of every mini-batch; the network adds up the gradients.

    The forward pass is local: a sample's FA is this worker's PA. Gradients are clamped in the same way as PAs.
    They leave on ``pa``, engine by engine, chunk by chunk, lane by lane; their sums over all workers return on
    ``fa``. Ports and use are those of ``GlmWorker``.

    Members
    -------
    ``samples``, ``labels``, ``shape``, ``training``, ``start``, ``abort``, ``flush``, ``clear``, ``engine``,
    ``host``, ``busy``, ``running``, ``events``, ``counts``
        See ``GlmWorker``. In ``shape``, ``mini_batch`` and ``epoch`` count this worker's micro-batches, with
        ``mini_batch`` at most ``MAX_RUN_MICRO_BATCHES``.
    ``pa`` : Out, stream of ``values`` × signed(32)
        Gradients, clamped.
    ``fa`` : In, stream of ``values`` × signed(32)
        Sums of the gradients over all workers, in the same order.

    Parameters
    ----------
    ``engines``, ``lanes``, ``banks``, ``depth``, ``fifo_depth``, ``frac``, ``loss_lanes``, ``l2``
        See ``GlmWorker``. ``lanes`` must be a multiple of ``gradient_values``.
    ``gradient_values`` : int, at least 1
        Gradients of a packet.

    Latency
    -------
    One word a cycle. A mini-batch of M micro-batches costs M·C·s cycles, some 40 more, and an AllReduce
    operation for each packet of its E·C·lanes gradients. The operations start when the last gradient is
    complete.

    Source
    ------
    P4SGD, section V-C; docs/systems/glm.md, "Data-parallel mode".
    """

    engine_type = GradientEngine

    def __init__(
        self,
        *,
        engines: int = 1,
        lanes: int = 64,
        banks: int = 8,
        depth: int = 4096,
        fifo_depth: int = 4096,
        frac: int = 24,
        loss_lanes: int | None = None,
        l2: bool = False,
        gradient_values: int = 8,
    ):
        check_groups(lanes=lanes, banks=banks, depth=depth, gradient_values=gradient_values)
        self.gradient_values = gradient_values
        super().__init__(
            engines=engines,
            lanes=lanes,
            banks=banks,
            depth=depth,
            fifo_depth=fifo_depth,
            frac=frac,
            loss_lanes=loss_lanes,
            l2=l2,
        )

    @property
    def values(self) -> int:
        """Return the number of gradients in a packet."""
        return self.gradient_values

    def _engine_options(self) -> dict[str, Any]:
        return super()._engine_options() | {"gradient_values": self.gradient_values}

    def _exchange(self, m: Module, engines: list[Any], reducer: Any, loss: Any, dropping: Value) -> Value:
        """Use the local PA as FA; send gradients and receive totals, one engine after the other."""
        connect_typed(m, reducer.o, loss.fa)
        m.d.comb += reducer.clamp_bits.eq(clamp_bits(1))
        self._totals(m, engines, dropping)
        return reducer.clamped + self._gradients(m, engines, dropping)

    def _totals(self, m: Module, engines: list[Any], dropping: Value) -> None:
        """Send sums to the ``current`` engine up to its last one, then to the next engine.

        Drop sums outside a run.
        """
        current = Signal(range(self.engines))
        m.d.comb += self.fa.ready.eq(1)
        for number, engine in enumerate(engines):
            transfer = self.fa.valid & self.running & (current == number)
            m.d.comb += [engine.totals.valid.eq(transfer), engine.totals.payload.eq(self.fa.payload)]
            with m.If(transfer & engine.totals_last):
                m.d.sync += current.eq((number + 1) % self.engines)
        with m.If(self.start | dropping):
            m.d.sync += current.eq(0)

    def _gradients(self, m: Module, engines: list[Any], dropping: Value) -> Value:
        """Take groups from the ``current`` engine, clamp and send their values.

        Return the number of clamped values.

        One register holds the ``group``, another its clamped values. Engines send one after the other: an
        engine's last group makes the next engine current. While ``dropping``, the groups of all engines are
        taken and dropped.
        """
        clear = self.start | dropping
        current = Signal(range(self.engines))
        group = Signal(group_layout(self.banks, self.values), reset_less=True)
        group_valid = Signal()
        advance = Signal()
        outgoing = RegisterSlice(shape=self.pa.payload.shape())  # keeps the network's stalls out of the engines
        m.submodules.outgoing = ResetInserter(clear)(outgoing)
        connect_typed(m, outgoing.o, flipped(self.pa))
        clamped = outgoing.i
        m.d.comb += advance.eq(~clamped.valid | clamped.ready)
        with m.If(advance):
            m.d.sync += [clamped.valid.eq(group_valid), group_valid.eq(0)]
        for number, engine in enumerate(engines):
            is_current = current == number
            m.d.comb += engine.gradients.ready.eq(advance & is_current | dropping)
            with m.If(advance & is_current):
                m.d.sync += [group_valid.eq(engine.gradients.valid), group.eq(engine.gradients.payload)]
                with m.If(engine.gradients.valid & engine.gradients.payload.last):
                    m.d.sync += current.eq((number + 1) % self.engines)
        with m.If(clear):
            m.d.sync += [current.eq(0), group_valid.eq(0), clamped.valid.eq(0)]

        overflow = Signal(self.values)  # one bit per value: it was clamped
        for index, value in enumerate(group.values):
            excess, limited = self._clamp(value)
            with m.If(advance):
                m.d.sync += [overflow[index].eq(excess), clamped.payload[index].eq(limited)]
        return self._count_ones(m, overflow, clamped.valid & clamped.ready)

    def _count_ones(self, m: Module, flags: Value, enable: Value) -> Value:
        """Return the number of set bits of ``flags`` if ``enable`` is high, else 0; registered.

        The sum takes a cycle for up to eight flags, and a second one for more.
        """
        eights = [flags[start : start + BITS_PER_CYCLE] for start in range(0, self.values, BITS_PER_CYCLE)]
        counts = [Signal(range(len(bits) + 1), name=f"clamped_{n}") for n, bits in enumerate(eights)]
        for count, bits in zip(counts, eights, strict=True):
            m.d.sync += count.eq(Mux(enable, sum(bits), 0))
        if len(counts) == 1:
            return counts[0]
        total = Signal(range(self.values + 1))
        m.d.sync += total.eq(sum(counts))
        return total

    def _clamp(self, value: Value) -> tuple[Value, Value]:
        """Return whether a gradient is outside [−2^c, 2^c − 1], and the nearest value inside.

        A value is inside if all its bits worth 2^c and more, which ``overflow_mask`` selects, equal its sign.
        """
        overflow_mask = Cat(self.training.clamp_bits <= bit for bit in range(VALUE_BITS - 1))
        sign = value[-1]
        excess = (
            (value ^ sign.replicate(len(value)))
            & Cat(overflow_mask, Const(-1, len(value) - len(overflow_mask)))
        ).any()
        limit = Cat(~sign.replicate(len(overflow_mask)) ^ overflow_mask, sign)
        return excess, Mux(excess, limit, value[:VALUE_BITS]).as_signed()
