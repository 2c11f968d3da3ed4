"""Retransmission: what was sent, when it is due again, and how often it was sent."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.headers import values_layout
from fanin.hdl.aggregation.job import ROUND_BITS, TIMEOUT_BITS
from fanin.hdl.aggregation.slots import SlotState, check_slots, index_bits, use_layout
from fanin.hdl.arith.delay import delayed
from fanin.job import RETRY_BITS
from fanin.wire.aggregation import DEFAULT_VALUES

_LOOK = 3  # cycles from a slot's address to ``overdue``


def sent_layout(slots: int) -> data.StructLayout:
    """A packet that is being sent: for which slot, AGG or ``ack``, and which retransmission (0: none)."""
    return data.StructLayout({"en": 1, "index": index_bits(slots), "ack": 1, "retries": RETRY_BITS})


def offer_layout(slots: int, values: int) -> data.StructLayout:
    """A packet that is due again; ``values`` are the PA's (an ACK does without)."""
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
    """Find slots whose packet is overdue, and offer it again, with the PA that was stored for it.

    A scanner looks at one slot a cycle, so a timer costs a word of memory and no comparator. The word
    belongs to the packet sent last. So a slot that has moved on, but has not sent its next packet yet, is not
    overdue.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots, less 1.
    ``next_index`` : In, bits of a slot index
        Slot of the next operation; those below it are in round ``round``, the others in ``previous``.
    ``round`` : In, 32
    ``previous`` : In, 32
    ``timeout`` : In, 32
        Cycles from a transmission to the next, below 2^31; constant from a cycle before the first ``sent``.
    ``limit`` : In, 16
        Retransmissions of one packet.
    ``sent`` : In, ``en``, ``index``, ``ack``, ``retries``
        A packet is sent now: an ACK or the next AGG of a slot at least 3 cycles after the slot has moved on.
    ``keep`` : In, 1
        The next operation begins: keep ``pa`` for it.
    ``pa`` : In, ``values`` signed 32-bit numbers
    ``scan`` : Out, slot use
        To SlotStates.
    ``scanned`` : In, SlotState
        From SlotStates.
    ``offer`` : Out, ``valid``, ``use``, ``ack``, ``retries``, ``values``
        A packet to be sent again. It is withdrawn 2 cycles after its slot has moved on.
    ``take`` : In, 1
        The offer is being sent. Only with ``offer.valid``.
    ``failed`` : Out, 1
        While a packet is overdue that was retransmitted ``limit`` times. It is offered no more.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
    ``values`` : int, 1 to 256

    Latency
    -------
    A packet is offered at most N + 9 cycles after its timeout when no other is due; each that is due delays
    the scan by 9 cycles and by the time until it is taken.

    Source
    ------
    docs/systems/aggregation.md, "Worker".
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
                "timeout": In(TIMEOUT_BITS),
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
        """Scan slot after slot; at an overdue one go back to it, look again, and offer its packet.

        A look is a pipeline. In cycle 0 ``pointer`` addresses the memories; in cycle 1 their outputs (``timer``
        and ``stored``) and the slot's state come; in cycle 2 they are in ``word`` and ``state``, and are
        compared; in cycle 3 ``overdue`` tells. The scan has gone on meanwhile, and the slot may have moved on,
        so the second look decides.
        """
        m = Module()
        now = Signal(TIMEOUT_BITS)
        m.d.sync += now.eq(now + 1)
        timer, stored = self._memories(m, now)
        pointer = Signal(index_bits(self.slots))
        looked = delayed(m, self.scan, _LOOK, name="looked")
        word = Signal.like(timer.data, reset_less=True)
        state = Signal(SlotState)
        overdue = Signal()
        exhausted = Signal()
        matches = Signal()  # the slot waits for an answer to the packet that ``word`` is of
        lateness = Signal(TIMEOUT_BITS)  # cycles since the deadline; its sign bit: it has not come yet
        early = Signal()
        matched_before = Signal()

        m.d.comb += [
            self.scan.index.eq(pointer),
            self.scan.parity.eq(Mux(pointer < self.next_index, self.round[0], self.previous[0])),
            timer.addr.eq(pointer),
            stored.addr.eq(pointer),
            matches.eq(Mux(word.ack, state == SlotState.WAIT_CONFIRM, state == SlotState.WAIT_RESULT)),
            lateness.eq(now - word.deadline),
            overdue.eq(matched_before & ~early),
            self.offer.use.eq(looked[1]),
            self.offer.ack.eq(word.ack),
            self.offer.values.eq(stored.data),
        ]
        m.d.sync += [
            word.eq(timer.data),
            state.eq(self.scanned),
            early.eq(lateness[-1]),
            matched_before.eq(matches),
            exhausted.eq(word.retries == self.limit),
            self.offer.retries.eq(word.retries + 1),
        ]
        self._walk(m, pointer, looked[_LOOK].index, overdue, matches, exhausted)
        return m

    def _walk(
        self, m: Module, pointer: Signal, judged: Value, overdue: Signal, matches: Signal, exhausted: Signal
    ) -> None:
        """SCAN passes slots, LOOK looks again, OFFER keeps the pointer, FLUSH empties the pipeline.

        A transmission reaches the memories two cycles after ``take``. What the pipeline shows until FLUSH ends
        is still the packet that was taken.
        """
        pending = Signal()
        just_taken = Signal()
        settle = Signal(range(_LOOK))
        next_slot = pointer.eq((pointer + 1) & self.mask)
        m.d.sync += just_taken.eq(self.take)
        m.d.comb += self.offer.valid.eq(pending & ~just_taken)
        with m.FSM():
            with m.State("SCAN"):
                m.d.sync += next_slot
                with m.If(overdue):
                    m.d.sync += pointer.eq(judged)
                    m.next = "LOOK"
            with m.State("LOOK"):
                self._settle(m, settle, "OFFER")
            with m.State("OFFER"):
                m.d.sync += [
                    pending.eq(overdue & matches & ~exhausted),
                    self.failed.eq(overdue & matches & exhausted),
                ]
                with m.If(just_taken | ~overdue | ~matches):
                    m.d.sync += [pending.eq(0), next_slot]
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.sync += next_slot
                self._settle(m, settle, "SCAN")

    def _settle(self, m: Module, settle: Signal, state: str) -> None:
        """Wait until ``overdue`` is about the slot that ``pointer`` has held; then go to ``state``."""
        m.d.sync += settle.eq(settle + 1)
        with m.If(settle == _LOOK - 1):
            m.d.sync += settle.eq(0)
            m.next = state

    def _memories(self, m: Module, now: Signal) -> tuple[Any, Any]:
        """Read ports of the deadlines, written when a packet is sent, and of the PAs."""
        word = data.StructLayout({"deadline": TIMEOUT_BITS, "retries": RETRY_BITS, "ack": 1})
        m.submodules.timers = timers = Memory(shape=word, depth=self.slots, init=[])
        m.submodules.store = store = Memory(shape=values_layout(self.values), depth=self.slots, init=[])
        deadline = Signal(TIMEOUT_BITS)
        sent = Signal.like(self.sent)
        timer, pa = timers.write_port(), store.write_port()
        m.d.sync += [sent.eq(self.sent), deadline.eq(now + self.timeout)]
        m.d.comb += [
            timer.en.eq(sent.en),
            timer.addr.eq(sent.index),
            timer.data.deadline.eq(deadline),
            timer.data.retries.eq(sent.retries),
            timer.data.ack.eq(sent.ack),
            pa.en.eq(self.keep),
            pa.addr.eq(self.next_index),
            pa.data.eq(self.pa),
        ]
        return timers.read_port(), store.read_port()
