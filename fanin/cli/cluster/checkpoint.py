"""The state of a network between two batches, in a file: a NumPy archive that knows its own SHA-256.

Arrays are called LAYER/NAME: ``fanin.golden.cnn.state`` has the names. Those of the network in binary64, which
a run trains beside, are called LAYER/NAME@float64. Beside them lies ``about``, JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.archive import read_archive
from fanin.cli.cluster.machine import FLOAT64, AnyState, State64
from fanin.cli.cluster.measures import Tally
from fanin.cli.output import output_file
from fanin.cnn import Network
from fanin.cnn_training import Place
from fanin.errors import InputError
from fanin.golden.cnn.state import State, zero_state

FORMAT = 2
_ABOUT, _DIGEST = "about", "sha256"
_BINARY64 = f"@{FLOAT64}"  # how names of arrays end

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class About:
    """What a state is of. Digests are SHA-256s; None: not decided yet.

    ``seed``: of the first parameters, None where they came from elsewhere. ``epoch`` and ``frame`` count what
    has been trained: whole epochs, and frames of the next one. ``training`` has the hyper-parameters.
    ``tallies``: by machine, of the epoch that the state is in, or has just ended.
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
        """Where in the training it is."""
        return Place(self.epoch, self.frame)


@dataclass(frozen=True)
class Checkpoint:
    """A network's state: of every stage its layer's, which is empty for most.

    ``binary64``: that of the same network in binary64, if it was trained beside.
    """

    about: About
    states: tuple[State, ...]
    binary64: tuple[State64, ...] | None = None


def save_checkpoint(path: Path, network: Network, checkpoint: Checkpoint) -> None:
    """Write it whole or not at all. Raises InputError where the file cannot be written."""
    arrays = flat(network, checkpoint.states)
    if checkpoint.binary64 is not None:
        arrays |= {f"{name}{_BINARY64}": values for name, values in flat(network, checkpoint.binary64).items()}
    about = json.dumps({"format": FORMAT, **asdict(checkpoint.about)}, sort_keys=True)
    texts: Arrays = {_ABOUT: np.array(about), _DIGEST: np.array(_digest(about, arrays))}
    with output_file(path) as file:
        np.savez(file, allow_pickle=False, **texts, **arrays)


def load_checkpoint(path: Path, network: Network) -> Checkpoint:
    """A state of this model, however it is built. Raises InputError of one line for any other file."""
    arrays = read_arrays(path)
    about = _about(path, arrays)
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
    """All arrays of a state by LAYER/NAME."""
    return {
        f"{stage.name}/{name}": values
        for stage, state in zip(network.stages, states, strict=True)
        for name, values in state.items()
    }


def shaped(
    network: Network, arrays: Mapping[str, npt.NDArray[Any]], dtype: npt.DTypeLike = np.float32
) -> tuple[AnyState, ...]:
    """The states that ``flat`` made arrays of. Raises ValueError for one that is missing or no such array."""
    states: tuple[AnyState, ...] = tuple(
        {name: zeros.astype(dtype) for name, zeros in zero_state(stage.layer).items()}
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


def read_arrays(path: Path) -> Arrays:
    """The arrays of a NumPy archive. Raises InputError of one line for a file that is none, or not whole."""
    try:
        return read_archive(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def _about(path: Path, arrays: Arrays) -> About:
    """Take what the arrays are about out of them. Raises InputError where they are not whole."""
    if _ABOUT not in arrays or _DIGEST not in arrays:
        raise InputError(f"{path}: no checkpoint of fanin cluster")
    text, digest = (str(arrays.pop(name)) for name in (_ABOUT, _DIGEST))
    if digest != _digest(text, arrays):
        raise InputError(f"{path}: is torn: what it holds has not the SHA-256 that it says")
    fields = json.loads(text)  # ours, word by word
    if fields.pop("format") != FORMAT:
        raise InputError(f"{path}: is of another version of fanin")
    tallies = {machine: Tally(**tally) for machine, tally in fields.pop("tallies").items()}
    return About(**fields, tallies=tallies)


def _digest(about: str, arrays: Arrays) -> str:
    found = hashlib.sha256(about.encode())
    for name in sorted(arrays):
        values = arrays[name]
        found.update(f"\n{name} {values.dtype.str} {values.shape}\n".encode())
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def _sizes(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "1"
