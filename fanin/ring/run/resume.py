"""State that ``fanin ring train`` saves, and the options that a resumed run takes from the earlier folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fanin.base.archive import read_archive
from fanin.base.errors import InputError
from fanin.base.records import Record, open_record
from fanin.codec.run.options import PARAMETERS, bound_text, parse_bound
from fanin.golden.mlp import Mlp
from fanin.ring.run.layers import is_list, parse_layers, widths_text
from fanin.ring.run.options import RingOptions
from fanin.runs.option import options_of
from fanin.runs.output import RING_RUN, STATE_FILE, is_kind
from fanin.runs.resumption import check_unchanged, complete
from fanin.sim.learning.replica import State

_PARTS = ("parameters", "velocities")
_TRAINING = tuple(option for option in options_of(RingOptions) if option.training)


@dataclass(frozen=True)
class Earlier:
    """Folder of an earlier run; ``options``: its training options and its codec's, by name."""

    folder: Path
    options: dict[str, Any]

    def complete(self, options: RingOptions) -> RingOptions:
        """Return ``options`` with the run's training options. Raises InputError for a contradiction."""
        given = [option.name for option in _TRAINING if option.name in options.given]
        values = {name: _comparable(name, getattr(options, name)) for name in given}
        check_unchanged(RingOptions, self.folder, values, self.options)
        return complete(options, self.options)

    def state(self, network: Mlp) -> State:
        """Read the state after the run's last whole epoch. Raises InputError."""
        path = self.folder / STATE_FILE
        if not path.exists():
            raise InputError(f"{path}: no such file: the run has no state to resume from")
        return load_state(path, network)


def open_run(folder: Path) -> Earlier:
    """Open the run in a folder. Raises InputError."""
    if not is_kind(folder, RING_RUN):
        raise InputError(f"{folder}: not a run of fanin ring train, cannot be resumed")
    return Earlier(folder, dict(_read(open_record(folder / RING_RUN.mark).record("configuration"))))


def _read(record: Record) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each option that determines the run's bits; old names become today's."""
    for option in _TRAINING:
        name = next((name for name in (option.name, *option.aliases) if name in record.value), None)
        if name is None:
            if option.name in PARAMETERS:
                continue
            raise record.error(f'"{option.name}" is missing')
        try:
            value = option.convert(record.value[name])
            option.check(value)
            if option.name == "layers" and not is_list(value):
                raise InputError(f"layers must be widths, not {value!r}")
        except InputError as error:
            raise record.error(str(error)) from error
        yield option.name, value


def _comparable(name: str, value: Any) -> Any:
    """Return an option's value in the form of ``run.json``."""
    if name == "layers" and value is not None:
        return widths_text(parse_layers(value))
    return bound_text(parse_bound(value)) if name == "bound" and value is not None else value


def save_state(path: Path, state: State) -> None:
    """Write a state as a NumPy archive: step, and parameters and velocities of each layer."""
    arrays = {f"{part}{layer}": values for part in _PARTS for layer, values in enumerate(getattr(state, part))}
    with path.open("wb") as file:
        np.savez(file, step=np.int64(state.step), **arrays)


def load_state(path: Path, network: Mlp) -> State:
    """Read a state of this network that ``save_state`` wrote. Raises InputError."""
    names = ["step", *(f"{part}{layer}" for part in _PARTS for layer in range(network.layers))]
    try:
        arrays = read_archive(path, names)
        step, *vectors = (arrays[name] for name in names)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}: no state of such a network") from error
    parameters, velocities = vectors[: network.layers], vectors[network.layers :]
    for part in parameters, velocities:
        if [(array.dtype, array.shape) for array in part] != [(np.float32, (n,)) for n in network.counts]:
            raise InputError(f"{path}: no state of such a network")
    if step.shape or step.dtype.kind != "i" or step < 0:
        raise InputError(f"{path}: no state of such a network")
    return State(parameters, velocities, int(step))
