"""The ring's training on a model: the paper's formula as a trace, the same bits as RTL's golden model."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.codec.facts import Bfp
from fanin.evaluation.models import smart_nic, smart_nic_paper
from fanin.golden.mlp import Mlp
from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import DataParallel, Dataset, State
from fanin.sim.ring.collectives import Link
from fanin.sim.ring.model import World, nic_seconds, on_cores, run_model
from fanin.sim.ring.profile import Cores, WorkerProfile
from fanin.sim.ring.schedule import Overlap, Schedule
from fanin.sim.ring.sums import Sums
from fanin.sim.ring.timed import Timed
from fanin.sim.ring.timeline import makespan
from fanin.sim.ring.training import RingTraining, references
from tests.support import new_seed

NODES = 3


def times_of(counts, seconds, schedule, profile, *, batch=4, steps=1):
    timed = Timed(counts=counts, nodes=NODES, batch=batch, steps=steps, profile=profile, schedule=schedule)
    sums = Sums(lambda gradients: np.add.reduce(gradients), NODES)
    return World(timed, NODES, sums, seconds).run()


@pytest.mark.parametrize("layers", [2, 3, 7])
def test_figure_3b_takes_the_papers_formula(layers):
    """Section IV-C's T_total, for layers and times that have nothing to do with one another."""
    rng = np.random.default_rng(new_seed())
    for _ in range(20):
        counts = rng.integers(1, 50, layers).tolist()
        spent = dict(zip(counts, rng.integers(1, 100, layers) / 10, strict=True))  # per size, not per layer
        profile = WorkerProfile(flops=float(rng.integers(1, 200)), memory_bandwidth=float(rng.integers(1, 900)))
        layer_times = [
            smart_nic.Layer(profile.forward(n, 4), profile.backward(n, 4), spent[n], profile.update(n))
            for n in counts
        ]
        (times, *others) = times_of(counts, lambda n, spent=spent: spent[n], Schedule(), profile)
        assert times.steps[0] == pytest.approx(smart_nic.total(layer_times))
        assert times.steps[0] == pytest.approx(makespan(smart_nic.trace(layer_times)))
        assert [other.steps for other in others] == [times.steps] * 2


def test_without_overlap_everything_adds_up():
    counts, profile = [10, 20, 30], WorkerProfile(flops=40.0, memory_bandwidth=200.0)
    times = times_of(counts, lambda n: 7.0, Schedule(Overlap.NONE), profile)[0]
    computing = sum(profile.forward(n, 4) + profile.backward(n, 4) + profile.update(n) for n in counts)
    assert times.steps[0] == pytest.approx(computing + 3 * 7.0)
    assert times.blocked == pytest.approx(3 * 7.0)
    kinds = [(span.kind, span.layer) for span in times.spans if span.kind != "F"]
    assert kinds == list(itertools.chain(*[[("B", k), ("AR", k), ("U", k)] for k in (2, 1, 0)]))


def test_more_outstanding_descriptors_hide_unequal_layers():
    counts, profile = [40, 1, 40, 1], WorkerProfile(flops=40.0, memory_bandwidth=1e9)
    one, eight = (
        times_of(counts, lambda n: n / 2, Schedule(outstanding=k), profile)[0].steps[0] for k in (1, 8)
    )
    assert eight < one


def job_of(codec=None, **options):
    training = DataParallel(network=Mlp((64, 24, 10)), nodes=NODES, batch=64, epochs=2)
    return RingTraining(training=training, config=RingConfig(lanes=8, codec=codec), **options)


def test_a_model_trains_the_golden_models_bits():
    job = job_of(Bfp(), schedule=Schedule(outstanding=2))
    data, seen = Dataset(job.training, *load_digits(0)), []
    seconds = nic_seconds(job.config, NODES, LinkConfig(gbps=40))
    outcome = run_model(job, data, State.initial(job.training), seconds=seconds, progress=seen.append)
    assert outcome.state.equals(references(job, data).final)
    assert seen == list(range(1, 2 * data.steps + 1))
    assert [epoch.number for epoch in outcome.epochs] == [1, 2]


def test_hosts_that_reduce_themselves_are_the_papers_baseline():
    """The overlapped and the naive iteration of the model whose inputs are fitted to figures 2a and 4."""
    inputs = smart_nic_paper.fitted()
    batch, layers, width = 1792, 20, 2048
    counts = [width * width] * layers
    flops = inputs.worker(batch).flops
    for schedule, paper in (
        (Schedule(), smart_nic_paper.conventional),
        (Schedule(Overlap.NONE), smart_nic_paper.naive),
    ):
        training = DataParallel(network=Mlp((1,) * (layers + 1)), nodes=6)
        job = replace(job_of(profile=WorkerProfile(flops=flops), schedule=schedule), training=training)
        changed, seconds = on_cores(job, inputs.cores())
        stretched = replace(changed.profile, flops=flops * 4 / counts[0])  # layers of 4 values
        timed = Timed(counts=[4] * layers, nodes=6, batch=batch, profile=stretched, schedule=changed.schedule)
        sums = Sums(lambda gradients: np.add.reduce(gradients), 6)
        found = World(timed, 6, sums, lambda values, seconds=seconds: seconds(counts[0])).run()[0].steps[0]
        assert found == pytest.approx(makespan(paper(inputs, batch, 6)), rel=1e-9)


def test_a_gradient_that_is_not_finite_ends_the_run():
    job = job_of()
    data, state = Dataset(job.training, *load_digits(0)), State.initial(job.training)
    state.parameters[1][3] = np.inf
    with pytest.raises(CheckFailed, match="node 0, layer 1, step 0"):
        run_model(job, data, state, seconds=lambda values: 1e-6)


def test_cores_cost_what_the_model_says():
    cores = Cores(Link(1e-6, 1e-9, 2e-10), 1e-9, 1.5)
    on_the_link = 2 * 1e-6 + 4000 * 1e-9  # two steps, and half of 4,000 bytes there and back
    assert cores.seconds(1000, 2, single_thread=False) == pytest.approx(on_the_link + 2000 * 2e-10)
    assert cores.seconds(1000, 2, single_thread=True) == pytest.approx(on_the_link + 2000 * 1e-9)
    with pytest.raises(ValueError, match="flops must be above 0"):
        WorkerProfile(flops=0)
    with pytest.raises(ValueError, match="outstanding must be 1 without overlap"):
        Schedule(Overlap.NONE, 2)
