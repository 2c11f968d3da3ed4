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
    """Whether a layer's all-reduce runs during the backward pass of the layers before it."""

    BACKWARD = "backward"
    NONE = "none"


@dataclass(frozen=True)
class Schedule:
    """Order of a host's work.

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
class Completed:
    """Request: the number of complete descriptors; with ``above``, wait until it is greater than that."""

    above: int | None = None


@dataclass(frozen=True)
class Fetch:
    """Request: the sum of a completed descriptor."""

    layer: int


Tell = Callable[[int, Any], None]  # node, what
Request = Compute | Post | Completed | Fetch
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
    """Times of one host.

    - ``steps``: the end of each step, in seconds.
    - ``blocked``: seconds of waiting for all-reduces.
    - ``timeline``: the host's first activities.
    """

    steps: list[float] = field(default_factory=list)
    blocked: float = 0.0
    timeline: FirstSpans[Span] = field(default_factory=FirstSpans)

    @property
    def spans(self) -> list[Span]:
        """Activities of the first ``TRACED_STEPS`` steps."""
        return [span for span in self.timeline.kept if span.step < TRACED_STEPS]


class Worker:
    """One host's program.

    - ``counts``: number of values per layer.
    - ``batch``: samples per step.
    - ``now``: returns the simulated time in seconds since the start.
    """

    def __init__(
        self,
        learner: Learner,
        counts: list[int],
        *,
        batch: int,
        profile: WorkerProfile,
        schedule: Schedule,
        now: Callable[[], float],
    ):
        self._learner, self._counts, self._batch = learner, counts, batch
        self._profile, self._schedule, self._now = profile, schedule, now
        self.times = Times()
        self._posted: deque[tuple[int, float]] = deque()  # layers that are not updated yet, with times of posts
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
            self.times.steps.append(self._now())

    def _backward(self, layer: int) -> Program:
        yield from self._compute("B", layer, self._profile.backward(self._counts[layer], self._batch))
        gradient = self._learner.backward(layer)
        if self._unfinished == self._schedule.outstanding:
            yield from self._block()
        self._posted.append((layer, self._now()))
        yield Post(layer, gradient)
        if self._schedule.overlap is Overlap.NONE:
            yield from self._block()
        elif self._schedule.outstanding > 1:
            self._complete = yield Completed()
        yield from self._update()

    @property
    def _unfinished(self) -> int:
        return self._updated + len(self._posted) - self._complete

    def _block(self) -> Program:
        """Wait until one more descriptor is complete, unless a complete one has not been used."""
        if self._complete > self._updated:
            return
        began = self._now()
        self._complete = yield Completed(above=self._complete)
        self.times.blocked += self._now() - began

    def _update(self) -> Program:
        """Update the layers of all complete descriptors."""
        while self._updated < self._complete:
            layer, began = self._posted.popleft()
            self._note("AR", layer, began)
            total = yield Fetch(layer)
            self._updated += 1
            self._learner.update(layer, total)
            yield from self._compute("U", layer, self._profile.update(self._counts[layer]))

    def _compute(self, kind: str, layer: int, seconds: float) -> Program:
        began = self._now()
        yield Compute(seconds)
        self._note(kind, layer, began)

    def _note(self, kind: str, layer: int, began: float) -> None:
        self.times.timeline.note(Span(self._step, kind, layer, began, self._now()))


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

    def workers(self, now: Callable[[], float], tell: Tell | None = None) -> list[Worker]:
        """Return each node's program; ``now`` returns seconds since the start.

        A learner's events go to ``told``: directly, or through ``tell``.
        """

    def told(self, node: int, what: Any) -> None:
        """Handle an event of a node's learner. Raises CheckFailed."""

    def result(self) -> Any:
        """Return the final result, which must be picklable."""
