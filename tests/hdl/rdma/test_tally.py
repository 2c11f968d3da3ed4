# amaranth: UnusedElaboratable=no
"""Proof of Tally: it says whether there are any, for ever, if used as its docstring says."""

import pytest
from amaranth import Signal

from fanin.hdl.rdma.tally import Tally
from tests.formal import Proof
from tests.support import slow

pytestmark = pytest.mark.formal


@pytest.mark.parametrize("limit", [3, *slow(1, 2, 4)])
def test_there_are_some_exactly_while_more_came_than_went(limit, tmp_path):
    proof = Proof(Tally(limit=limit))
    tally = proof.component
    held = Signal(range(limit + 1))
    proof.m.d.sync += held.eq(held + tally.up - tally.down)
    proof.assume(~tally.down | tally.some)
    proof.assume(~tally.up | (held < limit))
    proof.check(held <= limit)
    proof.check(tally.some == (held != 0))
    proof.check(proof.internal["count"] == held)
    proof.prove(tmp_path, depth=2)
