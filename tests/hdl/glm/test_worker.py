# amaranth: UnusedElaboratable=no
"""The worker against the golden model; the network is an adder in Python."""

from dataclasses import replace
from itertools import pairwise

import pytest

from fanin.fixed import Loss
from fanin.glm.facts import PRESETS
from fanin.hdl.glm.worker import GlmWorker
from tests.hdl.glm.training import Job
from tests.hdl.glm.worker_bench import train
from tests.support import new_seed, slow

TINY = PRESETS["tiny"]


@pytest.mark.parametrize(
    ("workers", "engines", "loss"),
    [
        (1, 1, Loss.LOGISTIC),
        *slow(
            (2, 1, Loss.HINGE),
            (1, 2, Loss.LOGISTIC),
            (1, 1, Loss.LINEAR),
            (1, 1, Loss.HINGE),
            (2, 1, Loss.LINEAR),
        ),
    ],
)
def test_trained_model_equals_the_golden_model_bit_for_bit(loss, workers, engines):
    job = Job(seed=new_seed(), node=replace(TINY, engines=engines), workers=workers, loss=loss)
    host, _ = train(job)
    assert job.join(host.models) == job.golden.model.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("workers", [1, 2])
def test_engines_with_lists_of_different_lengths_equal_the_golden_model(workers, seed):
    """Words, entries and labels stall on their own; the engines of a worker are micro-batches apart."""
    node = replace(TINY, engines=3, lanes=2, depth=16, sparse=True)
    job = Job(seed=seed, node=node, workers=workers, samples=61, columns=60 * workers)
    host, _ = train(job)
    assert job.join(host.models) == job.golden.model.tolist()


@pytest.mark.parametrize("label_width", [32, *slow(64, 128)])
def test_labels_one_by_one_change_no_bit(label_width):
    """With stalls; words and labels then come in no order of their own."""
    job = Job(seed=new_seed(), node=replace(TINY, lanes=2, depth=8, label_width=label_width), columns=14)
    host, _ = train(job)
    assert job.join(host.models) == job.golden.model.tolist()


@pytest.mark.parametrize("loss_lanes", [8, 1])
def test_the_pipeline_of_a_narrow_loss_unit_is_as_much_longer(loss_lanes):
    assert (
        GlmWorker(lanes=4, loss_lanes=loss_lanes).pipeline == GlmWorker(lanes=4).pipeline + 8 // loss_lanes - 1
    )


@pytest.mark.slow
def test_values_that_overflow_are_clamped_and_saturated_as_in_the_golden_model():
    """A learning rate that is far too large drives every number to its limits."""
    job = Job(seed=new_seed(), node=TINY, workers=2, loss=Loss.LINEAR, rate=3000.0)
    host, _ = train(job)
    assert job.golden.clamps > 0
    assert job.join(host.models) == job.golden.model.tolist()
    assert sum(counts["clamps"] for counts in host.counts) == job.golden.clamps


@pytest.mark.slow
def test_slow_memory_does_not_end_a_run_early():
    """Between epochs the worker then holds nothing at all."""
    job = Job(seed=new_seed(), node=TINY, epochs=6, samples=16, columns=8, precision=1)
    host, _ = train(job, stall=0, memory_stall=0.99)
    assert job.join(host.models) == job.golden.model.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("engines", "precision", "columns"), [(2, 1, 9), *slow((1, 3, 22), (1, 1, 8))])
def test_a_mini_batch_costs_its_words_the_network_and_the_pipeline(engines, precision, columns):
    """From the PA of a mini-batch's last micro-batch to that of the next one's."""
    node = replace(TINY, engines=engines)
    job = Job(seed=new_seed(), node=node, precision=precision, columns=columns, samples=96, batch=32, epochs=1)
    host, network = train(job, stall=0, delay=20)
    assert job.join(host.models) == job.golden.model.tolist()
    shape = job.shape
    pas, words = network.pa_cycles, shape.words_per_micro_batch
    for number, (before, after) in enumerate(pairwise(pas), start=1):
        if number % shape.micro_batches:
            assert after - before == words, "a bubble between micro-batches"
    last = range(shape.micro_batches - 1, len(pas), shape.micro_batches)
    pipeline = GlmWorker(engines=engines, lanes=node.lanes).pipeline + precision
    for before, after in pairwise(last):
        t = network.fa_cycles[before] - pas[before]
        assert pas[after] - pas[before] == shape.micro_batches * words + t + pipeline


def test_the_pipeline_of_a_full_worker_is_within_its_limit():
    """The limit is 44 cycles, of which the transport takes 5."""
    worker = GlmWorker(engines=8)
    assert worker.pa_latency == 16
    assert worker.pipeline == 29


@pytest.mark.slow
def test_counts_account_for_every_cycle():
    job = Job(seed=new_seed(), node=replace(TINY, engines=2, sample_fifo=9), workers=1)
    host, _ = train(job)
    (counts,) = host.counts
    words = 2 * job.epochs * job.shape.micro_batches_per_epoch * job.shape.words_per_micro_batch
    assert counts["words"] == words
    assert counts["backward_idle"] == 2 * host.cycles - words
    assert counts["model_wait"] > 0
    assert counts["no_word"] > 0
    stalls = sum(counts[name] for name in ("model_wait", "fifo_full", "pa_full", "no_word"))
    assert words + stalls <= 2 * host.cycles


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"engines": 0}, "engines must be from 1 to 8, not 0"),
        ({"engines": 9}, "engines must be from 1 to 8, not 9"),
        ({"frac": 5}, "frac must be in 6…28, not 5"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        GlmWorker(**parameters)
