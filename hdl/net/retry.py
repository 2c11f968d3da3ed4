"""Retransmission: what was sent, when it is due again, and how often it was sent."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import values_layout
from fanin.hdl.net.job import RETRY_BITS, ROUND_BITS, TIMEOUT_BITS
from fanin.hdl.net.slots import SlotState, check_slots, index_bits, use_layout
from fanin.wire import DEFAULT_VALUES


def sent_layout(slots: int) -> data.StructLayout:
    """A packet that is being sent: for which slot, AGG or ``ack``, and the how many-th retransmission."""
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
    belongs to the packet sent last: a slot that has moved on, but has not sent its next packet yet, is not
    overdue.

    Members
    -------
    ``mask`` : In, bits of a slot index
        N − 1.
    ``next_index`` : In, bits of a slot index
        Slot of the next operation; those below it are in round ``round``, the others in ``previous``.
    ``round`` : In, 32
    ``previous`` : In, 32
    ``timeout`` : In, 32
        Cycles from a transmission to the next, below 2^31; constant from a cycle before the first ``sent``.
    ``limit`` : In, 16
        Retransmissions of one packet.
    ``sent`` : In, ``en``, ``index``, ``ack``, ``retries``
        A packet is sent now.
    ``keep`` : In, 1
        The next operation begins: keep ``pa`` for it.
    ``pa`` : In, ``values`` signed 32-bit numbers
    ``scan`` : Out, slot use
        To SlotStates.
    ``scanned`` : In, SlotState
        From SlotStates.
    ``offer`` : Out, ``valid``, ``use``, ``ack``, ``retries``, ``values``
        A packet to be sent again. It is withdrawn 1 cycle after its slot has moved on.
    ``take`` : In, 1
        The offer is being sent. Only with ``offer.valid``.
    ``failed`` : Out, 1
        A packet is overdue and was retransmitted ``limit`` times. It is offered no more.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 32768
    ``values`` : int, 1 to 256

    Latency
    -------
    A packet is offered at most N + 6 cycles after its timeout when no other is due; each that is due delays
    the scan by 6 cycles and by the time until it is taken.

    Source
    ------
    DESIGN section 4, "Worker".
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
        """Look at slot after slot; at an overdue one stop, look again, and offer.

        Looking takes two cycles: address; then the memories' outputs, which ``overdue`` judges. Looking again
        makes the scan exact: by then the slot may have moved on.
        """
        m = Module()
        now = Signal(TIMEOUT_BITS)
        m.d.sync += now.eq(now + 1)
        timer, stored = self._memories(m, now)
        pointer = Signal(index_bits(self.slots))
        seen = Signal.like(self.scan)  # the slot that the memories' outputs describe
        judged = Signal.like(pointer)  # the slot that ``overdue`` describes
        overdue, exhausted, matches = Signal(), Signal(), Signal()
        late = Signal(TIMEOUT_BITS)

        m.d.comb += [
            self.scan.index.eq(pointer),
            self.scan.parity.eq(Mux(pointer < self.next_index, self.round[0], self.previous[0])),
            timer.addr.eq(pointer),
            stored.addr.eq(pointer),
            matches.eq(
                Mux(
                    timer.data.ack,
                    self.scanned == SlotState.WAIT_CONFIRM,
                    self.scanned == SlotState.WAIT_RESULT,
                )
            ),
            late.eq(now - timer.data.deadline),
            self.offer.use.eq(seen),
            self.offer.ack.eq(timer.data.ack),
            self.offer.values.eq(stored.data),
        ]
        m.d.sync += [
            seen.eq(self.scan),
            judged.eq(seen.index),
            overdue.eq(matches & ~late[-1]),
            exhausted.eq(timer.data.retries == self.limit),
            self.offer.retries.eq(timer.data.retries + 1),
        ]
        self._walk(m, pointer, judged, overdue, matches, exhausted)
        return m

    def _walk(
        self, m: Module, pointer: Signal, judged: Signal, overdue: Signal, matches: Signal, exhausted: Signal
    ) -> None:
        """In ``OFFER`` the pointer rests, and with it the memories' outputs."""
        with m.FSM():
            with m.State("SCAN"):
                m.d.sync += pointer.eq((pointer + 1) & self.mask)
                with m.If(overdue):
                    m.d.sync += pointer.eq(judged)
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "JUDGE"
            with m.State("JUDGE"):
                m.next = "OFFER"
            with m.State("OFFER"):
                m.d.sync += [
                    self.offer.valid.eq(overdue & matches & ~exhausted),
                    self.failed.eq(overdue & matches & exhausted),
                ]
                with m.If(self.take | ~overdue | ~matches):
                    m.d.sync += [self.offer.valid.eq(0), pointer.eq((pointer + 1) & self.mask)]
                    m.next = "FLUSH"
            # For two cycles ``overdue`` still describes the packet that was just taken.
            with m.State("FLUSH"):
                m.d.sync += pointer.eq((pointer + 1) & self.mask)
                m.next = "REFILL"
            with m.State("REFILL"):
                m.d.sync += pointer.eq((pointer + 1) & self.mask)
                m.next = "SCAN"

    def _memories(self, m: Module, now: Signal) -> tuple[Any, Any]:
        """Read ports of the deadlines, written when a packet is sent, and of the PAs."""
        word = data.StructLayout({"deadline": TIMEOUT_BITS, "retries": RETRY_BITS, "ack": 1})
        m.submodules.timers = timers = Memory(shape=word, depth=self.slots, init=[])
        m.submodules.store = store = Memory(shape=values_layout(self.values), depth=self.slots, init=[])
        deadline = Signal(TIMEOUT_BITS)
        timer, pa = timers.write_port(), store.write_port()
        m.d.sync += deadline.eq(now + self.timeout)
        m.d.comb += [
            timer.en.eq(self.sent.en),
            timer.addr.eq(self.sent.index),
            timer.data.deadline.eq(deadline),
            timer.data.retries.eq(self.sent.retries),
            timer.data.ack.eq(self.sent.ack),
            pa.en.eq(self.keep),
            pa.addr.eq(self.next_index),
            pa.data.eq(self.pa),
        ]
        return timers.read_port(), store.read_port()
