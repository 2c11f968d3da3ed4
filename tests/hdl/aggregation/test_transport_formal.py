# amaranth: UnusedElaboratable=no
"""Proofs about the transport: order, exactly once, no slot reused, the stream contract, under any frames."""

import pytest
from amaranth import Mux, Signal
from amaranth.hdl import Value
from amaranth.utils import exact_log2

from fanin.hdl.aggregation.headers import frame_layout
from fanin.hdl.aggregation.reorder import ReorderStore
from fanin.hdl.aggregation.slots import OperationWindow, use_layout
from fanin.hdl.aggregation.transport import SETTLE_CYCLES, AggTransport
from fanin.hdl.net.headers import swap_bytes
from fanin.wire.aggregation import ETHERTYPE_AGGREGATION, VERSION, Encap, Kind, Protocol
from fanin.wire.ethernet import MIN_FRAME_BYTES
from tests.formal import Proof

pytestmark = pytest.mark.formal
SLOTS = 2
STOP_CYCLES = 3  # from a stop until nothing passes any more
DEPTH = SETTLE_CYCLES + 11  # two cycles to clear, eight to settle, then nine in which anything may happen


class Shadow:
    """What should happen to one operation, any of the first four: told from the ports alone."""

    def __init__(self, proof):
        m, dut = proof.m, proof.component
        self.number = number = proof.constant(2)
        frame = rx_frame(dut)
        head = frame.aggregation
        ours = dut.rx.valid & (head.slot == number[0]) & (head.round == number[1] + 1)
        is_result, is_confirm = ours & (head.kind == Kind.RESULT), ours & (head.kind == Kind.CONFIRM)
        self.accepted, self.delivered = Signal(4), Signal(4)
        self.result, self.confirmed, self.value = Signal(), Signal(), Signal(32)
        self.accept = dut.pa.valid & dut.pa.ready
        self.deliver = dut.fa.valid & dut.fa.ready
        proof.assume(~is_result | (self.accepted > number))  # a switch answers what it was sent
        m.d.sync += [
            self.accepted.eq(self.accepted + self.accept),
            self.delivered.eq(self.delivered + self.deliver),
        ]
        with m.If(is_result & ~self.result):
            m.d.sync += [self.result.eq(1), self.value.eq(frame.values[0])]
        with m.If(is_confirm & self.result):
            m.d.sync += self.confirmed.eq(1)


def rx_frame(dut):
    layout = frame_layout(Encap.L2, 1)
    return layout(swap_bytes(dut.rx.payload.data[: layout.size]))


@pytest.fixture(params=list(Protocol))
def transport(request):
    """Two slots, one value; frames of the job with any kind, slot, round and value, at any time.

    What other frames there are does not matter here (see test_framing); small numbers keep the solver quick.
    """
    proof = Proof(AggTransport(values=1, slots=SLOTS, protocol=request.param))
    dut = proof.component
    job = {"enable": 1, "log2_slots": 1, "retries": 3, "timeout": 2}
    proof.assume(Value.cast(dut.job) == dut.job.shape().const(job).as_bits())
    proof.assume(~dut.reset)
    frame, beat = rx_frame(dut), dut.rx.payload
    proof.assume(beat.last & ~beat.error & (beat.keep == (1 << MIN_FRAME_BYTES) - 1))
    proof.assume(frame.ethernet.as_value() == ETHERTYPE_AGGREGATION)
    head = frame.aggregation
    proof.assume((head.version == VERSION) & (head.job == 0) & (head.bitmap == 0) & (frame.padding == 0))
    proof.assume((head.round < 4) & (head.slot < SLOTS) & (head.kind < 4) & (frame.values[0] < 4))
    proof.assume(dut.pa.payload[0].as_unsigned() == 0)
    return proof


@pytest.mark.slow
def test_each_fa_is_that_of_its_operation_once_and_in_order(transport, tmp_path):
    """Bounded by DEPTH, as is the next: long enough for slots to be used again."""
    shadow = Shadow(transport)
    this = shadow.deliver & (shadow.delivered == shadow.number)
    value = transport.component.fa.payload[0].as_unsigned()
    transport.check(~this | (shadow.result & (value == shadow.value)))
    transport.check(~shadow.deliver | (shadow.delivered < shadow.accepted))
    transport.prove(tmp_path, depth=DEPTH, induction=False, timeout=300)


@pytest.mark.slow
def test_no_slot_is_used_again_before_its_confirm_and_the_delivery_of_its_fa(transport, tmp_path):
    """Without CONFIRMs: before the delivery of the FA a window later."""
    shadow, protocol = Shadow(transport), transport.component.protocol
    reuse = shadow.accept & (shadow.accepted == shadow.number + SLOTS)
    later = SLOTS - SLOTS // protocol.slots_per_operation
    confirmed = shadow.confirmed if protocol.acknowledges else 1
    transport.check(~reuse | (confirmed & (shadow.delivered > shadow.number + later)))
    transport.prove(tmp_path, depth=DEPTH, induction=False, timeout=300)


@pytest.mark.parametrize("protocol", list(Protocol))
def test_the_window_never_holds_more_than_n_operations(protocol, tmp_path):
    """Induction: for ever, at any N, whatever is accepted while open and freed while in use."""
    proof = Proof(OperationWindow(slots=8, protocol=protocol))
    window, state = proof.component, proof.internal
    started, free_places = state["started"], state["free_places"]
    settled = Signal()  # the mask was there a cycle ago
    ready = Signal()  # two cycles ago
    enabled = Signal()
    proof.m.d.sync += [settled.eq(1), ready.eq(settled), enabled.eq(window.enable)]
    mask = proof.constant(3)
    size = mask.shift_right(exact_log2(protocol.slots_per_operation)) + 1  # N
    proof.assume((mask & (mask + 1)) == 0)
    proof.assume(window.mask == mask)
    proof.assume(~window.accept | (window.open & ready))
    was_idle = Signal(init=1)
    idle = ~started | (free_places == size)
    proof.m.d.sync += was_idle.eq(idle)
    proof.assume(~window.free | ~idle)
    proof.check(~ready | (window.idle == was_idle) | ~started)
    proof.check(started | (window.idle & was_idle))
    proof.check(~ready | (window.open == ((free_places > 0) & ~window.exhausted & enabled)))
    proof.check(~settled | (free_places <= size))
    proof.check(~settled | (state["size"] == size))
    proof.check(~settled | started | (free_places == size))
    proof.check(~ready | settled)
    proof.check(ready | ~started)
    proof.check(settled | (~started & ~window.open))
    proof.prove(tmp_path, depth=4)


def test_the_reorder_store_keeps_the_stream_contract(tmp_path):
    """Induction, given that no slot is written again before it was delivered; ``enable`` may change."""
    proof = Proof(ReorderStore(slots=2, values=1))
    store = proof.component
    current, use = (use_layout(2)(proof.internal[name]) for name in ("current", "use"))
    proof.assume((store.mask == 1) & ~store.clear.en)
    write = store.write
    proof.assume(~(write.en & store.o.valid & (use.index == current.index)))
    proof.check(Mux(store.o.valid, proof.internal["live"], 1))
    waited = proof.past(store.o.valid & ~store.o.ready)
    proof.check(~store.o.valid | waited | proof.past(store.enable))
    proof.prove(tmp_path, depth=4)


@pytest.mark.parametrize("protocol", list(Protocol))
def test_nothing_is_accepted_or_handed_on_while_the_transport_is_not_enabled(protocol, tmp_path):
    """Induction: for ever, whatever is received or offered; not enabled: disabled, or stopped by a failure.

    ``fa`` and ``tx`` keep the stream contract if no slot is written again before it was delivered, which is
    proved above.
    """
    proof = Proof(AggTransport(values=1, slots=SLOTS, protocol=protocol))
    dut, store = proof.component, proof.parts["reorder"]
    current, use = (use_layout(SLOTS)(store[name]) for name in ("current", "use"))
    proof.assume(~(dut.counters.results & dut.fa.valid & (use.index == current.index)))
    proof.assume((dut.job.log2_slots == 1) & dut.rx.payload.last)
    proof.assume(~dut.reset | ~dut.fa.valid | dut.fa.ready)  # what the transport requires
    stopped = ~dut.job.enable | dut.status.failed
    stopped_for = [stopped]
    for _ in range(STOP_CYCLES):
        stopped_for.append(stopped_for[-1] & proof.past(stopped_for[-1]))
    waited = proof.past(dut.fa.valid & ~dut.fa.ready)
    quiet = stopped_for[STOP_CYCLES]
    proof.check(~quiet | ~dut.fa.valid | waited)
    proof.check(~quiet | ~dut.counters.results)
    proof.check(~quiet | ~dut.counters.confirms)
    proof.check(~quiet | ~dut.pa.ready | dut.reset)
    proof.prove(tmp_path, depth=STOP_CYCLES + 3, timeout=300)
