"""Live hosts that carry out what is asked for outside the simulation, until they are told to end."""

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
    """What such hosts have in common: they look again and again, and read all counters at the end."""

    def __init__(self, board: Board, driver: BaseDriver, *, nodes: int, stop: Stop):
        self.board, self.driver = board, driver
        self.counters: list[dict[str, int]] = [{} for _ in range(nodes)]
        self.progress = 0  #: events outside, and one for the start, by which a watcher sees that it is ready
        self._stop, self._stopping, self._unread = stop, False, nodes
        self._interval = BUSY_PS

    @abstractmethod
    def begin(self) -> None:
        """Once, before the first look."""

    @abstractmethod
    def look(self) -> bool:
        """Carry out what has been asked for; whether to look again soon."""

    @property
    def done(self) -> bool:
        """Told to end, and all counters read."""
        return self._stopping and not self._unread

    def start(self) -> None:
        """Begin to look."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the command, too, which stops us
        self.begin()
        self.progress = 1
        self._look()

    def may_skip(self) -> bool:
        """Nodes count no cycles while nothing happens, unless said otherwise."""
        return True

    def end(self) -> None:
        """Look no more: read the counters, and be done."""
        if self._stopping:
            return
        self._stopping = True
        batch = self.driver.counters()
        for node in range(len(self.counters)):

            def found(node: int, words: list[int]) -> None:
                self.counters[node] = self.driver.counters_of(batch.results(words))
                self._unread -= 1

            self.board.run(node, HostProgram().extend(batch.operations), functools.partial(found, node))

    def _look(self) -> None:
        if self._stop.asked:
            self.end()
            return
        busy = self.look()
        if self._stopping:
            return
        self._interval = BUSY_PS if busy else min(2 * self._interval, IDLE_PS)
        self.board.at(self.board.now + self._interval, self._look)

    @abstractmethod
    def waiting(self) -> str:
        """For what, for a message."""

    @abstractmethod
    def result(self) -> Any:
        """What becomes of the run; to be pickled."""
