"""What a host of the ring does when: the trace of figure 3b, and its variants (docs/systems/ring-training.md).

The program of a host is a generator that asks for what takes time, and is sent the answer. So it reads from top
to bottom, and runs at simulated nodes as well as on a model of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.spans import FirstSpans

if TYPE_CHECKING:  # NumPy takes a while to load, and options are declared with what is here
    from fanin.golden.mlp import Floats

MAX_OUTSTANDING = 8  # descriptors that a node's queue has room for
TRACED_STEPS = 3  # first ones, that a chart has room for


class Overlap(StrEnum):
    """Whether a layer's all-reduce runs beside the backward pass of those below it."""

    BACKWARD = "backward"
    NONE = "none"


@dataclass(frozen=True)
class Schedule:
    """``outstanding``: descriptors that a host leaves unfinished before it blocks; 1 is figure 3b.

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
    """So many seconds pass."""

    seconds: float


@dataclass(frozen=True)
class Post:
    """A layer's gradient goes to where the NIC reads it, and its descriptor to the NIC."""

    layer: int
    gradient: Floats


@dataclass(frozen=True)
class Completed:
    """How many descriptors are complete, of all that were posted? ``above``: not before it is more."""

    above: int | None = None


@dataclass(frozen=True)
class Fetch:
    """The sum that a completed descriptor has left."""

    layer: int


Tell = Callable[[int, Any], None]  # node, what
Request = Compute | Post | Completed | Fetch
Program = Generator[Request, Any, None]


class Learner(Protocol):
    """One node's model, a step at a time; :class:`fanin.sim.learning.replica.Replica` is one."""

    def forward(self) -> None:
        """With the next mini-batch."""

    def backward(self, layer: int) -> Floats:
        """A layer's gradient; from the last one on."""

    def update(self, layer: int, total: Floats) -> None:
        """With the sum of all nodes' gradients."""

    def end_step(self) -> None:
        """All layers are updated."""


@dataclass(frozen=True)
class Span:
    """What a host or its NIC did from when to when, in seconds: ``F``, ``B``, ``U`` or ``AR`` of a layer.

    An ``AR`` is from its post until the host knows that it is complete.
    """

    step: int
    kind: str
    layer: int
    begin: float
    end: float


@dataclass
class Times:
    """Of one host. ``steps``: the end of each step; ``blocked``: seconds in which it waited for all-reduces.

    ``timeline`` has what it did.
    """

    steps: list[float] = field(default_factory=list)
    blocked: float = 0.0
    timeline: FirstSpans[Span] = field(default_factory=FirstSpans)

    @property
    def spans(self) -> list[Span]:
        """What it did in the first ``TRACED_STEPS`` steps."""
        return [span for span in self.timeline.kept if span.step < TRACED_STEPS]


class Worker:
    """One host's program. ``now`` is simulated time in seconds since the start.

    ``counts``: the values of each layer.
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
        self._posted: deque[tuple[int, float]] = deque()  # layers that are not updated yet, and since when
        self._complete = 0  # of all descriptors of the run
        self._updated = 0  # of those
        self._step = 0

    def run(self, steps: int) -> Program:
        """So many steps."""
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
        """Until one more descriptor is complete, unless one is that has not been used."""
        if self._complete > self._updated:
            return
        began = self._now()
        self._complete = yield Completed(above=self._complete)
        self.times.blocked += self._now() - began

    def _update(self) -> Program:
        """Whatever is complete."""
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
    """All nodes' models, and what is kept of them."""

    @property
    def counts(self) -> list[int]:
        """Values of each layer."""

    @property
    def first_step(self) -> int:
        """The number of the first one: not 0 where a run is resumed."""

    @property
    def steps(self) -> int:
        """Steps that the run has."""

    def workers(self, now: Callable[[], float], tell: Tell | None = None) -> list[Worker]:
        """Each node's program; ``now`` gives seconds since the start.

        What a node's learner has to tell those of all goes to ``told``: at once, or through ``tell``.
        """

    def told(self, node: int, what: Any) -> None:
        """A node's learner has told something. Raises CheckFailed."""

    def result(self) -> Any:
        """What is left at the end; to be pickled."""
