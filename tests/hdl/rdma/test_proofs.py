# amaranth: UnusedElaboratable=no
"""Proof of the requester, by induction: no memory is read for a queue pair after its error completion."""

import pytest
from amaranth import Signal

from fanin.hdl.rdma import in_hand, requester
from fanin.hdl.rdma.event_choice import Event
from fanin.hdl.rdma.requester import Requester
from fanin.rdma.facts import Ending, RdmaConfig
from tests.formal import Proof

pytestmark = [pytest.mark.formal, pytest.mark.slow]
CONFIG = RdmaConfig(width=128, address_width=12, queue_pairs=2, descriptors=2, regions=2, buffer_words=514,
                    fetch_words=514)  # fmt: skip
BEFORE_THE_END = ("POST", "POSTED", "SEND", "CUT", "HAND ON", "CHECK", "ACCEPT", "ADVANCE", "COUNT", "COMPLETE",
                  "GO BACK")  # fmt: skip


def is_empty(row):
    """Whether a queue pair has no descriptor, and no packet in flight."""
    return (row.head == row.tail) & (row.send == row.tail) & (row.flight == 0)


class QueuePair:
    """One queue pair, whichever, and what the world has seen of it.

    ``failed``: a write completed with an error since it was connected. ``fresh``: nothing was posted since.
    ``read``: memory is read, or about to be, for a packet of it.
    """

    def __init__(self, proof):
        m, dut = proof.m, proof.component
        tables = proof.part("tables")
        self.number = proof.constant(1)
        self.failed, self.fresh, self.read = Signal(), Signal(), Signal()
        self.in_hand = tables.index == self.number
        self.row = tables.new_row  # in hand
        port = proof.inner.submodules.tables.submodules.rows.read_port(domain="comb")
        m.d.comb += port.addr.eq(self.number)
        self.stored = port.data
        taken = dut.fetch.valid & dut.fetch.ready
        # A payload that was asked for is read for a cycle or more; else nothing is read.
        proof.assume(dut.reading | ~proof.past(taken))
        proof.assume(~dut.reading | proof.past(taken | dut.reading))
        self.done = dut.completion.valid & (dut.completion.payload.index == self.number)
        error = self.done & (dut.completion.payload.ending != Ending.DONE)
        self.ends = error & (dut.completion.payload.ending != Ending.FLUSHED)
        self.error = error
        ours = dut.connect.payload.index == self.number
        connected = dut.connect.valid & dut.connect.ready & ours
        post = dut.post.valid & (dut.post.payload.index == self.number)
        # In the write queue, those of an earlier connection are before all others.
        proof.assume(~(post & dut.stale) | self.fresh)
        self.hands_on = dut.events.sent & self.in_hand
        with m.If(connected):
            m.d.sync += [self.failed.eq(0), self.fresh.eq(1)]
        with m.Elif(post & dut.post.ready & ~dut.stale):
            m.d.sync += self.fresh.eq(0)
        with m.If(self.ends & dut.completion.ready & ~connected):
            m.d.sync += self.failed.eq(1)
        with m.If(self.hands_on & proof.part("packet_cut").has_payload):
            m.d.sync += self.read.eq(1)
        with m.Elif(~dut.fetch.valid & ~dut.reading):
            m.d.sync += self.read.eq(0)


def test_no_memory_is_read_for_a_queue_pair_after_its_error_completion(tmp_path, monkeypatch):
    for module in in_hand, requester:
        monkeypatch.setattr(module, "QUEUE", 2)
    dut = Requester(config=CONFIG)
    proof = Proof(dut)
    pair, state = QueuePair(proof), proof.internal
    fsm = state["fsm_state"]
    codes = {fsm.decoder(code).partition("/")[0]: code for code in range(18)}

    def during(*names):
        return sum(fsm == codes[name] for name in names) != 0

    # What is promised:
    proof.check(~pair.hands_on | ~pair.failed)
    proof.check(~pair.error | ~pair.read)
    # What holds besides, so that it follows:
    row, stored, ours = pair.row, pair.stored, pair.in_hand
    sendable = state["sendable"].bit_select(pair.number, 1)
    ends = during("FLUSH", "CONFIGURE", "WRITE") & ours
    proof.check(fsm < len(codes))
    proof.check(~(during(*BEFORE_THE_END) & ours) | (row.enable == stored.enable))
    proof.check(~(during("SEND") & ours & state["still_valid"] | during("CUT", "HAND ON") & ours) | row.enable)
    proof.check(~sendable | stored.enable)
    proof.check(~pair.read | stored.enable)
    proof.check(~(during("FLUSH") & ours) | ~pair.read)
    proof.check(~(ends & ~row.enable) | ~pair.read)
    connects = state["event"] == Event.CONNECT
    proof.check(~during(*BEFORE_THE_END) | ~connects)
    failure = state["ending"] != Ending.FLUSHED
    proof.check(~during("POST", "POSTED") | ~failure)
    proof.check(~(during("DRAIN", "FLUSH") & failure) | ~row.enable & ~connects)
    proof.check(~pair.failed | ~stored.enable | ends)
    proof.check(~(pair.failed & ends) | ~row.enable | connects & during("FLUSH", "CONFIGURE"))
    proof.check(~(pair.failed & ours & during("DRAIN")) | ~row.enable | connects)
    proof.check(~during("CLEAR") | ~(pair.read | pair.failed | pair.fresh | sendable | row.as_value().any()))
    # a transfer waits until its event is carried out
    event, number = state["event"], proof.part("tables").index
    proof.check(~(during("IDLE") & proof.parts["choice"]["can_post"]) | dut.post.valid)
    proof.check(~during("POST", "POSTED") | (event == Event.POST))
    waits = dut.post.valid & (dut.post.payload.index == number)
    proof.check(~(during("READ", "POST") & (event == Event.POST)) | waits)
    waits = dut.connect.valid & (dut.connect.payload.index == number)
    proof.check(~(during("READ", "DRAIN", "FLUSH", "CONFIGURE") & (event == Event.CONNECT)) | waits)
    # a queue pair to which nothing was posted since it was connected has nothing to send, nor to read
    stale = during("POSTED", "FLUSH", "CONFIGURE", "WRITE") & ours
    sends = during("SEND") & state["still_valid"] | during("CUT", "HAND ON")
    proof.check(~(pair.fresh | during("CONFIGURE") & connects & ours) | ~pair.read)
    proof.check(~(pair.fresh & ~stale) | ~sendable & is_empty(stored))
    proof.check(~(pair.fresh & ours & during(*BEFORE_THE_END) & ~during("POSTED")) | is_empty(row))
    proof.check(~(pair.fresh & ours) | ~during("ADVANCE", "COUNT", "COMPLETE"))
    proof.check(~(pair.fresh & ours) | ~sends)
    proof.check(
        ~(pair.fresh | during("CONFIGURE") & connects) | ~(during("CONFIGURE", "WRITE") & ours) | is_empty(row)
    )
    proof.check(~(during("POSTED") & ours) | (state["stale"] == pair.fresh))
    proof.prove(tmp_path, depth=2, timeout=900)
