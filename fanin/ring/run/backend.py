"""What ``fanin ring train`` runs on, as the command sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fanin.sim.inceptionn.host import Span
from fanin.sim.learning.learner import Measures
from fanin.sim.learning.references import References
from fanin.sim.learning.replica import DataParallel, Dataset, State
from fanin.sim.link_log import LinkLog
from fanin.sim.ring.schedule import Times
from fanin.sim.spans import FirstSpans

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.waves import Waveform

#: Is told how many steps of the run all nodes have made.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Outputs:
    """Where a run writes: all frames to ``pcap``, what links do to ``link_log``, signals to ``wave``."""

    pcap: Path | None = None
    link_log: Path | None = None
    wave: Waveform | None = None


class Epoch(Protocol):
    """The end of an epoch."""

    @property
    def number(self) -> int:
        """From 1 on."""

    @property
    def seconds(self) -> float:
        """Simulated, since the start."""

    @property
    def measures(self) -> Measures:
        """How good the model was then."""


@dataclass
class Result:
    """What a run leaves. ``iteration``: the seconds of the mean one, by what they were spent on.

    ``seconds``: of the whole run, simulated. ``times`` are of each host, ``counters`` of each node,
    ``traffic`` of each round or leg; each may be empty. ``times`` count from ``began``, in seconds of
    the simulation. ``timelines``: of each host of INCEPTIONN.
    """

    epochs: Sequence[Epoch]
    state: State
    seconds: float
    iteration: dict[str, float]
    times: Sequence[Times] = ()
    counters: Sequence[dict[str, int]] = ()
    traffic: list[dict[str, Any]] = field(default_factory=list)
    began: float = 0.0
    timelines: Sequence[FirstSpans[Span]] = ()


class Backend(Protocol):
    """A job, and what carries it out."""

    @property
    def training(self) -> DataParallel:
        """What is trained."""

    @property
    def nodes(self) -> int:
        """Those that train, and aggregators."""

    @property
    def exchanges(self) -> int:
        """Of a step."""

    def references(self, data: Dataset) -> References:
        """The same training in NumPy, from its first step on. Raises CheckFailed where it diverges."""

    def golden(self, data: Dataset, epochs: int, state: State) -> State:
        """The state behind so many epochs, on from one before."""

    def run(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Result:
        """Carry it out, on from a state.

        Raises CheckFailed of one line where the run cannot be ended: with the node that is silent, with where a
        gradient is not finite, or with the sum or the weights that differ.
        """

    def trace(self, state: State, result: Result | None, log: LinkLog) -> str:
        """The timeline of a run on from a state; without its result, of what links carried until it failed."""
