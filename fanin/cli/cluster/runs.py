"""The folder of ``fanin cluster run``, read back: what was trained on what, and the states on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fanin.cli.cluster.builds import open_build
from fanin.cli.cluster.checkpoint import Checkpoint, load_checkpoint
from fanin.cli.output import CLUSTER_RUN, open_kind
from fanin.cnn import Network
from fanin.cnn_training import Schedule, Stretch, Training
from fanin.errors import InputError
from fanin.records import Record

BUILD, STATES = "build", "states"  #: folders of a run


def state_file(epoch: int, frame: int) -> str:
    """The file of the state behind so many epochs, and frames of the next one; names sort as states follow."""
    return f"{STATES}/epoch{epoch:06}-{frame:08}.npz"


@dataclass(frozen=True)
class Run:
    """A run. ``states``: files in its folder, the first one before any training."""

    folder: Path
    network: Network
    training: Training
    data: str
    data_digest: str
    states: tuple[str, ...]
    error: str | None  #: why it has not trained to its end, if it has not

    def check_states(self, frames: int) -> None:
        """Raise InputError unless the states are those of the training on so many frames, up to some stretch.

        A run that trained to its end has all of them.
        """
        due = [state_file(0, 0)]
        for stretch in self.training.stretches(frames):
            ends = stretch.end == frames
            due.append(state_file(stretch.epoch + ends, 0 if ends else stretch.end))
        mark, found = self.folder / CLUSTER_RUN.mark, list(self.states)
        wrong = next((name for name, right in zip(found, due, strict=False) if name != right), None)
        if wrong or len(found) > len(due):
            raise InputError(f"{mark}: checkpoints: {wrong or found[len(due)]} is no state of this training")
        if self.error is None and len(found) < len(due):
            raise InputError(f"{mark}: checkpoints: names {len(found)} of {len(due)} states")

    def state(self, name: str) -> Checkpoint:
        """One of its states. Raises InputError."""
        found = load_checkpoint(self.folder / name, self.network)
        if found.about.network != self.network.digest or found.about.data != self.data_digest:
            raise InputError(f"{self.folder / name}: is a state of another run")
        return found

    def place(self, name: str, stretch: Stretch | None, frames: int) -> Checkpoint:
        """The state behind a stretch of epochs of so many frames, or before the first. Raises InputError."""
        found = self.state(name)
        ends = stretch is not None and stretch.end == frames
        epoch = stretch.epoch + ends if stretch else 0
        frame = 0 if stretch is None or ends else stretch.end
        if (found.about.epoch, found.about.frame) != (epoch, frame):
            raise InputError(
                f"{self.folder / name}: is not the state behind epoch {epoch} and {frame:,} frames"
            )
        return found


def open_run(folder: Path) -> Run:
    """The run in a folder. Raises InputError of one line."""
    record = open_kind(folder, CLUSTER_RUN, "fanin cluster run")
    data, states = record.record("data"), record.texts("checkpoints")
    error = record.value.get("error")
    if not states:
        raise record.wrong('"checkpoints" must name a state at least')
    return Run(
        folder=folder,
        network=open_build(folder / BUILD).planned.network,
        training=_training(record.record("training")),
        data=data.text("name"),
        data_digest=data.text("sha256"),
        states=states,
        error=error if isinstance(error, str) else None,
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
