"""Model of a simulation's time as a function of ranks, cores and machines, from the cost of each part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from scipy.optimize import nnls

_RANK_INDEX = 4  # index of ``Costs.rank``


@dataclass(frozen=True)
class Load:
    """Work and environment of a run; ranks are spread evenly over machines.

    - ``nodes``: simulated nodes.
    - ``cycles``: simulated clock cycles.
    - ``frames``: frames that the nodes send.
    - ``meetings``: exchanges of frames between ranks.
    - ``ranks``: processes; 1: a single process without meetings.
    - ``machines``: machines of the ranks.
    - ``cores``: cores of each machine.
    - ``delay``: seconds that the network between machines adds to each meeting, round trip.
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
    frame_alone: float  #: one frame in a run of one process, which Python code handles
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
        known_seconds = rows[:, _RANK_INDEX] * rank + np.array([_delay_seconds(load) for load in loads])
        rows[:, _RANK_INDEX] = 0
        fitted, _ = nnls(rows * weights[:, None], (np.array(seconds) - known_seconds) * weights)
        return replace(Costs(*fitted.tolist()), rank=rank)

    def seconds(self, load: Load) -> float:
        """Return the time of a run."""
        return float(np.dot(astuple(self), _amounts(load))) + _delay_seconds(load)

    def speed_up(self, load: Load) -> float:
        """Return the speed-up over one process."""
        single_process = Load(load.nodes, load.cycles, load.frames, load.meetings)
        return self.seconds(single_process) / self.seconds(load)


def _delay_seconds(load: Load) -> float:
    """Return the time that all meetings wait for the network between machines."""
    return load.meetings * load.delay if load.ranks > 1 else 0.0


def _amounts(load: Load) -> tuple[float, ...]:
    """Return how often each of ``Costs`` is paid. Concurrent work counts by its longest share."""
    if load.ranks == 1:
        return load.cycles * load.nodes, load.frames, 0.0, 0.0, 0.0, 0.0
    machine_ranks = math.ceil(load.ranks / load.machines)  # ranks on the fullest machine
    rank_nodes = math.ceil(load.nodes / load.ranks)
    core_nodes = max(rank_nodes, min(load.nodes, rank_nodes * machine_ranks) / load.cores)
    ranks_per_core = max(1.0, machine_ranks / load.cores)
    meetings = load.meetings
    return (
        load.cycles * core_nodes,
        0.0,
        load.frames,
        meetings * ranks_per_core,
        meetings * (load.ranks - 1),
        meetings,
    )
