"""SwitchML as published, a bit in place of the round: something that the checker has to find fault with."""

from __future__ import annotations

from typing import NamedTuple

from fanin.sim.checker.protocol import ONCE, SUM, Message, ProtocolModel, Step, SwitchStep, Violation
from fanin.wire.aggregation import Kind


class Worker(NamedTuple):
    """``rounds``: of each slot's last operation; ``waits``: it has no RESULT yet."""

    submitted: int
    rounds: tuple[int, ...]
    waits: tuple[bool, ...]


class Pools(NamedTuple):
    """A slot of each version: who was seen, and the contributions as (worker, round)."""

    seen: tuple[int, int] = (0, 0)
    added: tuple[tuple[tuple[int, int], ...], ...] = ((), ())


def replaced(of, index, value):
    return (*of[:index], value, *of[index + 1 :])


class OneBit(ProtocolModel):
    """SwitchML's algorithms 3 and 4, line by line: versions alternate, a mark in one clears that in the other.

    Its packets carry no round but for the last bit, the version; the rest tells PAs apart and decides nothing.
    The worker is kinder than the published one, which takes any RESULT of the slot.
    """

    def worker(self):
        return Worker(0, (0,) * self.slots, (False,) * self.slots)

    def slot(self):
        return Pools()

    def submit(self, worker):
        slot, number = worker.submitted % self.slots, worker.submitted // self.slots + 1
        if worker.waits[slot] or number > self.rounds:
            return None
        begun = Worker(
            worker.submitted + 1, replaced(worker.rounds, slot, number), replaced(worker.waits, slot, True)
        )
        return slot, Step(begun, Message(Kind.AGG, number))

    def timeout(self, worker, slot):
        return Step(worker, Message(Kind.AGG, worker.rounds[slot])) if worker.waits[slot] else None

    def receive(self, worker, slot, message):
        number = worker.rounds[slot]
        if not worker.waits[slot] or (message.round ^ number) & 1:
            return Step(worker)
        if message.round != number:
            raise Violation(ONCE, f"the FA of round {message.round} stands in for that of {number}")
        return Step(worker._replace(waits=replaced(worker.waits, slot, False)))

    def switch(self, state, slot, sender, message):
        version, bit = message.round & 1, 1 << sender
        added = state.added[version]
        if state.seen[version] & bit:
            again = ((sender, message),) if len(added) == self.workers else ()
            return SwitchStep(state, tuple((to, Message(Kind.RESULT, asked.round)) for to, asked in again))
        seen = [mask & ~bit for mask in state.seen]
        seen[version] = state.seen[version] | bit
        added = (*(added if len(added) < self.workers else ()), (sender, message.round))
        state = Pools(tuple(seen), replaced(state.added, version, tuple(sorted(added))))
        if len(added) < self.workers:
            return SwitchStep(state)
        if {number for _, number in added} != {message.round} or len(dict(added)) < self.workers:
            raise Violation(SUM, f"a RESULT adds up {sorted(added)}")
        return SwitchStep(state, tuple((w, Message(Kind.RESULT, message.round)) for w in range(self.workers)))

    def done(self, worker):
        return worker.submitted == self.slots * self.rounds and not any(worker.waits)

    def is_waiting(self, worker, slot, number):
        """Asked of the round before; but there are two versions, so this one was used before that."""
        kept, last = worker.rounds[slot], number - 1
        return kept < last or (kept == last and worker.waits[slot])

    def is_alone_for(self, worker, slot):
        following = worker.submitted % self.slots
        return worker.waits[slot] or slot == following or worker.rounds[slot] == self.rounds

    def renamed(self, state, names):
        seen = tuple(sum(1 << names[w] for w in range(self.workers) if mask >> w & 1) for mask in state.seen)
        return Pools(
            seen, tuple(tuple(sorted((names[w], number) for w, number in half)) for half in state.added)
        )
