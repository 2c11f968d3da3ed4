"""Nodes that train as the golden model does, in no time: for tests of what surrounds a training."""

from dataclasses import replace

import numpy as np

from fanin.glm.golden.train import train as train_golden
from fanin.hdl.glm.node_registers import COUNTERS, ROUND_TRIPS
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.cosim.run import Progress, RunResult
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.glm.course import WHOLE_TRAINING, TrainRun
from fanin.sim.switch.operations import OperationTimes

CYCLES = 2500  # of an epoch: 10 µs


class GoldenNodes:
    """As ``fanin.sim.glm.cosim.Cosim``. A worker that stops lets the run fail in that epoch."""

    digest = "0" * 64

    def __init__(self, config, *, workers, here=(), **_):
        self.config, self.workers, self.here = config, workers, tuple(here) or tuple(range(workers))
        self.courses = []  # of each run

    def program(self, network):
        slots = self.config.slots if network.slots is None else network.slots
        return ProgramConfig(workers=self.workers, slots=slots, values=self.config.values)

    def partial(self, result):
        return TrainRun(raw=result)

    def train(
        self,
        shape,
        features,
        labels,
        *,
        loss,
        rate,
        epochs,
        decay,
        network,
        course=WHOLE_TRAINING,
        pcap=None,
        progress=None,
    ):
        self.courses.append(course)
        golden = train_golden(features, labels, shape, loss=loss, rate=rate, epochs=epochs, decay=decay)
        models = [epoch.model for epoch in golden]
        if course.first:
            assert np.array_equal(course.model, models[course.first - 1])
        run = TrainRun()
        for number in range(course.first + 1, epochs + 1):
            trained = number - course.first
            if any(seconds < trained * CYCLES / 250e6 for _, seconds in network.stops):
                raise SimulationFailed("node 0 stopped at cycle 1: TIMEOUT", RunResult(cycles=trained * CYCLES))
            run.models.append(models[number - 1])
            run.cycles.append(CYCLES)
            count = counted(trained, course.job)
            run = replace(
                run,
                counters=[dict.fromkeys(COUNTERS, trained) | dict.fromkeys(ROUND_TRIPS, 12)] * len(self.here),
                allreduce_ns=np.full(trained, 700.0),
                raw=count,
            )
            if progress:
                progress(Progress(cycle=CYCLES * trained, phases=trained, operations=trained, frames=trained))
            if course.keep and (course.is_checkpoint(number, epochs) or number == epochs):
                course.keep(run)
        return run


def counted(epochs, job):
    """What the network has counted after so many epochs."""
    way = {"frames": 2 * epochs, "fcs_errors": 0}
    return RunResult(
        cycles=CYCLES * epochs,
        frames={"AGG": epochs, "ACK": epochs},
        links=[{"up": way, "down": way}],
        switch={"malformed": 0, "foreign": 0},
        jobs={job: {"aggregated": epochs, "stale": 0}},
        watched=OperationTimes(first_packet=[{"configured": 1}]),
    )
