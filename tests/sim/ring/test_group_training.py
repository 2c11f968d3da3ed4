"""Training in groups on simulated ring nodes: bit for bit the golden model's; a dead node is named."""

from dataclasses import replace

import pytest

from fanin.codec.facts import Bfp, Inceptionn
from fanin.evaluation.models.smart_nic_paper import fitted
from fanin.golden.mlp import Mlp
from fanin.link import LinkConfig
from fanin.ring.facts import PRESETS
from fanin.ring.groups import Groups, Scheme
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import DataParallel, Dataset, State
from fanin.sim.ring.groups_time import exchange_seconds
from fanin.sim.ring.model import on_cores, run_model
from fanin.sim.ring.schedule import Overlap, Schedule
from fanin.sim.ring.train_cosim import run_rtl
from fanin.sim.ring.training import RingTraining, references
from tests.support import slow

RINGS = Groups(2, 2)
TREE = Groups(2, 2, Scheme.AGGREGATOR, Scheme.AGGREGATOR)
BAD = LinkConfig(drop=0.02, duplicate=0.1, reorder=0.02, corrupt=0.02)


def job_of(groups=RINGS, *, codec=None, epochs=1, batch=128, **options):
    training = DataParallel(network=Mlp((64, 12, 10)), nodes=groups.workers, batch=batch, epochs=epochs, seed=3)
    return RingTraining(
        training=training, config=replace(PRESETS["tiny"], codec=codec), groups=groups, barrier=1e-6, **options
    )


def data_of(job):
    return Dataset(job.training, *load_digits(0))


def run(job, **settings):
    return run_rtl(job, data_of(job), State.initial(job.training), **settings)


def check(job, outcome):
    assert outcome.state.equals(references(job, data_of(job)).final)
    assert outcome.state.step == job.training.epochs * data_of(job).steps


@pytest.mark.verilator
def test_schedules_differ_in_time_alone():
    jobs = [
        job_of(schedule=schedule) for schedule in (Schedule(Overlap.NONE), Schedule(), Schedule(outstanding=2))
    ]
    outcomes = [run(job) for job in jobs]
    for job, outcome in zip(jobs, outcomes, strict=True):
        check(job, outcome)
    none, one, two = (outcome.step_seconds for outcome in outcomes)
    assert two <= one < none
    assert [each.level for each in outcomes[0].rounds] == ["groups, up", "above", "groups, down"]
    assert all(each.data_bytes > 0 and each.seconds > 0 for each in outcomes[0].rounds)


@pytest.mark.verilator
@pytest.mark.parametrize(
    ("groups", "codec"),
    slow(
        (RINGS, Inceptionn(bound=10, group=8)),
        (Groups(2, 2, above=Scheme.AGGREGATOR), Bfp()),
        (TREE, None),
        (Groups(4, 4), None),
    ),
    ids=lambda value: str(value).partition("(")[0],
)
def test_faults_on_every_link_change_no_bit(groups, codec):
    job = job_of(groups, codec=codec, batch=64)
    outcome = run(job, link=BAD)
    check(job, outcome)
    assert sum(counters["retransmitted"] for counters in outcome.counters) > 0


@pytest.mark.slow
@pytest.mark.verilator
def test_numbers_of_jobs_come_back_after_256_rounds():
    job = job_of(batch=16, epochs=3)
    assert 3 * 2 * job.training.epochs * data_of(job).steps > 256
    check(job, run(job))


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("node", [1, 4, 6])
def test_a_dead_node_is_named_and_ends_the_run(node):
    """Nodes 4 and 5 are the groups' aggregators, node 6 is above. Of a cut link's two ends one is alive."""
    with pytest.raises(
        SimulationFailed,
        match=rf"node {node} has stopped answering: (node \d gives up|the other hosts wait for it after) "
        r"round \d+ \((groups|above), (up|down)\) of the all-reduce of layer \d, step \d",
    ):
        run(job_of(TREE, stops={node: 30e-6}, epochs=3))


def test_a_model_of_it_has_the_same_bits():
    job = job_of(Groups(4, 4, above=Scheme.AGGREGATOR), batch=32)
    data = data_of(job)
    seconds = exchange_seconds(job.config, job.groups.plan, LinkConfig(), barrier=job.barrier)
    outcome = run_model(job, data, State.initial(job.training), seconds=seconds)
    assert outcome.state.equals(references(job, data).final)
    assert not outcome.state.equals(references(replace(job, groups=None), data).final)
    assert seconds(1000) > 10 * job.barrier


def test_groups_that_do_not_divide_the_nodes_are_refused():
    with pytest.raises(ValueError, match="groups must be of the 4 nodes that train, not 3x2: 6 workers"):
        replace(job_of(), groups=Groups(3, 2))


def test_hosts_that_reduce_on_their_own_cores_have_no_groups():
    with pytest.raises(ValueError, match="groups are of ring nodes"):
        on_cores(job_of(), fitted().cores())
