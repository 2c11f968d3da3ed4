"""Exchanges in groups in Verilator: bits and bytes of the golden model, and no job disturbs another."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import Bfp, Inceptionn
from fanin.link import LinkConfig
from fanin.ring.facts import PRESETS, RingConfig
from fanin.ring.golden import groups as golden
from fanin.ring.groups import Groups, Scheme, one_ring
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.ring.groups import GroupsCosim
from fanin.sim.ring.groups_time import GroupsTime
from fanin.sim.ring.rounds import JobSettings
from tests.support import new_seed

pytestmark = pytest.mark.verilator

LEVELS = list(product(Scheme, Scheme))
CODECS = {"none": None, "bfp": Bfp(), "inceptionn": Inceptionn(bound=10, group=8)}
#: Copies come so late that many find their node in another job; barriers are short.
BAD = LinkConfig(drop=0.02, duplicate=0.3, reorder=0.02, corrupt=0.02, late_ns=50_000)
JOBS = JobSettings(barrier=0.5e-6, timeout=1500)


def vectors(workers, count):
    return list(np.random.default_rng(new_seed()).normal(0, 0.01, (workers, count)).astype(np.float32))


def check(cosim, plan, given, run):
    """Bits of every worker, and the bytes of every round; what the links carried besides is control frames."""
    expected = golden.exchange(given, cosim.config, plan)
    assert [values.tobytes() for values in run.sums] == [expected.tobytes()] * plan.workers
    sizes = golden.data_bytes(given, cosim.config, plan)
    assert [each.data_bytes for each in run.rounds] == sizes


def check_links(run):
    """Without faults: what the links carried besides the DATA frames is control frames, of 64 bytes."""
    assert sum(counters["retransmitted"] for counters in run.counters) == 0
    data = sum(counters["sent"] for counters in run.counters)
    frames, carried = (sum(link["up"][name] for link in run.raw.links) for name in ("frames", "bytes"))
    assert carried - sum(each.data_bytes for each in run.rounds) == 64 * (frames - data)


@pytest.fixture(scope="module")
def small():
    return GroupsCosim(
        PRESETS["tiny"], nodes=Groups(2, 2, Scheme.AGGREGATOR, Scheme.AGGREGATOR).nodes, quiet=True
    )


@pytest.mark.parametrize("levels", LEVELS)
def test_each_shape_has_the_bits_and_bytes_of_its_golden_model(small, levels):
    plan, given = Groups(2, 2, *levels).plan, vectors(4, 300)
    run = small.exchange(given, plan)
    check(small, plan, given, run)
    check_links(run)


@pytest.mark.parametrize("levels", LEVELS)
def test_frames_of_old_jobs_do_not_enter_new_ones(small, levels):
    plan, given, seed = Groups(2, 2, *levels).plan, vectors(4, 300), new_seed()
    run = small.exchange(given, plan, link=BAD, jobs=JOBS, seed=seed)
    check(small, plan, given, run)
    assert sum(counters["retransmitted"] for counters in run.counters) > 0
    assert sum(counters["foreign"] for counters in run.counters) > 0


def test_a_barrier_passes_before_each_round(small):
    plan, given = Groups(2, 2).plan, vectors(4, 300)
    seconds = [
        small.exchange(given, plan, jobs=JobSettings(barrier=barrier)).seconds for barrier in (10e-6, 30e-6)
    ]
    assert seconds[1] - seconds[0] == pytest.approx(3 * 20e-6, rel=0.01)


def test_a_node_that_is_silent_is_named(small):
    with pytest.raises(
        SimulationFailed,
        match=r"node \d has stopped answering: node \d gives up round 0 \(groups, up\) of the exchange",
    ):
        small.exchange(
            vectors(4, 10),
            Groups(2, 2).plan,
            link=LinkConfig(drop=1.0),
            jobs=JobSettings(timeout=100, retries=3),
        )


def test_vectors_and_plans_that_do_not_fit_are_refused(small):
    plan = Groups(2, 2).plan
    with pytest.raises(ValueError, match=r"vectors must be 4 of one length, at least 1, not 3 of \[8\]"):
        small.exchange(vectors(3, 8), plan)
    with pytest.raises(ValueError, match=r"not 4 of \[0\]"):
        small.exchange(vectors(4, 0), plan)
    with pytest.raises(ValueError, match="plan must have at most 7 nodes, not 16"):
        small.exchange(vectors(16, 8), Groups(4, 4).plan)
    with pytest.raises(ValueError, match=r"barrier must be at least 0 seconds, not -1"):
        JobSettings(barrier=-1)
    with pytest.raises(InputError, match="nodes must be 2 to 255, not 1"):
        GroupsCosim(PRESETS["tiny"], nodes=1)


@pytest.fixture(scope="module", params=CODECS)
def large(request):
    config = replace(PRESETS["tiny"], codec=CODECS[request.param])
    return GroupsCosim(config, nodes=Groups(4, 4, Scheme.AGGREGATOR, Scheme.AGGREGATOR).nodes, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize("levels", LEVELS)
def test_4x4_nodes_equal_their_golden_model(large, levels):
    plan, given = Groups(4, 4, *levels).plan, vectors(16, 1000)
    run = large.exchange(given, plan)
    check(large, plan, given, run)
    check_links(run)


@pytest.mark.slow
@pytest.mark.parametrize("levels", LEVELS)
def test_4x4_nodes_equal_it_on_bad_links(large, levels):
    plan, given, seed = Groups(4, 4, *levels).plan, vectors(16, 300), new_seed()
    run = large.exchange(given, plan, link=BAD, jobs=JOBS, seed=seed)
    check(large, plan, given, run)
    assert sum(counters["foreign"] for counters in run.counters) > 0


@pytest.mark.slow
def test_time_is_that_of_the_model():
    """With slices that are longer than a hop, which the presets for tests are not."""
    config = RingConfig(lanes=8, frame_words=16, slice_frames=20, buffer_frames=32, replay_frames=32)
    cosim, given = GroupsCosim(config, nodes=5, quiet=True), vectors(4, 1 << 15)
    for plan in Groups(2, 2).plan, Groups(2, 2, above=Scheme.AGGREGATOR).plan, one_ring(4):
        run = cosim.exchange(given, plan)
        model = GroupsTime(config=config, plan=plan, count=1 << 15)
        assert run.seconds == pytest.approx(model.total, rel=0.03)
        assert [each.seconds for each in run.rounds] == pytest.approx(model.rounds, rel=0.05)
