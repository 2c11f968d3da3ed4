"""Files of states: NumPy archives in a run's folder, each with the SHA-256 of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.archive import read_archive
from fanin.base.errors import InputError
from fanin.base.records import parse_json
from fanin.base.scratch import output_file

STATES = "states"  #: folder of a run
STATE_PATTERN = f"epoch{'[0-9]' * 6}-{'[0-9]' * 8}.npz"  #: pattern of names in this folder, from ``state_name``
FORMAT = 2
_ABOUT, _DIGEST = "about", "sha256"

Arrays = dict[str, npt.NDArray[Any]]


def state_name(epoch: int, part: int = 0) -> str:
    """Return the file of the state after ``epoch`` epochs and ``part`` frames of the next one.

    Names sort in the order of the states.
    """
    return f"{STATES}/epoch{epoch:06}-{part:08}.npz"


def save_state(path: Path, about: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a state atomically; ``about`` is JSON. Raises InputError if it cannot be written."""
    if path.parent.is_symlink():
        raise InputError(f"{path.parent}: is a link; states are not written through links")
    text = json.dumps({"format": FORMAT, **about}, sort_keys=True)
    texts: Arrays = {_ABOUT: np.array(text), _DIGEST: np.array(_digest(text, arrays))}
    with output_file(path) as file:
        np.savez(file, allow_pickle=False, **texts, **arrays)


def load_state(path: Path, command: str) -> tuple[dict[str, Any], Arrays]:
    """Read a state of ``command``: its description and its arrays.

    Raises InputError of one line for a file that is no state, is damaged, or has another format.
    """
    arrays = read_arrays(path)
    if _ABOUT not in arrays or _DIGEST not in arrays:
        raise InputError(f"{path}: no checkpoint of {command}")
    text, digest = (str(arrays.pop(name)) for name in (_ABOUT, _DIGEST))
    if digest != _digest(text, arrays):
        raise InputError(f"{path}: is damaged: the contents do not match their SHA-256")
    try:
        about = parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: no checkpoint of {command}: {error}") from error
    if not isinstance(about, dict):
        raise InputError(f"{path}: no checkpoint of {command}")
    if about.pop("command", "fanin cluster") != command:  # files of fanin cluster have no such field
        raise InputError(f"{path}: no checkpoint of {command}")
    if about.pop("format", None) != FORMAT:
        raise InputError(f"{path}: is of another version of fanin")
    return about, arrays


def read_arrays(path: Path) -> Arrays:
    """Read the arrays of a NumPy archive. Raises InputError of one line for a damaged file, or no archive."""
    try:
        return read_archive(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def _digest(about: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256(about.encode())
    for name in sorted(arrays):
        values = arrays[name]
        digest.update(f"\n{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
