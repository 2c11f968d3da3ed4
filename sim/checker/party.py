"""Parties and their events; a *party* is a worker with the packets in flight between it and the switch.

Parties, events and violations are numbered. An argument or field of type int is the number of one. A packet's
*code* is the number of its message (``code_of``).

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


class LatePacket(NamedTuple):
    """A delayed or duplicated packet, which may arrive at any time."""

    slot: int
    direction: int
    code: int


class Party(NamedTuple):
    """A worker and its packets in flight.

    - ``worker``: the protocol's state of the worker.
    - ``channels``: codes of packets in flight, oldest first; channel 2 · slot is ``UP`` (to the switch),
      channel 2 · slot + 1 is ``DOWN``.
    - ``late_packets``: delayed and duplicated packets, sorted.
    """

    worker: Any
    channels: tuple[tuple[int, ...], ...]
    late_packets: tuple[LatePacket, ...] = ()


class PartyStep(NamedTuple):
    """A possible event of a party and the party after it, all as numbers.

    - ``event``: the event, in ``Parties.events``.
    - ``party``: the party after the event, in ``Parties.numbers``.
    - ``fault``: 1 + the index in ``FAULTS``, or 0.
    - ``code``: code of the message that reaches the switch, or 0.
    - ``previous_round``: if the event begins an operation on the slot, the round before the operation's, on
      which no worker may still wait (REUSE); otherwise, and in the first round, 0.
    - ``violation``: number in ``Parties.violations``, or 0.
    - ``to_members``: code of the message that a switch below the root sends to all its members, or 0.
    """

    event: int
    party: int
    fault: int = 0
    code: int = 0
    previous_round: int = 0
    violation: int = 0
    to_members: int = 0


class Parties:
    """Parties of ``protocol`` and their events, with the kinds of ``faults`` from FAULTS.

    A timer may expire while fewer than ``in_flight`` packets of its slot are in the channels. ``numbers``,
    ``events`` and ``violations`` hold the numbered values. An event here does not name its worker.
    """

    def __init__(self, protocol: ProtocolModel, *, faults: tuple[str, ...], in_flight: int):
        self._protocol, self._faults, self._in_flight = protocol, faults, in_flight
        self.numbers, self.events, self.violations = Interned(), Interned(), Interned()
        self.violations(None)  # number 0 is no violation
        self._memo: defaultdict[str, dict[Any, Any]] = defaultdict(dict)

    def start(self) -> int:
        """Return the number of the initial party."""
        return self.numbers(Party(self._protocol.worker(), ((),) * (2 * self._protocol.slots)))

    def steps(self, number: int, slot: int) -> list[PartyStep]:
        """Return the possible events of one slot of a party, given by its number."""
        party: Party = self.numbers.values[number]
        up, down = channels = party.channels[2 * slot : 2 * slot + 2]
        steps = []
        for direction, channel in enumerate(channels):
            if channel:
                party_without_packet = _with(party, 2 * slot + direction, channel[1:])
                steps.append(self._arrival_step("deliver", party_without_packet, slot, direction, channel[0]))
        for packet in dict.fromkeys(party.late_packets):
            if packet.slot == slot:
                late_packets = list(party.late_packets)
                late_packets.remove(packet)
                steps.append(
                    self._arrival_step(
                        "deliver late", party._replace(late_packets=tuple(late_packets)), *packet
                    )
                )
        steps += self._submit_steps(party, slot)
        if len(up) + len(down) < self._in_flight:
            steps += self._timeout_steps(party, slot)
        return [*steps, *self._fault_steps(party, slot)]

    def put(self, number: int, code: int, slot: int) -> int:
        """Return the party's number after the switch has sent it a message; a useless message is dropped."""
        party: Party = self.numbers.values[number]
        return number if self._is_useless(party.worker, slot, code) else self._send(party, slot, DOWN, code)

    def _submit_steps(self, party: Party, slot: int) -> Iterator[PartyStep]:
        submission = self._cached("submit", party.worker, lambda: self._protocol.submit(party.worker))
        if submission and submission[0] == slot:
            sent = submission[1].sent
            after = self._send(party._replace(worker=submission[1].state), slot, UP, code_of(sent))
            event = self._event("submit", slot, UP, code_of(sent))
            yield PartyStep(event, after, previous_round=sent.round - 1)

    def _timeout_steps(self, party: Party, slot: int) -> Iterator[PartyStep]:
        worker = party.worker
        step = self._cached("timeout", (worker, slot), lambda: self._protocol.timeout(worker, slot))
        if step:
            after = self._send(party._replace(worker=step.state), slot, UP, code_of(step.sent))
            yield PartyStep(self._event("timeout", slot, UP, code_of(step.sent)), after)

    def _arrival_step(self, name: str, party: Party, slot: int, direction: int, code: int) -> PartyStep:
        """Return the event of a message's arrival at the switch or at the worker.

        ``party``: the party without the packet.
        """
        event = self._event(name, slot, direction, code)
        if direction == UP:
            return PartyStep(event, self.numbers(party), code=code)
        step = self._cached(
            "receive", (party.worker, slot, code), lambda: self._receive(party.worker, slot, code)
        )
        if isinstance(step, Violation):
            return PartyStep(event, 0, violation=self.violations(step.value))
        if step.state != party.worker:  # packets become useless only if the worker's state changes
            party = self._drop_useless(party._replace(worker=step.state), slot)
        after = self._send(party, slot, UP, code_of(step.sent)) if step.sent else self.numbers(party)
        return PartyStep(event, after)

    def _receive(self, worker: Any, slot: int, code: int) -> Any:
        try:
            return self._protocol.receive(worker, slot, message_of(code))
        except Violation as violation:
            return violation

    def _fault_steps(self, party: Party, slot: int) -> Iterator[PartyStep]:
        """Yield the network's faults on the oldest packet of each channel."""
        for fault, name in enumerate(FAULTS, start=1):
            for direction in (UP, DOWN) if name in self._faults else ():
                channel = 2 * slot + direction
                if party.channels[channel]:
                    code, *later_packets = party.channels[channel]
                    faulty = party if name == "duplicate" else _with(party, channel, tuple(later_packets))
                    if name != "lose":
                        faulty = faulty._replace(
                            late_packets=tuple(sorted((*party.late_packets, LatePacket(slot, direction, code))))
                        )
                    yield PartyStep(self._event(name, slot, direction, code), self.numbers(faulty), fault)

    def _send(self, party: Party, slot: int, direction: int, code: int) -> int:
        """Return the number of the party with a further packet in a channel."""
        channel = 2 * slot + direction
        return self.numbers(_with(party, channel, (*party.channels[channel], code)))

    def _is_useless(self, worker: Any, slot: int, code: int) -> bool:
        key = (worker, slot, code)
        result = self._cached(
            "is_useless", key, lambda: self._protocol.is_useless(worker, slot, message_of(code))
        )
        return bool(result)

    def _drop_useless(self, party: Party, slot: int) -> Party:
        """Return the party without packets of a slot that its worker's progress has made useless."""
        for channel in (2 * slot, 2 * slot + 1):
            codes = tuple(
                code for code in party.channels[channel] if not self._is_useless(party.worker, slot, code)
            )
            party = _with(party, channel, codes)
        late_packets = [
            packet
            for packet in party.late_packets
            if packet.slot != slot or not self._is_useless(party.worker, slot, packet.code)
        ]
        return party._replace(late_packets=tuple(late_packets))

    def _event(self, name: str, slot: int, direction: int, code: int) -> int:
        return self.events((name, slot, direction, code))

    def _cached(self, function: str, key: Any, compute: Any) -> Any:
        results = self._memo[function]
        if key not in results:
            results[key] = compute()
        return results[key]


def code_of(message: Message | None) -> int:
    """Return the number of a message; 0 for None, since rounds start at 1."""
    return message.round * KINDS + message.kind if message else 0


def message_of(code: int) -> Message:
    """Return the message of a number."""
    return Message(Kind(code % KINDS), code // KINDS)


def _with(party: Party, index: int, channel: tuple[int, ...]) -> Party:
    """Return the party with ``channel`` in place of channel ``index``."""
    channels = party.channels
    return party._replace(channels=(*channels[:index], channel, *channels[index + 1 :]))
