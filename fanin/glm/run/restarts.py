"""Fault tolerance of training: checkpoints during the run, and restarts from the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError, ToolFailed
from fanin.base.printable import print_note
from fanin.glm.run.progress import ProgressReporter, simulate
from fanin.glm.run.state import About, load, names_of, save
from fanin.host.board import BoardError
from fanin.job import FIRST_JOB, JOBS, SLOTS
from fanin.runs.states import state_name
from fanin.runs.unfinished import cause_of
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.glm.course import Course, History, TrainRun, first_course
from fanin.sim.glm.train import Trainer
from fanin.sim.nic.agreement import SLOTS as AGREEMENT_SLOTS
from fanin.sim.nic.agreement import Agreement

FAILURES = (SimulationFailed, ToolFailed)  #: failures of nodes, after which another attempt may succeed


@dataclass
class Survival:
    """Fault tolerance of a command's runs, and their restarts so far.

    - ``checkpoint``: epochs between two states; None for no states.
    - ``restart``: number of restarts left.
    - ``about``: makes a state's description of the training from a job id; None without states.
    - ``job``: id of the current job.
    - ``joined``: whether all workers are known to have joined this job.
    - ``in_place``: True if the run's folder is written during the run, so that its states survive a failure.
      False if the folder appears as a whole at the end.
    - ``restarts``: per restart so far, its cause ``error``, the ``epoch`` it started after, and its ``job``.
    """

    checkpoint: int | None = None
    restart: int = 0
    about: Callable[[int], About] | None = None
    job: int = FIRST_JOB
    joined: bool = False
    in_place: bool = False
    restarts: list[dict[str, Any]] = field(default_factory=list)

    def next_job(self) -> None:
        """Take the next job id, so packets of earlier jobs are recognised; id 0 is skipped."""
        self.job, self.joined = self.job % (JOBS - 1) + 1, False


class Attempts:
    """Attempts to train one model of a run with states or restarts (``Survival.in_place``).

    An attempt is one simulation, and one job at the switch. It starts from the last state and ends with the
    last epoch or with a failure. After a failure, ``train`` begins another attempt while restarts are left.

    - ``history``: epochs up to the last state. Initially these are the epochs that an earlier run has finished;
      None: the first attempt starts with epoch 1.
    - ``on_change``: called when the fields of ``as_json`` have changed.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: Path,
        survival: Survival,
        history: History | None,
        on_change: Callable[[], None],
    ):
        self.folder, self.survival, self.history = folder, survival, history
        self._trainer, self._on_change = trainer, on_change
        self._before_attempt = history  # epochs before the current attempt
        self._seconds = 0.0  # simulated time of failed attempts

    @property
    def earlier(self) -> History | None:
        """Epochs before the last attempt; None if that attempt started with epoch 1."""
        return self._before_attempt

    def course(self) -> Course:
        """Return the remaining epochs, and the job that trains them."""
        survival, history = self.survival, self.history
        return Course(
            first=history.epoch if history else 0,
            model=history.model if history else None,
            job=survival.job,
            base=self._base,
            checkpoint=survival.checkpoint,
            keep=self._keep if survival.checkpoint else None,
        )

    def train(self, reporter: ProgressReporter, pcap: Path) -> TrainRun:
        """Train to the end; return the last attempt. Raises the last failure if no restart is left."""
        while True:
            if self.course().first == self._trainer.training.epochs:  # the last state has all epochs
                reporter.begin(self._trainer)
                return TrainRun()
            try:
                return self._attempt(reporter, pcap)
            except FAILURES as failure:
                if not self.survival.restart:
                    raise
                self._restart(failure)

    def _attempt(self, reporter: ProgressReporter, pcap: Path) -> TrainRun:
        """Train from the last state to the end. Raises the failure that stopped the attempt."""
        self._agree()
        course, self._before_attempt = self.course(), self.history
        try:
            return simulate(self._trainer, course, pcap, reporter, elapsed=self._seconds)
        except BoardError as error:
            if not self.survival.restarts:
                raise
            raise ToolFailed(str(error)) from error  # the board answered before and may do so again

    @property
    def _base(self) -> int:
        """First slot of the current job; jobs at an external switch follow one another."""
        network = self._trainer.training.network
        first = first_course(network)
        if not network.ports:
            return first.base
        base = first.base + (self.survival.job - first.job) % (JOBS - 1) * self._slots_each
        end = base + (self._slots_each if network.here else self._trainer.nodes.program(network).slots)
        if end > SLOTS:
            raise InputError(f"job {self.survival.job} needs slots {base} to {end - 1}; a switch has {SLOTS}")
        return base

    @property
    def _slots_each(self) -> int:
        """Slots per job at an external switch: those of the nodes, and as many for the workers' agreement."""
        if tree := self._trainer.training.network.tree:
            return tree.root.part.slots
        return 2 * max(self._trainer.nodes.program(self._trainer.training.network).slots, AGREEMENT_SLOTS)

    def _agree(self) -> None:
        """Agree with the other processes on the epoch to start from: the least of all processes' last states.

        The agreement is an AllReduce of its own, in the upper half of the job's slots. A process that has all
        workers skips it.
        """
        survival, training = self.survival, self._trainer.training
        network = training.network
        if network.here:
            epoch = self.history.epoch if self.history else 0
            agreement = Agreement(
                network.ports,
                network.here,
                tree=network.tree,
                job=survival.job,
                base=self._base + self._slots_each // 2,
                encap=training.node.encap,
                values=training.node.values,
                timeout=max(network.retries, 1) * network.ceiling_ns * network.slowdown * 1e-9,
            )
            if (common_epoch := agreement.minimum(epoch)) != epoch:
                self.history = load(self.folder / state_name(common_epoch)).history if common_epoch else None
        survival.joined = True
        self._on_change()

    def _restart(self, failure: BaseException) -> None:
        """Prepare the next attempt: a new job that starts from the last state."""
        survival, training = self.survival, self._trainer.training
        if isinstance(failure, SimulationFailed) and failure.result:
            self._seconds += failure.result.cycles / (training.clock_mhz * 1e6)
        survival.restart -= 1
        if survival.joined:
            survival.next_job()
        epoch = self.history.epoch if self.history else 0
        survival.restarts.append({"error": cause_of(failure), "epoch": epoch, "job": survival.job})
        place = f"after epoch {epoch}" if epoch else "from the start"
        print_note(f"fanin: warning: {cause_of(failure)}; restarts {place} as job {survival.job}")
        self._on_change()

    def _keep(self, run: TrainRun) -> None:
        """Write a state, unless the run's model differs from the golden one: such a state is never resumed."""
        history = self._trainer.history(run, self._before_attempt)
        if history is None:
            return
        assert self.survival.about is not None
        save(self.folder, self.survival.about(self.survival.job), history)
        self.history = history
        self._on_change()

    def as_json(self) -> dict[str, Any]:
        """Return the fields of run.json about states and restarts."""
        survival = self.survival
        joined = {"job": survival.job} if survival.joined else {}
        return {"checkpoints": names_of(self.folder), "restarts": survival.restarts, **joined}
