"""Worker of an asynchronous training: takes the model, computes, and pushes a gradient when it has credit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fanin.param_server.golden import Push, WorkerEndpoint
from fanin.sim.learning.learner import Learner
from fanin.sim.param_server.training import TrainingJob


class Site(Protocol):
    """Environment of workers: the event model, or the hosts of simulated hardware."""

    job: TrainingJob
    learner: Learner

    @property
    def seconds(self) -> float:
        """Simulated time since the start."""

    @property
    def copy_seconds(self) -> float:
        """Seconds to take the model out of its buffers."""

    def note(self, worker: int, kind: str, begin: float) -> None:
        """Note a worker's activity that ends now."""

    def call_after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` after ``seconds``."""


class Worker(ABC):
    """Worker that executes algorithm 2 with K slots. Source: RDMA-wild, section 4."""

    def __init__(self, site: Site, endpoint: WorkerEndpoint):
        self.site, self.endpoint, self.number = site, endpoint, endpoint.number
        self._rng = site.job.generator(self.number)
        self._busy = False
        self._idle_since: float | None = None
        self._replaced = False
        self._zeros_version: int | None = None  # version of the gradient of zeros of a worker that joins a run
        self._gradient_count = site.job.gradients_each(site.learner)

    @abstractmethod
    def send(self, pushes: Sequence[Push]) -> None:
        """Write a gradient, a part to each server; the push must be noted when all parts have arrived."""

    @property
    def stops(self) -> float:
        """Time in seconds at which the worker stops answering; infinite for a replacement."""
        return np.inf if self._replaced else self.site.job.stops.get(self.number, np.inf)

    @property
    def dead(self) -> bool:
        """Whether the worker has stopped answering and has not been replaced."""
        return self.site.seconds >= self.stops

    def replace(self, endpoint: WorkerEndpoint) -> None:
        """Replace the worker by one whose memory is zeros, and which waits for ``join`` and its rows."""
        self.endpoint, self._replaced, self._busy, self._idle_since = endpoint, True, False, None
        self._zeros_version = None

    def join(self, version: int) -> None:
        """Set the version of the gradient of zeros that the servers apply before the replacement's own."""
        self._zeros_version = version
        self.advance()

    def advance(self) -> None:
        """Begin the next gradient, if there is credit for it and the worker is not busy."""
        now = self.site.seconds
        if self.endpoint.joins:
            if self._zeros_version is not None:
                self.endpoint.join(self._zeros_version)
            if self.endpoint.joins:
                return
        if self._busy or self.dead or self.endpoint.version == self._gradient_count:
            return
        if not self.endpoint.may_push:
            self._idle_since = now if self._idle_since is None else self._idle_since
            return
        if self._idle_since is not None:
            self.site.note(self.number, "wait", self._idle_since)
            self._idle_since = None
        self._busy = True
        self._take_model(now)

    def _take_model(self, begin: float) -> None:
        """Copy the model, again if a row was written meanwhile, then compute."""
        endpoint = self.endpoint
        reading = endpoint.begin_read()

        def end_copy() -> None:
            if endpoint is not self.endpoint:
                return
            model = endpoint.end_read(reading)
            if model is None:
                self._take_model(begin)
            else:
                self._compute(begin, *model)

        self.site.call_after(self.site.copy_seconds, end_copy)

    def _compute(self, begin: float, w: npt.NDArray[np.float32], others: list[int]) -> None:
        """Compute a gradient at ``w``, then push it; ``others``: from ``WorkerEndpoint.end_read``."""
        job, endpoint = self.site.job, self.endpoint

        def end_compute() -> None:
            if self.dead or endpoint is not self.endpoint:
                return
            gradient = self.site.learner.gradient(self.number, self.endpoint.version, w)
            self.site.note(self.number, "compute", begin)
            self.send(list(self.endpoint.push(gradient, others)))
            self._busy = False
            self.advance()

        self.site.call_after(job.compute.seconds(self.number, job.batch, self._rng), end_compute)
