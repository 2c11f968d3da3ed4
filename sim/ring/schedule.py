"""Schedule of a ring's host: the trace of figure 3b, and its variants (docs/systems/ring-training.md).

A host's program is a generator that yields requests and receives their answers. It therefore reads from top to
bottom, and runs on simulated nodes as well as on an event model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.spans import FirstSpans

if TYPE_CHECKING:  # NumPy is slow to load, and options are declared with names of this module
    from fanin.golden.mlp import Floats

MAX_OUTSTANDING = 8  # descriptors that a node's queue holds
TRACED_STEPS = 3  # first steps, which a chart shows


class Overlap(StrEnum):
    """Overlap of a layer's all-reduce with the backward pass of the layers before it."""

    BACKWARD = "backward"
    NONE = "none"


@dataclass(frozen=True)
class Schedule:
    """Settings of a host's schedule.

    - ``overlap``: whether all-reduces run during the backward pass.
    - ``outstanding``: unfinished descriptors at which a host blocks; 1 is figure 3b.

    Raises ValueError that names parameter, value and limit.
    """

    overlap: Overlap = Overlap.BACKWARD
    outstanding: int = 1

    def __post_init__(self) -> None:
        if self.outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {self.outstanding!r}")
        if self.overlap is Overlap.NONE and self.outstanding != 1:
            raise ValueError(f"outstanding must be 1 without overlap, not {self.outstanding!r}")


@dataclass(frozen=True)
class Compute:
    """Request: let ``seconds`` pass."""

    seconds: float


@dataclass(frozen=True)
class Post:
    """Request: store a layer's gradient where the NIC reads it, and post its descriptor."""

    layer: int
    gradient: Floats


@dataclass(frozen=True)
class AwaitCompletions:
    """Request: return the number of complete descriptors, with ``more_than`` once it exceeds that number."""

    more_than: int | None = None


@dataclass(frozen=True)
class Fetch:
    """Request: return the sum of a layer, whose descriptor is complete."""

    layer: int


Report = Callable[[int, Any], None]  # node, event of its learner
Request = Compute | Post | AwaitCompletions | Fetch
Program = Generator[Request, Any, None]


class Learner(Protocol):
    """One node's model, trained step by step; :class:`fanin.sim.learning.replica.Replica` is one."""

    def forward(self) -> None:
        """Compute the forward pass of the next mini-batch."""

    def backward(self, layer: int) -> Floats:
        """Return a layer's gradient; layers are called from the last to the first."""

    def update(self, layer: int, total: Floats) -> None:
        """Update a layer with the sum of all nodes' gradients."""

    def end_step(self) -> None:
        """End the step, after all layers are updated."""


@dataclass(frozen=True)
class Span:
    """An activity of a host or its NIC, in seconds: ``F``, ``B``, ``U`` or ``AR`` of a layer.

    An ``AR`` lasts from its post until the host knows that it is complete.
    """

    step: int
    kind: str
    layer: int
    begin: float
    end: float


@dataclass
class Times:
    """Measured times of one host.

    - ``steps``: the end of each step, in seconds.
    - ``blocked``: seconds of waiting for all-reduces.
    - ``timeline``: the host's first activities, for charts.
    """

    steps: list[float] = field(default_factory=list)
    blocked: float = 0.0
    timeline: FirstSpans[Span] = field(default_factory=FirstSpans)

    @property
    def spans(self) -> list[Span]:
        """Activities of the first ``TRACED_STEPS`` steps."""
        return [span for span in self.timeline.kept if span.step < TRACED_STEPS]


class Worker:
    """Program of one host, which trains a learner.

    - ``counts``: number of values per layer.
    - ``batch``: samples per step.
    - ``clock``: returns the simulated time in seconds since the start.
    """

    def __init__(
        self,
        learner: Learner,
        counts: list[int],
        *,
        batch: int,
        profile: WorkerProfile,
        schedule: Schedule,
        clock: Callable[[], float],
    ):
        self._learner, self._counts, self._batch = learner, counts, batch
        self._profile, self._schedule, self._clock = profile, schedule, clock
        self.times = Times()
        self._posted: deque[tuple[int, float]] = deque()  # layers to update, with times of their posts in s
        self._complete = 0  # complete descriptors of the run
        self._updated = 0  # descriptors whose sums have been used
        self._step = 0

    def run(self, steps: int) -> Program:
        """Yield the requests of ``steps`` steps."""
        for self._step in range(steps):
            self._learner.forward()
            for layer, count in enumerate(self._counts):
                yield from self._compute("F", layer, self._profile.forward(count, self._batch))
            for layer in reversed(range(len(self._counts))):
                yield from self._backward(layer)
            while self._posted:
                yield from self._block()
                yield from self._update()
            self._learner.end_step()
            self.times.steps.append(self._clock())

    def _backward(self, layer: int) -> Program:
        yield from self._compute("B", layer, self._profile.backward(self._counts[layer], self._batch))
        gradient = self._learner.backward(layer)
        if self._unfinished == self._schedule.outstanding:
            yield from self._block()
        self._posted.append((layer, self._clock()))
        yield Post(layer, gradient)
        if self._schedule.overlap is Overlap.NONE:
            yield from self._block()
        elif self._schedule.outstanding > 1:
            self._complete = yield AwaitCompletions()
        yield from self._update()

    @property
    def _unfinished(self) -> int:
        return self._updated + len(self._posted) - self._complete

    def _block(self) -> Program:
        """Wait until a complete descriptor exists whose sum has not been used."""
        if self._complete > self._updated:
            return
        begin = self._clock()
        self._complete = yield AwaitCompletions(more_than=self._complete)
        self.times.blocked += self._clock() - begin

    def _update(self) -> Program:
        """Update the layers of all complete descriptors."""
        while self._updated < self._complete:
            layer, begin = self._posted.popleft()
            self._add_span("AR", layer, begin)
            total = yield Fetch(layer)
            self._updated += 1
            self._learner.update(layer, total)
            yield from self._compute("U", layer, self._profile.update(self._counts[layer]))

    def _compute(self, kind: str, layer: int, seconds: float) -> Program:
        begin = self._clock()
        yield Compute(seconds)
        self._add_span(kind, layer, begin)

    def _add_span(self, kind: str, layer: int, begin: float) -> None:
        self.times.timeline.note(Span(self._step, kind, layer, begin, self._clock()))


class Learners(Protocol):
    """All nodes' models, and the run's learning result."""

    @property
    def counts(self) -> list[int]:
        """Values of each layer."""

    @property
    def first_step(self) -> int:
        """Number of the first step; above 0 in a resumed run."""

    @property
    def steps(self) -> int:
        """Number of steps of the run."""

    def workers(self, clock: Callable[[], float], report: Report | None = None) -> list[Worker]:
        """Return each node's program; ``clock`` returns seconds since the start.

        A learner's events go to ``handle``: directly, or through ``report``.
        """

    def handle(self, node: int, event: Any) -> None:
        """Handle an event of a node's learner. Raises CheckFailed."""

    def result(self) -> Any:
        """Return the final result, which must be picklable."""
