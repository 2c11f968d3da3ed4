"""A parameter server lives: after any prefix the next job's rows are the golden server's."""

import pytest

from fanin.rdma.facts import PRESETS
from tests.hdl.param_server.life import LifeBench
from tests.support import new_seed

TINY = PRESETS["tiny"]


def live(*, jobs, seed, **options):
    bench = LifeBench(TINY, seed=seed, jobs=jobs, **options).live()
    print(sorted(bench.seen.items()))
    return bench


def test_any_life_leaves_golden_rows():
    live(jobs=2, seed=new_seed(), largest=8, patience=20, limit=8_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"stall": 0.2, "back": 0.1}, {"stall": 0.3, "late": 0.1, "errors": 0.01}], ids=str
)
@pytest.mark.parametrize("patience", [20, 400])
def test_long_lives_leave_golden_rows(options, patience):
    live(jobs=60, seed=new_seed(), patience=patience, limit=20_000, **options)
