# amaranth: UnusedElaboratable=no
"""The data-parallel worker against its golden model."""

from dataclasses import replace

import pytest

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm import PRESETS, Partitioning
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
def test_values_that_overflow_are_clamped_and_saturated_as_in_the_golden_model():
    """With this seed both workers' gradients are clamped to −2^30 somewhere: the weight would be 2^31."""
    shape = {"workers": 2, "batch": 32, "samples": 32, "columns": 9, "epochs": 1}
    job = Job(seed=0, node=NODE, loss=Loss.LINEAR, rate=30000.0, **shape)
    host, _ = train(job)
    assert fixed.INT32_MAX in job.golden.model
    assert job.join(host.models) == job.golden.model.tolist()
    assert sum(counts["clamps"] for counts in host.counts) == job.golden.clamps


@pytest.mark.slow
def test_a_mini_batch_takes_one_packet_for_every_eight_features():
    job = Job(seed=new_seed(), node=replace(NODE, engines=2), batch=16, epochs=1)
    _, network = train(job)
    shape = job.shape
    sent = shape.mini_batches * 2 * shape.chunks * NODE.lanes // NODE.values
    assert len(network.pa_cycles) == len(network.fa_cycles) == sent


def test_lanes_must_be_whole_packets():
    with pytest.raises(ValueError, match="lanes must be a multiple of banks, 8, not 4"):
        GradientEngine(lanes=4)
