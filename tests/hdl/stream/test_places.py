# amaranth: UnusedElaboratable=no
"""Credits of a pipeline that never waits: as many payloads enter as the queue behind it has places for."""

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.places import places
from tests.formal import Proof
from tests.hdl.stream import invariants
from tests.support import simulate, slow


class Pipeline(wiring.Component):
    """``stages`` registers that never wait, and a queue of ``depth`` behind them."""

    def __init__(self, *, stages, depth):
        self.stages, self.depth = stages, depth
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = StreamFIFO(shape=8, depth=self.depth)
        enter = self.i.valid & self.i.ready
        m.d.comb += [
            self.i.ready.eq(places(m, self.depth, enter, self.o.valid & self.o.ready)),
            fifo.i.valid.eq(delayed(m, enter, self.stages, name="enter")[-1]),
            fifo.i.payload.eq(delayed(m, self.i.payload, self.stages, name="payload")[-1]),
        ]
        connect_typed(m, fifo.o, wiring.flipped(self.o))
        return m


@pytest.mark.parametrize(("stages", "depth"), [(1, 1), (1, 2), (3, 4), (5, 16), (12, 16)])
def test_nothing_is_lost_however_the_sides_pause(stages, depth):
    items = [n % 256 for n in range(300)]
    log = simulate(Pipeline(stages=stages, depth=depth), drive={"i": items}, collect={"o": 300})
    assert [item for _, item in log["o"]] == items


@pytest.mark.parametrize(("stages", "depth"), [(1, 1), (3, 4), (5, 16)])
def test_exactly_as_many_enter_as_there_are_places(stages, depth):
    simulate(Pipeline(stages=stages, depth=depth), drive={"i": [0] * depth}, stall=0)
    with pytest.raises(AssertionError, match="'i': 1"):
        simulate(Pipeline(stages=stages, depth=depth), drive={"i": [0] * (depth + 1)}, stall=0, limit=100)


def test_one_a_cycle_if_the_places_cover_the_way():
    """A place comes back 1 cycle after its payload has left: ``stages`` + 2 of them cover the way."""
    for depth, pauses in ((6, False), (5, True)):
        log = simulate(Pipeline(stages=4, depth=depth), drive={"i": [0] * 60}, collect={"o": 60}, stall=0)
        cycles = [cycle for cycle, _ in log["i"]]
        assert (cycles != list(range(60))) == pauses


@pytest.mark.formal
@pytest.mark.parametrize("depth", [3, *slow(1, 2, 4)])
def test_the_queue_is_never_offered_what_it_has_no_place_for(depth, tmp_path):
    """Induction: every place is free, in the queue, or claimed by a payload on its way there."""
    proof = Proof(Pipeline(stages=2, depth=depth))
    state, fifo = proof.internal, proof.part("fifo")
    on_the_way = state["enter_1"] + state["enter_2"]
    proof.check(state["free"] + fifo.level + on_the_way == depth)
    proof.check(state["has_place"] == (state["free"] != 0))
    proof.check(~fifo.i.valid | fifo.i.ready)
    invariants.of_fifo(proof, fifo, proof.parts["fifo"])
    proof.prove(tmp_path, depth=3)
