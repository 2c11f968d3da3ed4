"""Training over the exchanges, on the golden NIC stages: all nodes have the golden weights after every step."""

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.codec.facts import Inceptionn
from fanin.codec.golden.exchange import Wire, exchange
from fanin.golden.mlp import Mlp
from fanin.inceptionn.facts import Leg, Topology
from fanin.link import LinkConfig
from fanin.ring.groups import Scheme
from fanin.sim.inceptionn import exchange as programs
from fanin.sim.inceptionn.host import HostCosts
from fanin.sim.inceptionn.hosts import Plan
from fanin.sim.inceptionn.training import TrainingHosts, costs_of, flat, run
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import DataParallel, Dataset, Replica, State
from fanin.sim.ring.profile import WorkerProfile
from tests.sim.inceptionn.events import EventBoard
from tests.support import new_seed

RING, AGGREGATOR = Scheme
BAD = LinkConfig(gbps=10, drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
TOPOLOGIES = [
    Topology(3),
    Topology(3, AGGREGATOR),
    Topology(4, AGGREGATOR, 2, AGGREGATOR),
    Topology(4, RING, 2, AGGREGATOR),
    Topology(4, RING, 2, RING),
]
each_topology = pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
COSTS = HostCosts(compute=1e-3, update=1e-9)


def job_of(topology, epochs=1, **options):
    return DataParallel(network=Mlp((64, 16, 10)), nodes=topology.workers, batch=80, epochs=epochs, **options)


def train_on_events(plan, job, *, link=None, state=None, seed=0):
    board = EventBoard(plan.topology.nodes, link, plan.codec, seed)
    data = Dataset(job, *load_digits(0))
    hosts = TrainingHosts(board, plan=plan, job=job, data=data, state=state or State.initial(job))
    hosts.start()
    board.run(lambda: hosts.done)
    return hosts.result(), data


@each_topology
@pytest.mark.parametrize("codec", [None, Inceptionn(), Inceptionn(6)], ids=str)
def test_the_last_state_is_that_of_a_training_without_time(topology, codec):
    job, plan = job_of(topology), Plan(topology, codec, costs=COSTS)
    trained, data = train_on_events(plan, job, link=BAD, seed=new_seed())
    expected = _timeless(plan, job, data)
    assert trained.state.equals(expected)
    assert len(trained.iterations) == data.steps == trained.state.step
    assert [epoch.number for epoch in trained.epochs] == [1]


def _timeless(plan, job, data):
    """The replicas of one state, whose gradients are exchanged whole."""
    state = State.initial(job)
    replicas = [Replica(job, data, worker, state) for worker in range(job.nodes)]
    layers = range(job.network.layers)
    while state.step < job.epochs * data.steps:
        gradients = []
        for replica in replicas:
            replica.forward()
            gradients.append(flat([replica.backward(layer) for layer in reversed(layers)][::-1]))
        total = exchange(plan.topology, gradients, Wire(plan.packets))
        for layer, part in enumerate(np.split(total, np.cumsum(job.network.counts)[:-1])):
            replicas[0].update(layer, part)
        state.step += 1
    return state


def test_it_learns_and_goes_on_from_where_it_was():
    topology = Topology(3, AGGREGATOR)
    plan = Plan(topology, Inceptionn())
    whole, _ = train_on_events(plan, job_of(topology, epochs=12))
    assert whole.epochs[-1].measures.accuracy > 0.8
    assert [epoch.seconds for epoch in whole.epochs] == sorted(epoch.seconds for epoch in whole.epochs)
    assert whole.epochs[-1].seconds == pytest.approx(whole.seconds)  # when the last node has its weights
    half, _ = train_on_events(plan, job_of(topology, epochs=6))
    again, _ = train_on_events(plan, job_of(topology, epochs=12), state=half.state)
    assert half.state.step * 2 == whole.state.step
    assert again.state.equals(whole.state)
    assert [epoch.number for epoch in again.epochs] == list(range(7, 13))


@pytest.mark.parametrize(
    ("topology", "sums"),
    [
        (Topology(4), (3 + 1) / 4),  # of a vector: three blocks of four are added, and one is settled
        (Topology(4, AGGREGATOR), 3),
        (Topology(4, AGGREGATOR, 2, AGGREGATOR), 1 + 1),  # in each group, then above
        (Topology(4, RING, 2, AGGREGATOR), (1 + 1) / 2 + 1),
        (Topology(4, RING, 2, RING), 2 * (1 + 1) / 2),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else "",
)
def test_an_iterations_time_is_that_of_its_parts(topology, sums):
    costs = HostCosts(packet=0.0, sum=1e-6, update=2e-6, compute=0.5)
    trained, _ = train_on_events(Plan(topology, None, costs=costs), job_of(topology))
    size = 4 * sum(job_of(topology).network.counts)
    for iteration in trained.iterations:
        assert iteration.compute == pytest.approx(0.5)
        assert iteration.sum == pytest.approx(sums * size * 1e-6, rel=0.01)
        assert iteration.update == pytest.approx(size * 2e-6)
        assert 5e-6 < iteration.communicate < 100e-6
    assert trained.seconds == pytest.approx(sum(each.total for each in trained.iterations), rel=1e-3)


def test_a_profile_gives_the_time_of_passes_and_updates():
    job = DataParallel(network=Mlp((64, 10)), nodes=2, batch=50)
    costs = costs_of(job, WorkerProfile(flops=1e9, memory_bandwidth=1e9), HostCosts(packet=3e-6))
    assert costs.compute == pytest.approx(6 * 650 * 50 / 1e9)  # a multiplication and an addition, three times
    assert costs.update * 4 == pytest.approx(20 / 1e9)
    assert (costs.packet, costs.sum) == (3e-6, HostCosts().sum)


def test_weights_that_differ_end_it_with_node_and_step(monkeypatch):
    topology, wrong = Topology(3), iter([False] * 20 + [True])

    def spoilt(own, members, node, leg, packets, ring=programs.ring):
        total = yield from ring(own, members, node, leg, packets)
        if next(wrong, False):
            total[5] += np.float32(1e-3)
        return total

    monkeypatch.setattr(programs, "ring", spoilt)
    message = r"^node \d, step 6: the weights differ from the golden model's$"  # the 21st of three nodes' sums
    with pytest.raises(CheckFailed, match=message):
        train_on_events(Plan(topology), job_of(topology, epochs=3))


def test_a_gradient_that_is_not_finite_ends_it_with_node_layer_and_step():
    topology = Topology(2)
    job = job_of(topology, epochs=3, rate=1e20)
    message = r"^node \d, layer \d, step \d: the gradient has values that are not finite"
    with np.errstate(all="ignore"), pytest.raises(CheckFailed, match=message):
        train_on_events(Plan(topology), job)


@each_topology
def test_progress_is_of_the_node_that_has_ended_the_fewest_steps(topology, monkeypatch):
    ended, ahead, end_step = [0] * topology.nodes, [], TrainingHosts._end_step

    def count(hosts, node, *rest):
        end_step(hosts, node, *rest)
        ended[node] += 1
        assert hosts.progress == min(ended)
        ahead.append(max(ended) - hosts.progress)

    monkeypatch.setattr(TrainingHosts, "_end_step", count)
    _, data = train_on_events(Plan(topology, None, costs=COSTS), job_of(topology))
    assert ended == [data.steps] * topology.nodes
    assert max(ahead) > 0


@pytest.mark.parametrize("topology", [Topology(3), Topology(3, AGGREGATOR)], ids=lambda t: t.name)
@pytest.mark.parametrize("dies", [0, 1, 2])
def test_a_worker_that_dies_is_named(topology, dies):
    """By its own host or by another, whichever's retries end first."""
    plan = Plan(topology, None, costs=COSTS, stops={dies: 2.5e-3})
    cause = r"(its link is cut|node \d has no .* after 8 retries, .* s apart)"
    with pytest.raises(CheckFailed, match=rf"^node {dies} has stopped answering: {cause}$"):
        train_on_events(plan, job_of(topology, epochs=3))


def test_legs_are_those_of_the_topology():
    topology = Topology(4, RING, 2, AGGREGATOR)
    trained, data = train_on_events(Plan(topology), job_of(topology))
    assert set(trained.golden.frames) == {Leg.GROUP_RING, Leg.UP, Leg.DOWN, Leg.GROUP_DOWN}
    assert trained.golden.payload[Leg.DOWN] == 2 * data.steps * 4 * sum(job_of(topology).network.counts)


def test_a_job_for_other_workers_is_refused():
    topology = Topology(3)
    job = job_of(topology)
    with pytest.raises(ValueError, match="nodes must be the 2 workers, not 3"):
        run(job, Dataset(job, *load_digits(0)), Plan(Topology(2)))
