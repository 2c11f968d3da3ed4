"""Interface of an aggregation protocol for the model checker: steps of a worker, and of a slot of the switch.

Workers are interchangeable: a worker's state does not name the worker. PAs of different workers are
distinguished only in the switch's sum. States are any hashable values. A *message* is a packet without slot,
worker and values; these three follow from the channel that carries the packet.
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

MAX_WORKERS = 5  # the search of more takes too long, and their PAs do not fit 32 bits (``rounds.contribution``)


class Violation(Exception):
    """A broken invariant: its name, and a description of the event that broke it."""

    def __init__(self, invariant: str, description: str):
        super().__init__(description)
        self.invariant = invariant

    @property
    def value(self) -> tuple[str, str]:
        """Return the invariant and the description; equal for equal violations."""
        return self.invariant, str(self)


class Message(NamedTuple):
    """A packet in flight: its kind, and the round of its operation."""

    kind: Kind
    round: int

    def __str__(self) -> str:
        """Return the message as a chart shows it."""
        return f"{self.kind.name} r{self.round}"


class Step(NamedTuple):
    """A worker's next state, and the message that it sends for the slot, if any."""

    state: Any
    sent: Message | None = None


class SwitchStep(NamedTuple):
    """A slot's next state at the switch, and the messages sent as (worker, message), at most one per worker."""

    state: Any
    sent: tuple[tuple[int, Message], ...] = ()


class ProtocolModel(ABC):
    """Interface of a protocol for the checker, with ``workers`` workers.

    - ``slots``: operations that a worker may have in flight. The attribute ``slots`` counts all slots of the
      job, which may be more.
    - ``rounds``: number of uses of each slot.
    """

    def __init__(self, *, workers: int, slots: int, rounds: int):
        for name, value, maximum in (
            ("workers", workers, MAX_WORKERS),
            ("slots", slots, 64),
            ("rounds", rounds, 64),
        ):
            if not 1 <= value <= maximum:
                raise ValueError(f"{name} must be in 1…{maximum} to be searched, not {value!r}")
        self.workers, self.slots, self.rounds = workers, slots, rounds

    @abstractmethod
    def worker(self) -> Any:
        """Return a worker's initial state."""

    @abstractmethod
    def slot(self) -> Any:
        """Return the initial state of a switch's slot."""

    @abstractmethod
    def submit(self, worker: Any) -> tuple[int, Step] | None:
        """Begin the worker's next operation; return its slot and the step, or None if none can begin."""

    @abstractmethod
    def timeout(self, worker: Any, slot: int) -> Step | None:
        """Return the worker's step when the slot's timer expires, or None if the timer does not run."""

    @abstractmethod
    def receive(self, worker: Any, slot: int, message: Message) -> Step:
        """Return the worker's step when a message arrives. Raises Violation."""

    @abstractmethod
    def switch(self, state: Any, slot: int, sender: int, message: Message) -> SwitchStep:
        """Return the slot's step when a message arrives at the switch. Raises Violation."""

    @abstractmethod
    def done(self, worker: Any) -> bool:
        """Return whether all operations of the worker are finished."""

    @abstractmethod
    def is_waiting(self, worker: Any, slot: int, number: int) -> bool:
        """Return whether the worker has not yet received the RESULT of the slot's round ``number``."""

    @property
    def root_members(self) -> int:
        """Number of members of the switch, or of the root of a tree of switches."""
        return self.workers

    @property
    def without_checks(self) -> ProtocolModel | None:
        """Variant of the protocol that continues after violations and checks only FINISH, or None."""
        return None

    def is_alone(self, workers: Sequence[Any], slot: int) -> bool:
        """Return whether no event on other slots enables a worker to use this slot; ``workers`` are states."""
        return all(self.is_alone_for(worker, slot) for worker in workers)

    @abstractmethod
    def is_alone_for(self, worker: Any, slot: int) -> bool:
        """Return whether no event on other slots enables the worker to use this slot.

        The slot is in use, used up, or next and open.
        """

    @abstractmethod
    def renamed(self, state: Any, names: tuple[int, ...]) -> Any:
        """Return a slot's state after worker w is renamed to ``names[w]``."""

    def is_useless(self, worker: Any, slot: int, message: Message) -> bool:
        """Return whether a message to or from the worker has no effect, whenever it arrives from now on."""
        return False
