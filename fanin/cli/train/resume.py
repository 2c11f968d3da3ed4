"""``--resume``: a run that a folder of ``fanin train`` has begun, and its options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.cli.output import CLASSES_FOLDER, RUN, class_folders, is_kind
from fanin.cli.train.state import About, State, last_whole
from fanin.errors import InputError
from fanin.records import open_record

#: Options of a call that are no options of its training.
_OF_CALL = (
    *("run", "files", "argv", "work", "resume", "output", "pcap", "model_out", "json", "no_cache"),
    *("wave", "wave_nodes", "wave_from", "wave_cycles", "wave_depth", "ranks", "mpi"),
)
_FLAGS = ("bias", "shuffle", "vanilla")


@dataclass(frozen=True)
class Earlier:
    """A run that another one resumes.

    ``folder`` : of the run
    ``states`` : newest whole state by folder of a training: the run's own, or one for each class
    ``job`` : the last job to which all workers have come
    ``error`` : why the run has not trained to its end; None where it has
    ``given`` : options of the call that resumes
    """

    folder: Path
    states: Mapping[str, State]
    job: int
    error: str | None
    given: Mapping[str, Any]

    @property
    def about(self) -> About:
        """The training, as all states have it."""
        return next(iter(self.states.values())).about

    def check(self, training: Mapping[str, Any]) -> None:
        """Raise InputError that names the first option with another value than the run's."""
        for name, was in self.about.training.items():
            if (now := training[name]) != was:
                raise InputError(f"{_option(name, now)}: {self.folder} was trained with {_value(name, was)}")

    def check_data(self, name: str, digest: str) -> None:
        """Raise InputError for other samples than the run's."""
        if digest == self.about.data:
            return
        was = self.about.configuration["data"]
        if name != was:
            raise InputError(f"DATA {name}: {self.folder} was trained with {was}")
        raise InputError(f"{name}: is not what {self.folder} was trained on")

    def check_epochs(self, epochs: int) -> None:
        """Raise InputError for fewer epochs than the run has."""
        done = max(state.history.epoch for state in self.states.values())
        if epochs < done:
            raise InputError(f"epochs must be more than the {done} that {self.folder} has, not {epochs}")


def configuration_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a training by name, as JSON; files by their absolute paths."""
    found = {name: value for name, value in vars(args).items() if name not in _OF_CALL}
    for name in ("data", "on"):
        if found[name] is not None and Path(found[name]).exists():
            found[name] = str(Path(found[name]).absolute())
    return found


def open_earlier(args: argparse.Namespace, given: Mapping[str, Any]) -> Earlier:
    """Read the run that ``--resume`` names, and give ``args`` its options where the call has none of its own.

    Raises InputError.
    """
    folder: Path = args.resume
    if not is_kind(folder, RUN):
        raise InputError(f"{folder}: no run of fanin train to go on from")
    parts = [f"{CLASSES_FOLDER}/{part.name}" for part in class_folders(folder)] or ["."]
    states = {}
    for part in parts:
        if found := last_whole(folder / part):
            name, states[part], damage = found
            if damage:
                print(f"fanin: warning: {damage}; goes on from {folder / part / name}", file=sys.stderr)
    if not states:
        raise InputError(f"{folder}: has no state: it was stopped before it had kept its first one")
    marks = [
        open_record(folder / part / RUN.mark).value for part in (".", *parts) if is_kind(folder / part, RUN)
    ]
    jobs = [*(state.about.job for state in states.values()), *(mark.get("job", 0) for mark in marks)]
    earlier = Earlier(folder, states, max(jobs), marks[0].get("error"), given)
    for name, value in earlier.about.configuration.items():
        if name not in given:
            setattr(args, name, Path(value) if name == "on" and value is not None else value)
    if "lr" not in given:  # not that of another data set
        args.lr = earlier.about.training["lr"]
    return earlier


def given_options(parser: argparse.ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    """Return what a command line gives of a parser's options, by name. ``argv``: words after the command."""
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    parser._defaults.clear()
    return vars(parser.parse_args(argv))


def is_complete(earlier: Earlier) -> bool:
    """Return whether a run has come to its end, and the call that resumes it asks for nothing else."""
    configuration = earlier.about.configuration
    done = min(state.history.epoch for state in earlier.states.values())
    same = all(configuration[name] == value for name, value in earlier.given.items() if name in configuration)
    return earlier.error is None and done >= configuration["epochs"] and same


def _option(name: str, value: Any) -> str:
    """An option with its value, as a command line has it."""
    return _value(name, value) if name in _FLAGS else f"--{name.replace('_', '-')} {_value(name, value)}"


def _value(name: str, value: Any) -> str:
    if name in _FLAGS:
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
