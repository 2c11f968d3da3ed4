"""Training over the exchange: workers compute and add up gradients; each worker or the aggregator updates."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.base.limits import CLOCK_MHZ
from fanin.codec.golden.exchange import Wire, count_weights, exchange
from fanin.inceptionn.facts import VALUE_BYTES, Leg
from fanin.link import LinkConfig
from fanin.sim.cosim.run import Progress as RunProgress
from fanin.sim.cosim.run import RunResult
from fanin.sim.cosim.waves import Waveform
from fanin.sim.inceptionn.cosim import GBPS, InceptionnCosim
from fanin.sim.inceptionn.exchange import Program, Spend, Work
from fanin.sim.inceptionn.host import Activity, HostCosts, Span
from fanin.sim.inceptionn.hosts import Board, Hosts, Plan
from fanin.sim.inceptionn.meter import LegTraffic, legs_of
from fanin.sim.inceptionn.transport import Counters
from fanin.sim.learning.learner import Measures
from fanin.sim.learning.references import References, compare
from fanin.sim.learning.replica import DataParallel, Dataset, Exchange, Replica, State, measure
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.spans import FirstSpans

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Iteration:
    """Breakdown of an iteration's time, in seconds, like the paper's table II.

    - ``total``: the slowest worker's.
    - ``compute``: forward and backward pass.
    - ``sum``, ``update``: those of the slowest node of each level of the groups, added up over levels.
    - ``communicate``: the rest.
    """

    total: float
    compute: float
    sum: float
    update: float

    @property
    def communicate(self) -> float:
        """Seconds of communication: the rest of the total."""
        return self.total - self.compute - self.sum - self.update


@dataclass(frozen=True)
class Epoch:
    """End of an epoch: its time, in simulated seconds, and the model's measures."""

    number: int
    seconds: float
    measures: Measures


@dataclass
class TrainingResult:
    """Result of a training; ``state``: last state, equal at all nodes.

    - ``golden``: packets and payload bytes of each leg without loss.
    - ``transport``: counters of each node's transport.
    - ``timelines``: activities of each node.
    """

    state: State
    epochs: list[Epoch]
    iterations: list[Iteration]
    golden: Wire
    transport: list[Counters]
    seconds: float  # simulated
    legs: dict[Leg, LegTraffic] = field(default_factory=dict)
    timelines: list[FirstSpans[Span]] = field(default_factory=list)
    raw: RunResult = field(default_factory=RunResult)


def costs_of(job: DataParallel, profile: WorkerProfile, costs: HostCosts | None = None) -> HostCosts:
    """Return ``costs`` with the times that a worker of ``profile`` takes for its passes and updates."""
    passes = sum(
        profile.forward(count, job.batch) + profile.backward(count, job.batch) for count in job.network.counts
    )
    return replace(costs or HostCosts(), compute=passes, update=profile.update(1) / VALUE_BYTES)


def flat(layers: Sequence[npt.NDArray]) -> Float32:
    """Return the vectors of all layers as one, in order."""
    return np.concatenate(layers).astype(np.float32, copy=False)


class TrainingHosts(Hosts):
    """Live hosts that train. Raises CheckFailed if a node's weights differ from the golden model's.

    The golden model uses the nodes' gradients: these were computed with its own weights of the previous step.
    """

    def __init__(self, board: Board, *, plan: Plan, job: DataParallel, data: Dataset, state: State):
        super().__init__(board, plan)
        self.job, self.data, self.state = job, data, state.copy()  # the golden state
        self._steps = job.epochs * data.steps
        self._finished_steps = 0  # steps that all nodes have ended
        self._layer_starts = np.cumsum(job.network.counts)[:-1]
        self._wire = Wire(plan.packets)
        self._gradients: dict[int, dict[int, Float32]] = defaultdict(dict)  # by step and worker
        self._weights: dict[int, bytes] = {}  # golden weights after each step, until all nodes have ended it
        self._seconds: dict[int, list[float]] = defaultdict(list)  # by step: seconds of each worker
        self._work: dict[int, dict[int, dict[Work, float]]] = defaultdict(dict)  # by step and node
        self._measures: dict[int, Measures] = {}  # by an epoch's last step, until all nodes have ended it
        self._epochs: list[Epoch] = []

    def program(self, node: int) -> Program[None]:
        """Run all steps of a worker or an aggregator."""
        topology, count = self.plan.topology, sum(self.job.network.counts)
        replica = Replica(self.job, self.data, node, self.state.copy())  # an aggregator's has no samples
        participant = self.participants[node]
        while replica.state.step < self._steps:
            begin, work_before, begin_ps = self.seconds, self.hosts[node].seconds.copy(), self.board.now
            gradient = None
            if node < topology.workers:
                gradient = self._gradient(replica)
                yield Spend(Work.COMPUTE, seconds=self.plan.costs.compute)
            total = yield from participant.reduce(gradient, count)
            if total is not None:
                yield Spend(Work.UPDATE, total.nbytes)
                self._update(replica, total)
            if topology.aggregator is not None:
                weights = flat(replica.state.parameters) if node == topology.aggregator else None
                weights = yield from participant.distribute(weights, count)
                replica.state.parameters = np.split(weights, self._layer_starts)
            self.hosts[node].note(Activity.STEP, f"step {replica.state.step}", begin_ps)
            self._end_step(node, replica, begin, work_before)

    def _gradient(self, replica: Replica) -> Float32:
        """Return a worker's gradient of its next mini-batch, with all layers together, as it is exchanged."""
        replica.forward()
        layers = [replica.backward(layer) for layer in reversed(range(self.job.network.layers))]
        gradient = flat(layers[::-1])
        self._gradients[replica.state.step][replica.node] = gradient
        return gradient

    def _update(self, replica: Replica, total: Float32) -> None:
        for layer, part in enumerate(np.split(total, self._layer_starts)):
            replica.update(layer, part)

    def _end_step(self, node: int, replica: Replica, begin: float, work_before: dict[Work, float]) -> None:
        step = replica.state.step
        replica.end_step()
        if step not in self._weights:
            self._step_golden(step)
        if flat(replica.state.parameters).tobytes() != self._weights[step]:
            raise CheckFailed(f"node {node}, step {step}: the weights differ from the golden model's")
        work = self.hosts[node].seconds
        self._work[step][node] = {kind: work[kind] - work_before[kind] for kind in Work}
        if node < self.plan.topology.workers:
            self._seconds[step].append(self.seconds - begin)
        if len(self._work[step]) == len(self.hosts):
            self._close_step(step)

    def _close_step(self, step: int) -> None:
        """Close a step that all nodes have ended."""
        del self._weights[step]
        self._finished_steps += 1
        if step in self._measures:
            number = (step + 1) // self.data.steps
            self._epochs.append(Epoch(number, self.seconds, self._measures.pop(step)))

    def _step_golden(self, step: int) -> None:
        """Step the golden model, when the first node has finished and all gradients of the step are known."""
        topology, gradients = self.plan.topology, self._gradients.pop(step)
        total = exchange(topology, [gradients[worker] for worker in range(topology.workers)], self._wire)
        golden = Replica(self.job, self.data, 0, self.state)
        self._update(golden, total)
        golden.end_step()
        weights = flat(self.state.parameters)
        if topology.aggregator is not None:
            count_weights(topology, weights, self._wire)
        self._weights[step] = weights.tobytes()
        if self.state.step % self.data.steps == 0:
            self._measures[step] = measure(self.job, self.data, self.state.parameters)

    @property
    def progress(self) -> int:
        """Number of steps that all nodes have ended."""
        return self._finished_steps

    def _iteration(self, step: int) -> Iteration:
        topology, work = self.plan.topology, self._work[step]
        levels = [
            range(topology.workers),
            range(topology.workers, topology.nodes - 1),
            range(topology.nodes)[-1:],
        ]
        if topology.aggregator is None:
            levels = levels[:1]

        def slowest(kind: Work) -> float:
            return sum(max((work[node][kind] for node in level), default=0.0) for level in levels)

        total = max(self._seconds[step])
        return Iteration(total, slowest(Work.COMPUTE), slowest(Work.SUM), slowest(Work.UPDATE))

    def result(self) -> TrainingResult:
        """Return the run's result."""
        iterations = [self._iteration(step) for step in sorted(self._work)]
        timelines = [host.timeline for host in self.hosts]
        return TrainingResult(
            self.state, self._epochs, iterations, self._wire, self.counters, self.seconds, timelines=timelines
        )


def run(
    job: DataParallel,
    data: Dataset,
    plan: Plan,
    *,
    state: State | None = None,
    clock_mhz: float = CLOCK_MHZ,
    quiet: bool = True,
    link: LinkConfig | None = None,
    pcap: Path | None = None,
    link_log: Path | None = None,
    wave: Waveform | None = None,
    progress: Callable[[int], None] | None = None,
) -> TrainingResult:
    """Train on simulated NICs from ``state``, which is not changed.

    - ``link``: links; default: 10 Gb/s.
    - ``pcap``: file for all frames.
    - ``progress``: called with the number of finished steps.

    Raises ValueError for a job with another number of workers than the plan's, and InputError for a missing
    tool. Raises SimulationFailed if weights differ from the golden model's, a gradient is not finite, or a node
    does not answer.
    """
    if job.nodes != plan.topology.workers:
        raise ValueError(f"nodes must be the {plan.topology.workers} workers, not {job.nodes}")
    cosim = InceptionnCosim(nodes=plan.topology.nodes, clock_mhz=clock_mhz, wave=wave, quiet=quiet)

    def report(state_of_run: RunProgress) -> None:
        if progress and state_of_run.phases:
            progress(state_of_run.operations)

    hosts = functools.partial(TrainingHosts, plan=plan, job=job, data=data, state=state or State.initial(job))
    link = link or LinkConfig(gbps=GBPS)
    raw = cosim.run(plan, hosts, seed=job.seed, link=link, pcap=pcap, link_log=link_log, progress=report)
    result: TrainingResult = raw.hosts
    result.legs, result.raw = legs_of(raw.switch), raw
    return result


def reducer(plan: Plan) -> Exchange:
    """Return the golden exchange of a plan, for the gradients of all layers as one vector."""
    return lambda gradients: exchange(plan.topology, gradients, Wire(plan.packets))


def references(job: DataParallel, data: Dataset, plan: Plan) -> References:
    """Train by the plan in NumPy, three times: with the codec, without it, and in binary64."""
    uncompressed = None if plan.codec is None else reducer(replace(plan, codec=None))
    return compare(job, data, reducer(plan), uncompressed, single_vector=True)
