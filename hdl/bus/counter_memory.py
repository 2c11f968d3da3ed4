"""Counters of 64 bits in a memory: a small accumulator per counter, and one adder that empties them in turn."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.memory import BLOCK_RAM, NEVER_READ_AS_WRITTEN

WORD_BITS = 32
LATENCY = 3  # cycles from a word's turn until its sum is written: read, select, add
SETTLE = LATENCY + 2  # cycles from ``hold`` until ``word`` is valid: the last write, then a read
LONGEST_HOLD = 16  # maximum cycles of ``hold`` in a round


class CounterMemory(wiring.Component):
    """Counters of 64 bits in block RAM, for less than a quarter of the flip-flops of a register file.

    A counter's events accumulate in a few bits outside the memory, its accumulator. Counters take turns: in a
    counter's turn, two cycles, its accumulator is added to its low word and cleared, and the carry is added to
    its high word. A *round* is one turn of each counter. Memory therefore lags by up to ``lag`` cycles. With
    ``hold``, memory stops changing, and ``word`` is valid after ``SETTLE`` cycles.

    An accumulator has room for the events of a round and of ``LONGEST_HOLD`` cycles of ``hold``. After longer
    holds, it may overflow and lose events.

    Members
    -------
    ``steps`` : In, a field for each counter
        Number to add to each counter in this cycle.
    ``clear`` : In(1)
        Pulse: set all counters to 0; memory follows after ``lag`` cycles.
    ``hold`` : In(1)
        Stop the turns, after the high word of a turn that has begun; at most ``LONGEST_HOLD`` cycles of a
        round.
    ``address`` : In, range(2 · counters)
        Word to read: counter n's low word is 2n, its high word 2n + 1.
    ``word`` : Out(32)
        The word at ``address``, one cycle later; valid only after ``SETTLE`` cycles of ``hold``.

    Parameters
    ----------
    ``widths`` : tuple of int
        Bits of each counter's step, for at least two counters.

    Latency
    -------
    ``lag`` = 2 · counters + ``LATENCY`` + 1 cycles from a step, or ``clear``, until memory has it.

    Source
    ------
    docs/reference/buses.md.
    """

    def __init__(self, *, widths: tuple[int, ...]):
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"widths must have at least 2 counters of at least 1 bit each, not {widths!r}")
        self.widths = widths
        self.lag = 2 * len(widths) + LATENCY + 1
        super().__init__(
            {
                "steps": In(data.StructLayout({f"counter{n}": bits for n, bits in enumerate(widths)})),
                "clear": In(1),
                "hold": In(1),
                "address": In(range(2 * len(widths))),
                "word": Out(WORD_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Pipeline a word's turn.

        - 0: ``position`` addresses memory;
        - 1: memory's output is valid; ``events`` has the accumulator of the low word's turn;
        - 2: ``stored`` and ``addend`` are added;
        - 3: the sum is written.

        A high word follows its low word by a cycle and adds only the low word's carry. In the round after a
        reset or ``clear``, memory counts as 0.
        """
        m = Module()
        count = len(self.widths)
        position = Signal.like(self.address)
        clearing = Signal(init=1)
        step = Signal()
        is_last = position == 2 * count - 1
        m.d.comb += step.eq(~self.hold | position[0])  # a high word follows its low word
        with m.If(step):
            m.d.sync += position.eq(Mux(is_last, 0, position + 1))
            with m.If(is_last):
                m.d.sync += clearing.eq(0)
        with m.If(self.clear):
            m.d.sync += [position.eq(0), clearing.eq(1)]

        m.submodules.storage = storage = Memory(
            shape=WORD_BITS, depth=2 * count, init=[], attrs=NEVER_READ_AS_WRITTEN | BLOCK_RAM
        )
        write, update, host = storage.write_port(), storage.read_port(), storage.read_port()
        m.d.comb += [update.addr.eq(position), host.addr.eq(self.address), self.word.eq(host.data)]

        events = self._accumulate(m, step & ~position[0])
        valid = delayed(m, step, LATENCY, name="valid", reset_less=False)
        is_high = delayed(m, position[0], 2, name="is_high")[2]
        positions = delayed(m, position, LATENCY, name="position")
        from_zero = delayed(m, clearing, 1, name="from_zero")[1]
        stored = Signal(WORD_BITS, reset_less=True)
        addend = Signal.like(events, reset_less=True)
        carry = Signal(max(1, len(events) - WORD_BITS + 1))
        m.d.sync += [
            stored.eq(Mux(from_zero, 0, update.data)),
            addend.eq(events),
            Cat(write.data, carry).eq(stored + Mux(is_high, carry, addend)),
        ]
        m.d.comb += [write.addr.eq(positions[LATENCY]), write.en.eq(valid[LATENCY])]
        return m

    def _accumulate(self, m: Module, advance: Any) -> Signal:
        """Return the accumulated events of the counter whose low word had its turn a cycle ago.

        ``advance``: high in the turn of a low word. ``turns`` selects the counter, in step with ``position``.
        """
        count = len(self.widths)
        turns = Signal(count, init=1)  # one-hot
        with m.If(advance):
            m.d.sync += turns.eq(turns.rotate_left(1))
        max_cycles = 2 * count + LONGEST_HOLD
        accumulators = []
        for n, width in enumerate(self.widths):
            accumulator = Signal(range(max_cycles * ((1 << width) - 1) + 1), name=f"accumulator{n}")
            is_turn = advance & turns[n]
            m.d.sync += accumulator.eq(Mux(is_turn, 0, accumulator) + self.steps[f"counter{n}"])
            accumulators.append(accumulator)
        events = Signal(max(len(accumulator) for accumulator in accumulators))
        m.d.sync += events.eq(
            reduce(
                or_, (Mux(turn, accumulator, 0) for turn, accumulator in zip(turns, accumulators, strict=True))
            )
        )
        with m.If(self.clear):
            m.d.sync += [turns.eq(1), *(accumulator.eq(0) for accumulator in accumulators)]
        return events
