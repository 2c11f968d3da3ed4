# amaranth: UnusedElaboratable=no
"""Whole rings of small nodes against the golden model: memories, links, registers and hosts included."""

import pytest

from fanin.ring import PRESETS
from tests.hdl.ring.bench import Ring, vectors
from tests.support import new_seed

TINY = PRESETS["tiny"]


def ring(counts, nodes, *, config=TINY, **options):
    seed = new_seed()
    return Ring(config, nodes, vectors(counts, nodes, config, seed), seed, **options)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_all_nodes_end_with_the_sum_and_nothing_else_changes(nodes):
    whole = TINY.lanes * TINY.slice_words * nodes
    run = ring([2 * whole + 5, 1, 8 * nodes + 3], nodes).run()
    assert [status.failed for status in run.status] == [False] * nodes
    run.check()
