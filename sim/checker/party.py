"""A party, that is, a worker with the packets in flight between it and the switch, and the events of a party.

``System`` combines parties, the switch's slots and the remaining faults to one state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from fanin.sim.checker.protocol import Message, ProtocolModel, Violation
from fanin.sim.checker.tables import Interned
from fanin.wire.aggregation import Kind

UP, DOWN = 0, 1
FAULTS = ("lose", "duplicate", "delay")  # names of events, in the order of the first fields of ``Faults``
KINDS = len(Kind)


class Late(NamedTuple):
    """A delayed or duplicated packet, which may arrive at any time."""

    slot: int
    way: int
    code: int


class Party(NamedTuple):
    """State of a worker, its channels (per slot up, then down; oldest packet first) and its late packets."""

    worker: Any
    channels: tuple[tuple[int, ...], ...]
    late: tuple[Late, ...] = ()


class Happening(NamedTuple):
    """One possible event of a party; all fields are numbers.

    - ``event``: the event, in ``Parties.events``.
    - ``after``: the party after it, in ``Parties.numbers``.
    - ``fault``: 1 + the index in ``FAULTS``, or 0.
    - ``code``: message that reaches the switch, or 0.
    - ``before``: round of the slot on which no worker may still wait, or 0.
    - ``broken``: the violation, or 0.
    """

    event: int
    after: int
    fault: int = 0
    code: int = 0
    before: int = 0
    broken: int = 0


class Parties:
    """Parties of ``protocol`` and their events, with the given kinds of ``faults``.

    ``numbers``, ``events`` and ``violations`` hold the numbered values. An event here does not name its worker.
    """

    def __init__(self, protocol: ProtocolModel, *, faults: tuple[str, ...], in_flight: int):
        self._protocol, self._faults, self._in_flight = protocol, faults, in_flight
        self.numbers, self.events, self.violations = Interned(), Interned(), Interned()
        self.violations(None)  # number 0 is no violation
        self._memo: defaultdict[str, dict[Any, Any]] = defaultdict(dict)

    def start(self) -> int:
        """Return the number of the initial party."""
        return self.numbers(Party(self._protocol.worker(), ((),) * (2 * self._protocol.slots)))

    def happenings(self, number: int, slot: int) -> list[Happening]:
        """Return the possible events of one slot of a party."""
        party: Party = self.numbers.values[number]
        up, down = channels = party.channels[2 * slot : 2 * slot + 2]
        found = []
        for way, channel in enumerate(channels):
            if channel:
                rest = _with(party, 2 * slot + way, channel[1:])
                found.append(self._arrives("deliver", rest, slot, way, channel[0]))
        for late in dict.fromkeys(party.late):
            if late.slot == slot:
                left = list(party.late)
                left.remove(late)
                found.append(self._arrives("deliver late", party._replace(late=tuple(left)), *late))
        found += self._submits(party, slot)
        if len(up) + len(down) < self._in_flight:
            found += self._times_out(party, slot)
        return [*found, *self._harmed(party, slot)]

    def put(self, number: int, code: int, slot: int) -> int:
        """Return the party after the switch has sent it a message; a useless message is dropped at once."""
        party: Party = self.numbers.values[number]
        return number if self._useless(party.worker, slot, code) else self._sent(party, slot, DOWN, code)

    def _submits(self, party: Party, slot: int) -> Iterator[Happening]:
        begun = self._known("submit", party.worker, lambda: self._protocol.submit(party.worker))
        if begun and begun[0] == slot:
            sent = begun[1].sent
            after = self._sent(party._replace(worker=begun[1].state), slot, UP, code_of(sent))
            event = self._event("submit", slot, UP, code_of(sent))
            yield Happening(event, after, before=sent.round - 1)

    def _times_out(self, party: Party, slot: int) -> Iterator[Happening]:
        worker = party.worker
        step = self._known("timeout", (worker, slot), lambda: self._protocol.timeout(worker, slot))
        if step:
            after = self._sent(party._replace(worker=step.state), slot, UP, code_of(step.sent))
            yield Happening(self._event("timeout", slot, UP, code_of(step.sent)), after)

    def _arrives(self, name: str, party: Party, slot: int, way: int, code: int) -> Happening:
        """Return the event of a message's arrival at the switch or at the worker."""
        event = self._event(name, slot, way, code)
        if way == UP:
            return Happening(event, self.numbers(party), code=code)
        heard = self._known("hear", (party.worker, slot, code), lambda: self._heard(party.worker, slot, code))
        if isinstance(heard, Violation):
            return Happening(event, 0, broken=self.violations(heard.value))
        if heard.state != party.worker:
            party = self._tidy(party._replace(worker=heard.state), slot)
        after = self._sent(party, slot, UP, code_of(heard.sent)) if heard.sent else self.numbers(party)
        return Happening(event, after)

    def _heard(self, worker: Any, slot: int, code: int) -> Any:
        try:
            return self._protocol.hear(worker, slot, message_of(code))
        except Violation as violation:
            return violation

    def _harmed(self, party: Party, slot: int) -> Iterator[Happening]:
        """Yield the network's faults on the oldest packet; later packets have theirs once they are oldest."""
        for fault, name in enumerate(FAULTS, start=1):
            for way in (UP, DOWN) if name in self._faults else ():
                at = 2 * slot + way
                if party.channels[at]:
                    code, *rest = party.channels[at]
                    after = party if name == "duplicate" else _with(party, at, tuple(rest))
                    if name != "lose":
                        after = after._replace(late=tuple(sorted((*party.late, Late(slot, way, code)))))
                    yield Happening(self._event(name, slot, way, code), self.numbers(after), fault)

    def _sent(self, party: Party, slot: int, way: int, code: int) -> int:
        at = 2 * slot + way
        return self.numbers(_with(party, at, (*party.channels[at], code)))

    def _useless(self, worker: Any, slot: int, code: int) -> bool:
        key = (worker, slot, code)
        known = self._known("useless", key, lambda: self._protocol.useless(worker, slot, message_of(code)))
        return bool(known)

    def _tidy(self, party: Party, slot: int) -> Party:
        """Remove the packets that have become useless after the worker's progress."""
        for at in (2 * slot, 2 * slot + 1):
            kept = tuple(code for code in party.channels[at] if not self._useless(party.worker, slot, code))
            party = _with(party, at, kept)
        late = [i for i in party.late if i.slot != slot or not self._useless(party.worker, slot, i.code)]
        return party._replace(late=tuple(late))

    def _event(self, name: str, slot: int, way: int, code: int) -> int:
        return self.events((name, slot, way, code))

    def _known(self, what: str, key: Any, compute: Any) -> Any:
        memo = self._memo[what]
        if key not in memo:
            memo[key] = compute()
        return memo[key]


def code_of(message: Message | None) -> int:
    """Return the number of a message; 0 for None, since rounds start at 1."""
    return message.round * KINDS + message.kind if message else 0


def message_of(code: int) -> Message:
    """Return the message of a number."""
    return Message(Kind(code % KINDS), code // KINDS)


def _with(party: Party, at: int, channel: tuple[int, ...]) -> Party:
    channels = party.channels
    return party._replace(channels=(*channels[:at], channel, *channels[at + 1 :]))
