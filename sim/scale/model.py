"""Model of a simulation's time by ranks, cores and machines, from the cost of each part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from scipy.optimize import nnls

_RANK = 4  # index of ``Costs.rank``


@dataclass(frozen=True)
class Load:
    """A run and its environment: ranks are spread evenly over machines, each with ``cores`` cores.

    ``delay``: seconds that the network between machines adds to each meeting, round trip.
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
    """Costs of a simulation's parts, in seconds."""

    node_cycle: float  #: one cycle of one node
    frame_alone: float  #: one frame in a run of one process, for which Python code runs
    frame: float  #: one frame through rank 0's network
    meeting: float  #: one meeting at one rank, as busy time of its core
    rank: float  #: another rank's report and answer at rank 0, without its frames
    exchange: float  #: one meeting: the round trip and the wait for the slowest rank

    @staticmethod
    def fit(loads: Sequence[Load], seconds: Sequence[float], *, rank: float) -> Costs:
        """Return the costs, none below 0, with the least squares of the points' relative errors.

        ``rank`` is given: on one machine, runs of more ranks than cores cannot separate it from ``meeting``.
        """
        weights = 1 / np.array(seconds)
        rows = np.array([_amounts(load) for load in loads])
        known = rows[:, _RANK] * rank + np.array([_delays(load) for load in loads])
        rows[:, _RANK] = 0
        found, _ = nnls(rows * weights[:, None], (np.array(seconds) - known) * weights)
        return replace(Costs(*found.tolist()), rank=rank)

    def seconds(self, load: Load) -> float:
        """Return the time of a run."""
        return float(np.dot(astuple(self), _amounts(load))) + _delays(load)

    def speed_up(self, load: Load) -> float:
        """Return the speed-up over one process."""
        alone = Load(load.nodes, load.cycles, load.frames, load.meetings)
        return self.seconds(alone) / self.seconds(load)


def _delays(load: Load) -> float:
    return load.meetings * load.delay if load.ranks > 1 else 0.0


def _amounts(load: Load) -> tuple[float, ...]:
    """Return how often each cost is paid; of concurrent work only the longest share counts."""
    if load.ranks == 1:
        return load.cycles * load.nodes, load.frames, 0.0, 0.0, 0.0, 0.0
    of_machine = math.ceil(load.ranks / load.machines)  # ranks on the fullest machine
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
