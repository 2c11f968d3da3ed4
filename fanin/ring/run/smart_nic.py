"""Backends for smart NICs in a ring: in RTL, on the model of their time, or as hosts that reduce themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from fanin.base.errors import CheckFailed
from fanin.evaluation.models.smart_nic_paper import fitted
from fanin.link import LinkConfig
from fanin.ring.page.trace import ring_trace
from fanin.ring.run.backend import Outputs, Progress, Result
from fanin.sim.learning.references import References
from fanin.sim.learning.replica import DataParallel, Dataset, State, train
from fanin.sim.link_log import LinkLog
from fanin.sim.ring.groups_time import exchange_seconds
from fanin.sim.ring.model import nic_seconds, on_cores, run_model
from fanin.sim.ring.training import Outcome, RingTraining, references


@dataclass(frozen=True)
class _Ring(ABC):
    """Base of the backends for smart NICs; ``job``: the job as it is run."""

    job: RingTraining

    @property
    def training(self) -> DataParallel:
        """The training: network, data sizes and hyper-parameters."""
        return self.job.training

    @property
    def nodes(self) -> int:
        """Number of ring nodes."""
        return self.job.nodes

    @property
    def exchanges(self) -> int:
        """All-reduces per step: one per layer."""
        return self.training.network.layers

    def references(self, data: Dataset) -> References:
        """Train in NumPy with the ring's arithmetic."""
        return references(self.job, data)

    def golden(self, data: Dataset, epochs: int, state: State) -> State:
        """Train the golden model with the ring's arithmetic."""
        exchange = self.job.reducer(self.job.config, state.step)
        return train(replace(self.training, epochs=epochs), data, exchange, state=state)

    def run(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Result:
        """Run the job; only RTL has counters and rounds."""
        outcome = self._run_job(data, state, outputs, progress)
        rounds = [{"round": number, **asdict(figures)} for number, figures in enumerate(outcome.rounds)]
        return Result(
            epochs=outcome.epochs,
            state=outcome.state,
            seconds=outcome.seconds,
            iteration=self._iteration(outcome),
            times=outcome.times,
            counters=outcome.counters,
            traffic=rounds,
            start=outcome.start,
        )

    def trace(self, state: State, result: Result | None, log: LinkLog) -> str:
        """Return the timeline of the hosts' work, all-reduces by phase, and frames."""
        times, start = (result.times, result.start) if result else ((), 0.0)
        return ring_trace(self.job, times, log, start=start, first_step=state.step)

    @abstractmethod
    def _run_job(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Outcome:
        """Run the job."""

    def _iteration(self, outcome: Outcome) -> dict[str, float]:
        """Return the seconds of an iteration's parts at node 0.

        ``exposed``: waits for all-reduces. ``posting``: the remainder, for descriptors and status reads.
        """
        counts, batch, profile = self.training.network.counts, self.training.batch, self.job.profile
        first = outcome.times[0]
        parts = {
            "forward": sum(profile.forward(count, batch) for count in counts),
            "backward": sum(profile.backward(count, batch) for count in counts),
            "exposed": first.blocked / len(first.steps),
            "update": sum(profile.update(count) for count in counts),
        }
        return parts | {"posting": max(outcome.step_seconds - sum(parts.values()), 0.0)}


@dataclass(frozen=True)
class Rtl(_Ring):
    """Backend of ring nodes in Verilator; every sum is compared with the golden model's."""

    link: LinkConfig

    def _run_job(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Outcome:
        from fanin.sim.cosim.simulator import SimulationFailed
        from fanin.sim.ring.train_cosim import run_rtl  # Amaranth takes a second to load

        try:
            return run_rtl(
                self.job, data, state, link=self.link, progress=progress, quiet=False, **vars(outputs)
            )
        except SimulationFailed as failure:
            raise CheckFailed(" ".join(str(failure).split())) from failure


@dataclass(frozen=True)
class Model(_Ring):
    """Backend on the event model, without frames; an all-reduce of n values takes ``seconds(n)``."""

    seconds: Callable[[int], float]

    def _run_job(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Outcome:
        return run_model(self.job, data, state, seconds=self.seconds, progress=progress)


def nic_model(job: RingTraining, link: LinkConfig) -> Model:
    """Return the model of the NICs' time; PCIe limits the rate of their memory."""
    config, memory_gbps = job.config, job.profile.pcie / 1e9
    if job.groups:
        plan = job.groups.plan
        seconds = exchange_seconds(config, plan, link, barrier=job.barrier, memory_gbps=memory_gbps)
    else:
        seconds = nic_seconds(config, job.training.nodes, link, memory_gbps=memory_gbps)
    return Model(job, seconds)


def cores(job: RingTraining) -> Model:
    """Return the paper's baseline: hosts that add up on their own cores, with MPI and a conventional NIC."""
    return Model(*on_cores(job, fitted().cores()))
