# amaranth: UnusedElaboratable=no
"""Credits: beside a counter in Python, proved for ever, and in front of a pipeline that never waits."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from tests.formal import Proof
from tests.hdl.stream import invariants
from tests.support import new_seed, resolve, simulate, slow


class Pipeline(wiring.Component):
    """``stages`` registers that never wait, and after them a queue of ``depth``: a credit for each place."""

    def __init__(self, *, stages, depth):
        self.stages, self.depth = stages, depth
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = StreamFIFO(shape=8, depth=self.depth)
        m.submodules.credits = credits = Credits(limit=self.depth, full=True)
        enter = self.i.valid & self.i.ready
        m.d.comb += [
            self.i.ready.eq(credits.ok),
            credits.take.eq(enter),
            credits.give.eq(self.o.valid & self.o.ready),
            fifo.i.valid.eq(delayed(m, enter, self.stages, name="enter")[-1]),
            fifo.i.payload.eq(delayed(m, self.i.payload, self.stages, name="payload")[-1]),
        ]
        connect_typed(m, fifo.o, wiring.flipped(self.o))
        return m


@pytest.mark.parametrize("full", [False, True])
def test_credits_count_and_answer_in_the_next_cycle(full):
    seed = new_seed()
    rng = random.Random(seed)
    dut = Credits(limit=5, full=full)
    done = []

    async def process(ctx):
        expected = 5 * full
        for _ in range(1500):
            assert ctx.get(dut.ok) == (expected > 0)
            assert ctx.get(dut.several) == (expected > 1)
            assert ctx.get(dut.count) == expected
            restart = rng.random() < 0.01
            initial = rng.randint(0, 5)
            take = expected > 0 and rng.random() < 0.6
            give = expected < 5 and rng.random() < rng.choice([0.2, 0.9])
            for name, value in {"restart": restart, "initial": initial, "take": take, "give": give}.items():
                ctx.set(resolve(dut, name), value)
            expected = initial if restart else expected + give - take
            await ctx.tick()
        done.append(True)

    simulate(dut, processes=[process], idle=1510)
    assert done


@pytest.mark.parametrize("limit", [0, -1, 1.5])
def test_bad_parameters_are_named(limit):
    with pytest.raises(ValueError, match=f"limit must be at least 1, not {limit}"):
        Credits(limit=limit)


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


def test_one_a_cycle_if_the_credits_cover_the_way():
    """A credit comes back 1 cycle after its payload has left: ``stages`` + 2 of them cover the way."""
    for depth, pauses in ((6, False), (5, True)):
        log = simulate(Pipeline(stages=4, depth=depth), drive={"i": [0] * 60}, collect={"o": 60}, stall=0)
        cycles = [cycle for cycle, _ in log["i"]]
        assert (cycles != list(range(60))) == pauses


@pytest.mark.formal
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("limit", [3, *slow(1, 2, 4)])
def test_the_flags_are_those_of_the_count_for_ever(limit, full, tmp_path):
    """Induction, if used as the docstring says: no take without a credit, no give beyond the limit."""
    proof = Proof(Credits(limit=limit, full=full))
    credits = proof.component
    held = Signal(range(limit + 1), init=limit if full else 0)
    with proof.m.If(credits.restart):
        proof.m.d.sync += held.eq(credits.initial)
    with proof.m.Else():
        proof.m.d.sync += held.eq(held + credits.give - credits.take)
    proof.assume(credits.initial <= limit)
    proof.assume(~credits.take | credits.ok)
    proof.assume(~credits.give | (held < limit) | credits.take)
    proof.check(credits.count == held)
    proof.check(held <= limit)
    proof.check(credits.ok == (held > 0))
    proof.check(credits.several == (held > 1))
    proof.prove(tmp_path, depth=2)


@pytest.mark.formal
@pytest.mark.parametrize("depth", [3, *slow(1, 2, 4)])
def test_the_queue_is_never_offered_what_it_has_no_place_for(depth, tmp_path):
    """Induction: every place has a credit, is taken in the queue, or by a payload on its way there."""
    proof = Proof(Pipeline(stages=2, depth=depth))
    state, fifo, credits = proof.internal, proof.part("fifo"), proof.part("credits")
    on_the_way = state["enter_1"] + state["enter_2"]
    proof.check(credits.count + fifo.level + on_the_way == depth)
    proof.check(credits.ok == (credits.count != 0))
    proof.check(credits.several == (credits.count > 1))
    proof.check(~fifo.i.valid | fifo.i.ready)
    invariants.of_fifo(proof, fifo, proof.parts["fifo"])
    proof.prove(tmp_path, depth=3)
