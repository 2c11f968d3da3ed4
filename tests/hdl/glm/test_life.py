# amaranth: UnusedElaboratable=no
"""One node, many jobs: after whatever happened to it, a clean job gives the golden bits."""

import pytest

from fanin.glm import PRESETS, Partitioning
from tests.hdl.glm.life import Life, narrow
from tests.support import new_seed

TINY = PRESETS["tiny"]
NODES = {
    "model-parallel": narrow(TINY, engines=2),
    "a board's": narrow(TINY, label_width=32, mac_width=32, compact=True),
    "data-parallel": narrow(TINY, lanes=8, engines=2, mode=Partitioning.DATA_PARALLEL),
    "vanilla": narrow(TINY, vanilla=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(NODES))
def test_a_clean_job_is_golden_after_any_other_life(kind):
    life = Life(NODES[kind], new_seed(), steps=150).run()
    assert life.clean > 5
