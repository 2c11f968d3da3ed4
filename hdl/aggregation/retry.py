"""Retransmission: stored packets, their deadlines and their counts of retransmissions.

A PA (partial activations) has a worker's values of an operation. An AGG packet carries a PA.
"""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.headers import values_layout
from fanin.hdl.aggregation.job import ROUND_BITS
from fanin.hdl.aggregation.slots import SlotState, check_slots, index_bits, use_layout
from fanin.hdl.arith.delay import delayed
from fanin.hdl.net.round_trip import TIMEOUT_BITS, delay_layout, limited
from fanin.job import RETRY_BITS
from fanin.wire.aggregation import DEFAULT_VALUES

_LOOKUP_CYCLES = 3  # cycles from a slot's address to ``overdue``


def sent_layout(slots: int) -> data.StructLayout:
    """Return the layout of a packet that is sent.

    - ``en``: a packet is sent in this cycle.
    - ``index``: slot of the packet.
    - ``ack``: the packet is an ACK, otherwise an AGG.
    - ``retries``: retransmissions of the packet, this one included; 0 for its first transmission.
    """
    return data.StructLayout({"en": 1, "index": index_bits(slots), "ack": 1, "retries": RETRY_BITS})


def offer_layout(slots: int, values: int) -> data.StructLayout:
    """Return the layout of an overdue packet that is offered.

    - ``valid``: a packet is offered.
    - ``use``: slot and parity of the packet.
    - ``ack``: the packet is an ACK, otherwise an AGG.
    - ``retries``: retransmissions of the packet, including the offered one.
    - ``values``: PA of the slot's operation; an ACK has no values.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "use": use_layout(slots),
            "ack": 1,
            "retries": RETRY_BITS,
            "values": values_layout(values),
        }
    )


class RetryScanner(wiring.Component):
    """Scanner that finds slots with an overdue packet and offers the packet again, with its stored PA.

    The scanner checks one slot a cycle, from the oldest operation to the newest, so a timer costs a word of
    memory and no comparator. The word describes the last packet that the slot has sent. A slot that has changed
    its state but has not sent its next packet yet is not overdue: its state does not match that word.

    A packet becomes overdue ``timeout`` after its first transmission, and after a retransmission when twice the
    previous delay has passed. A delay that would reach ``ceiling``, or 2^18 cycles, is replaced by ``ceiling``.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots minus 1.
    ``next_index`` : In, bits of a slot index
        Slot of the next operation. Slots below it are in round ``round``, the others in ``previous``.
    ``round`` : In, 32
        Round of the slots below ``next_index``.
    ``previous`` : In, 32
        Round of the other slots.
    ``oldest`` : In, bits of a slot index
        Slot of the oldest operation in flight; ``next_index`` if there is none.
    ``timeout`` : In, :func:`~fanin.hdl.net.round_trip.delay_layout`
        Delay from a first transmission to the next. ``cycles``: the delay, below 2^18 cycles. ``longest``: the
        delay is ``ceiling`` instead.
    ``ceiling`` : In, 32
        Greatest delay from a transmission to the next, in cycles, below 2^31.
    ``limit`` : In, 16
        Maximum number of retransmissions of a packet.
    ``sent`` : In, :func:`sent_layout`
        A packet is sent now. An ACK, or the next AGG of a slot, comes at least 3 cycles after the slot's change
        of state.
    ``keep`` : In, 1
        The next operation starts: store ``pa`` for it.
    ``pa`` : In, ``values`` signed 32-bit numbers
        PA of the next operation.
    ``scan`` : Out, slot use
        Slot use for SlotStates to look up.
    ``scanned`` : In, SlotState
        Result of the look-up by SlotStates.
    ``offer`` : Out, :func:`offer_layout`
        A packet to send again; withdrawn 2 cycles after its slot's change of state.
    ``take`` : In, 1
        The offer is being sent; only with ``offer.valid``.
    ``failed`` : Out, 1
        High while a packet is overdue after ``limit`` retransmissions; the packet is not offered again.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
        Maximum number of slots of a job.
    ``values`` : int, 1 to 256
        Values of a PA.

    Latency
    -------
    A packet is offered at most N + 9 cycles after its timeout if no other is due, where N is the number of
    operations in flight. Each other packet that is due delays the scan by 9 cycles and by the time until it is
    taken.

    Source
    ------
    docs/systems/aggregation.md, "Timers"; RFC 6298, section 5.
    """

    def __init__(self, *, slots: int, values: int = DEFAULT_VALUES):
        check_slots(slots)
        self.slots = slots
        self.values = values
        super().__init__(
            {
                "mask": In(index_bits(slots)),
                "next_index": In(index_bits(slots)),
                "round": In(ROUND_BITS),
                "previous": In(ROUND_BITS),
                "oldest": In(index_bits(slots)),
                "timeout": In(delay_layout()),
                "ceiling": In(TIMEOUT_BITS),
                "limit": In(RETRY_BITS),
                "sent": In(sent_layout(slots)),
                "keep": In(1),
                "pa": In(values_layout(values)),
                "scan": Out(use_layout(slots)),
                "scanned": In(SlotState),
                "offer": Out(offer_layout(slots, values)),
                "take": In(1),
                "failed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Scan slot after slot; return to an overdue slot, look it up again, and offer its packet.

        A look-up is a pipeline:

        - cycle 0: ``pointer`` addresses the memories;
        - cycle 1: their outputs (``timer`` and ``stored``) and the slot's state arrive;
        - cycle 2: these are in ``word`` and ``state`` and are compared;
        - cycle 3: ``overdue`` is valid.

        The scan has continued meanwhile, and the slot may have changed its state, so a second look-up decides.
        """
        m = Module()
        cycle = Signal(TIMEOUT_BITS)
        m.d.sync += cycle.eq(cycle + 1)
        backoff = Signal(delay_layout())  # the delay after the packet of ``word`` is sent again
        timer, stored = self._memories(m, cycle, backoff)
        pointer = Signal(index_bits(self.slots))
        lookups = delayed(m, self.scan, _LOOKUP_CYCLES, name="lookup")
        word = Signal.like(timer.data, reset_less=True)
        state = Signal(SlotState)
        overdue = Signal()
        retries_used_up = Signal()
        matches = Signal()  # the slot waits for an answer to the packet of ``word``
        matched_before = Signal()
        lateness = Signal(TIMEOUT_BITS)  # cycles since the deadline; negative before it
        before_deadline = Signal()

        m.d.comb += [
            self.scan.index.eq(pointer),
            self.scan.parity.eq(Mux(pointer < self.next_index, self.round[0], self.previous[0])),
            timer.addr.eq(pointer),
            stored.addr.eq(pointer),
            matches.eq(Mux(word.ack, state == SlotState.WAIT_CONFIRM, state == SlotState.WAIT_RESULT)),
            lateness.eq(cycle - word.deadline),
            overdue.eq(matched_before & ~before_deadline),
            self.offer.use.eq(lookups[1]),
            self.offer.ack.eq(word.ack),
            self.offer.values.eq(stored.data),
        ]
        m.d.sync += [
            word.eq(timer.data),
            state.eq(self.scanned),
            before_deadline.eq(lateness[-1]),
            matched_before.eq(matches),
            retries_used_up.eq(word.retries == self.limit),
            self.offer.retries.eq(word.retries + 1),
        ]
        delay = limited(m, word.delay.cycles << 1, self.ceiling)
        was_longest = delayed(m, word.delay.longest, 2, name="was_longest")[-1]  # 2: latency of ``limited``
        m.d.comb += [backoff.cycles.eq(delay.cycles), backoff.longest.eq(was_longest | delay.longest)]
        self._walk(m, pointer, lookups[_LOOKUP_CYCLES].index, overdue, matches, retries_used_up)
        return m

    def _newer_operations(self, index: Value) -> Value:
        """Return the number of operations that began after that of a slot in flight."""
        return (self.next_index + ~index) & self.mask

    def _walk(
        self,
        m: Module,
        pointer: Signal,
        checked_index: Value,
        overdue: Signal,
        matches: Signal,
        retries_used_up: Signal,
    ) -> None:
        """Walk through the slots.

        SCAN passes slots, LOOK looks an overdue slot up again, OFFER holds the pointer, FLUSH empties the
        pipeline.

        A transmission reaches the memories two cycles after ``take``. Until FLUSH ends, the pipeline still
        shows the packet that was taken.

        In OFFER, with c the cycle in which ``overdue`` and ``matches`` hold:

        - c + 1: ``offer.valid`` or ``failed``;
        - t ≥ c + 1: ``take``;
        - t + 1: ``just_taken`` withdraws the offer;
        - t + 2: FLUSH.

        If the slot changes its state in cycle s, ``matches`` falls at s + 1 and the offer is withdrawn at s +
        2.
        """
        pending = Signal()
        just_taken = Signal()  # ``take`` a cycle ago
        wait = Signal(range(_LOOKUP_CYCLES))
        last = Signal.like(pointer)  # slot of the newest operation
        newer_than_pointer = Signal.like(pointer)
        newer_than_oldest = Signal.like(pointer)
        is_outside = Signal()  # the pointer has been on a slot that is not in flight
        m.d.sync += [
            last.eq((self.next_index - 1) & self.mask),
            newer_than_pointer.eq(self._newer_operations(pointer)),
            newer_than_oldest.eq(self._newer_operations(self.oldest)),
            is_outside.eq(newer_than_pointer > newer_than_oldest),
        ]
        at_end = (pointer == last) | is_outside
        advance = pointer.eq(Mux(at_end, self.oldest, (pointer + 1) & self.mask))  # to the next slot in flight
        m.d.sync += just_taken.eq(self.take)
        m.d.comb += self.offer.valid.eq(pending & ~just_taken)
        with m.FSM():
            with m.State("SCAN"):
                m.d.sync += advance
                with m.If(overdue):
                    m.d.sync += pointer.eq(checked_index)
                    m.next = "LOOK"
            with m.State("LOOK"):
                self._await_lookup(m, wait, "OFFER")
            with m.State("OFFER"):
                m.d.sync += [
                    pending.eq(overdue & matches & ~retries_used_up),
                    self.failed.eq(overdue & matches & retries_used_up),
                ]
                with m.If(just_taken | ~overdue | ~matches):
                    m.d.sync += [pending.eq(0), advance]
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.sync += advance
                self._await_lookup(m, wait, "SCAN")

    def _await_lookup(self, m: Module, wait: Signal, state: str) -> None:
        """Wait until ``overdue`` is valid for the slot that ``pointer`` has held, then go to ``state``."""
        m.d.sync += wait.eq(wait + 1)
        with m.If(wait == _LOOKUP_CYCLES - 1):
            m.d.sync += wait.eq(0)
            m.next = state

    def _memories(self, m: Module, cycle: Signal, backoff: Any) -> tuple[Any, Any]:
        """Return read ports of the timers (written when a packet is sent) and of the PAs."""
        word = data.StructLayout(
            {"deadline": TIMEOUT_BITS, "delay": delay_layout(), "retries": RETRY_BITS, "ack": 1}
        )
        m.submodules.timers = timers = Memory(shape=word, depth=self.slots, init=[])
        m.submodules.store = store = Memory(shape=values_layout(self.values), depth=self.slots, init=[])
        sent = Signal.like(self.sent)
        delay = Signal(delay_layout())
        timer, pa = timers.write_port(), store.write_port()
        m.d.sync += [sent.eq(self.sent), delay.eq(Mux(self.take, backoff, self.timeout))]
        m.d.comb += [
            timer.en.eq(sent.en),
            timer.addr.eq(sent.index),
            timer.data.deadline.eq(cycle + Mux(delay.longest, self.ceiling, delay.cycles)),
            timer.data.delay.eq(delay),
            timer.data.retries.eq(sent.retries),
            timer.data.ack.eq(sent.ack),
            pa.en.eq(self.keep),
            pa.addr.eq(self.next_index),
            pa.data.eq(self.pa),
        ]
        return timers.read_port(), store.read_port()
