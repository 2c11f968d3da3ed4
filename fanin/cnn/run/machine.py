"""Interface of the machines that train a network: RTL, its golden model, and a model in binary64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fanin.cnn.facts import Network
from fanin.cnn.layers.arithmetic import Frames
from fanin.cnn.training import Job
from fanin.golden.fp32 import Float32

RTL, GOLDEN, FLOAT64 = "rtl", "golden", "float64"  #: names of machines

#: Softmax of each frame, axes frame, class: binary32, or binary64 from a model in binary64.
Outputs = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]
AnyState = dict[str, npt.NDArray[Any]]  #: a layer's state, in a machine's own precision
State64 = dict[str, npt.NDArray[np.float64]]  #: a layer's state in binary64
#: Callback with the number of frames trained so far in a call.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class NotFinite(Exception):
    """First infinity or NaN of a call to ``Machine.train``."""

    layer: str  #: name of the layer
    part: str  #: "output" or "gradient" of the layer
    frame: int  #: index of the frame in the call, from 0


class Machine(Protocol):
    """Machine that holds a network's state and trains it. Each call to ``train`` is one job."""

    def load(self, states: tuple[AnyState, ...]) -> None:
        """Set the network's state."""

    def dump(self) -> tuple[AnyState, ...]:
        """Return the network's state."""

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train on the frames in order, with an update after each batch. Return the softmax of each frame.

        Raises NotFinite for an infinity or a NaN.
        """

    def evaluate(self, images: Frames) -> Outputs:
        """Return the softmax of each frame; the state does not change."""


def ignore_progress(frames: int) -> None:
    """Ignore the number of frames: a ``Progress`` that reports nothing."""


def one_hot(network: Network, labels: Labels) -> Float32:
    """Return one-hot labels, axes frame, class."""
    classes = network.stages[network.labels].layer.output.words
    return np.eye(classes, dtype=np.float32)[labels]
