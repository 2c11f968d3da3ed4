"""How long a simulation takes on so many ranks, cores and machines, from what each part of it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from scipy.optimize import nnls

_RANK = 4  # the place of that cost


@dataclass(frozen=True)
class Load:
    """A run and where it is carried out: ranks are spread over machines evenly, each with so many cores.

    ``delay`` are seconds that the network between machines adds to each meeting, there and back.
    """

    nodes: int
    cycles: int
    frames: int
    meetings: int
    ranks: int = 1
    machines: int = 1
    cores: int = 1
    delay: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Seconds; of those of Python, at rank 0 all others wait for them."""

    node_cycle: float  #: a cycle of a node
    frame_alone: float  #: a frame in a run of one process, which Python wakes for
    frame: float  #: a frame through rank 0's network
    meeting: float  #: a meeting at each rank, which its core is busy for
    rank: float  #: at rank 0, another rank's report and answer; not of its frames
    exchange: float  #: a meeting, in which all wait for the way there and back, and for the slowest

    @staticmethod
    def fit(loads: Sequence[Load], seconds: Sequence[float], *, rank: float) -> Costs:
        """The costs, none below 0, by which the relative errors of the points have the least squares.

        ``rank`` is given: on one machine, runs of more ranks than cores do not tell it from ``meeting``.
        """
        weights = 1 / np.array(seconds)
        rows = np.array([_amounts(load) for load in loads])
        known = rows[:, _RANK] * rank + np.array([_delays(load) for load in loads])
        rows[:, _RANK] = 0
        found, _ = nnls(rows * weights[:, None], (np.array(seconds) - known) * weights)
        return replace(Costs(*found.tolist()), rank=rank)

    def seconds(self, load: Load) -> float:
        """The time of a run."""
        return float(np.dot(astuple(self), _amounts(load))) + _delays(load)

    def speed_up(self, load: Load) -> float:
        """Against one process."""
        alone = Load(load.nodes, load.cycles, load.frames, load.meetings)
        return self.seconds(alone) / self.seconds(load)


def _delays(load: Load) -> float:
    return load.meetings * load.delay if load.ranks > 1 else 0.0


def _amounts(load: Load) -> tuple[float, ...]:
    """How often each cost is paid, one after the other: of what goes on side by side, the longest."""
    if load.ranks == 1:
        return load.cycles * load.nodes, load.frames, 0.0, 0.0, 0.0, 0.0
    of_machine = math.ceil(load.ranks / load.machines)  # ranks, on the fullest
    most = math.ceil(load.nodes / load.ranks)
    share = max(most, min(load.nodes, most * of_machine) / load.cores)
    waiting = max(1.0, of_machine / load.cores)
    meetings = load.meetings
    return (
        load.cycles * share,
        0.0,
        load.frames,
        meetings * waiting,
        meetings * (load.ranks - 1),
        meetings,
    )
