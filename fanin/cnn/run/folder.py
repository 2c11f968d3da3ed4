"""Reading the folder of ``fanin cluster run``: builds, data, hyper-parameters and checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record
from fanin.cnn.facts import Network
from fanin.cnn.run.build import Build, open_build
from fanin.cnn.run.checkpoint import Checkpoint, load_checkpoint
from fanin.cnn.run.conditions import Conditions, recorded_conditions
from fanin.cnn.run.machine import GOLDEN, RTL
from fanin.cnn.training import Place, Schedule, Training
from fanin.runs.output import CLUSTER_RUN, open_kind
from fanin.runs.states import state_name

BUILD, BUILDS = "build", "builds"  #: folders of a run

Metrics = dict[str, Any]


def state_file(place: Place) -> str:
    """Return the file name of the checkpoint at a place of the training. Names sort in order of training."""
    return state_name(place.epoch, place.frame)


@dataclass(frozen=True)
class Used:
    """Build of a run. ``folder``: its folder in the run; ``since``: checkpoint from which it has trained."""

    folder: str
    since: str
    build: Build


@dataclass(frozen=True)
class Run:
    """Run read from its folder. ``states``: checkpoint files, the first one before any training.

    ``epochs`` and ``hardware``: entries of run.json.
    """

    folder: Path
    builds: tuple[Used, ...]
    on: str
    training: Training
    data: str
    data_digest: str
    states: tuple[str, ...]
    epochs: tuple[Metrics, ...]
    hardware: Metrics | None
    conditions: Conditions
    error: str | None  #: cause of an unfinished run; None for a finished one

    @property
    def network(self) -> Network:
        """Network of the last build; the model is the same in all builds."""
        return self.builds[-1].build.planned.network

    def check_states(self, frames: int) -> None:
        """Raise InputError unless the checkpoints are those of the training up to some stretch.

        A finished run must have all of them. ``frames``: frames of an epoch.
        """
        places = [Place(), *(stretch.behind for stretch in self.training.stretches(frames))]
        due, mark, found = [*map(state_file, places)], self.folder / CLUSTER_RUN.mark, list(self.states)
        wrong = next((name for name, right in zip(found, due, strict=False) if name != right), None)
        if wrong or len(found) > len(due):
            raise InputError(f"{mark}: checkpoints: {wrong or found[len(due)]} is no state of this training")
        if self.error is None and len(found) < len(due):
            raise InputError(f"{mark}: checkpoints: names {len(found)} of {len(due)} states")

    def used_for(self, name: str) -> Used:
        """Return the build that trained up to a checkpoint; for the first checkpoint, the first build."""
        return next((used for used in reversed(self.builds) if used.since < name), self.builds[0])

    def state(self, name: str) -> Checkpoint:
        """Read a checkpoint. Raises InputError of one line if it is damaged or of another run."""
        path, network = self.folder / name, self.used_for(name).build.planned.network
        found = load_checkpoint(path, network)
        about = found.about
        if (about.network, about.data, about.training) != (
            network.digest,
            self.data_digest,
            training_json(self.training),
        ):
            raise InputError(f"{path}: is a state of another run")
        if state_file(about.place) != name:
            raise InputError(f"{path}: is the state after epoch {about.epoch} and {about.frame:,} frames")
        return found

    def last_whole(self) -> tuple[str, Checkpoint, InputError | None]:
        """Return the newest undamaged checkpoint, and the newest one's error, if any. Raises InputError."""
        newest = None
        for name in reversed(self.states):
            try:
                return name, self.state(name), newest
            except InputError as error:
                newest = newest or error
        raise InputError(f"{self.folder}: no state is whole: {newest}")


def open_run(folder: Path) -> Run:
    """Read the run in a folder. Raises InputError of one line."""
    record = open_kind(folder, CLUSTER_RUN, "fanin cluster run")
    data, states = record.record("data"), record.texts("checkpoints")
    error = record.value.get("error")
    if not states:
        raise InputError(f"{folder}: has no state: the run stopped before its first one")
    hardware = record.value.get("hardware")
    return Run(
        folder=folder,
        builds=_builds(folder, record.records("builds")),
        on=record.text("on", (RTL, GOLDEN)),
        training=_training(record.record("training")),
        data=data.text("name"),
        data_digest=data.text("sha256"),
        states=states,
        epochs=tuple(epoch.value for epoch in record.records("epochs")),
        hardware=hardware if isinstance(hardware, dict) else None,
        conditions=recorded_conditions(record.record("conditions")),
        error=error if isinstance(error, str) else None,
    )


def _builds(folder: Path, records: list[Record]) -> tuple[Used, ...]:
    if not records:
        raise InputError(f"{folder / CLUSTER_RUN.mark}: builds: must name at least one")
    return tuple(
        Used(name := record.text("folder"), record.text("from"), open_build(folder / name))
        for record in records
    )


def _training(record: Record) -> Training:
    return record.build(
        lambda: Training(
            epochs=record.integer("epochs"),
            batch=record.integer("batch"),
            rate=float(record.number("rate")),
            momentum=float(record.number("momentum")),
            schedule=Schedule.parse(record.text("schedule")),
            seed=record.integer("seed"),
            checkpoint=record.optional("checkpoint"),
        )
    )


def training_json(training: Training) -> dict[str, Any]:
    """Return the hyper-parameters as JSON."""
    return asdict(training) | {"schedule": str(training.schedule)}
