"""RDMA-wild's algorithms 1 and 2 with K gradient slots and two model buffers, searched
(docs/systems/param-server.md).

A breadth-first search over everything that one server and its workers can do. Writes arrive in order, as late
as may be, and in parts: a gradient before its GVnum, a row's version in front before its values before the
version behind. What a worker may do and where is decided by ``fanin.param_server``. Values are only told apart:
a gradient is its version, a model the number of its worker's gradients in it.

``python -m fanin.sim.checker.param_server`` searches the protocol, and what becomes of it when a part is
left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fanin.param_server import MODEL_BUFFERS, ParamServerConfig
from fanin.sim.checker.protocol import Violation

LOST = "no gradient is lost"
ONCE = "no gradient is applied twice, or mixed with another"
WHOLE = "a worker computes on a model that was one"
FINISH = "everything finishes"
INVARIANTS = (LOST, ONCE, WHOLE, FINISH)


class Buffer(NamedTuple):
    """A worker's model buffer: version in front, values, version behind (with which the LGVnum comes)."""

    head: int = 0
    values: int = 0
    tail: int = 0


class Slot(NamedTuple):
    """A row of the gradient table."""

    gradient: int = 0
    gvnum: int = 0


class Part(NamedTuple):
    """What is on its way: field ``name`` of slot or buffer ``number`` becomes ``value``."""

    name: str
    number: int
    value: int


class Pair(NamedTuple):
    """All that concerns one worker: its own state, the channels, and its rows at the server."""

    version: int
    buffers: tuple[Buffer, ...]
    reading: int | None  # the version that is being looked at
    taken: int | None  # its values, once they have been
    up: tuple[Part, ...]
    down: tuple[Part, ...]
    slots: tuple[Slot, ...]
    lgvnum: int


State = tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class Wild:
    """The protocol for ``workers``, each of which pushes ``versions`` gradients into ``slots``.

    ``waits`` is line 8 of algorithm 2; ``version_last`` has GVnum behind its gradient; ``checks`` is the second
    look at a model's version. Without one of them it is another protocol.
    """

    workers: int = 2
    slots: int = 1
    versions: int = 3
    waits: bool = True
    version_last: bool = True
    checks: bool = True
    config: ParamServerConfig = field(init=False)

    def __post_init__(self) -> None:
        sizes = ParamServerConfig(parameters=1, workers=self.workers, slots=self.slots)
        object.__setattr__(self, "config", sizes)

    @property
    def start(self) -> State:
        """Nothing has happened."""
        pair = Pair(0, (Buffer(),) * MODEL_BUFFERS, None, None, (), (), (Slot(),) * self.slots, 0)
        return (pair,) * self.workers

    def done(self, state: State) -> bool:
        """Every gradient has been applied, and every push has arrived."""
        return all(pair.lgvnum == self.versions and not pair.up and not pair.down for pair in state)

    def ways(self, state: State) -> Iterator[tuple[str, State | Violation]]:
        """What can happen next, and where it leads."""
        for worker, pair in enumerate(state):
            for what, after in self._ways(pair):
                if isinstance(after, Pair):
                    yield f"worker {worker}: {what}", (*state[:worker], after, *state[worker + 1 :])
                else:
                    yield f"worker {worker}: {what}", after

    def _ways(self, pair: Pair) -> Iterator[tuple[str, Pair | Violation]]:
        if pair.up:
            yield f"{_told(pair.up[0])} arrives at the server", self._reach(pair)
        if pair.down:
            part, *rest = pair.down
            buffer = pair.buffers[part.number]._replace(**{part.name: part.value})
            buffers = _with(pair.buffers, part.number, buffer)
            yield f"{_told(part)} arrives at the worker", pair._replace(buffers=buffers, down=tuple(rest))
        if self._fresh(pair).gvnum > pair.lgvnum:
            yield f"the server applies gradient {self._fresh(pair).gvnum}", self._apply(pair)
        yield from self._worker(pair)

    def _worker(self, pair: Pair) -> Iterator[tuple[str, Pair | Violation]]:
        newest = max(buffer.tail for buffer in pair.buffers)
        if pair.reading is None:
            credit = not self.waits or self.config.may_push(pair.version + 1, newest)
            if pair.version < self.versions and credit:
                yield f"begins to read model {newest}", pair._replace(reading=newest)
            return
        buffer = pair.buffers[self.config.buffer_of(pair.reading)]
        if pair.taken is None:
            yield f"takes the values of model {buffer.values}", pair._replace(taken=buffer.values)
        elif self.checks and buffer.head != pair.reading:
            yield f"finds version {buffer.head} and reads again", pair._replace(reading=None, taken=None)
        else:
            yield f"pushes gradient {pair.version + 1}", self._push(pair)

    def _push(self, pair: Pair) -> Pair | Violation:
        if pair.taken != pair.reading:
            return Violation(WHOLE, f"model {pair.reading} was read with values of model {pair.taken}")
        version = pair.version + 1
        parts = [Part(name, self.config.slot_of(version), version) for name in Slot._fields]
        parts = parts if self.version_last else parts[::-1]
        return pair._replace(version=version, reading=None, taken=None, up=(*pair.up, *parts))

    def _reach(self, pair: Pair) -> Pair | Violation:
        part, *rest = pair.up
        before = pair.slots[part.number]
        if part.name == "gradient" and before.gradient == before.gvnum > pair.lgvnum:
            return Violation(
                LOST, f"gradient {before.gvnum} is overwritten by {part.value} before it is applied"
            )
        slot = before._replace(**{part.name: part.value})
        return pair._replace(slots=_with(pair.slots, part.number, slot), up=tuple(rest))

    def _fresh(self, pair: Pair) -> Slot:
        return pair.slots[self.config.slot_of(pair.lgvnum + 1)]

    def _apply(self, pair: Pair) -> Pair | Violation:
        slot = self._fresh(pair)
        if slot.gradient != slot.gvnum:
            return Violation(ONCE, f"under GVnum {slot.gvnum} the server applies gradient {slot.gradient}")
        if slot.gvnum != pair.lgvnum + 1:
            return Violation(LOST, f"gradient {pair.lgvnum + 1} is passed over for {slot.gvnum}")
        number = self.config.buffer_of(slot.gvnum)
        parts = [Part(name, number, slot.gvnum) for name in Buffer._fields]
        return pair._replace(lgvnum=slot.gvnum, down=(*pair.down, *parts))


@dataclass(frozen=True)
class Found:
    """What a search found: the states seen, and the shortest way to break an invariant, if there is one."""

    states: int
    invariant: str | None = None
    what: str = ""
    events: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Readable: a line an event."""
        if self.invariant is None:
            return f"{self.states} states: {'; '.join(INVARIANTS)}"
        lines = [f"{number:>3}  {event}" for number, event in enumerate(self.events, start=1)]
        return "\n".join([f"broken: {self.invariant}", *lines, f"     {self.what}"])


def search(protocol: Wild) -> Found:
    """Every state that can be reached, breadth first, until an invariant is broken or there is nothing new."""
    waiting = deque([protocol.start])
    parents: dict[State, tuple[State, str] | None] = {protocol.start: None}
    while waiting:
        state = waiting.popleft()
        stuck = True
        for event, after in protocol.ways(state):
            stuck = False
            if isinstance(after, Violation):
                return Found(len(parents), after.invariant, str(after), (*_path(parents, state), event))
            if after not in parents:
                parents[after] = state, event
                waiting.append(after)
        if stuck and not protocol.done(state):
            return Found(len(parents), FINISH, "nothing more can happen", _path(parents, state))
    return Found(len(parents))


def _path(parents: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    events = []
    while (step := parents[state]) is not None:
        state, event = step
        events.append(event)
    return tuple(reversed(events))


def _told(part: Part) -> str:
    names = {"gvnum": "GVnum", "head": "version in front of model", "values": "all of model"}
    names |= {"tail": "version behind model", "gradient": "gradient"}
    return f"{names[part.name]} {part.value}"


def _with(items: Sequence, number: int, item: object) -> tuple:
    return (*items[:number], item, *items[number + 1 :])


SEARCHED = (
    ("whole", Wild(slots=1, versions=3)),
    ("whole", Wild(slots=2, versions=3)),
    ("whole", Wild(workers=1, slots=3, versions=6)),
    ("no wait for credit", Wild(slots=1, waits=False)),
    ("no wait for credit", Wild(slots=2, waits=False)),
    ("GVnum in front of the gradient", Wild(slots=1, version_last=False)),
    ("no second look at the model", Wild(workers=1, slots=2, versions=6, checks=False)),
    ("no second look at the model", Wild(workers=1, slots=3, versions=6, checks=False)),
)


def table() -> Iterator[str]:
    """A Markdown row for each of ``SEARCHED``: what was found."""
    yield "| protocol | workers | K | versions | states | found |"
    yield "|---|---|---|---|---|---|"
    for name, protocol in SEARCHED:
        found = search(protocol)
        what = f"{found.what}, in {len(found.events)} events" if found.invariant else "nothing broken"
        sizes = f"{protocol.workers} | {protocol.slots} | {protocol.versions}"
        yield f"| {name} | {sizes} | {found.states} | {what} |"


if __name__ == "__main__":
    print(*table(), sep="\n")
    print(f"\n{search(Wild(slots=1, waits=False))}")
