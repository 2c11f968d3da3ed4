"""The smart NIC's ring as a backend: in RTL, on the model of its time, or as hosts that reduce themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from fanin.base.errors import CheckFailed
from fanin.evaluation.models.smart_nic_paper import fitted
from fanin.ring.page.trace import ring_trace
from fanin.ring.run.backend import Outputs, Progress, Result
from fanin.sim.learning.references import References
from fanin.sim.learning.replica import DataParallel, Dataset, State, train
from fanin.sim.link_log import LinkLog
from fanin.sim.network import LinkConfig
from fanin.sim.ring.groups_time import exchange_seconds
from fanin.sim.ring.model import nic_seconds, on_cores, run_model
from fanin.sim.ring.training import Outcome, RingTraining, references


@dataclass(frozen=True)
class _Ring(ABC):
    """What these backends have in common; ``job`` is as it is carried out."""

    job: RingTraining

    @property
    def training(self) -> DataParallel:
        """What is trained."""
        return self.job.training

    @property
    def nodes(self) -> int:
        """Ring nodes."""
        return self.job.nodes

    @property
    def exchanges(self) -> int:
        """One for each layer."""
        return self.training.network.layers

    def references(self, data: Dataset) -> References:
        """With the ring's arithmetic."""
        return references(self.job, data)

    def golden(self, data: Dataset, epochs: int, state: State) -> State:
        """With the ring's arithmetic."""
        exchange = self.job.reducer(self.job.config)
        return train(replace(self.training, epochs=epochs), data, exchange, state=state)

    def run(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Result:
        """Counters and rounds are those of RTL alone."""
        outcome = self._outcome(data, state, outputs, progress)
        rounds = [{"round": number, **asdict(each)} for number, each in enumerate(outcome.rounds)]
        return Result(
            outcome.epochs,
            outcome.state,
            outcome.seconds,
            self._iteration(outcome),
            outcome.times,
            outcome.counters,
            rounds,
            outcome.began,
        )

    def trace(self, state: State, result: Result | None, log: LinkLog) -> str:
        """What hosts do, all-reduces by their phases, frames."""
        times, began = (result.times, result.began) if result else ((), 0.0)
        return ring_trace(self.job, times, log, began=began, first_step=state.step)

    @abstractmethod
    def _outcome(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Outcome:
        """Carry it out."""

    def _iteration(self, outcome: Outcome) -> dict[str, float]:
        """At node 0. ``posting`` is what is left: descriptors written, the status read."""
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
    """Ring nodes in Verilator: every sum is compared with the golden model's."""

    link: LinkConfig

    def _outcome(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Outcome:
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
    """The golden sums; an all-reduce of so many values takes ``seconds``. There are no frames."""

    seconds: Callable[[int], float]

    def _outcome(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Outcome:
        return run_model(self.job, data, state, seconds=self.seconds, progress=progress)


def nic_model(job: RingTraining, link: LinkConfig) -> Model:
    """In the time of the NICs' model; PCIe gives and takes their memory's words."""
    config, memory_gbps = job.config, job.profile.pcie / 1e9
    if job.groups:
        plan = job.groups.plan
        seconds = exchange_seconds(config, plan, link, barrier=job.barrier, memory_gbps=memory_gbps)
    else:
        seconds = nic_seconds(config, job.training.nodes, link, memory_gbps=memory_gbps)
    return Model(job, seconds)


def cores(job: RingTraining) -> Model:
    """The paper's baseline: hosts that add up on their own cores, with MPI and a conventional NIC."""
    return Model(*on_cores(job, fitted().cores()))
