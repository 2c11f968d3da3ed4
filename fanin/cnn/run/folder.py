"""The folder of ``fanin cluster run``, read back: what was trained on what, and the states on the way."""

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
    """The file of the state at a place of the training; names sort as states follow."""
    return state_name(place.epoch, place.frame)


@dataclass(frozen=True)
class Used:
    """A build of a run, in one of its folders, which has trained from the state ``since`` on."""

    folder: str
    since: str
    build: Build


@dataclass(frozen=True)
class Run:
    """A run. ``states``: files in its folder, the first one before any training.

    ``epochs`` and ``hardware`` are as run.json has them.
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
    error: str | None  #: why it has not trained to its end, if it has not

    @property
    def network(self) -> Network:
        """Of its last build; the model is the same in all."""
        return self.builds[-1].build.planned.network

    def check_states(self, frames: int) -> None:
        """Raise InputError unless the states are those of the training on so many frames, up to some stretch.

        A run that trained to its end has all of them.
        """
        places = [Place(), *(stretch.behind for stretch in self.training.stretches(frames))]
        due, mark, found = [*map(state_file, places)], self.folder / CLUSTER_RUN.mark, list(self.states)
        wrong = next((name for name, right in zip(found, due, strict=False) if name != right), None)
        if wrong or len(found) > len(due):
            raise InputError(f"{mark}: checkpoints: {wrong or found[len(due)]} is no state of this training")
        if self.error is None and len(found) < len(due):
            raise InputError(f"{mark}: checkpoints: names {len(found)} of {len(due)} states")

    def used_for(self, name: str) -> Used:
        """What trained to a state; for the first one, what began with it."""
        return next((used for used in reversed(self.builds) if used.since < name), self.builds[0])

    def state(self, name: str) -> Checkpoint:
        """One of its states. Raises InputError of one line for one that is not whole, or another's."""
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
            raise InputError(f"{path}: is the state behind epoch {about.epoch} and {about.frame:,} frames")
        return found

    def last_whole(self) -> tuple[str, Checkpoint, InputError | None]:
        """The newest state that is whole, and what is wrong with the very newest. Raises InputError."""
        newest = None
        for name in reversed(self.states):
            try:
                return name, self.state(name), newest
            except InputError as error:
                newest = newest or error
        raise InputError(f"{self.folder}: none of its states is whole: {newest}")


def open_run(folder: Path) -> Run:
    """The run in a folder. Raises InputError of one line."""
    record = open_kind(folder, CLUSTER_RUN, "fanin cluster run")
    data, states = record.record("data"), record.texts("checkpoints")
    error = record.value.get("error")
    if not states:
        raise InputError(f"{folder}: has no state: it was stopped before it had kept its first one")
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
        raise InputError(f"{folder / CLUSTER_RUN.mark}: builds: must name one at least")
    return tuple(
        Used(name := record.text("folder"), record.text("from"), open_build(folder / name))
        for record in records
    )


def _training(record: Record) -> Training:
    return record.built(
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
    """The hyper-parameters as JSON."""
    return asdict(training) | {"schedule": str(training.schedule)}
