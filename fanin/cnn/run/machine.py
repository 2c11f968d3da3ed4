"""What trains a network, as the command sees it: the RTL, its golden model, or a model in binary64."""

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

RTL, GOLDEN, FLOAT64 = "rtl", "golden", "float64"  #: machines

#: Softmax of each frame, of axes frame, class: binary32, or binary64 of a model in that.
Outputs = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]
AnyState = dict[str, npt.NDArray[Any]]  #: a layer's state, in a machine's own precision
State64 = dict[str, npt.NDArray[np.float64]]  #: that of a model in binary64
#: Is told how many frames of a call have been trained.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class NotFinite(Exception):
    """Training met an infinity or a NaN in a layer's ``part``, output or gradient.

    ``frame``: of the call, counted from 0.
    """

    layer: str
    part: str
    frame: int


class Machine(Protocol):
    """Holds a network's state; a call carries out a job. Frames count from 0 in each call."""

    def load(self, states: tuple[AnyState, ...]) -> None:
        """Take a state for that of the network."""

    def dump(self) -> tuple[AnyState, ...]:
        """The network's state."""

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train on the frames, in their order, an update after each batch. Raises NotFinite."""

    def evaluate(self, images: Frames) -> Outputs:
        """What the network makes of the frames; nothing changes."""


def quiet(frames: int) -> None:
    """No progress."""


def one_hot(network: Network, labels: Labels) -> Float32:
    """Of axes frame, class."""
    classes = network.stages[network.labels].layer.output.words
    return np.eye(classes, dtype=np.float32)[labels]
