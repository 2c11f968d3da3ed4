# amaranth: UnusedElaboratable=no
"""Proofs of the AXI4 masters, whatever the memory answers and when: by induction, with small parameters."""

import pytest
from amaranth import Mux, Signal, Value

from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.bus.axi_writer import AxiWriter
from tests.formal import Proof
from tests.hdl.stream import invariants

pytestmark = pytest.mark.formal
BURST = 4  # words; a block is one burst that is aligned, and 4 KiB are a whole number of blocks
WORD_BITS = 0  # of a byte's place in a word: words are bytes here, which no arithmetic of the masters sees
BURST_BITS = 2
COUNT_BITS = 5
IDLE, ADD, MEASURE, RUN = range(4)  # states of the splitter


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Short commands: the solver sees every carry that they can have."""
    for module in "axi_reader", "axi_writer":
        monkeypatch.setattr(f"fanin.hdl.bus.{module}.COUNT_BITS", COUNT_BITS)
    monkeypatch.setattr("fanin.hdl.bus.axi_writer._ADDRESS_LEAD", 2)


def in_block(address, length):
    """A burst of ``length`` + 1 words from ``address`` on ends in the block in which it begins."""
    return address[:BURST_BITS] + length < BURST


def burst_in_block(burst):
    return in_block(burst.address, burst.length)


def splitter_invariants(proof, splitter, state):
    """What is still to be counted off belongs to the command that is kept."""
    command = splitter.command.payload.shape()(state["command"])
    start = command.address[:BURST_BITS]
    run_end, blocks_left, first_blocks_left = (
        state[name] for name in ("run_end", "blocks_left", "first_blocks_left")
    )
    fsm = state["fsm_state"]
    proof.check(fsm <= RUN)
    ended = (fsm == MEASURE) | (fsm == RUN)
    proof.check(~ended | (run_end == start + command.beats))
    running = fsm == RUN
    proof.check(~running | (command.beats != 0))
    proof.check(~running | (state["last_position"] == (run_end - 1)[:BURST_BITS]))
    proof.check(~running | (first_blocks_left == (run_end - (BURST + 1))[BURST_BITS:].as_signed()))
    proof.check(~(running & state["is_first"]) | (blocks_left == first_blocks_left))
    proof.check(~(fsm == MEASURE) | (state["empty"] == ((command.beats == 0) | ((command.repeats == 0) << 1))))
    proof.check(~splitter.o.valid | burst_in_block(splitter.o.payload))


def holds_until(proof, valid, ready, *payload):
    """What a master offers it neither withdraws nor changes."""
    waiting = proof.past(valid & ~ready)
    proof.check(~waiting | valid)
    for value in payload:
        proof.check(~waiting | (Value.cast(value) == proof.past(value)))


def counter(proof, name, *, up, down, bits=8):
    value = Signal(bits, name=name)
    proof.m.d.sync += value.eq(value + up - down)
    return value


def test_a_reader_asks_for_no_more_than_it_has_room_for_and_crosses_no_block(tmp_path):
    """Each word that was asked for finds a place in the FIFO; not busy means that none is to come."""
    depth, outstanding = 2 * BURST + 1, 2
    proof = Proof(
        AxiReader(data_width=8, address_width=12, burst=BURST, outstanding=outstanding, fifo_depth=depth)
    )
    dut, state, axi = proof.component, proof.internal, proof.component.axi
    splitter, bursts, fifo = (proof.part(name) for name in ("splitter", "bursts", "fifo"))
    asked = axi.arvalid & axi.arready
    # memory owes so many words in so many bursts; it answers with what it owes, and each burst has a last word
    words = counter(proof, "words", up=Mux(asked, axi.arlen + 1, 0), down=axi.rvalid)
    owed = counter(proof, "owed", up=asked, down=axi.rvalid & axi.rlast)
    proof.assume(~axi.rvalid | ((words != 0) & (Mux(axi.rlast, owed - 1, owed) <= words - 1)))
    proof.assume(~(axi.rvalid & axi.rlast & (owed == 1)) | (words == 1))
    proof.check((owed <= words) & ((owed != 0) | (words == 0)))

    proof.check(~axi.arvalid | in_block(axi.araddr, axi.arlen))
    holds_until(proof, axi.arvalid, axi.arready, axi.araddr, axi.arlen)
    proof.check(~axi.rvalid | fifo.i.ready)
    proof.check(dut.busy | ((words == 0) & ~axi.arvalid & (fifo.level == 0)))
    proof.check(owed + axi.arvalid <= outstanding)

    splitter_invariants(proof, splitter, proof.parts["splitter"])
    invariants.of_slice(proof, bursts, proof.parts["bursts"], burst_in_block)
    invariants.of_fifo(proof, fifo, proof.parts["fifo"])
    claimed = words + Mux(axi.arvalid, axi.arlen + 1, 0)
    proof.check(state["free_words"] + state["word_sent"] + fifo.level + claimed == depth)
    proof.check(~state["has_room"] | (state["free_words"] >= BURST))
    proof.check(state["in_flight"] == owed + axi.arvalid)
    proof.check(state["may_issue"] == (state["in_flight"] != outstanding))
    idle = (proof.parts["splitter"]["fsm_state"] == IDLE) & ~splitter.o.valid & ~bursts.o.valid
    proof.check(dut.busy | idle)
    proof.prove(tmp_path, depth=2)


def test_a_writer_finds_the_burst_of_every_response_and_crosses_no_block(tmp_path):
    """As many responses as bursts, as many last words as addresses; not busy means that none is to come."""
    outstanding = 4  # more than lengths fit, so that either queue can be the one that is full
    proof = Proof(AxiWriter(data_width=8, address_width=12, burst=BURST, outstanding=outstanding))
    dut, state, axi = proof.component, proof.internal, proof.component.axi
    splitter, bursts, lengths, awaited = (
        proof.part(name) for name in ("splitter", "bursts", "lengths", "awaited")
    )
    # a slave answers a burst whose address and last word it has taken
    addresses = counter(proof, "addresses", up=axi.awvalid & axi.awready, down=axi.bvalid)
    complete = counter(proof, "complete", up=axi.wvalid & axi.wready & axi.wlast, down=axi.bvalid)
    proof.assume(~axi.bvalid | ((addresses != 0) & (complete != 0)))

    proof.check(~axi.awvalid | in_block(axi.awaddr, axi.awlen))
    holds_until(proof, axi.awvalid, axi.awready, axi.awaddr, axi.awlen)
    holds_until(proof, axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast)
    proof.check(~axi.bvalid | awaited.o.valid)
    proof.check(dut.busy | ((addresses == 0) & (complete == 0) & ~axi.awvalid & ~axi.wvalid))
    proof.check(awaited.level <= outstanding)

    splitter_invariants(proof, splitter, proof.parts["splitter"])
    invariants.of_slice(proof, bursts, proof.parts["bursts"], burst_in_block)
    invariants.of_fifo(proof, lengths, proof.parts["lengths"])
    invariants.of_fifo(proof, awaited, proof.parts["awaited"])
    proof.check(awaited.level == addresses + axi.awvalid)
    proof.check(awaited.level == lengths.level + complete + (axi.wvalid & axi.wlast))
    proof.check(state["beat"] <= Mux(lengths.level != 0, lengths.o.payload, 0))
    proof.check(~axi.wvalid | axi.wlast | (state["beat"] != 0))
    idle = (proof.parts["splitter"]["fsm_state"] == IDLE) & ~splitter.o.valid & ~bursts.o.valid
    proof.check(dut.busy | (idle & (awaited.level == 0)))
    proof.prove(tmp_path, depth=2)
