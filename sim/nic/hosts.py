"""Live hosts that serve requests from outside the simulation until they are stopped."""

from __future__ import annotations

import functools
import signal
from abc import ABC, abstractmethod
from typing import Any

from fanin.host.driver import BaseDriver
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.nic.pace import BUSY_PS, IDLE_PS
from fanin.sim.nic.stopping import Stop


class OutsideHosts(ABC):
    """Base of live hosts that poll for requests from outside, and read all counters at the end."""

    def __init__(self, board: Board, driver: BaseDriver, *, nodes: int, stop: Stop):
        self.board, self.driver = board, driver
        self.counters: list[dict[str, int]] = [{} for _ in range(nodes)]
        self.progress = 0  #: number of outside events, plus one at the start, which shows a watcher readiness
        self._stop, self._stopping, self._unread = stop, False, nodes
        self._interval = BUSY_PS

    @abstractmethod
    def begin(self) -> None:
        """Prepare; called once, before the first ``poll``."""

    @abstractmethod
    def poll(self) -> bool:
        """Carry out pending requests; return whether to poll again after ``BUSY_PS``, or later."""

    @property
    def done(self) -> bool:
        """Whether the hosts have been stopped, and all counters have been read."""
        return self._stopping and not self._unread

    def start(self) -> None:
        """Prepare, and begin to poll."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it, too, and stops this process
        self.begin()
        self.progress = 1
        self._poll_on_alarm()

    def may_skip(self) -> bool:
        """Return True unless overridden: nodes count no cycles while nothing happens."""
        return True

    def end(self) -> None:
        """Stop polling: read the counters, and finish."""
        if self._stopping:
            return
        self._stopping = True
        batch = self.driver.counters()
        for node in range(len(self.counters)):

            def store(node: int, words: list[int]) -> None:
                self.counters[node] = self.driver.counters_of(batch.results(words))
                self._unread -= 1

            self.board.run(node, HostProgram().extend(batch.operations), functools.partial(store, node))

    def _poll_on_alarm(self) -> None:
        if self._stop.requested:
            self.end()
            return
        is_busy = self.poll()
        if self._stopping:
            return
        self._interval = BUSY_PS if is_busy else min(2 * self._interval, IDLE_PS)
        self.board.at(self.board.now + self._interval, self._poll_on_alarm)

    @abstractmethod
    def waiting(self) -> str:
        """Return what the hosts wait for, for a message."""

    @abstractmethod
    def result(self) -> Any:
        """Return the run's result, which must be picklable."""
