"""Checkpoint file: state of a network between two batches, in a NumPy archive with a SHA-256 of its contents.

Arrays are named LAYER/NAME, with the names of the layer's ``zero_state``. Arrays of the network in binary64
are named LAYER/NAME@float64. The entry ``about`` is JSON with the fields of ``CheckpointInfo``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.base.records import Record
from fanin.cnn.facts import Network
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.run.machine import FLOAT64, AnyState, State64
from fanin.cnn.run.measures import Tally
from fanin.cnn.training import Place
from fanin.runs.states import Arrays, load_state, save_state

_BINARY64 = f"@{FLOAT64}"  # suffix of names of arrays in binary64


@dataclass(frozen=True)
class CheckpointInfo:
    """Description of a checkpoint. Digests are SHA-256s. The fields are keys of a JSON file."""

    name: str  #: name of the network
    model: str  #: digest of the model
    network: str | None = None  #: digest of the network as built; None before training
    data: str | None = None  #: digest of the images; None before training
    seed: int | None = None  #: seed of the initial parameters; None if they were not drawn
    epoch: int = 0  #: number of trained epochs
    frame: int = 0  #: number of trained frames of the next epoch
    training: Mapping[str, Any] | None = None  #: hyper-parameters; None before training
    #: tally of the current or last epoch, by machine
    tallies: Mapping[str, Tally] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Place of the checkpoint in the training."""
        return Place(self.epoch, self.frame)


@dataclass(frozen=True)
class Checkpoint:
    """State of a network, with its description."""

    info: CheckpointInfo
    states: tuple[State, ...]  #: state of each stage's layer; empty for most kinds
    binary64: tuple[State64, ...] | None = None  #: state of the network in binary64; None if it is not trained


def save_checkpoint(path: Path, network: Network, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically. Raises InputError if the file cannot be written."""
    arrays = flatten_states(network, checkpoint.states)
    if checkpoint.binary64 is not None:
        arrays |= {
            f"{name}{_BINARY64}": values
            for name, values in flatten_states(network, checkpoint.binary64).items()
        }
    save_state(path, asdict(checkpoint.info), arrays)


def load_checkpoint(path: Path, network: Network) -> Checkpoint:
    """Read a checkpoint of the network's model, of any build.

    Raises InputError of one line for another file.
    """
    fields, arrays = load_state(path, "fanin cluster")
    record = Record(str(path), "", fields)
    tallies = record.record("tallies")
    info = CheckpointInfo(
        name=record.text("name"),
        model=record.text("model"),
        network=record.optional_text("network"),
        data=record.optional_text("data"),
        seed=record.optional("seed"),
        epoch=record.integer("epoch"),
        frame=record.integer("frame"),
        training=None if fields.get("training") is None else record.record("training").value,
        tallies={machine: _tally(tallies.record(machine)) for machine in tallies.value},
    )
    if info.model != network.model_digest:
        holder = "another model of that name" if info.name == network.name else info.name
        raise InputError(f"{path}: holds a state of {holder}, not of {network.name}")
    binary64_arrays = {
        name.removesuffix(_BINARY64): values for name, values in arrays.items() if name.endswith(_BINARY64)
    }
    try:
        binary64 = restore_states(network, binary64_arrays, np.float64) if binary64_arrays else None
        return Checkpoint(info, restore_states(network, arrays), binary64)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _tally(record: Record) -> Tally:
    return Tally(record.integer("frames"), float(record.number("loss")), record.integer("right"))


def flatten_states(network: Network, states: Sequence[AnyState]) -> Arrays:
    """Return all arrays of a network's state, by LAYER/NAME."""
    return {
        f"{stage.name}/{name}": values
        for stage, state in zip(network.stages, states, strict=True)
        for name, values in state.items()
    }


def restore_states(
    network: Network, arrays: Mapping[str, npt.NDArray[Any]], dtype: npt.DTypeLike = np.float32
) -> tuple[AnyState, ...]:
    """Return the states from arrays by LAYER/NAME, the inverse of :func:`flatten_states`.

    Raises ValueError if an array is missing, or has another shape or type.
    """
    states: tuple[AnyState, ...] = tuple(
        {name: zeros.astype(dtype) for name, zeros in stage.layer.zero_state().items()}
        for stage in network.stages
    )
    for stage, state in zip(network.stages, states, strict=True):
        for name, zeros in state.items():
            array = arrays.get(f"{stage.name}/{name}")
            if array is None:
                raise ValueError(f"{stage.name}/{name} is missing")
            if array.dtype != zeros.dtype or array.shape != zeros.shape:
                descriptions = [
                    f"{_sizes(candidate.shape)} of {candidate.dtype}" for candidate in (array, zeros)
                ]
                raise ValueError(f"{stage.name}/{name} is {descriptions[0]}, not {descriptions[1]}")
            state[name] = array
    return states


def _sizes(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "1"
