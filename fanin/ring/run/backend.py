"""Interface between ``fanin ring train`` and the backends that run it."""

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

#: Called with the number of steps that all nodes have finished.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Outputs:
    """Output files of a run: all frames to ``pcap``, link events to ``link_log``, signals to ``wave``."""

    pcap: Path | None = None
    link_log: Path | None = None
    wave: Waveform | None = None


class Epoch(Protocol):
    """End of an epoch."""

    @property
    def number(self) -> int:
        """Number of the epoch, from 1."""

    @property
    def seconds(self) -> float:
        """Simulated seconds since the start."""

    @property
    def measures(self) -> Measures:
        """Loss and accuracy of the model at that point."""


@dataclass
class Result:
    """Results of a run.

    - ``seconds``: simulated time of the whole run.
    - ``iteration``: seconds of the mean iteration, by part.
    - ``times``: of each host, in seconds from ``start`` on; may be empty.
    - ``counters``: of each node; may be empty.
    - ``traffic``: of each round or leg; may be empty.
    - ``start``: simulated time, in seconds, at which all ``times`` are 0.
    - ``timelines``: of each of INCEPTIONN's hosts; may be empty.
    """

    epochs: Sequence[Epoch]
    state: State
    seconds: float
    iteration: dict[str, float]
    times: Sequence[Times] = ()
    counters: Sequence[dict[str, int]] = ()
    traffic: list[dict[str, Any]] = field(default_factory=list)
    start: float = 0.0
    timelines: Sequence[FirstSpans[Span]] = ()


class Backend(Protocol):
    """A training job, and the platform that runs it."""

    @property
    def training(self) -> DataParallel:
        """The training: network, data sizes and hyper-parameters."""

    @property
    def nodes(self) -> int:
        """Number of nodes: those that train, and aggregators."""

    @property
    def exchanges(self) -> int:
        """All-reduces per step."""

    def references(self, data: Dataset) -> References:
        """Train in NumPy from the first step on, for comparison. Raises CheckFailed if that diverges."""

    def golden(self, data: Dataset, epochs: int, state: State) -> State:
        """Train the golden model from ``state`` to the end of epoch ``epochs``; return its state."""

    def run(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Result:
        """Run the job from a state to its end.

        Raises CheckFailed with one line if the run cannot finish. The line names the silent node, the place of
        a gradient that is not finite, or the sum or weights that differ.
        """

    def trace(self, state: State, result: Result | None, log: LinkLog) -> str:
        """Return the timeline of a run that began with ``state``; of a failed run (no result) only the
        links.
        """
