"""Initial parameters of a network from an archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fanin.base.errors import InputError
from fanin.cnn.facts import Network
from fanin.cnn.layers import online_norm
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.run.checkpoint import flat, shaped
from fanin.runs.states import read_arrays

LEARNED = (
    "weights",
    *online_norm.STATE[:3],
)  #: arrays of a trained model; velocities and control terms start at 0


def take(path: Path, network: Network) -> tuple[State, ...]:
    """Return the states from an archive's LAYER/weights, and its mean, variance and scale if present.

    Raises InputError of one line for an archive of another network.
    """
    found = {name: values for name, values in read_arrays(path).items() if name.rpartition("/")[2] in LEARNED}
    zeros = flat(network, tuple(stage.layer.zero_state() for stage in network.stages))
    optional = {name: values for name, values in zeros.items() if not name.endswith("/weights")}
    if strange := [name for name in found if name not in zeros]:
        raise InputError(f"{path}: has {strange[0]}, which {network.name} has not")
    try:
        states = shaped(network, optional | found)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    for name, values in flat(network, states).items():
        if not np.isfinite(values).all():
            raise InputError(f"{path}: {name} has values that are not finite")
    return states
