"""Model of RDMA-wild's algorithms 1 and 2 with K gradient slots and two model buffers, and its search
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
from fanin.sim.checker.system import Transitions
from fanin.sim.checker.tables import Flags, Interned, Lists, Rows, Table

LOST = "no gradient is lost"
ONCE = "no gradient is applied twice, or mixed with another"
CONSISTENT = "a worker computes on a model that was one"
INVARIANTS = (LOST, ONCE, CONSISTENT, FINISH)


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
    """State of one worker, with its two channels and its rows at the server."""

    version: int
    buffers: tuple[Buffer, ...]
    reading: int | None  # version of the model that the worker is reading
    values_read: int | None  # values that the worker has read; None once it has checked the version
    up: tuple[Part, ...]
    down: tuple[Part, ...]
    slots: tuple[Slot, ...]
    lgvnum: int


@dataclass(frozen=True, kw_only=True)
class Wild:
    """RDMA-wild's protocol for ``workers``, each of which pushes ``versions`` gradients into ``slots`` slots.

    - ``waits_for_credit``: wait for credit (line 8 of algorithm 2).
    - ``version_last``: write GVnum after its gradient.
    - ``rereads_version``: read a model's version again after its values.

    The protocol needs all three. A search without one of them shows what breaks.
    """

    workers: int = 2
    slots: int = 1
    versions: int = 3
    waits_for_credit: bool = True
    version_last: bool = True
    rereads_version: bool = True
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

    def events(self, pair: Pair) -> Iterator[tuple[str, Pair | Violation]]:
        """Yield the next events of a worker, each with the state after it or a violation."""
        if pair.up:
            yield f"{_part_text(pair.up[0])} arrives at the server", self._deliver(pair)
        if pair.down:
            write, *remaining = pair.down
            buffer = pair.buffers[write.number]._replace(**{write.name: write.value})
            buffers = _with(pair.buffers, write.number, buffer)
            yield (
                f"{_part_text(write)} arrives at the worker",
                pair._replace(buffers=buffers, down=tuple(remaining)),
            )
        if self._next_slot(pair).gvnum > pair.lgvnum:
            yield f"the server applies gradient {self._next_slot(pair).gvnum}", self._apply(pair)
        yield from self._worker(pair)

    def _worker(self, pair: Pair) -> Iterator[tuple[str, Pair | Violation]]:
        newest = max(buffer.tail for buffer in pair.buffers)
        if pair.reading is None:
            has_credit = not self.waits_for_credit or self.config.may_push(pair.version + 1, newest)
            if pair.version < self.versions and has_credit:
                yield f"begins to read model {newest}", pair._replace(reading=newest)
            return
        buffer = pair.buffers[self.config.buffer_of(pair.reading)]
        if pair.values_read is None:
            yield f"takes the values of model {buffer.values}", pair._replace(values_read=buffer.values)
        elif self.rereads_version and buffer.head != pair.reading:
            yield f"finds version {buffer.head} and reads again", pair._replace(reading=None, values_read=None)
        else:
            yield f"pushes gradient {pair.version + 1}", self._push(pair)

    def _push(self, pair: Pair) -> Pair | Violation:
        if pair.values_read != pair.reading:
            return Violation(
                CONSISTENT, f"model {pair.reading} was read with values of model {pair.values_read}"
            )
        version = pair.version + 1
        parts = [Part(name, self.config.slot_of(version), version) for name in Slot._fields]
        parts = parts if self.version_last else parts[::-1]
        return pair._replace(version=version, reading=None, values_read=None, up=(*pair.up, *parts))

    def _deliver(self, pair: Pair) -> Pair | Violation:
        part, *remaining = pair.up
        row = pair.slots[part.number]
        if part.name == "gradient" and row.gradient == row.gvnum > pair.lgvnum:
            return Violation(LOST, f"gradient {row.gvnum} is overwritten by {part.value} before it is applied")
        written = row._replace(**{part.name: part.value})
        return pair._replace(slots=_with(pair.slots, part.number, written), up=tuple(remaining))

    def _next_slot(self, pair: Pair) -> Slot:
        return pair.slots[self.config.slot_of(pair.lgvnum + 1)]

    def _apply(self, pair: Pair) -> Pair | Violation:
        slot = self._next_slot(pair)
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
        self._steps = Lists(self._step_numbers, 3)
        self._event_of = Table(lambda event, worker: self._events((event, worker)))
        self._texts = Interned()
        self._is_done = Table(lambda pair, _: protocol.done(self._pairs.values[pair]))

    def transitions(self, rows: Rows, slot: int, actor: int, *, faults: bool = True) -> Transitions:
        """Return the next steps of a worker's pair; none is a fault."""
        source, successors = self._steps(rows[:, actor])
        events, pairs, violations = successors.T
        rows_after = rows[source]
        rows_after[:, actor] = pairs
        return Transitions(
            source, rows_after, np.zeros(len(source), bool), self._event_of(events, actor), violations
        )

    def independent_slots(self, rows: Rows) -> Flags:
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
        text, worker = self._events.values[number]
        return f"worker {worker}: {self._texts.values[text]}"

    def _step_numbers(self, pair: int) -> list[tuple[int, ...]]:
        return [
            (self._texts(event), 0, self.violations(successor.value))
            if isinstance(successor, Violation)
            else (self._texts(event), self._pairs(successor), 0)
            for event, successor in self._protocol.events(self._pairs.values[pair])
        ]


def search_wild(protocol: Wild, *, processes: int = 1) -> Outcome:
    """Search the protocol until an invariant is broken or every reachable state is visited."""
    return search(WildSystem(protocol), processes=processes)


def report(outcome: Outcome) -> str:
    """Return the result of a search as text: the invariants that hold, or the events of a counterexample.

    The search must have ended at the first broken invariant.
    """
    if not outcome.counterexamples:
        return f"{outcome.states} states: {'; '.join(INVARIANTS)}"
    ((invariant, example),) = outcome.counterexamples.items()
    lines = [f"{number:>3}  {event}" for number, event in enumerate(example.events, start=1)]
    return "\n".join([f"broken: {invariant}", *lines, f"     {example.violation}"])


def _part_text(part: Part) -> str:
    names = {"gvnum": "GVnum", "head": "version in front of model", "values": "all of model"}
    names |= {"tail": "version behind model", "gradient": "gradient"}
    return f"{names[part.name]} {part.value}"


def _with(items: Sequence, number: int, item: object) -> tuple:
    return (*items[:number], item, *items[number + 1 :])


VARIANTS = (
    ("whole", Wild(slots=1, versions=3)),
    ("whole", Wild(slots=2, versions=3)),
    ("whole", Wild(workers=1, slots=3, versions=6)),
    ("no wait for credit", Wild(slots=1, waits_for_credit=False)),
    ("no wait for credit", Wild(slots=2, waits_for_credit=False)),
    ("GVnum in front of the gradient", Wild(slots=1, version_last=False)),
    ("no second look at the model", Wild(workers=1, slots=2, versions=6, rereads_version=False)),
    ("no second look at the model", Wild(workers=1, slots=3, versions=6, rereads_version=False)),
)


def table() -> Iterator[str]:
    """Yield a Markdown table with the result of each search in ``VARIANTS``."""
    yield "| protocol | workers | K | versions | states | found |"
    yield "|---|---|---|---|---|---|"
    for name, protocol in VARIANTS:
        outcome = search_wild(protocol)
        examples = outcome.counterexamples.values()
        result = "; ".join(f"{e.violation}, in {len(e.events)} events" for e in examples) or "nothing broken"
        sizes = f"{protocol.workers} | {protocol.slots} | {protocol.versions}"
        yield f"| {name} | {sizes} | {outcome.states} | {result} |"


if __name__ == "__main__":
    print(*table(), sep="\n")
    print(f"\n{report(search_wild(Wild(slots=1, waits_for_credit=False)))}")
