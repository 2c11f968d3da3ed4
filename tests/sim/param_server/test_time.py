"""The event model of the parameter server keeps the RTL's time, within 2 %."""

import pytest

from fanin.param_server.facts import Algorithm, PushAfter, Receivers
from fanin.sim.learning.learner import NoTraining
from fanin.sim.param_server.cosim import ParamServerCosim
from fanin.sim.param_server.costs import DESIGN, Compute
from fanin.sim.param_server.events import run
from fanin.sim.param_server.training import TrainingJob

pytestmark = [pytest.mark.verilator, pytest.mark.slow]  # nodes of 512 bits, as the model's costs are for
WILD, SYNC = Algorithm.WILD, Algorithm.SYNC
SCAN, BROADCAST = PushAfter.SCAN, Receivers.BROADCAST


@pytest.fixture(scope="module")
def hardware():
    return ParamServerCosim(workers=4, servers=2, quiet=True)


@pytest.mark.parametrize("per_sample", [0.0, 2e-7, 1e-6], ids=["links bind", "both", "workers bind"])
@pytest.mark.parametrize("parameters", [650, 2000, 7850])
@pytest.mark.parametrize(
    ("algorithm", "slots", "servers"), [(WILD, 1, 1), (WILD, 2, 1), (WILD, 2, 2), (SYNC, 1, 1), (SYNC, 1, 2)]
)
def test_the_event_model_keeps_the_hardwares_time(hardware, parameters, per_sample, algorithm, slots, servers):
    compute = Compute(per_sample=per_sample, jitter=0.2)
    job = TrainingJob(
        algorithm=algorithm, workers=4, slots=slots, servers=servers, compute=compute, costs=DESIGN
    )
    learner = NoTraining(parameters, 24)
    model, rtl = run(job, learner).seconds, hardware.run(job, learner).outcome.seconds
    compare(model, rtl)


@pytest.mark.parametrize("per_sample", [0.0, 1e-6], ids=["links bind", "workers bind"])
@pytest.mark.parametrize("parameters", [650, 7850])
@pytest.mark.parametrize(
    "pushes",
    [{"receivers": BROADCAST}, {"push_after": SCAN}, {"push_after": SCAN, "receivers": BROADCAST}],
    ids=["broadcast", "scan", "scan, broadcast"],
)
def test_so_it_does_where_rows_are_broadcast_or_pushed_behind_scans(hardware, parameters, per_sample, pushes):
    compute = Compute(per_sample=per_sample, jitter=0.2)
    job = TrainingJob(workers=4, compute=compute, costs=DESIGN, **pushes)
    learner = NoTraining(parameters, 24)
    compare(run(job, learner).seconds, hardware.run(job, learner).outcome.seconds)


def compare(model, rtl):
    print(f"model {1e6 * model:.2f} µs, RTL {1e6 * rtl:.2f} µs: {100 * (model / rtl - 1):+.2f} %")
    assert model == pytest.approx(rtl, rel=0.02)
