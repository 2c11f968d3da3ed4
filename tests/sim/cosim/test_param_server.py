"""Asynchronous training on RTL NICs and servers: every row is the golden one, whatever the network does."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fanin.errors import InputError
from fanin.sim.cosim.param_server import ParamServerCosim, run_rtl
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.golden.param_server import ParameterServer
from fanin.sim.models.learning import NoTraining, Training
from fanin.sim.models.wild import Algorithm, Job
from fanin.sim.models.wild_costs import DESIGN, Compute
from fanin.sim.models.workloads import build, load
from fanin.sim.network import LinkConfig
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator
BAD = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
JOB = Job(workers=3, rate=1.0, compute=Compute(per_sample=5e-7, jitter=0.2), costs=DESIGN)


@pytest.fixture(scope="module")
def hardware():
    """As many servers as any test needs; words of 128 bits, which are built and run sooner."""
    return ParamServerCosim(workers=3, servers=2, width=128, quiet=True)


class Random:
    """Gradients of random values, with special ones among them."""

    def __init__(self, parameters, batches):
        self.parameters, self.batches = parameters, batches

    def initial(self):
        return np.random.default_rng(1).normal(size=self.parameters).astype(np.float32)

    def gradient(self, worker, index, w):
        rng = np.random.default_rng((worker, index))
        values = rng.normal(size=w.size).astype(np.float32)
        special = np.array([0, -0.0, 1e-40, -1e-42, 3e38, np.inf, -np.inf, np.nan], np.float32)
        where = rng.choice(w.size, size=4, replace=False)
        values[where] = rng.choice(special, size=4)
        return values

    def measure(self, w):
        return None


@pytest.mark.parametrize(("slots", "servers"), [(2, 2), *slow((1, 1), (3, 1))])
@pytest.mark.parametrize("link", [LinkConfig(), BAD], ids=["good links", "bad links"])
def test_every_gradient_is_applied_once_and_every_row_is_the_golden_servers(hardware, link, slots, servers):
    job = replace(JOB, slots=slots, servers=servers, seed=new_seed())
    run = hardware.run(job, Random(parameters=170, batches=6), link=link, mtu=256)
    tally = run.outcome.tally
    assert (tally.pushed, tally.lost, tally.repeated) == (3 * 6 * servers, 0, 0)
    counts = Counter((update.shard, update.worker, update.version) for update in run.updates)
    assert set(counts.values()) == {1}
    assert len(counts) == tally.applied == tally.pushed
    assert run.outcome.w.shape == (170,)


def test_a_server_that_adds_wrong_is_found_out(hardware, monkeypatch, tmp_path):
    """The golden server is compared with: one that has another step differs in the first row."""
    job = replace(JOB, seed=1)
    learner = WrongRate(parameters=170, batches=2)
    with pytest.raises(SimulationFailed, match=r"server 0, version 1 .* the row differs"):
        hardware.run(job, learner)


class WrongRate(Random):
    """Has the golden server of the simulator's process learn at another rate."""

    def gradient(self, worker, index, w):
        ParameterServer.push = _push_of_another
        return super().gradient(worker, index, w)


_push = ParameterServer.push


def _push_of_another(self, worker):
    self.row.w[0] += 1
    return _push(self, worker)


def test_digits_are_learnt_and_idle_time_is_skipped(hardware):
    workload = build("lr", load(None, 0), decay=1e-4, seed=0)
    learner = Training(workload, workers=3, batch=64, seed=0)
    slow = Compute(per_sample=1e-4, jitter=0.1)  # 6.4 ms a gradient: 1.6 million cycles
    run = hardware.run(replace(JOB, batch=64, epochs=2, compute=slow), learner)
    assert run.outcome.epochs[-1].measures.accuracy > 0.8
    assert len(run.outcome.epochs) == 2
    assert run.outcome.seconds > 2 * learner.batches * 6e-3
    assert run.raw.cycles < 400_000


def test_a_worker_that_stops_is_left_alone(hardware):
    job = replace(JOB, stops={1: 20e-6})
    run = hardware.run(job, Random(parameters=170, batches=12))
    assert run.outcome.stopped == (1,)
    done = Counter(update.worker for update in run.updates)
    assert done[0] == done[2] == 12
    assert 0 < done[1] < 12
    assert run.outcome.tally.lost == 0


def test_what_does_not_fit_is_refused(hardware):
    with pytest.raises(ValueError, match="workers must be at most 3, as built, not 4"):
        hardware.run(replace(JOB, workers=4), NoTraining(100, 1))
    with pytest.raises(ValueError, match="slots must be 1 to 8, not 9"):
        hardware.run(replace(JOB, slots=9), NoTraining(100, 1))
    with pytest.raises(InputError, match="workers must be 1 to 64"):
        ParamServerCosim(workers=65)
    with pytest.raises(InputError, match="servers must be 1 to 8"):
        ParamServerCosim(workers=2, servers=9)
    with pytest.raises(InputError, match="sync"):
        run_rtl(replace(JOB, algorithm=Algorithm.SYNC), NoTraining(100, 1))
