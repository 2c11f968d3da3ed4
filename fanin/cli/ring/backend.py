"""What ``fanin ring train`` runs on: RTL, the model of the NIC's time, or hosts that reduce themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fanin.errors import CheckFailed
from fanin.sim.learning.replica import Dataset, State
from fanin.sim.network import LinkConfig
from fanin.sim.ring.model import nic_seconds, on_cores, run_model
from fanin.sim.ring.smart_nic_paper import fitted
from fanin.sim.ring.training import Outcome, RingTraining


class Progress(Protocol):
    """Is told how many steps of the run all nodes have made."""

    def __call__(self, steps: int) -> None:
        """Show it."""


class Backend(Protocol):
    """Carries a run out.

    Raises CheckFailed of one line where the run cannot be ended: with the node that is silent, with where a
    gradient is not finite, or with the sum or the weights that differ.
    """

    def job(self, job: RingTraining) -> RingTraining:
        """The job as it is carried out: a backend may have times and sums of its own."""

    def run(
        self, job: RingTraining, data: Dataset, state: State, *, pcap: Path | None, progress: Progress
    ) -> Outcome:
        """Carry it out, on from a state; all frames go to ``pcap``."""


@dataclass(frozen=True)
class Rtl:
    """Ring nodes in Verilator."""

    link: LinkConfig

    def job(self, job: RingTraining) -> RingTraining:
        """The same."""
        return job

    def run(
        self, job: RingTraining, data: Dataset, state: State, *, pcap: Path | None, progress: Progress
    ) -> Outcome:
        """Every sum is compared with the golden model's."""
        from fanin.sim.cosim.simulator import SimulationFailed
        from fanin.sim.ring.train_cosim import run_rtl  # Amaranth takes a second to load

        try:
            return run_rtl(job, data, state, link=self.link, pcap=pcap, progress=progress, quiet=False)
        except SimulationFailed as failure:
            raise CheckFailed(" ".join(str(failure).split())) from failure


@dataclass(frozen=True)
class NicModel:
    """The golden sums, in the time of the NIC's model."""

    link: LinkConfig

    def job(self, job: RingTraining) -> RingTraining:
        """The same."""
        return job

    def run(
        self, job: RingTraining, data: Dataset, state: State, *, pcap: Path | None, progress: Progress
    ) -> Outcome:
        """There are no frames."""
        seconds = nic_seconds(job.config, job.training.nodes, self.link)
        return run_model(job, data, state, seconds=seconds, progress=progress)


@dataclass(frozen=True)
class Cores:
    """The paper's baseline: hosts that add up on their own cores, with MPI and a conventional NIC."""

    def job(self, job: RingTraining) -> RingTraining:
        """With a backward pass that some cores are missing to."""
        return on_cores(job, fitted().cores())[0]

    def run(
        self, job: RingTraining, data: Dataset, state: State, *, pcap: Path | None, progress: Progress
    ) -> Outcome:
        """There are no frames."""
        _, seconds = on_cores(job, fitted().cores())
        return run_model(job, data, state, seconds=seconds, progress=progress)
