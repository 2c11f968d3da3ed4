"""``--resume``: reads an earlier run of ``fanin train`` and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.printable import print_note
from fanin.base.records import open_record
from fanin.glm.run.options import GlmOptions
from fanin.glm.run.state import About, State, last_whole
from fanin.job import JOBS
from fanin.runs.option import options_of
from fanin.runs.output import CLASSES_FOLDER, RUN, class_folders, is_kind
from fanin.runs.resumption import check_unchanged, complete

_TRAINING = tuple(each for each in options_of(GlmOptions) if each.training)


@dataclass(frozen=True)
class Earlier:
    """A run that another one resumes.

    - ``folder``: the run's folder.
    - ``states``: newest whole state by sub-folder: ``.`` for the run itself, or one per class.
    - ``job``: id of the last job that all workers joined.
    - ``error``: why the run did not finish; None if it did.
    """

    folder: Path
    states: Mapping[str, State]
    job: int
    error: str | None

    @property
    def about(self) -> About:
        """The training, which is the same in all states."""
        return next(iter(self.states.values())).about

    def check(self, training: Mapping[str, Any]) -> None:
        """Raise InputError that names the first option with another value than the run's."""
        earlier = self.about.training
        if unknown := [name for name in earlier if name not in training]:
            raise InputError(f"{self.folder}: its states have an unknown option: {unknown[0]}")
        check_unchanged(GlmOptions, self.folder, {name: training[name] for name in earlier}, earlier)

    def check_nodes(self, nodes: int) -> None:
        """Raise InputError for a state with counters of another number of simulated nodes."""
        for part, state in self.states.items():
            if (count := len(state.history.counters)) not in (0, nodes):
                raise InputError(f"{self.folder / part}: its state has counters of {count} nodes, not {nodes}")

    def check_data(self, name: str, digest: str, columns: int) -> None:
        """Raise InputError if the samples are not those of the run, or a state has not a weight per column."""
        if digest == self.about.data:
            for part, state in self.states.items():
                if (count := len(state.history.model)) != columns:
                    numbers = f"{count:,} weights, not {columns:,}"
                    raise InputError(f"{self.folder / part}: its state has {numbers}")
            return
        earlier_name = self.about.configuration["data"]
        if name != earlier_name:
            raise InputError(f"DATA {name}: {self.folder} was trained with {earlier_name}")
        raise InputError(f"{name}: has other samples than {self.folder} was trained with")

    def check_epochs(self, epochs: int) -> None:
        """Raise InputError if ``epochs`` is below the number that the run has finished."""
        done = max(state.history.epoch for state in self.states.values())
        if epochs < done:
            raise InputError(f"epochs must be at least the {done} that {self.folder} has, not {epochs}")


def configuration_of(options: GlmOptions) -> dict[str, Any]:
    """Return the options of a training by name, as JSON; files by their absolute paths."""
    values = options.as_json()
    configuration = {each.name: values[each.name] for each in _TRAINING}
    for name in ("data", "on"):
        if configuration[name] is not None and Path(configuration[name]).exists():
            configuration[name] = str(Path(configuration[name]).absolute())
    return configuration


def open_earlier(options: GlmOptions) -> tuple[GlmOptions, Earlier]:
    """Read the run that ``resume`` names. Return ``options``, completed with the run's, and the run.

    Raises InputError if the folder is no run of ``fanin train``, has no whole state, or has damaged records.
    """
    folder = options.resume
    assert folder is not None
    if not is_kind(folder, RUN):
        raise InputError(f"{folder}: not a run of fanin train, cannot be resumed")
    parts = [f"{CLASSES_FOLDER}/{part.name}" for part in class_folders(folder)] or ["."]
    states = {}
    for part in parts:
        if newest := last_whole(folder / part):
            name, states[part], defect = newest
            if defect:
                print_note(f"fanin: warning: {defect}; resumes from {folder / part / name}")
    if not states:
        raise InputError(
            f"{folder}: has no state to resume from: run without --checkpoint, or stopped before the first"
        )
    marks = [open_record(folder / part / RUN.mark) for part in (".", *parts) if is_kind(folder / part, RUN)]
    jobs = [
        *(state.about.job for state in states.values()),
        *(mark.integer("job", high=JOBS, default=0) for mark in marks),
    ]
    earlier = Earlier(folder, states, max(jobs), marks[0].value.get("error"))
    completed = complete(options, earlier.about.configuration)
    if "lr" not in options.given:  # the default is the earlier run's number
        completed = replace(completed, lr=earlier.about.training["lr"])
    return completed, earlier


def is_complete(earlier: Earlier, options: GlmOptions) -> bool:
    """Return whether the run has finished and the resuming call requests no other options."""
    earlier_configuration, configuration = earlier.about.configuration, configuration_of(options)
    done = min(state.history.epoch for state in earlier.states.values())
    is_unchanged = all(
        earlier_configuration[name] == configuration[name]
        for name in options.given
        if name in earlier_configuration
    )
    return earlier.error is None and done >= earlier_configuration["epochs"] and is_unchanged
