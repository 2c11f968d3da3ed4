"""Checkpoint file: state of a network between two batches, as a NumPy archive with its own SHA-256.

Arrays are named LAYER/NAME, with the names of the layer's ``zero_state``. Arrays of the network in binary64
are named LAYER/NAME@float64. ``about`` is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.cnn.facts import Network
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.run.machine import FLOAT64, AnyState, State64
from fanin.cnn.run.measures import Tally
from fanin.cnn.training import Place
from fanin.runs.states import Arrays, load_state, save_state

_BINARY64 = f"@{FLOAT64}"  # suffix of names of arrays in binary64


@dataclass(frozen=True)
class About:
    """Description of a checkpoint. Digests are SHA-256s; None before they are known.

    ``name``: name of the network.
    ``model``, ``network``, ``data``: digests of the model, of the network as built, and of the images.
    ``seed``: seed of the initial parameters; None if they were not drawn.
    ``epoch``: number of trained epochs.
    ``frame``: number of trained frames of the next epoch.
    ``training``: hyper-parameters.
    ``tallies``: tally of the current or just ended epoch, by machine.
    """

    name: str
    model: str
    network: str | None = None
    data: str | None = None
    seed: int | None = None
    epoch: int = 0
    frame: int = 0
    training: Mapping[str, Any] | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Place of the checkpoint in the training."""
        return Place(self.epoch, self.frame)


@dataclass(frozen=True)
class Checkpoint:
    """State of a network. ``states``: state of each stage's layer, empty for most kinds.

    ``binary64``: state of the network in binary64; None if it was not trained.
    """

    about: About
    states: tuple[State, ...]
    binary64: tuple[State64, ...] | None = None


def save_checkpoint(path: Path, network: Network, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically. Raises InputError if the file cannot be written."""
    arrays = flat(network, checkpoint.states)
    if checkpoint.binary64 is not None:
        arrays |= {f"{name}{_BINARY64}": values for name, values in flat(network, checkpoint.binary64).items()}
    save_state(path, asdict(checkpoint.about), arrays)


def load_checkpoint(path: Path, network: Network) -> Checkpoint:
    """Read a checkpoint of this model, of any build. Raises InputError of one line for any other file."""
    fields, arrays = load_state(path, "fanin cluster")
    tallies = {machine: Tally(**tally) for machine, tally in fields.pop("tallies").items()}
    about = About(**fields, tallies=tallies)
    if about.model != network.model_digest:
        other = "another model of that name" if about.name == network.name else about.name
        raise InputError(f"{path}: holds a state of {other}, not of {network.name}")
    beside = {
        name.removesuffix(_BINARY64): values for name, values in arrays.items() if name.endswith(_BINARY64)
    }
    try:
        binary64 = shaped(network, beside, np.float64) if beside else None
        return Checkpoint(about, shaped(network, arrays), binary64)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def flat(network: Network, states: Sequence[AnyState]) -> Arrays:
    """Return all arrays of a state by LAYER/NAME."""
    return {
        f"{stage.name}/{name}": values
        for stage, state in zip(network.stages, states, strict=True)
        for name, values in state.items()
    }


def shaped(
    network: Network, arrays: Mapping[str, npt.NDArray[Any]], dtype: npt.DTypeLike = np.float32
) -> tuple[AnyState, ...]:
    """Return the states from arrays of ``flat``. Raises ValueError for an array that is missing or differs."""
    states: tuple[AnyState, ...] = tuple(
        {name: zeros.astype(dtype) for name, zeros in stage.layer.zero_state().items()}
        for stage in network.stages
    )
    for stage, state in zip(network.stages, states, strict=True):
        for name, zeros in state.items():
            found = arrays.get(f"{stage.name}/{name}")
            if found is None:
                raise ValueError(f"{stage.name}/{name} is missing")
            if found.dtype != zeros.dtype or found.shape != zeros.shape:
                kinds = [f"{_sizes(each.shape)} of {each.dtype}" for each in (found, zeros)]
                raise ValueError(f"{stage.name}/{name} is {kinds[0]}, not {kinds[1]}")
            state[name] = found
    return states


def _sizes(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "1"
