# amaranth: UnusedElaboratable=no
"""Proof of the RetryScanner, by induction: what it offers again is overdue, whatever happens around it."""

import pytest
from amaranth import Mux, Signal
from amaranth.lib import data

from fanin.golden.round_trip import RTT_BITS
from fanin.hdl.aggregation.job import TIMEOUT_BITS
from fanin.hdl.aggregation.retry import RetryScanner
from fanin.hdl.aggregation.slots import SlotState
from fanin.hdl.net.round_trip import delay_layout
from fanin.job import RETRY_BITS
from tests.formal import Proof

pytestmark = [pytest.mark.formal, pytest.mark.slow]
WORD = data.StructLayout({"deadline": TIMEOUT_BITS, "delay": delay_layout(), "retries": RETRY_BITS, "ack": 1})
SCAN, LOOK, OFFER, FLUSH = range(4)  # the scanner's states
DEPTH = 11  # longer than the way from a slot's number to its offer


class Slot:
    """One slot, whichever: where its operation is, what was sent for it last, and its PA.

    An operation begins with its AGG; ``acknowledges``: its ACK is sent for the first time. What is sent again
    is taken from the offer. ``result`` and ``confirm`` come at any time, at the earliest 2 cycles after the
    packet that they answer.
    """

    def __init__(self, proof):
        m, dut, state = proof.m, proof.component, proof.internal
        self.index = proof.constant(1)
        self.state = Signal(SlotState)
        self.sent = Signal(WORD)
        self.pa = Signal(32)
        result, confirm, settled = Signal(), Signal(), Signal()
        backoff = data.View(delay_layout(), state["backoff"])
        delay = data.View(delay_layout(), Mux(dut.take, backoff.as_value(), dut.timeout.as_value()))
        cycles = Mux(delay.longest, dut.ceiling, delay.cycles)
        proof.ports += [result, confirm]
        ours = dut.sent.en & (dut.sent.index == self.index)
        first = ours & ~dut.take
        begins, acknowledges = first & ~dut.sent.ack, first & dut.sent.ack
        quiet = ~ours & ~proof.past(ours)
        waits = [proof.past(self.state), proof.past(proof.past(self.state)), self.state]
        for event, before, ack in (begins, SlotState.FREE, None), (acknowledges, SlotState.WAIT_CONFIRM, 0):
            for past in waits:  # at least so long after the slot has moved on
                proof.assume(~event | (past == before))
            proof.assume(~event | (1 if ack is None else self.sent.ack == ack))
        proof.assume(~result | ((self.state == SlotState.WAIT_RESULT) & ~self.sent.ack & quiet))
        proof.assume(~confirm | ((self.state == SlotState.WAIT_CONFIRM) & self.sent.ack & quiet))
        proof.assume((dut.keep & (dut.next_index == self.index)) == begins)
        with m.If(begins):
            m.d.sync += [self.state.eq(SlotState.WAIT_RESULT), self.pa.eq(dut.pa[0])]
        with m.If(result):
            m.d.sync += self.state.eq(SlotState.WAIT_CONFIRM)
        with m.If(confirm):
            m.d.sync += self.state.eq(SlotState.FREE)
        with m.If(ours):
            m.d.sync += [
                self.sent.deadline.eq(state["cycle"] + 1 + cycles),
                self.sent.delay.eq(delay),
                self.sent.retries.eq(dut.sent.retries),
                self.sent.ack.eq(dut.sent.ack),
            ]
        m.d.sync += settled.eq(1)
        waited_for = SlotState.WAIT_CONFIRM, SlotState.WAIT_RESULT
        self.matches = (self.sent.ack & (self.state == waited_for[0])) | (
            ~self.sent.ack & (self.state == waited_for[1])
        )
        # SlotStates says a cycle later what the state is by then; at first all slots are free
        proof.assume(((proof.past(dut.scan.index) != self.index) & settled) | (dut.scanned == self.state))


def test_what_is_offered_again_is_what_was_sent_last_overdue_and_still_waited_for(tmp_path):
    proof = Proof(RetryScanner(slots=2, values=1))
    dut, state = proof.component, proof.internal
    ceiling, limit = proof.constant(TIMEOUT_BITS - 1), proof.constant(RETRY_BITS)
    proof.assume((dut.mask == 1) & (dut.ceiling == ceiling) & (dut.limit == limit))
    slot = Slot(proof)
    offer, sent = dut.offer, dut.sent
    proof.assume(~dut.take | (offer.valid & sent.en & (sent.index == offer.use.index)))
    proof.assume(~dut.take | ((sent.ack == offer.ack) & (sent.retries == offer.retries)))

    ours = offer.use.index == slot.index
    fails = dut.failed & (proof.past(state["fsm_state"]) == OFFER) & ~proof.past(state["just_taken"])
    found = ours & (offer.valid | fails)
    late = Signal(TIMEOUT_BITS)
    proof.m.d.comb += late.eq(state["cycle"] - 2 - slot.sent.deadline)  # as it was looked at, 2 cycles ago
    proof.check(~found | ~late[-1])
    backoff, doubled = data.View(delay_layout(), state["backoff"]), slot.sent.delay.cycles << 1
    longest = slot.sent.delay.longest | (doubled >= 1 << RTT_BITS) | (doubled >= ceiling)
    proof.check(~(ours & offer.valid) | (backoff.longest == longest))
    proof.check(~(ours & offer.valid) | longest | (backoff.cycles == doubled))
    proof.check(~found | proof.past(proof.past(slot.matches)))
    proof.check(~(ours & offer.valid) | (offer.ack == slot.sent.ack))
    proof.check(~(ours & offer.valid) | (offer.retries == (slot.sent.retries + 1)[:RETRY_BITS]))
    proof.check(~(ours & offer.valid) | (slot.sent.retries != limit))
    proof.check(~(ours & offer.valid & ~offer.ack) | (offer.values[0].as_unsigned() == slot.pa))
    proof.check(~(ours & fails) | (slot.sent.retries == limit))
    proof.check(~state["pending"] | (state["fsm_state"] == OFFER))
    waits = (state["fsm_state"] == LOOK) | (state["fsm_state"] == FLUSH)
    proof.check(state["wait"] <= Mux(waits, 2, 0))
    # the memories have what was sent, and the PA
    timer = proof.inner.submodules.timers.read_port(domain="comb")
    store = proof.inner.submodules.store.read_port(domain="comb")
    proof.m.d.comb += [timer.addr.eq(slot.index), store.addr.eq(slot.index)]
    proof.check(timer.data.as_value() == proof.past(slot.sent.as_value()))
    proof.check(store.data[0].as_unsigned() == slot.pa)
    proof.prove(tmp_path, depth=DEPTH, timeout=120)
