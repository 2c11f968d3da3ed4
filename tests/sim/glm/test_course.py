"""Results of a training that was interrupted: counters of all its jobs, estimates of the last one."""

import numpy as np

from fanin.sim.cosim.run import RunResult
from fanin.sim.glm.course import History, TrainRun


def history(counters):
    return History(
        epoch=1,
        model=np.zeros(1, np.int32),
        scores=(),
        counters=counters,
        allreduce_ns=np.zeros(0),
        raw=RunResult(),
    )


def test_counters_add_up_and_round_trips_are_the_last_jobs():
    before = [{"cycles": 100, "round_trip": 170, "round_trip_deviation": 9, "retransmissions": 2}]
    after = [{"cycles": 50, "round_trip": 180, "round_trip_deviation": 4, "retransmissions": 1}]
    run = history(before).followed_by(TrainRun(counters=after))
    assert run.counters == [{"cycles": 150, "round_trip": 180, "round_trip_deviation": 4, "retransmissions": 3}]
    assert history([]).followed_by(TrainRun(counters=after)).counters == after
    assert history(before).followed_by(TrainRun()).counters == before
