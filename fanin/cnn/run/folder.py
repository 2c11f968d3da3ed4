"""Reader of the folder of ``fanin cluster run``: builds, data, hyper-parameters and checkpoints."""

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

BUILD, BUILDS = "build", "builds"  #: folders of a run: of its first build, and of later ones

Metrics = dict[str, Any]


def state_file(place: Place) -> str:
    """Return the file name of the checkpoint at ``place``. Names sort in the order of training."""
    return state_name(place.epoch, place.frame)


@dataclass(frozen=True)
class UsedBuild:
    """Build that a run has used."""

    folder: str  #: folder of the build in the run's folder
    since: str  #: file name of the checkpoint from which the build has trained
    build: Build


@dataclass(frozen=True)
class Run:
    """Run as read from its folder."""

    folder: Path
    builds: tuple[UsedBuild, ...]  #: builds in the order of use
    on: str  #: machine that trains: RTL or GOLDEN
    training: Training
    data: str  #: name of the images
    data_digest: str  #: SHA-256 of the images
    states: tuple[str, ...]  #: file names of the checkpoints; the first is before any training
    epochs: tuple[Metrics, ...]  #: ``epochs`` of run.json
    hardware: Metrics | None  #: ``hardware`` of run.json
    conditions: Conditions
    error: str | None  #: cause of an unfinished run; None for a finished one

    @property
    def network(self) -> Network:
        """Network of the last build. All builds have the same model."""
        return self.builds[-1].build.planned.network

    def check_states(self, frames: int) -> None:
        """Raise InputError unless the checkpoints are those of the training's first stretches, in order.

        A finished run must have the checkpoints of all stretches. ``frames``: frames of an epoch.
        """
        places = [Place(), *(stretch.end_place for stretch in self.training.stretches(frames))]
        expected, mark, names = [*map(state_file, places)], self.folder / CLUSTER_RUN.mark, list(self.states)
        wrong = next(
            (name for name, expected_name in zip(names, expected, strict=False) if name != expected_name), None
        )
        if wrong or len(names) > len(expected):
            raise InputError(
                f"{mark}: checkpoints: {wrong or names[len(expected)]} is no state of this training"
            )
        if self.error is None and len(names) < len(expected):
            raise InputError(f"{mark}: checkpoints: names {len(names)} of {len(expected)} states")

    def build_for(self, name: str) -> UsedBuild:
        """Return the build that trained up to checkpoint ``name``; the first build for the first one."""
        return next((used for used in reversed(self.builds) if used.since < name), self.builds[0])

    def state(self, name: str) -> Checkpoint:
        """Read checkpoint ``name``. Raises InputError of one line if it is damaged or of another run."""
        path, network = self.folder / name, self.build_for(name).build.planned.network
        checkpoint = load_checkpoint(path, network)
        info = checkpoint.info
        if (info.network, info.data, info.training) != (
            network.digest,
            self.data_digest,
            training_json(self.training),
        ):
            raise InputError(f"{path}: is a state of another run")
        if state_file(info.place) != name:
            raise InputError(f"{path}: is the state after epoch {info.epoch} and {info.frame:,} frames")
        return checkpoint

    def newest_intact(self) -> tuple[str, Checkpoint, InputError | None]:
        """Return file name and contents of the newest undamaged checkpoint, and the damage of newer ones.

        The damage is the newest checkpoint's error; None if the newest checkpoint is intact. Raises InputError
        if all checkpoints are damaged.
        """
        newest_error = None
        for name in reversed(self.states):
            try:
                return name, self.state(name), newest_error
            except InputError as error:
                newest_error = newest_error or error
        raise InputError(f"{self.folder}: no state is whole: {newest_error}")


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


def _builds(folder: Path, records: list[Record]) -> tuple[UsedBuild, ...]:
    if not records:
        raise InputError(f"{folder / CLUSTER_RUN.mark}: builds: must name at least one")
    return tuple(
        UsedBuild(name := record.text("folder"), record.text("from"), open_build(folder / name))
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
