"""Search of RDMA-wild's algorithms 1 and 2 with K gradient slots and two model buffers
(docs/systems/param-server.md).

The model has one server and its workers. Writes arrive in order, with any delay, and in parts: a gradient
before its GVnum, and a row's leading version, values and trailing version one after the other.
``fanin.param_server.facts`` decides when a worker may push, and where to. Values are symbols: a gradient is its
version, a model the number of its worker's gradients in it.

``python -m fanin.sim.checker.param_server`` searches the protocol, and variants with one part left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fanin.param_server.facts import MODEL_BUFFERS, ParamServerConfig
from fanin.sim.checker.protocol import FINISH, Violation
from fanin.sim.checker.search import Outcome, search
from fanin.sim.checker.system import Ways
from fanin.sim.checker.tables import Flags, Interned, Lists, Rows, Table

LOST = "no gradient is lost"
ONCE = "no gradient is applied twice, or mixed with another"
WHOLE = "a worker computes on a model that was one"
INVARIANTS = (LOST, ONCE, WHOLE, FINISH)


class Buffer(NamedTuple):
    """A worker's model buffer: leading version, values, and trailing version, which arrives with the LGVnum."""

    head: int = 0
    values: int = 0
    tail: int = 0


class Slot(NamedTuple):
    """A row of the gradient table."""

    gradient: int = 0
    gvnum: int = 0


class Part(NamedTuple):
    """Part of a write in flight: sets field ``name`` of slot or buffer ``number`` to ``value``."""

    name: str
    number: int
    value: int


class Pair(NamedTuple):
    """State of one worker: its own, its two channels, and its rows at the server."""

    version: int
    buffers: tuple[Buffer, ...]
    reading: int | None  # version of the model that the worker is reading
    taken: int | None  # values that the worker has read, until it has checked the version
    up: tuple[Part, ...]
    down: tuple[Part, ...]
    slots: tuple[Slot, ...]
    lgvnum: int


@dataclass(frozen=True, kw_only=True)
class Wild:
    """The protocol for ``workers``, each of which pushes ``versions`` gradients into ``slots``.

    - ``waits``: wait for credit (line 8 of algorithm 2).
    - ``version_last``: write GVnum after its gradient.
    - ``checks``: read a model's version again after its values.

    The protocol needs all three. A search without one of them shows what breaks.
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
    def start(self) -> Pair:
        """Return a worker's initial state."""
        return Pair(0, (Buffer(),) * MODEL_BUFFERS, None, None, (), (), (Slot(),) * self.slots, 0)

    def done(self, pair: Pair) -> bool:
        """Return whether all gradients of a worker are applied and all its writes have arrived."""
        return pair.lgvnum == self.versions and not pair.up and not pair.down

    def ways(self, pair: Pair) -> Iterator[tuple[str, Pair | Violation]]:
        """Yield the next events of a worker, each with the state after it or a violation."""
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


class WildSystem:
    """``protocol`` as a system for ``search``: a state is a row with the number of each worker's pair."""

    invariants, slots = INVARIANTS, 1

    def __init__(self, protocol: Wild):
        self._protocol, self._pairs = protocol, Interned()
        self.actors = protocol.workers
        self._events, self.violations = Interned(), Interned()
        self.violations(None)
        self.columns = (self._pairs,) * protocol.workers
        self.start = np.full(protocol.workers, self._pairs(protocol.start), np.int32)
        self._ways = Lists(self._numbered, 3)
        self._event_of = Table(lambda what, worker: self._events((what, worker)))
        self._told = Interned()
        self._is_done = Table(lambda pair, _: protocol.done(self._pairs.values[pair]))

    def ways(self, rows: Rows, slot: int, actor: int, *, faults: bool = True) -> Ways:
        """Return the next steps of a worker's pair; none is a fault."""
        source, items = self._ways(rows[:, actor])
        what, pairs, broken = items.T
        after = rows[source]
        after[:, actor] = pairs
        return Ways(source, after, np.zeros(len(source), bool), self._event_of(what, actor), broken)

    def alone(self, rows: Rows) -> Flags:
        """Return no ample sets: the system has a single slot."""
        return np.zeros((len(rows), self.slots), bool)

    def canonical(self, rows: Rows) -> Rows:
        """Return states with pairs sorted by digest: one per set of states that differ by workers' names."""
        order = np.argsort(self._pairs.digests[rows], axis=1)
        return np.take_along_axis(rows, order, axis=1)

    def done(self, rows: Rows) -> Flags:
        """Return whether all gradients are applied and all writes have arrived."""
        return np.all([self._is_done(column) > 0 for column in rows.T], axis=0)

    def event(self, number: int) -> str:
        """Return the text of an event."""
        what, worker = self._events.values[number]
        return f"worker {worker}: {self._told.values[what]}"

    def _numbered(self, pair: int) -> list[tuple[int, ...]]:
        return [
            (self._told(what), 0, self.violations(after.value))
            if isinstance(after, Violation)
            else (self._told(what), self._pairs(after), 0)
            for what, after in self._protocol.ways(self._pairs.values[pair])
        ]


def search_wild(protocol: Wild, *, processes: int = 1) -> Outcome:
    """Search the protocol until an invariant is broken or every reachable state is visited."""
    return search(WildSystem(protocol), processes=processes)


def told(found: Outcome) -> str:
    """Return the result of a search as text: the invariants that hold, or the events of a counterexample."""
    if not found.counterexamples:
        return f"{found.states} states: {'; '.join(INVARIANTS)}"
    ((invariant, example),) = found.counterexamples.items()
    lines = [f"{number:>3}  {event}" for number, event in enumerate(example.events, start=1)]
    return "\n".join([f"broken: {invariant}", *lines, f"     {example.what}"])


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
    """Yield a Markdown table with the result of each search in ``SEARCHED``."""
    yield "| protocol | workers | K | versions | states | found |"
    yield "|---|---|---|---|---|---|"
    for name, protocol in SEARCHED:
        found = search_wild(protocol)
        examples = found.counterexamples.values()
        what = "; ".join(f"{e.what}, in {len(e.events)} events" for e in examples) or "nothing broken"
        sizes = f"{protocol.workers} | {protocol.slots} | {protocol.versions}"
        yield f"| {name} | {sizes} | {found.states} | {what} |"


if __name__ == "__main__":
    print(*table(), sep="\n")
    print(f"\n{told(search_wild(Wild(slots=1, waits=False)))}")
