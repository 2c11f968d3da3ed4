"""Reducer: adds the engines' partial activations to the worker's."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin import fixed
from fanin.hdl.arith.adder_tree import SumTree, tree_levels
from fanin.hdl.arith.delay import delayed
from fanin.hdl.glm.bank import TREE_RADIX
from fanin.hdl.glm.shapes import LOW_BITS, WEIGHT, ActivationSignature, SplitSum, check_engine
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.tree import MAX_TREE_WORKERS

MAX_ENGINES = 9  # two levels of the adder tree
MIN_CLAMP = fixed.clamp_bits(MAX_TREE_WORKERS)
ENTER_CYCLES = 2  # the queue, and the register of its output
LEAVE_CYCLES = 1
SUMS = 16  # places of the output queue; more than the 9 cycles after which a credit returns
_LOW = unsigned(LOW_BITS)
_HIGH = signed(Shape.cast(SplitSum.as_shape()["high"].shape).width + 1)
_NEAR_BITS = WEIGHT.width - LOW_BITS  # bits of a high half within the range of a weight


def reducer_latency(engines: int) -> int:
    """Return the cycles from the last engine's PA to the sum: queue, tree, join, clamp, queue."""
    return ENTER_CYCLES + tree_levels(engines, TREE_RADIX) + 2 + LEAVE_CYCLES


class ActivationReducer(wiring.Component):
    """Adder of the engines' PAs of a micro-batch: joins the halves of the sum and clamps it for the switch.

    The sum is exact up to the clamp, which is to [−2^c, 2^c − 1]. Each engine's PAs queue until all engines
    have one. PAs leave the queues only when their sum has room after the clamp, so nothing between stalls.

    Members
    -------
    ``i`` : In, array of ``engines`` × ``ActivationSignature``
        PAs of the engines. ``taken`` is registered.
    ``clamp_bits`` : In(5)
        Clamp c of docs/systems/aggregation.md, "Clamp": 15 (65,535 workers) to 31 (one); constant while PAs
        are in flight.
    ``o`` : Out, stream of ``ArrayLayout(signed(32), banks)``
        Sums, clamped; registered.
    ``clamped`` : Out, range(banks + 1)
        Number of clamped lanes of the PA whose sum was ready ``count_latency`` cycles ago; 0 if none was.

    Parameters
    ----------
    ``engines`` : int, 1 to 9
        Number of engines.
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.

    Latency
    -------
    ``latency`` = 5 + ceil(log3 ``engines``): 7 cycles for 4 to 9 engines; one micro-batch a cycle.
    ``count_latency`` = ceil(log3 ``banks``): 2 cycles for 4 to 9 banks.

    Source
    ------
    docs/systems/aggregation.md, "Clamp"; P4SGD, section IV-A3.
    """

    def __init__(self, *, engines: int = 8, banks: int = 8):
        if engines not in range(1, MAX_ENGINES + 1):
            raise ValueError(f"engines must be from 1 to {MAX_ENGINES}, not {engines!r}")
        check_engine(lanes=2, banks=banks)
        self.engines = engines
        self.banks = banks
        self.latency = reducer_latency(engines)
        self.count_latency = tree_levels(banks, TREE_RADIX)
        super().__init__(
            {
                "i": In(ActivationSignature(banks=banks)).array(engines),
                "clamp_bits": In(5),
                "o": Out(stream.Signature(data.ArrayLayout(WEIGHT, banks))),
                "clamped": Out(range(banks + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Wait for all engines and for room, add, join, clamp, queue."""
        m = Module()
        pop = self._pop(m)
        operands = self._operands(m, pop)
        to_result = self.latency - LEAVE_CYCLES - 1  # from ``pop``, one cycle after a PA
        done = delayed(m, pop, to_result, name="pop", reset_less=False)[-1]
        overflow_mask = Signal(WEIGHT.width)  # the bits that repeat the sign when a value is in range
        varying = range(MIN_CLAMP, WEIGHT.width - 1)
        m.d.sync += [overflow_mask[bit].eq(self.clamp_bits <= bit) for bit in varying]
        m.d.comb += overflow_mask[varying.stop].eq(1)
        overflow = Signal(self.banks, reset_less=True)
        result = Signal.like(self.o.payload, reset_less=True)
        for b in range(self.banks):
            exceeds, limited = _clamp(*self._join(m, b, operands, overflow_mask), overflow_mask)
            m.d.sync += [overflow[b].eq(exceeds), result[b].eq(limited)]
        m.submodules.sums = sums = StreamFIFO(shape=self.o.payload.shape(), depth=SUMS)
        m.d.comb += [sums.i.payload.eq(result), sums.i.valid.eq(done)]
        connect_typed(m, sums.o, wiring.flipped(self.o))
        m.submodules.count = count = SumTree(inputs=self.banks, operand=unsigned(1), radix=TREE_RADIX)
        m.d.comb += [count.i[b].eq(overflow[b] & done) for b in range(self.banks)]
        m.d.comb += self.clamped.eq(count.o[0])
        return m

    def _pop(self, m: Module) -> Signal:
        """Take a PA of every engine when all have one and the output queue has room for the sum.

        Credit counters mirror the queues, so that one registered flag per queue decides.
        """
        pop = Signal()
        sent = Signal()
        after_reset = Signal(init=1)
        m.d.sync += [after_reset.eq(0), sent.eq(self.o.valid & self.o.ready)]
        m.submodules.credits = credits = Credits(limit=SUMS)
        counters = [credits, *(Credits(limit=ActivationSignature.QUEUE) for _ in self.i)]
        m.d.comb += [credits.restart.eq(after_reset), credits.initial.eq(SUMS), credits.give.eq(sent)]
        for number, (port, waiting) in enumerate(zip(self.i, counters[1:], strict=True)):
            m.submodules[f"waiting_{number}"] = waiting
            m.d.comb += waiting.give.eq(port.valid)
            m.d.sync += port.taken.eq(pop)
        m.d.comb += [
            pop.eq(Cat(counter.ok for counter in counters).all()),
            *(counter.take.eq(pop) for counter in counters),
        ]
        return pop

    def _operands(self, m: Module, pop: Signal) -> list[Any]:
        """Return each engine's PA, a cycle after its ``pop``; all queues share one read pointer."""
        consume = Signal(range(ActivationSignature.QUEUE))
        m.d.sync += consume.eq(consume + pop)
        return [self._queue(m, number, consume) for number in range(self.engines)]

    def _queue(self, m: Module, engine: int, consume: Signal) -> Any:
        """Queue one engine's PAs until the other engines have theirs; the engine's credits prevent an overflow.

        Before the queue, the low half's upper bits move to the high half, which shortens carries after it.
        """
        port = self.i[engine]
        halves = data.ArrayLayout(data.StructLayout({"low": _LOW, "high": _HIGH}), self.banks)
        storage = Memory(shape=halves, depth=ActivationSignature.QUEUE, init=[])
        m.submodules[f"queue_{engine}"] = storage
        produce = Signal.like(consume, name=f"produce_{engine}")
        popped = Signal(halves, name=f"popped_{engine}", reset_less=True)
        write, read = storage.write_port(), storage.read_port(domain="comb")
        m.d.comb += [write.en.eq(port.valid), write.addr.eq(produce), read.addr.eq(consume)]
        m.d.sync += [produce.eq(produce + port.valid), popped.eq(read.data)]
        for queued, pa in zip(write.data, port.payload, strict=True):
            m.d.comb += [queued.low.eq(pa.low), queued.high.eq(pa.high + pa.low[LOW_BITS:])]
        return popped

    def _join(
        self, m: Module, bank: int, operands: list[Any], overflow_mask: Signal
    ) -> tuple[Signal, Signal, Signal]:
        """Return the sum of one bank over the engines, and two flags of its range: too large, too small.

        To keep the clamp's logic shallow, both halves are checked before the carry is added. The low halves
        add less than ``MAX_ENGINES`` to the high half. If that needs more than ``_NEAR_BITS`` bits, the sum is
        out of range in any case; if not, the sum's top bits repeat its sign. "Too large" holds for a positive
        sum only, "too small" for a negative one. Both leave out the bits from ``LOW_BITS`` on, which the carry
        changes.
        """
        m.submodules[f"low_{bank}"] = low = SumTree(inputs=self.engines, operand=_LOW, radix=TREE_RADIX)
        m.submodules[f"high_{bank}"] = high = SumTree(inputs=self.engines, operand=_HIGH, radix=TREE_RADIX)
        for e, pas in enumerate(operands):
            m.d.comb += [low.i[e].eq(pas[bank].low), high.i[e].eq(pas[bank].high)]
        top = high.o[0][_NEAR_BITS:]
        high_sum = Signal(signed(len(high.o[0]) + 1), name=f"high_sum_{bank}")
        m.d.comb += high_sum.eq(high.o[0] + low.o[0][LOW_BITS:])
        # the most significant bit is the sign
        total = Signal(LOW_BITS + _NEAR_BITS + 2, name=f"joined_{bank}", reset_less=True)
        above = Signal(name=f"above_{bank}", reset_less=True)
        below = Signal(name=f"below_{bank}", reset_less=True)
        far_overflow = top.any() & ~top.all()
        low_bits, mask = low.o[0][MIN_CLAMP:LOW_BITS], overflow_mask[MIN_CLAMP:LOW_BITS]
        m.d.sync += [
            total.eq(Cat(low.o[0][:LOW_BITS], high_sum[: _NEAR_BITS + 1], high_sum[-1])),
            above.eq(far_overflow | (low_bits & mask).any()),
            below.eq(far_overflow | (~low_bits & mask).any()),
        ]
        return total, above, below


def _clamp(total: Signal, above: Signal, below: Signal, overflow_mask: Signal) -> tuple[Value, Value]:
    """Return whether a sum is out of range, and the nearest value in range.

    ``overflow_mask`` selects the bits of 2^c and more.
    """
    width = WEIGHT.width
    sign = total[-1].replicate(len(total))
    excess_bits = ((total ^ sign) & Cat(overflow_mask, Const(-1, signed(len(total) - width))))[LOW_BITS:]
    overflow = excess_bits.any() | Mux(sign[0], below, above)
    limit = ~sign[:width] ^ overflow_mask
    return overflow, Mux(overflow, limit, total[:width]).as_signed()
