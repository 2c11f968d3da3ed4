# amaranth: UnusedElaboratable=no
"""The data-parallel worker against its golden model."""

from dataclasses import replace

import pytest

from fanin.config import PRESETS, Mode
from fanin.fixed import Loss
from tests.hdl.glm.training import Job
from tests.hdl.glm.worker_bench import train
from tests.support import new_seed

NODE = replace(PRESETS["tiny"], lanes=16, mode=Mode.DATA_PARALLEL)


@pytest.mark.parametrize(
    ("workers", "engines", "loss"),
    [(1, 1, Loss.LINEAR), (1, 2, Loss.LOGISTIC), (2, 1, Loss.HINGE)],
)
def test_trained_model_equals_the_golden_model_bit_for_bit(workers, engines, loss):
    job = Job(seed=new_seed(), node=replace(NODE, engines=engines), workers=workers, loss=loss, batch=32)
    host, _ = train(job)
    assert job.join(host.models) == job.golden.model.tolist()
    assert sum(job.golden.model.tolist()) != 0
