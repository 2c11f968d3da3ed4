"""The state that ``fanin ring train`` leaves, and what a run that goes on from it takes from the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fanin.archive import read_archive
from fanin.cli.codec.options import CODECS, MODES, PARAMETERS
from fanin.cli.output import RING_RUN, STATE_FILE, is_kind
from fanin.cli.ring.defaults import EXCHANGES, SYSTEMS
from fanin.codec import Codec
from fanin.errors import InputError
from fanin.golden.mlp import Mlp
from fanin.records import open_record
from fanin.sim.learning.replica import State

_PARTS = ("parameters", "velocities")


_TEXTS, _WHOLE, _NUMBERS = (
    ("data", "layers"),
    ("nodes", "batch", "seed"),
    ("rate", "momentum", "decay"),
)
_CHOICES = {"system": SYSTEMS, "exchange": EXCHANGES, "codec": (Codec.NONE, *CODECS)}
_TEXT_PARAMETERS = {"bound": (), "mode": MODES}  # of codecs; the others are numbers


@dataclass(frozen=True)
class Earlier:
    """A run's folder; ``options``: those that decide its bits, by name, a codec's only where it has one."""

    folder: Path
    options: dict[str, Any]

    def state(self, network: Mlp) -> State:
        """Behind the run's last whole epoch. Raises InputError."""
        path = self.folder / STATE_FILE
        if not path.exists():
            raise InputError(f"{path}: no such file: the run has left no state to go on from")
        return load_state(path, network)


def open_run(folder: Path) -> Earlier:
    """The run in a folder. Raises InputError."""
    if not is_kind(folder, RING_RUN):
        raise InputError(f"{folder}: no run of fanin ring train to go on from")
    record = open_record(folder / RING_RUN.mark).record("configuration")
    found: dict[str, str | int | float | None] = {name: record.text(name) for name in _TEXTS}
    found |= {name: record.integer(name) for name in _WHOLE}
    found |= {name: float(record.number(name)) for name in _NUMBERS}
    found |= {name: record.text(name, choices) for name, choices in _CHOICES.items()}
    found |= {name: record.optional_text(name) for name in ("groups", "above")}
    found["lanes"] = record.optional("lanes")
    for name in record.value.keys() & set(PARAMETERS):
        text = name in _TEXT_PARAMETERS
        found[name] = record.text(name, _TEXT_PARAMETERS[name]) if text else record.integer(name)
    return Earlier(folder, found)


def save_state(path: Path, state: State) -> None:
    """Write it as a NumPy archive: step, and for each layer its parameters and velocities."""
    arrays = {f"{part}{layer}": values for part in _PARTS for layer, values in enumerate(getattr(state, part))}
    with path.open("wb") as file:
        np.savez(file, step=np.int64(state.step), **arrays)


def load_state(path: Path, network: Mlp) -> State:
    """What ``save_state`` has written of this network. Raises InputError."""
    names = ["step", *(f"{part}{layer}" for part in _PARTS for layer in range(network.layers))]
    try:
        found = read_archive(path, names)
        step, *vectors = (found[name] for name in names)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}: no state of such a network") from error
    parameters, velocities = vectors[: network.layers], vectors[network.layers :]
    for part in parameters, velocities:
        if [(each.dtype, each.shape) for each in part] != [(np.float32, (n,)) for n in network.counts]:
            raise InputError(f"{path}: no state of such a network")
    if step.shape or step.dtype.kind != "i" or step < 0:
        raise InputError(f"{path}: no state of such a network")
    return State(parameters, velocities, int(step))
