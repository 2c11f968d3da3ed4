"""States of ``fanin train``: the model between two epochs, and the results of the epochs before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.glm.golden.quantise import Samples
from fanin.glm.run.options import GlmOptions
from fanin.hbm import memory_name
from fanin.job import JOBS
from fanin.runs.manifest import list_files
from fanin.runs.option import options_of
from fanin.runs.states import STATE_PATTERN, STATES, Arrays, load_state, save_state, state_name
from fanin.sim.cosim.run import RunResult
from fanin.sim.glm.course import History
from fanin.sim.glm.data import Dataset
from fanin.sim.glm.result import GlmTraining
from fanin.sim.switch.operations import OperationTimes, times_of

COMMAND = "fanin train"
_OPTIONS = {option.name for option in options_of(GlmOptions)}
#: Names of options that are fields of GlmTraining with the same value.
SAME_IN_BOTH = tuple(
    each.name for each in fields(GlmTraining) if each.name in _OPTIONS and each.name not in ("data", "loss")
)
_OF_NODE = (
    "mode",
    "protocol",
    "encap",
    "engines",
    "frac",
    "gradient_values",
)  # options that are facts of a node
_COUNTS = ("cycles", "frames", "links", "switch")  # of a RunResult
_TREE_COUNTS = ("switches", "trunks")  # of a run on a tree of switches
#: Types of the fields of a state's file: of each member of a list, and of each value of an object.
_COUNTERS = {str: int}
_TYPES: Mapping[str, Any] = {
    "configuration": dict,
    "training": dict,
    "data": str,
    "job": int,
    "epoch": int,
    "scores": [[(int, float)]],
    "counters": [_COUNTERS],
    "jobs": {str: _COUNTERS},
    "first_packet": [_COUNTERS],
    "cycles": int,
    "frames": _COUNTERS,
    "links": [{str: _COUNTERS}],
    "switch": _COUNTERS,
    "switches": {str: _COUNTERS},
    "trunks": {str: _COUNTERS},
}


@dataclass(frozen=True)
class About:
    """Description of the training that a state belongs to.

    - ``configuration``: the command's options by name.
    - ``training``: options that determine an epoch's bits or metrics, from ``training_of``.
    - ``data``: SHA-256 of the samples.
    - ``job``: id of the aggregation job that trained up to the state.
    """

    configuration: Mapping[str, Any]
    training: Mapping[str, Any]
    data: str
    job: int


@dataclass(frozen=True)
class State:
    """A state as read from a file."""

    about: About
    history: History


def training_of(training: GlmTraining) -> dict[str, Any]:
    """Return the inputs that must be equal in all parts of a training, by name."""
    node, hbm = training.node, training.hbm
    values = {name: getattr(training, name) for name in SAME_IN_BOTH if name != "epochs"}
    values |= {name: getattr(node, name) for name in _OF_NODE}
    return values | {
        "loss": training.loss.key,
        "preset": node.name,
        "memory": memory_name(hbm),
        "ports_per_channel": hbm.ports_per_channel if hbm else None,
    }


def data_digest(dataset: Dataset) -> str:
    """Return the SHA-256 of a run's training and held-out samples."""
    digest = hashlib.sha256()
    for values in (dataset.features, dataset.labels, dataset.test_features, dataset.test_labels):
        digest.update(f"{values.dtype.str} {values.shape}\n".encode())
        for part in _arrays(values):
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _arrays(values: Samples) -> Iterator[npt.NDArray[Any]]:
    """Yield the array, or those of a CSR matrix, whose places have 32 bits."""
    if isinstance(values, np.ndarray):
        yield values
        return
    yield np.diff(values.indptr).astype(np.int32)
    yield values.indices.astype(np.int32, copy=False)
    yield values.data


def save(folder: Path, about: About, history: History) -> str:
    """Write a state into a run's folder, whole or not at all; return its name there. Raises InputError."""
    name, raw = state_name(history.epoch), history.raw
    fields = {
        "command": COMMAND,
        **vars(about),
        "epoch": history.epoch,
        "scores": history.scores,
        "counters": history.counters,
        "jobs": raw.jobs,
        "first_packet": times_of(raw).first_packet,
        **{name_of_count: getattr(raw, name_of_count) for name_of_count in _COUNTS},
        **{name_of_count: getattr(raw, name_of_count) for name_of_count in _TREE_COUNTS if raw.switches},
    }
    list_files(folder, [name])
    save_state(folder / name, fields, {"model": history.model, "allreduce_ns": history.allreduce_ns})
    return name


def load(path: Path) -> State:
    """Read a state. Raises InputError of one line for a damaged file or one of another kind."""
    fields, arrays = load_state(path, COMMAND)
    try:
        state = _state(fields, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: no state of {COMMAND}: {type(error).__name__}: {error}") from error
    if state_name(state.history.epoch) != f"{STATES}/{path.name}":
        raise InputError(f"{path}: is the state after epoch {state.history.epoch}")
    return state


def _state(fields: Mapping[str, Any], arrays: Arrays) -> State:
    """Build a state from its file's content. Raises Python's own errors for other content."""
    _check_types(fields, arrays)
    tree = {name: fields[name] for name in _TREE_COUNTS if name in fields}
    raw = RunResult(**{name: fields[name] for name in _COUNTS}, **tree)
    raw.watched = OperationTimes(first_packet=fields["first_packet"])
    raw.jobs = {int(job): counts for job, counts in fields["jobs"].items()}
    history = History(
        epoch=fields["epoch"],
        model=arrays["model"],
        scores=tuple((loss, fit, cycles) for loss, fit, cycles in fields["scores"]),
        counters=fields["counters"],
        allreduce_ns=arrays["allreduce_ns"],
        raw=raw,
    )
    about = About(**{name: fields[name] for name in ("configuration", "training", "data", "job")})
    return State(about, history)


def _check_types(fields: Mapping[str, Any], arrays: Arrays) -> None:
    """Raise Python's own errors for content that a resumed run could not use."""
    for name, shape in _TYPES.items():
        if name in fields and not _has_type(fields[name], shape):
            raise TypeError(f"{name} has another type")
    if fields["job"] not in range(JOBS):
        raise ValueError(f"job must be in 0…{JOBS - 1}, not {fields['job']}")
    for group, name, kind in (
        ("configuration", "data", str),
        ("configuration", "epochs", int),
        ("training", "lr", (int, float)),
    ):
        if not _has_type(fields[group].get(name), kind):
            raise TypeError(f"{group}.{name} is missing or has another type")
    if len(fields["scores"]) != fields["epoch"]:
        raise ValueError(f"scores must be one of each epoch, {fields['epoch']}, not {len(fields['scores'])}")
    for name, dtype in (("model", np.int32), ("allreduce_ns", np.float64)):
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            raise TypeError(f"{name} must be a vector of {np.dtype(dtype)}")


def _has_type(value: Any, shape: Any) -> bool:
    """Whether a JSON value is of a type in the form of ``_TYPES``; a truth value is no integer."""
    if isinstance(shape, list):
        return isinstance(value, list) and all(_has_type(member, shape[0]) for member in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_has_type(member, shape[str]) for member in value.values())
    return isinstance(value, shape) and not isinstance(value, bool)


def names_of(folder: Path) -> list[str]:
    """Return the state files in a run's folder in order of epochs; symbolic links are ignored."""
    if (folder / STATES).is_symlink():
        return []
    paths = sorted((folder / STATES).glob(STATE_PATTERN))
    return [f"{STATES}/{path.name}" for path in paths if path.is_file() and not path.is_symlink()]


def last_whole(folder: Path) -> tuple[str, State, InputError | None] | None:
    """Return name and content of a run's newest whole state, and the defect of the newest file, if any.

    Returns None if there are no files. Raises InputError if there are files and none is whole.
    """
    newest = None
    for name in reversed(names_of(folder)):
        try:
            return name, load(folder / name), newest
        except InputError as error:
            newest = newest or error
    if newest:
        raise InputError(f"{folder}: no state is whole: {newest}")
    return None
