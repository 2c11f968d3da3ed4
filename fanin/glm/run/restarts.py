"""Training that survives: checkpoints on the way, and restarts from the last one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fanin.base.errors import ToolFailed
from fanin.glm.run.progress import Following
from fanin.glm.run.state import About, load, names_of, save
from fanin.host.board import BoardError
from fanin.job import JOBS
from fanin.runs.states import state_name
from fanin.runs.unfinished import cause_of
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.glm.course import JOB_ID, Course, History, TrainRun
from fanin.sim.glm.train import Trainer
from fanin.sim.nic.agreement import SLOTS as AGREEMENT_SLOTS
from fanin.sim.nic.agreement import Agreement

FAILURES = (SimulationFailed, ToolFailed)  #: of nodes; another attempt may succeed


@dataclass
class Survival:
    """How the runs of a command survive, and what has happened to them.

    ``checkpoint`` : epochs between two states; None: there are none
    ``restart`` : restarts that are left
    ``about`` : the training, for states; None where there are none
    ``job`` : id of the job that trains
    ``joined`` : whether all workers have come to that job, as far as is known
    ``lasting`` : whether the folder is written while the run goes on
    ``restarts`` : of each restart: ``error``, ``epoch`` from which it began, and ``job``
    """

    checkpoint: int | None = None
    restart: int = 0
    about: Callable[[int], About] | None = None
    job: int = JOB_ID
    joined: bool = False
    lasting: bool = False
    restarts: list[dict[str, Any]] = field(default_factory=list)

    def next_job(self) -> None:
        """Take a new id, which no packet of an earlier job has; 0 is left out."""
        self.job, self.joined = self.job % (JOBS - 1) + 1, False


class Attempts:
    """A training in a folder, attempt by attempt. ``history``: epochs that are done, if any are."""

    def __init__(
        self,
        trainer: Trainer,
        folder: Path,
        survival: Survival,
        history: History | None,
        changed: Callable[[], None],
    ):
        self.folder, self.survival, self.history = folder, survival, history
        self._trainer, self._changed = trainer, changed
        self._before = history  # of the attempt
        self._seconds = 0.0  # simulated, of attempts that have failed

    @property
    def earlier(self) -> History | None:
        """Epochs before the attempt that has trained last."""
        return self._before

    def course(self) -> Course:
        """What is left to train, and as which job."""
        survival, history = self.survival, self.history
        apart = survival.lasting and self._trainer.options.network.ports
        return Course(
            first=history.epoch if history else 0,
            model=history.model if history else None,
            job=survival.job,
            base=(survival.job - 1) * self._slots_each if apart else 0,
            checkpoint=survival.checkpoint,
            keep=self._keep if survival.checkpoint else None,
        )

    def train(self, follow: Following, pcap: Path) -> TrainRun:
        """Train to the end; return the last attempt. Raises what has stopped it, where no restart is left."""
        while True:
            if self.course().first == self._trainer.options.epochs:
                follow.begin(self._trainer)
                return TrainRun()
            try:
                return self._attempt(follow, pcap)
            except FAILURES as failure:
                if not self.survival.restart:
                    raise
                self._restart(failure)

    def _attempt(self, follow: Following, pcap: Path) -> TrainRun:
        """Train from the last state to the end. Raises what has stopped it."""
        self._agree()
        course, self._before = self.course(), self.history
        try:
            with follow.training(self._trainer, course.first) as progress:
                return self._trainer.simulate(course=course, stops=self._stops(), pcap=pcap, progress=progress)
        except BoardError as error:
            if not self.survival.restarts:
                raise
            raise ToolFailed(str(error)) from error  # a board that was there before: it may come back

    @property
    def _slots_each(self) -> int:
        """Slots of a job at an outside switch: the nodes', and as many for the workers' agreement."""
        return 2 * max(self._trainer.nodes.program(self._trainer.options.network).slots, AGREEMENT_SLOTS)

    def _agree(self) -> None:
        """Begin where all workers can: at the least epoch of those that their processes have states of.

        A process with all workers need not ask.
        """
        survival, options = self.survival, self._trainer.options
        network = options.network
        if survival.lasting and network.here:
            epoch = self.history.epoch if self.history else 0
            base = (survival.job - 1) * self._slots_each + self._slots_each // 2
            agreement = Agreement(
                network.ports,
                network.here,
                job=survival.job,
                base=base,
                encap=options.node.encap,
                values=options.node.values,
                patience=max(network.retries, 1) * network.timeout_ns * network.slowdown * 1e-9,
            )
            if (least := agreement.least(epoch)) != epoch:
                self.history = load(self.folder / state_name(least)).history if least else None
        survival.joined = True
        self._changed()

    def _restart(self, failure: BaseException) -> None:
        """Prepare the next attempt: a new job, from the last state."""
        survival, options = self.survival, self._trainer.options
        if isinstance(failure, SimulationFailed) and failure.result:
            self._seconds += failure.result.cycles / (options.clock_mhz * 1e6)
        survival.restart -= 1
        if survival.joined:
            survival.next_job()
        epoch = self.history.epoch if self.history else 0
        survival.restarts.append({"error": cause_of(failure), "epoch": epoch, "job": survival.job})
        where = f"after epoch {epoch}" if epoch else "from the start"
        print(f"fanin: warning: {cause_of(failure)}; restarts {where} as job {survival.job}", file=sys.stderr)
        self._changed()

    def _stops(self) -> tuple[tuple[int, float], ...]:
        """Workers that stop in the next attempt: those that have stopped before are replaced."""
        stops = self._trainer.options.network.stops
        return tuple((worker, when - self._seconds) for worker, when in stops if when > self._seconds)

    def _keep(self, run: TrainRun) -> None:
        """Write a state, unless the run's bits are not golden: nothing goes on from such ones."""
        history = self._trainer.history(run, self._before)
        if history is None:
            return
        assert self.survival.about is not None
        save(self.folder, self.survival.about(self.survival.job), history)
        self.history = history
        self._changed()

    def states(self) -> list[str]:
        """The states in the folder."""
        return names_of(self.folder)
