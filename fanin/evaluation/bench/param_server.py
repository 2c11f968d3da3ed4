"""Benchmark of the parameter server: share of w on its link with 15 pushing workers, and area of its parts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from amaranth.lib import wiring

from fanin.base.limits import CLOCK_MHZ
from fanin.evaluation.bench import param_server_models, param_server_sweeps
from fanin.evaluation.bench.area import part_figures
from fanin.evaluation.bench.result import Result
from fanin.hdl.param_server.pushes import Pushes
from fanin.hdl.param_server.read_gate import ReadGate
from fanin.hdl.param_server.row import RowMaker
from fanin.hdl.param_server.scanner import Scanner
from fanin.hdl.param_server.server import ParamServer
from fanin.hdl.param_server.streamed_reads import StreamedReads
from fanin.hdl.param_server.update import UpdateLanes
from fanin.link import LinkConfig
from fanin.param_server.facts import ParamServerConfig, RowLayout
from fanin.rdma.facts import MAX_PAYLOAD, RdmaConfig
from fanin.sim.learning.learner import NoTraining
from fanin.sim.param_server.cosim import ParamServerCosim
from fanin.sim.param_server.costs import PACKET_OVERHEAD, Compute, Costs
from fanin.sim.param_server.hosts import WildRun
from fanin.sim.param_server.training import TrainingJob

WORKERS = 15
MODEL_VALUES = {"lr": 7_850, "fcnn": 101_770}  # parameters of the paper's models, on MNIST
GRADIENTS_PER_WORKER = {"lr": 8, "fcnn": 3}
MIN_BUSY = 95.0  # %
FULL_RATE = LinkConfig(gbps=float("inf"))  # the MAC's rate, a word a cycle
PACED_LINK = LinkConfig()
NO_COMPUTE = Compute(per_sample=0.0)
NO_COSTS = Costs(byte=0.0, latency=0.0, update=0.0)
_CONTROL_CYCLES = 4  # maximum cycles that an acknowledgement occupies the link


@dataclass(frozen=True)
class Case:
    """A model's size, and the links."""

    model: str
    link: LinkConfig = FULL_RATE

    @property
    def sizes(self) -> ParamServerConfig:
        """Configuration of the server."""
        return ParamServerConfig(parameters=MODEL_VALUES[self.model], workers=WORKERS)


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured: half an hour, a third of it for the simulator to be built.

    With ``--models`` the paper's tables by the event model, and sweeps around them: a minute.
    """
    if args.models:
        yield from param_server_models.measure()
        yield from param_server_sweeps.measure()
        return
    cosim = ParamServerCosim(workers=WORKERS, clock_mhz=CLOCK_MHZ)
    for model in MODEL_VALUES:
        yield busy(cosim, Case(model))
        yield paced(cosim, Case(model, PACED_LINK))
    for part in parts(RdmaConfig()):
        yield from part_figures(part)


def busy(cosim: ParamServerCosim, case: Case) -> Result:
    """Return the share of words of w in all cycles from the first row's start to the last row's end."""
    run = _run(cosim, case)
    cycles, words = _cycles(run), len(run.updates) * case.sizes.words
    name = f"w of the server's mac_tx, {case.model}, {WORKERS} workers, a word a cycle"
    note = f"{len(run.updates)} updates: {words:,} words of w in {cycles:,} cycles"
    return Result(name, 100 * words / cycles, "%", MIN_BUSY, at_least=True, note=note)


def paced(cosim: ParamServerCosim, case: Case) -> Result:
    """Return the rate of rows relative to the link's maximum; only the last packet of a row is not full."""
    run = _run(cosim, case)
    size = RowLayout(case.sizes, 0, 0).size
    packets = -(-size // MAX_PAYLOAD)
    maximum = case.link.gbps * size / (size + packets * PACKET_OVERHEAD)
    gbps = len(run.updates) * size * 8 / (_cycles(run) * cosim.period_ps / 1000)
    name = f"rows at {case.link.gbps:g} Gb/s, {case.model}, {WORKERS} workers"
    note = f"{gbps:.2f} of {maximum:.2f} Gb/s"
    return Result(name, 100 * gbps / maximum, "% of most", MIN_BUSY, at_least=True, note=note)


def _run(cosim: ParamServerCosim, case: Case) -> WildRun:
    """Run a training on the case's model. Raises AssertionError unless each gradient is applied once."""
    learner = NoTraining(MODEL_VALUES[case.model], GRADIENTS_PER_WORKER[case.model])
    job = TrainingJob(workers=WORKERS, compute=NO_COMPUTE, costs=NO_COSTS)
    run = cosim.run(job, learner, link=case.link)
    tally = run.outcome.tally
    assert (tally.lost, tally.repeated, tally.applied) == (0, 0, tally.pushed)
    return run


def _cycles(run: WildRun) -> int:
    """Return the cycles from the first beat of the server's first row to the end of its last row."""
    begin, end = run.raw.occupied[WORKERS].astype(np.int64).T
    rows = np.flatnonzero(end - begin > _CONTROL_CYCLES)
    return int(end[rows[-1]] - begin[rows[0]])


def parts(config: RdmaConfig) -> list[wiring.Component]:
    """Return the parts of a server, and the server as a whole."""
    return [
        Scanner(config=config),
        UpdateLanes(lanes=config.width // 32),
        RowMaker(config=config),
        Pushes(config=config),
        ReadGate(config=config),
        StreamedReads(config=config),
        ParamServer(config=config),
    ]
