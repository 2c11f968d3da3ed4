"""Initial parameters of a network from a NumPy archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fanin.base.errors import InputError
from fanin.cnn.facts import Network
from fanin.cnn.layers import online_norm
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.run.checkpoint import flatten_states, restore_states
from fanin.runs.states import read_arrays

#: arrays of a trained model; velocities and control terms start at 0
LEARNED = ("weights", *online_norm.FORWARD_STATE)


def load_initial_states(path: Path, network: Network) -> tuple[State, ...]:
    """Return the states with an archive's arrays LAYER/weights and, if present, mean, variance and scale.

    Raises InputError of one line for an archive of another network.
    """
    arrays = {name: values for name, values in read_arrays(path).items() if name.rpartition("/")[2] in LEARNED}
    zeros = flatten_states(network, tuple(stage.layer.zero_state() for stage in network.stages))
    optional = {name: values for name, values in zeros.items() if not name.endswith("/weights")}
    if unknown := [name for name in arrays if name not in zeros]:
        raise InputError(f"{path}: has {unknown[0]}, which {network.name} has not")
    try:
        states = restore_states(network, optional | arrays)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    for name, values in flatten_states(network, states).items():
        if not np.isfinite(values).all():
            raise InputError(f"{path}: {name} has values that are not finite")
    return states
