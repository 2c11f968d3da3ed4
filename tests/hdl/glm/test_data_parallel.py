# amaranth: UnusedElaboratable=no
"""The data-parallel worker against its golden model."""

from dataclasses import replace

import pytest

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, Partitioning
from fanin.hdl.glm.data_parallel import GradientEngine
from tests.hdl.glm.training import Job
from tests.hdl.glm.worker_bench import train
from tests.support import new_seed, slow

NODE = replace(PRESETS["tiny"], lanes=16, mode=Partitioning.DATA_PARALLEL)


@pytest.mark.parametrize(
    ("workers", "engines", "batch", "loss"),
    [
        (1, 1, 32, Loss.LINEAR),
        *slow(
            (2, 1, 32, Loss.HINGE), (1, 2, 32, Loss.LOGISTIC), (2, 1, 4, Loss.HINGE), (2, 1, 20, Loss.LINEAR)
        ),
    ],
)
def test_trained_model_equals_the_golden_model_bit_for_bit(workers, engines, batch, loss):
    job = Job(seed=new_seed(), node=replace(NODE, engines=engines), workers=workers, loss=loss, batch=batch)
    host, _ = train(job)
    assert job.join(host.models) == job.golden.model.tolist()
    assert sum(job.golden.model.tolist()) != 0


@pytest.mark.slow
@pytest.mark.parametrize("values", [8, 16])
def test_values_that_overflow_are_clamped_and_saturated_as_in_the_golden_model(values):
    """With this seed both workers' gradients are clamped to −2^30 somewhere: the weight would be 2^31."""
    shape = {"workers": 2, "batch": 32, "samples": 32, "columns": 9, "epochs": 1}
    job = Job(seed=0, node=replace(NODE, gradient_values=values), loss=Loss.LINEAR, rate=30000.0, **shape)
    host, _ = train(job)
    assert fixed.INT32_MAX in job.golden.model
    assert job.join(host.models) == job.golden.model.tolist()
    assert sum(counts["clamps"] for counts in host.counts) == job.golden.clamps


@pytest.mark.parametrize("values", slow(8, 16))
def test_a_mini_batch_takes_one_packet_for_as_many_features_as_it_carries(values):
    node = replace(NODE, engines=2, gradient_values=values)
    job = Job(seed=new_seed(), node=node, batch=16, epochs=1)
    host, network = train(job)
    shape = job.shape
    sent = shape.mini_batches * 2 * shape.chunks * NODE.lanes // values
    assert len(network.pa_cycles) == len(network.fa_cycles) == sent
    assert job.join(host.models) == job.golden.model.tolist()


def test_lanes_must_be_whole_packets():
    with pytest.raises(ValueError, match="lanes must be a multiple of gradient_values, 8, not 4"):
        GradientEngine(lanes=4)
    with pytest.raises(ValueError, match="lanes must be a multiple of 32 in data-parallel mode, not 16"):
        replace(NODE, gradient_values=32)
    with pytest.raises(ValueError, match="gradient_values must be 8 unless mode is data-parallel, not 16"):
        replace(PRESETS["tiny"], gradient_values=16)
