"""Diagnosis of a CNN's training on a cluster: progress, cause of its end, and how to continue."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record, open_record
from fanin.cnn.run.folder import open_run
from fanin.cnn.training import Place
from fanin.hdl.net.link.job import LinkFailure
from fanin.host.causes import explain_name
from fanin.runs.diagnosis import Diagnosis
from fanin.runs.lock import writer_of
from fanin.runs.output import CLUSTER_RUN, table


@dataclass(frozen=True)
class EndDiagnosis:
    """Counters of one end of a connection."""

    source: str  #: name of the layer whose map is sent
    consumer: str  #: name of the layer that receives the map
    device: str  #: name of the end's device
    counted: dict[str, Any]  #: number of frames by counter; ``failure``: name of a LinkFailure, or None

    def row(self) -> list[str]:
        """Return the counters in words."""
        counts = (
            f"{name.replace('_', ' ')} {self._text(value)}"
            for name, value in self.counted.items()
            if value is not None
        )
        return [f"{self.source} to {self.consumer}, {self.device}", ", ".join(counts)]

    @staticmethod
    def _text(value: Any) -> str:
        """Return a counter's value, or the explanation of a cause's name."""
        if isinstance(value, int):
            return f"{value:,}"
        return explain_name(LinkFailure, value) or str(value)


@dataclass(frozen=True)
class RunState:
    """State of a run, as read from its folder. A *state* of training is a checkpoint file."""

    error: str | None  #: cause of the run's end; None for a finished run, and while a process trains it
    under_way: bool  #: true if a process trains the run
    epochs: int  #: epochs trained up to the last undamaged checkpoint
    epochs_asked: int  #: epochs of the whole training
    frames: int  #: frames of the next epoch that are trained in addition
    frames_each: int  #: frames of an epoch
    state: str | None  #: path of the last undamaged checkpoint; None if there is none
    damage: str | None  #: defect of newer checkpoints, which are ignored; None if they are intact
    ends: list[EndDiagnosis]  #: counters of both ends of each connection
    command: str | None  #: command that resumes the run; None if it cannot or need not be resumed

    def rows(self) -> list[list[str]]:
        """Return a row per fact."""
        trained = f"{self.epochs:,} of {self.epochs_asked:,} epochs"
        if self.frames:
            trained += f", and {self.frames:,} of {self.frames_each:,} frames of the next one"
        return [
            ["trained", trained],
            ["last state", self.state or "none"],
            *([["damaged", self.damage]] if self.damage else []),
            *(end.row() for end in self.ends),
        ]


def diagnose(folder: Path, *, writing: bool = False) -> Diagnosis:
    """Diagnose a run from its folder. Raises InputError for another folder.

    ``writing``: true if the caller itself writes the folder; false to look for another process that does.
    """
    state = _read_state(folder, under_way=not writing and writer_of(folder) is not None)
    resume = f"{state.command} continues from there" if state.command else None
    return Diagnosis(state.error, asdict(state), table(state.rows(), indent="").split("\n"), resume)


def _read_state(folder: Path, *, under_way: bool) -> RunState:
    """Read the state of a run's folder. Raises InputError for another folder.

    ``under_way``: true if a process trains the run.
    """
    record = open_record(folder / CLUSTER_RUN.mark)
    error = record.optional_text("error")
    state, place, damage = _last(folder) if record.texts("checkpoints") else (None, Place(), None)
    stopped = not under_way and (error is not None or damage is not None)
    return RunState(
        error=None if under_way else error or damage,
        under_way=under_way,
        epochs=place.epoch,
        epochs_asked=record.record("training").integer("epochs"),
        frames=place.frame,
        frames_each=record.record("data").integer("train"),
        state=state,
        damage=damage,
        ends=list(_ends(record)),
        command=shlex.join(["fanin", "cluster", "resume", str(folder)]) if stopped and state else None,
    )


def _last(folder: Path) -> tuple[str | None, Place, str | None]:
    """Return the path of the last undamaged checkpoint, its place, and the defect of newer checkpoints.

    Without an undamaged checkpoint, return None, the start of the training, and the defect.
    """
    run = open_run(folder)
    try:
        name, state, damage = run.newest_intact()
    except InputError as error:
        return None, Place(), str(error)
    return str(folder / name), state.info.place, str(damage) if damage else None


def _ends(record: Record) -> Iterator[EndDiagnosis]:
    """Yield the counters of each connection's ends, over all jobs since the run began or was resumed."""
    for connection in record.records("connections"):
        for end in connection.records("ends"):
            counted = {name: value for name, value in end.value.items() if name != "device"}
            yield EndDiagnosis(connection.text("from"), connection.text("to"), end.text("device"), counted)
