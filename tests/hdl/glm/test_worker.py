# amaranth: UnusedElaboratable=no
"""The worker against the golden model; the network is an adder in Python."""

from dataclasses import replace

import pytest

from fanin.config import PRESETS
from fanin.fixed import Loss
from tests.hdl.glm.training import Job
from tests.hdl.glm.worker_bench import train
from tests.support import new_seed

TINY = PRESETS["tiny"]
PIPELINE = 27  # cycles of a mini-batch besides its words, the network and one per plane, at 64 lanes, 8 engines


@pytest.mark.parametrize(
    ("workers", "engines", "loss"),
    [
        (1, 1, Loss.LINEAR),
        (1, 1, Loss.LOGISTIC),
        (1, 1, Loss.HINGE),
        (1, 2, Loss.LOGISTIC),
        (2, 1, Loss.LINEAR),
    ],
)
def test_trained_model_equals_the_golden_model_bit_for_bit(loss, workers, engines):
    job = Job(seed=new_seed(), node=replace(TINY, engines=engines), workers=workers, loss=loss)
    host, _ = train(job)
    assert job.join(host.models) == job.golden.model.tolist()
