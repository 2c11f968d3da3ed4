# amaranth: UnusedElaboratable=no
"""The proof harness: what can fail must fail, soon or late."""

import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tests.formal import Proof

pytestmark = pytest.mark.formal


class _Counter(wiring.Component):
    """Counts enabled cycles up to 10, and stays there."""

    enable: In(1)
    count: Out(8)

    def elaborate(self, platform):
        m = Module()
        limit = Signal(8)
        m.d.comb += limit.eq(10)
        with m.If(self.enable & (self.count < limit)):
            m.d.sync += self.count.eq(self.count + 1)
        return m


class _Withdraws(wiring.Component):
    o: Out(stream.Signature(4))

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [self.o.valid.eq(~self.o.valid), self.o.payload.eq(self.o.payload + 1)]
        return m


def test_what_holds_is_proved_beyond_the_bound(tmp_path):
    proof = Proof(_Counter())
    proof.check(proof.component.count <= proof.internal["limit"])
    proof.prove(tmp_path, depth=3)


def test_what_fails_within_the_bound_is_refuted(tmp_path):
    proof = Proof(_Counter())
    proof.check(proof.component.count < 5)
    with pytest.raises(AssertionError, match=r"(?s)Checking assertions in step 5.*Assert failed"):
        proof.prove(tmp_path, depth=7, induction=False)


def test_what_fails_beyond_the_bound_is_refuted_by_induction(tmp_path):
    proof = Proof(_Counter())
    proof.check(proof.component.count < 9)
    with pytest.raises(AssertionError, match="Temporal induction failed"):
        proof.prove(tmp_path, depth=3)


@pytest.mark.slow
def test_an_assumption_holds_the_inputs(tmp_path):
    proof = Proof(_Counter())
    proof.assume(~proof.component.enable)
    proof.check(proof.component.count == 0)
    proof.prove(tmp_path, depth=3)


def test_the_stream_contract_is_asserted_of_outputs(tmp_path):
    with pytest.raises(AssertionError, match="Assert failed"):
        Proof(_Withdraws()).prove(tmp_path, depth=5)


def test_a_proof_of_nothing_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match="assert"):
        Proof(_Counter()).prove(tmp_path, depth=3)
