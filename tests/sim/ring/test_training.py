"""Training on simulated ring nodes: bit for bit the golden model's, with every codec, fault and schedule."""

import functools

import numpy as np
import pytest

from fanin.codec.facts import Bfp, Inceptionn
from fanin.golden.mlp import Mlp
from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import DataParallel, Dataset, State, measure, train
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import Overlap, Schedule
from fanin.sim.ring.timed import Timed
from fanin.sim.ring.train_cosim import RingTrainingCosim, run_rtl
from fanin.sim.ring.training import Learning, RingTraining, references
from tests.support import slow

pytestmark = pytest.mark.verilator

NODES = 3
CODECS = {
    "none": None,
    "bfp": Bfp(),
    "inceptionn 2^-10": Inceptionn(bound=10, group=8),
    "inceptionn 2^-6": Inceptionn(bound=6, group=8),
}
FAULTS = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)


def job_of(codec=None, *, stops=None, schedule=None, **options):
    training = DataParallel(
        **{"network": Mlp((64, 24, 10)), "nodes": NODES, "batch": 64, "epochs": 1} | options
    )
    return RingTraining(
        training=training,
        config=RingConfig(lanes=8, frame_words=16, codec=codec),
        schedule=schedule or Schedule(),
        stops=stops or {},
    )


def data_of(job):
    return Dataset(job.training, *load_digits(0))


def run(job, state=None, **settings):
    state = state or State.initial(job.training)
    return run_rtl(job, data_of(job), state, **settings)


@pytest.mark.parametrize("name", ["none", "bfp", *slow("inceptionn 2^-10", "inceptionn 2^-6")])
def test_every_codec_trains_bit_for_bit(name):
    job = job_of(CODECS[name])
    outcome, golden = run(job), references(job, data_of(job))
    assert outcome.state.equals(golden.final)
    assert [epoch.measures for epoch in outcome.epochs] == golden.codec
    assert outcome.state.step == data_of(job).steps
    assert outcome.seconds > 0
    assert len(outcome.times[0].steps) == data_of(job).steps
    if CODECS[name]:  # the codec has been on the link
        assert not outcome.state.equals(references(job_of(), data_of(job)).final)


@pytest.mark.parametrize("name", ["none", "bfp", *slow("inceptionn 2^-10", "inceptionn 2^-6")])
def test_faults_on_every_link_change_no_bit(name):
    job = job_of(CODECS[name], seed=11)
    outcome = run(job, link=FAULTS)
    assert outcome.state.equals(references(job, data_of(job)).final)
    assert sum(counters["retransmitted"] for counters in outcome.counters) > 0
    assert sum(counters["bad_fcs"] for counters in outcome.counters) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("nodes", [4, 5, 6])
def test_more_nodes_train_bit_for_bit_over_a_bad_network(nodes, name):
    job = job_of(CODECS[name], nodes=nodes, batch=32)
    golden = references(job, data_of(job)).final
    for link in LinkConfig(), FAULTS:
        assert run(job, link=link).state.equals(golden)


def test_schedules_differ_in_time_alone():
    schedules = [Schedule(Overlap.NONE), Schedule(), Schedule(outstanding=8)]
    outcomes = [run(job_of(schedule=schedule)) for schedule in schedules]
    assert all(outcome.state.equals(outcomes[0].state) for outcome in outcomes)
    none, one, eight = (outcome.step_seconds for outcome in outcomes)
    assert eight < one < none


def test_a_run_goes_on_from_the_end_of_an_epoch():
    job = job_of(Bfp(), epochs=2)
    whole = run(job)
    rest = run(job, whole.epochs[0].state)
    assert [epoch.number for epoch in rest.epochs] == [2]
    assert rest.state.equals(whole.state)


def test_what_is_not_finite_is_named():
    job = job_of(rate=1e30)
    with pytest.raises(
        SimulationFailed, match=r"node \d, layer \d, step \d+: the gradient has values that are not"
    ):
        run(job)


def test_a_dead_node_is_named_and_ends_the_run():
    job = job_of(stops={1: 30e-6}, epochs=3)
    text = "node 1 has stopped answering: (node 0 gives up|its link is cut in) the all-reduce of layer"
    with pytest.raises(SimulationFailed, match=text):
        run(job)


class Wrong(Learning):
    """Node 2 updates nothing."""

    def workers(self, clock, report=None):
        workers = super().workers(clock, report)
        workers[2]._learner.update = lambda layer, total: None
        return workers


def test_replicas_that_differ_are_named():
    job = job_of()
    cosim = RingTrainingCosim(job.config, nodes=NODES)
    learners = functools.partial(Wrong, job, data_of(job), State.initial(job.training))
    with pytest.raises(SimulationFailed, match="node 2 has other weights than node 0 after step 0"):
        cosim.run(learners, job.training.network.counts)


def test_references_in_wider_numbers_are_near():
    job = job_of(epochs=3)
    found = references(job, data_of(job))
    alone = train(job.training, data_of(job), functools.partial(all_reduce, config=job.config))
    assert found.final.equals(alone)
    assert found.binary32[-1] == measure(job.training, data_of(job), alone.parameters)
    assert 0 < found.distance < 1e-4
    assert abs(found.binary64[-1].loss - found.binary32[-1].loss) < 1e-4
    with_codec = references(job_of(Inceptionn(bound=6, group=8), epochs=3), data_of(job))
    assert with_codec.binary32 == found.binary32
    assert with_codec.codec != found.codec
    assert np.isfinite(with_codec.distance)


def test_pcie_bounds_the_all_reduce():
    """8 Gb/s each way: a vector is read and written at that rate, which is far below link and lanes."""
    counts, seconds = [40_000], []  # many segments, so that reads and writes go side by side
    cosim = RingTrainingCosim(job_of().config, nodes=NODES)
    for pcie in (None, 8e9):
        timed = functools.partial(
            Timed, counts=counts, nodes=NODES, batch=1, profile=WorkerProfile(), schedule=Schedule()
        )
        found, _ = cosim.run(timed, counts, pcie=pcie)
        seconds.append(found.times[0].steps[0])
    free, bound = seconds
    transfer = 32 * counts[0] / 8e9
    assert free < 0.6 * transfer
    assert transfer < bound < 1.2 * transfer


def test_a_sum_that_is_not_the_golden_models_is_named():
    """The golden model has a codec that the nodes have not."""
    job = job_of()
    cosim = RingTrainingCosim(job.config, nodes=NODES)
    cosim.config = job_of(Bfp()).config
    learners = functools.partial(Learning, job, data_of(job), State.initial(job.training))
    text = r"node \d, layer 1, step 0: \d+ of 250 values of the sum are not the golden model's"
    with pytest.raises(SimulationFailed, match=text):
        cosim.run(learners, job.training.network.counts)
