"""Protocols as the checker sees them: what a worker and a slot of the switch do with one event.

Workers are alike, so a worker's state does not say which one it is; PAs are told apart where the switch adds
them. States are any hashable values. A *message* is a packet without slot, worker and values: all of these
follow from where it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from fanin.wire.aggregation import Kind

ONCE = "every worker gets every FA exactly once, and in order"
SUM = "an FA is the sum of exactly the W contributions of its operation"
REUSE = "no slot is reused while a worker waits on it"
FINISH = "once losses stop, everything finishes"
INVARIANTS = (ONCE, SUM, REUSE, FINISH)

MAX_WORKERS = 5  # more would not be searched in a lifetime, and their PAs not be told apart


class Violation(Exception):
    """An invariant does not hold: which, and what happened."""

    def __init__(self, invariant: str, what: str):
        super().__init__(what)
        self.invariant = invariant

    @property
    def value(self) -> tuple[str, str]:
        """Which, and what happened: equal for violations that are alike."""
        return self.invariant, str(self)


class Message(NamedTuple):
    """A packet under way: its kind, and the round of the operation that it belongs to."""

    kind: Kind
    round: int

    def __str__(self) -> str:
        """As a chart shows it."""
        return f"{self.kind.name} r{self.round}"


class Step(NamedTuple):
    """A worker's next state, and the message that it sends for the slot, if any."""

    state: Any
    sent: Message | None = None


class SwitchStep(NamedTuple):
    """A slot's next state at the switch, and who gets which message; a worker gets one at most."""

    state: Any
    sent: tuple[tuple[int, Message], ...] = ()


class ProtocolModel(ABC):
    """One protocol for ``workers`` members.

    Constructed with the ``slots`` that a worker may have in flight; the attribute counts all that the job has,
    which may be more. Each is used ``rounds`` times.
    """

    def __init__(self, *, workers: int, slots: int, rounds: int):
        for name, value, most in (
            ("workers", workers, MAX_WORKERS),
            ("slots", slots, 64),
            ("rounds", rounds, 64),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"{name} must be in 1…{most} to be searched, not {value!r}")
        self.workers, self.slots, self.rounds = workers, slots, rounds

    @abstractmethod
    def worker(self) -> Any:
        """A worker's state at the start."""

    @abstractmethod
    def slot(self) -> Any:
        """A slot's state in the switch at the start."""

    @abstractmethod
    def submit(self, worker: Any) -> tuple[int, Step] | None:
        """The slot of the next operation and what it leads to; None when none can begin."""

    @abstractmethod
    def timeout(self, worker: Any, slot: int) -> Step | None:
        """The slot's timer runs out; None when it does not run."""

    @abstractmethod
    def hear(self, worker: Any, slot: int, message: Message) -> Step:
        """A message reaches the worker. Raises Violation."""

    @abstractmethod
    def switch(self, state: Any, slot: int, sender: int, message: Message) -> SwitchStep:
        """A message reaches the switch. Raises Violation."""

    @abstractmethod
    def done(self, worker: Any) -> bool:
        """All its operations are finished."""

    @abstractmethod
    def waits(self, worker: Any, slot: int, number: int) -> bool:
        """The worker has not yet had the RESULT of the slot's round ``number``."""

    @property
    def unjudged(self) -> ProtocolModel | None:
        """The same protocol, going on where it breaks another invariant than FINISH; None where it cannot."""
        return None

    def alone(self, workers: Sequence[Any], slot: int) -> bool:
        """Nothing that happens to other slots lets any of all workers use this one."""
        return all(self.begins_alone(worker, slot) for worker in workers)

    @abstractmethod
    def begins_alone(self, worker: Any, slot: int) -> bool:
        """Nothing that happens to other slots lets the worker use this one: it waits, is used up, or open."""

    @abstractmethod
    def renamed(self, state: Any, names: tuple[int, ...]) -> Any:
        """A slot's state when worker w is called ``names[w]``."""

    def useless(self, worker: Any, slot: int, message: Message) -> bool:
        """Whether a message to or from the worker can change nothing any more, whenever it arrives."""
        return False
