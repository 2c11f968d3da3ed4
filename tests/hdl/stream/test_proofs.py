# amaranth: UnusedElaboratable=no
"""Proofs of the queues: for every input whatsoever, in every cycle."""

import pytest
from amaranth import Signal
from amaranth.hdl import Mux

from fanin.hdl.stream.buffer import RegisterSlice, SkidBuffer
from fanin.hdl.stream.fifo import StreamFIFO
from tests.formal import Proof
from tests.support import slow

WIDTH = 2
pytestmark = pytest.mark.formal


class Tracked:
    """Watch one payload, whichever: the solver picks the cycle in which it enters.

    ``ahead``: payloads in the queue that came before it; ``inside``: it is in the queue; ``value``: what
    it was. ``held``: payloads in the queue.
    """

    def __init__(self, proof, capacity):
        m, dut = proof.m, proof.component
        self.pick = Signal()
        proof.ports.append(self.pick)
        self.held = Signal(range(capacity + 2))
        self.ahead = Signal(range(capacity + 2))
        self.inside = Signal()
        self.value = Signal(WIDTH)
        seen = Signal()
        push, pop = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        enters = push & self.pick & ~seen
        leaves = pop & Mux(self.inside, self.ahead == 0, enters & (self.held == 0))
        m.d.sync += self.held.eq(self.held + push - pop)
        with m.If(self.inside & pop):
            m.d.sync += self.ahead.eq(self.ahead - 1)
        with m.If(enters):
            m.d.sync += [seen.eq(1), self.inside.eq(1), self.value.eq(dut.i.payload)]
            m.d.sync += self.ahead.eq(self.held - pop)
        with m.If(leaves):
            m.d.sync += self.inside.eq(0)
        # what a queue is: nothing from nowhere, no more than fits, and this payload in its turn
        proof.check(self.held <= capacity)
        proof.check(~pop | (self.held != 0) | push)
        proof.check(~self.inside | (self.ahead < self.held))
        proof.check(~leaves | (dut.o.payload == Mux(self.inside, self.value, dut.i.payload)))


@pytest.mark.parametrize(
    ("depth", "distributed"), [(2, True), (4, False), *slow((1, True), (3, True), (3, False), (4, True))]
)
def test_fifo_hands_on_every_payload_once_in_order(depth, distributed, tmp_path, monkeypatch):
    monkeypatch.setattr("fanin.hdl.stream.fifo.DISTRIBUTED_DEPTH", 64 if distributed else 0)
    fifo = StreamFIFO(shape=WIDTH, depth=depth)
    proof = Proof(fifo)
    tracked = Tracked(proof, depth)
    state = proof.internal
    # invariants: the state that the queue can be in
    proof.check(fifo.level == tracked.held)
    proof.check(state["valid"] == (tracked.held != 0))
    proof.check(state["has_stored"] == (tracked.held > 1))
    proof.check(state["writable"] == (tracked.held != depth))
    proof.check(fifo.o.valid == state["valid"])
    at_head = tracked.inside & (tracked.ahead == 0)
    proof.check(~at_head | (fifo.o.payload == tracked.value))
    if depth > 1:
        place, produce, consume = Signal(range(2 * depth)), state["produce"], state["consume"]
        stored = tracked.held - state["valid"]

        def wrap(value):
            return Mux(value >= depth, value - depth, value)

        proof.m.d.comb += place.eq(wrap(consume + tracked.ahead - 1))
        look = proof.inner.submodules.storage.read_port(domain="comb")
        proof.m.d.comb += look.addr.eq(place)
        proof.check((produce < depth) & (consume < depth))
        proof.check(produce == wrap(consume + stored))
        behind = tracked.inside & (tracked.ahead != 0)
        proof.check(~behind | (look.data == tracked.value))
    proof.prove(tmp_path, depth=2 * depth)


@pytest.mark.slow
def test_register_slice_hands_on_every_payload_once_in_order(tmp_path):
    dut = RegisterSlice(shape=WIDTH)
    proof = Proof(dut)
    tracked = Tracked(proof, 2)
    state = proof.internal
    proof.check(tracked.held == dut.o.valid + state["full"])
    proof.check(~state["full"] | dut.o.valid)
    proof.check(~(tracked.inside & (tracked.ahead == 0)) | (dut.o.payload == tracked.value))
    proof.check(~(tracked.inside & (tracked.ahead == 1)) | (state["skid"] == tracked.value))
    proof.prove(tmp_path, depth=4)


def test_skid_buffer_hands_on_every_payload_once_in_order(tmp_path):
    dut = SkidBuffer(shape=WIDTH)
    proof = Proof(dut)
    tracked = Tracked(proof, 1)
    state = proof.internal
    proof.check(tracked.held == state["full"])
    proof.check(~tracked.inside | (tracked.ahead == 0))
    proof.check(~tracked.inside | (state["skid"] == tracked.value))
    proof.prove(tmp_path, depth=4)
