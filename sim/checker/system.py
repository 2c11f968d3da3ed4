"""The system that is searched: workers, switch and the network between them, as one state and its ways on.

A state is a tuple of small integers. What a worker, a slot of the switch or a channel is in it was interned,
and what one of them does with one event is computed once and looked up from then on, so the models may be as
slow as they like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from fanin.sim.checker.protocol import INVARIANTS, REUSE, Message, ProtocolModel, Violation
from fanin.wire.aggregation import Kind

State = tuple[int, ...]
Fields = tuple[Any, ...]  # of an event, its message as a number
Way = tuple[Fields, State | Violation]
UP, DOWN = 0, 1
FAULTS = ("lose", "duplicate", "delay")  # names of events, in the order of ``Faults``
_KINDS = len(Kind)


class Event(NamedTuple):
    """What happens next: to whom, and to which message, on its way up to the switch or down from it."""

    name: str  # submit, timeout, deliver, deliver late, lose, duplicate, delay
    worker: int
    slot: int
    way: int
    message: Message


class Faults(NamedTuple):
    """How often the network may misbehave: each kind, and all together."""

    losses: int = 0
    duplicates: int = 0
    reorder: int = 0
    together: int = 0


class Interned:
    """Values as numbers from 0."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        """The number of a value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class System:
    """``protocol`` under ``faults``.

    A channel per worker, slot and way joins workers and switch. It is first in, first out; packets of different
    slots overtake each other freely. A lost packet is gone; a duplicated one comes a second time, a reordered
    one comes later, both at any time. A timer may run out whenever fewer than ``in_flight`` packets of its
    worker and slot are in the channels: most retransmissions are premature. Packets that can change nothing any
    more are taken out at once. Workers are alike: of states that differ by their names ``canonical`` keeps one.
    """

    invariants, fault_names = INVARIANTS, FAULTS

    def __init__(self, protocol: ProtocolModel, faults: Faults, *, in_flight: int = 2):
        for name, count in faults._asdict().items():
            if count < 0:
                raise ValueError(f"{name} must not be negative, not {count!r}")
        self.protocol, self.faults, self.in_flight = protocol, faults, in_flight
        self.slots = protocol.slots
        w, n = protocol.workers, self.slots
        self._workers, self._slots, self._channels, self._lates = (Interned() for _ in range(4))
        self._memo: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._slots_at, self._channels_at, self._late_at = w, w + n, w + n + 2 * w * n
        self._ups = [[(v, s, w + n + 2 * (v * n + s)) for v in range(w)] for s in range(n)]
        self._names = list(permutations(range(w)))
        self._channels(())
        self._lates(())  # number 0 is what is empty
        self.start: State = (
            *[self._workers(protocol.worker())] * w,
            *[self._slots(protocol.slot())] * n,
            *[0] * (2 * w * n + 1),
            *self._left(faults),
        )

    def done(self, state: State) -> bool:
        """All operations of all workers are finished."""
        memo, values = self._memo["done"], self._workers.values
        for worker in state[: self._slots_at]:
            if worker not in memo:
                memo[worker] = self.protocol.done(values[worker])
            if not memo[worker]:
                return False
        return True

    def alone(self, state: State) -> list[int]:
        """Slots whose events may be an ample set: what happens to other slots gives them no new event."""
        memo, numbers = self._memo["alone"], state[: self._slots_at]
        if numbers not in memo:
            workers = [self._workers.values[number] for number in numbers]
            memo[numbers] = [s for s in range(self.protocol.slots) if self.protocol.alone(workers, s)]
        found: list[int] = memo[numbers]
        return found

    def ways(self, state: State, slot: int) -> Iterator[Way]:
        """What can happen to a slot, and where it leads."""
        contents = self._channels.values
        ups = self._ups[slot]
        full = [(v, s, way, at + way) for v, s, at in ups for way in (UP, DOWN) if state[at + way]]
        for v, s, way, at in full:
            code, *rest = contents[state[at]]
            new = list(state)
            new[at] = self._channels(tuple(rest))
            yield ("deliver", v, s, way, code), self._arrive(new, v, s, way, code)
        late = self._lates.values[state[self._late_at]]
        for item in dict.fromkeys(late):
            if item[1] != slot:
                continue
            new = list(state)
            left = list(late)
            left.remove(item)
            new[self._late_at] = self._lates(tuple(left))
            yield ("deliver late", *item), self._arrive(new, *item)
        for v in range(self.protocol.workers):
            yield from self._submissions(state, v, slot)
        for v, s, at in ups:
            if len(contents[state[at]]) + len(contents[state[at + 1]]) < self.in_flight:
                yield from self._timeouts(state, v, s, at)
        if state[-1]:
            yield from self._faults(state, full)

    def canonical(self, state: State) -> State:
        """One of all states that differ from it by the workers' names: their states, then channels, in order.

        Where two workers have the same of both, the least state for what switch and late packets are then.
        """
        first, block = self._channels_at, 2 * self.protocol.slots
        keys = [(state[v], state[first + v * block : first + (v + 1) * block]) for v in range(self._slots_at)]
        ordered = sorted(keys)
        ranks = tuple(map(ordered.index, keys))
        memo = self._memo["names"]
        if ranks not in memo:
            memo[ranks] = [names for names in self._names if _in_order(ranks, names)]
        if len(memo[ranks]) == 1:
            return self._renamed(state, *memo[ranks])
        return min(self._renamed(state, names) for names in memo[ranks])

    def event(self, fields: Fields) -> Event:
        """In words."""
        name, worker, slot, way, code = fields
        return Event(name, worker, slot, way, _message(code))

    # What workers and switch do.

    def _submissions(self, state: State, v: int, slot: int) -> Iterator[Way]:
        memo, worker = self._memo["submit"], state[v]
        if worker not in memo:
            begun = self.protocol.submit(self._workers.values[worker])
            memo[worker] = begun and (begun[0], self._workers(begun[1].state), _code(begun[1].sent))
        if memo[worker] is None or memo[worker][0] != slot:
            return
        _, after, code = memo[worker]
        event = ("submit", v, slot, UP, code)
        before = _message(code).round - 1
        for other, number in enumerate(state[: self._slots_at]):
            if before and self.protocol.waits(self._workers.values[number], slot, before):
                what = f"slot {slot} is used again while worker {other} waits on its round {before}"
                yield event, Violation(REUSE, what)
                return
        new = list(state)
        new[v] = after
        self._send(new, v, slot, UP, code)
        yield event, tuple(new)

    def _timeouts(self, state: State, v: int, slot: int, at: int) -> Iterator[Way]:
        memo, key = self._memo["timeout"], (state[v], slot)
        if key not in memo:
            step = self.protocol.timeout(self._workers.values[state[v]], slot)
            memo[key] = step and (self._workers(step.state), _code(step.sent))
        if memo[key]:
            after, code = memo[key]
            new = list(state)
            new[v] = after
            self._send(new, v, slot, UP, code)
            yield ("timeout", v, slot, UP, code), tuple(new)

    def _arrive(self, new: list[int], v: int, slot: int, way: int, code: int) -> State | Violation:
        try:
            (self._hear if way == DOWN else self._switch)(new, v, slot, code)
        except Violation as violation:
            return violation
        return tuple(new)

    def _hear(self, new: list[int], v: int, slot: int, code: int) -> None:
        memo, key = self._memo["hear"], (new[v], slot, code)
        if key not in memo:
            step = self.protocol.hear(self._workers.values[new[v]], slot, _message(code))
            memo[key] = self._workers(step.state), _code(step.sent)
        after, answer = memo[key]
        if after != new[v]:
            new[v] = after
            self._tidy(new, v, slot)
        if answer:
            self._send(new, v, slot, UP, answer)

    def _switch(self, new: list[int], v: int, slot: int, code: int) -> None:
        at = self._slots_at + slot
        memo, key = self._memo["switch"], (new[at], slot, v, code)
        if key not in memo:
            step = self.protocol.switch(self._slots.values[new[at]], slot, v, _message(code))
            memo[key] = self._slots(step.state), [(to, _code(message)) for to, message in step.sent]
        new[at], sent = memo[key]
        for to, answer in sent:
            if not self._useless(new[to], slot, answer):
                self._send(new, to, slot, DOWN, answer)

    # What the network does.

    def _send(self, new: list[int], v: int, slot: int, way: int, code: int) -> None:
        at = self._channels_at + 2 * (v * self.protocol.slots + slot) + way
        memo, key = self._memo["send"], (new[at], code)
        if key not in memo:
            memo[key] = self._channels((*self._channels.values[new[at]], code))
        new[at] = memo[key]

    def _faults(self, state: State, full: list[tuple[int, int, int, int]]) -> Iterator[Way]:
        """Of the packet in front: those behind it are in front later."""
        for kind, name in enumerate(FAULTS):
            left = self._late_at + 1 + kind
            for v, s, way, at in full if state[left] else ():
                code, *rest = self._channels.values[state[at]]
                new = list(state)
                new[left] -= 1
                new[-1] -= 1
                new[self._late_at + 1 :] = self._left(new[self._late_at + 1 :])
                if name != "duplicate":
                    new[at] = self._channels(tuple(rest))
                if name != "lose":
                    late = (*self._lates.values[state[self._late_at]], (v, s, way, code))
                    new[self._late_at] = self._lates(tuple(sorted(late)))
                yield (name, v, s, way, code), tuple(new)

    @staticmethod
    def _left(faults: Sequence[int]) -> list[int]:
        """The same faults in one way only: of a kind no more can come than of all together."""
        *kinds, together = faults
        return [*(min(count, together) for count in kinds), together]

    def _useless(self, worker: int, slot: int, code: int) -> bool:
        memo, key = self._memo["useless"], (worker, slot, code)
        if key not in memo:
            memo[key] = self.protocol.useless(self._workers.values[worker], slot, _message(code))
        found: bool = memo[key]
        return found

    def _tidy(self, new: list[int], v: int, slot: int) -> None:
        """Without what has become useless, as the worker has gone on."""
        up = self._channels_at + 2 * (v * self.protocol.slots + slot)
        for at in (up, up + 1):
            if new[at]:
                codes = self._channels.values[new[at]]
                new[at] = self._channels(tuple(c for c in codes if not self._useless(new[v], slot, c)))
        if new[self._late_at]:
            late = self._lates.values[new[self._late_at]]
            kept = [i for i in late if i[:2] != (v, slot) or not self._useless(new[v], slot, i[3])]
            new[self._late_at] = self._lates(tuple(kept))

    # The workers' names.

    def _renamed(self, state: State, names: tuple[int, ...]) -> State:
        if names == self._names[0]:
            return state
        block = 2 * self.protocol.slots
        new = list(state)
        for worker, name in enumerate(names):
            new[name] = state[worker]
            old, at = self._channels_at + block * worker, self._channels_at + block * name
            new[at : at + block] = state[old : old + block]
        slots, lates = self._memo["renamed slots"], self._memo["renamed lates"]
        for at in range(self._slots_at, self._channels_at):
            key = (state[at], names)
            if key not in slots:
                slots[key] = self._slots(self.protocol.renamed(self._slots.values[state[at]], names))
            new[at] = slots[key]
        if state[self._late_at]:
            key = (state[self._late_at], names)
            if key not in lates:
                late = self._lates.values[key[0]]
                lates[key] = self._lates(tuple(sorted((names[v], *rest) for v, *rest in late)))
            new[self._late_at] = lates[key]
        return tuple(new)


def _in_order(ranks: tuple[int, ...], names: tuple[int, ...]) -> bool:
    """Whether the workers' ranks ascend when worker w is called ``names[w]``."""
    return [rank for _, rank in sorted(zip(names, ranks, strict=True))] == sorted(ranks)


def _code(message: Message | None) -> int:
    """A message as a number; 0 is none, for rounds start at 1."""
    return message.round * _KINDS + message.kind if message else 0


def _message(code: int) -> Message:
    return Message(Kind(code % _KINDS), code // _KINDS)
