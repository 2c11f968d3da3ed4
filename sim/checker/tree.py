"""Search of a tree: workers, several switches and the network between them (docs/systems/trees.md).

A switch below the root is a party, as a worker is: its slots' registers, and the packets in flight between it
and its parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fanin.sim.checker.party import UP, Parties, Party, PartyStep, code_of, message_of
from fanin.sim.checker.protocol import SwitchStep, Violation
from fanin.sim.checker.rounds import Rounds
from fanin.sim.checker.switch_model import SwitchModel
from fanin.sim.checker.system import Faults, System, put_codes
from fanin.sim.checker.tables import Flags, Lists, Numbers, Rows, Table
from fanin.sim.checker.topology import ROOT
from fanin.sim.switch.base import SlotRegisters
from fanin.tree import Shape


class SwitchParties(Parties):
    """Parties of switches below the root that have one ``model``: ``Party.worker`` holds the slots' registers.

    - ``workers``: the workers' parties, whose numbers of events and violations are shared.
    - ``removes_late``: whether packets that can have no effect any more are removed at once.
    """

    def __init__(
        self, model: SwitchModel, workers: Parties, protocol: Rounds, *, removes_late: bool, **of_parties: Any
    ):
        super().__init__(protocol, **of_parties)
        self.model, self.events, self.violations = model, workers.events, workers.violations
        self._removes_late = removes_late

    def start(self) -> int:
        """Return the number of the initial party."""
        slots = self._protocol.slots
        return self.numbers(Party((self.model.slot(),) * slots, ((),) * (2 * slots)))

    def arrive(self, number: int, sender: int, code: int, slot: int) -> list[int]:
        """Return the party's number after a member's message, the violation's number, and each member's code.

        A packet that the switch sends to its parent again is left out, as if lost, while ``in_flight`` packets
        of the slot are in the channels to and from the parent. Otherwise there would be no end of them.
        """
        party: Party = self.numbers.values[number]
        members, parent = range(self.model.parent_port), self.model.parent_port
        try:
            step = self._step(party, slot, sender, code)
        except Violation as violation:
            return [number, self.violations(violation.value), *(0 for _ in members)]
        sent = dict(step.sent)
        repeats = step.state == party.worker[slot]
        party = self._with_registers(party, slot, step.state)
        up, down = party.channels[2 * slot : 2 * slot + 2]
        if parent in sent and not (repeats and len(up) + len(down) >= self._in_flight):
            number = self._send(party, slot, UP, code_of(sent[parent]))
        else:
            number = self.numbers(party)
        return [number, 0, *(code_of(sent.get(member)) for member in members)]

    def renamed(self, number: int, members: Sequence[int], workers: Sequence[int]) -> int:
        """Return the number of a party after its members and the workers below are renamed."""
        party: Party = self.numbers.values[number]
        registers = tuple(self.model.renamed(state, members, workers) for state in party.worker)
        return self.numbers(party._replace(worker=registers))

    def _arrival_step(self, name: str, party: Party, slot: int, direction: int, code: int) -> PartyStep:
        if direction == UP:
            return super()._arrival_step(name, party, slot, direction, code)
        event = self._event(name, slot, direction, code)
        try:
            step = self._step(party, slot, self.model.parent_port, code)
        except Violation as violation:
            return PartyStep(event, 0, violation=self.violations(violation.value))
        after = self.numbers(self._with_registers(party, slot, step.state))
        answers = {code_of(message) for _, message in step.sent}
        return PartyStep(event, after, to_members=answers.pop() if answers else 0)

    def _step(self, party: Party, slot: int, port: int, code: int) -> SwitchStep:
        return self.model.arrive(party.worker[slot], slot, port, message_of(code))

    def _with_registers(self, party: Party, slot: int, state: SlotRegisters) -> Party:
        """Return the party with a slot's new registers, without packets that they make useless."""
        if state == party.worker[slot]:
            return party
        registers = (*party.worker[:slot], state, *party.worker[slot + 1 :])
        return self._drop_useless(party._replace(worker=registers), slot)

    def _submit_steps(self, party: Party, slot: int) -> Iterator[PartyStep]:
        return iter(())

    def _timeout_steps(self, party: Party, slot: int) -> Iterator[PartyStep]:
        return iter(())  # a switch has no timers

    def _is_useless(self, worker: tuple[SlotRegisters, ...], slot: int, code: int) -> bool:
        """Return whether a packet between switch and parent has no effect from now on.

        Rounds only increase. The parent answers a late request to this switch alone, which drops the answer.
        """
        return self._removes_late and self.model.is_late(worker[slot], message_of(code))


class TreeSystem(System):
    """Workers and switches of ``protocol.topology``, joined by a network with ``faults``.

    A row has the parties of workers, then of the switches below the root, then the root's slots. Channels,
    faults and timers are those of :class:`System`; a channel between two switches is like one to a worker.
    Members of a switch are interchangeable if they are workers, or trees of one shape. Late packets between
    switches are removed if the switches ignore them (``SwitchModel.ignores_late_packets``).
    """

    protocol: Rounds

    def __init__(self, protocol: Rounds, faults: Faults, *, in_flight: int = 2):
        self.topology = protocol.topology
        super().__init__(protocol, faults, in_flight=in_flight)

    def canonical(self, rows: Rows) -> Rows:
        """Return, of the states that differ by a symmetry of the tree, the one whose digests are least."""
        least = rows
        for number in range(1, len(self.topology.symmetries)):
            candidate = self._renamed_rows(rows, number)
            least = np.where(self._is_less(candidate, least)[:, None], candidate, least)
        return least

    def _renamed_rows(self, rows: Rows, number: int) -> Rows:
        """Return rows after symmetry ``number`` of the topology."""
        topology, renaming = self.topology, self.topology.symmetries[number]
        renamed = rows.copy()
        for actor in range(self.actors):
            parties = rows[:, actor]
            if not topology.is_worker(actor):
                parties = self._renamed_party[topology.switch_of(actor)](parties, number)
            renamed[:, renaming[actor]] = parties
        for column in range(self._slots_column, self._slots_column + self.slots):
            renamed[:, column] = self._renamed(rows[:, column], number)
        return renamed

    def _is_less(self, rows: Rows, others: Rows) -> Flags:
        """Return whether the digests of each row, column by column, come before those of the other row."""
        less, equal = np.zeros(len(rows), bool), np.ones(len(rows), bool)
        for column, values in enumerate(
            self.columns[:-1]
        ):  # a symmetry leaves the remaining faults as they are
            digests, other_digests = (values.digests.take(each[:, column]) for each in (rows, others))
            less |= equal & (digests < other_digests)
            equal &= digests == other_digests
        return less

    def _switch_parties(self, *, faults: tuple[str, ...], in_flight: int) -> Sequence[SwitchParties]:
        kinds: dict[Shape, SwitchParties] = {}
        models, rounds = self.protocol.models, self.protocol.rounds
        removes_late = all(model.ignores_late_packets(rounds) for model in models)
        for switch in self.topology.switches[1:]:
            shape = self.topology.shape(switch)
            if shape not in kinds:
                kinds[shape] = SwitchParties(
                    models[switch],
                    self.parties,
                    self.protocol,
                    removes_late=removes_late,
                    faults=faults,
                    in_flight=in_flight,
                )
        self._parties_of = {switch: kinds[self.topology.shape(switch)] for switch in self.topology.switches[1:]}
        return list(self._parties_of.values())

    def _make_tables(self) -> None:
        super()._make_tables()
        topology, slots, width = self.topology, range(self.slots), len(PartyStep._fields)
        self._renamed_party = {
            switch: Table(partial(self._renamed_number, switch=switch)) for switch in self._parties_of
        }
        self._switch_steps = {
            switch: [Lists(partial(parties.steps, slot=slot), width) for slot in slots]
            for switch, parties in self._parties_of.items()
        }
        self._put_switch = {
            switch: [Table(partial(parties.put, slot=slot)) for slot in slots]
            for switch, parties in self._parties_of.items()
        }
        self._inner = {
            switch: [
                Table(partial(self._inner_step, switch=switch, slot=slot), 2 + len(topology.members[switch]))
                for slot in slots
            ]
            for switch in self._parties_of
        }
        self._renamed = Table(self._renamed_root)

    def _renamed_root(self, register_number: int, number: int) -> int:
        names = self.topology.renaming_at(ROOT, self.topology.symmetries[number])
        return self.registers(
            self.protocol.models[ROOT].renamed(self.registers.values[register_number], *names)
        )

    def _renamed_number(self, party: int, number: int, switch: int) -> int:
        names = self.topology.renaming_at(switch, self.topology.symmetries[number])
        return self._parties_of[switch].renamed(party, *names)

    def _inner_step(self, party: int, message_number: int, switch: int, slot: int) -> list[int]:
        """Return a switch's party after a member's message, the violation's number, each member's code."""
        sender, code = divmod(message_number, self._codes)
        return self._parties_of[switch].arrive(party, sender, code, slot)

    def _steps_of(self, actor: int, slot: int) -> Lists:
        if self.topology.is_worker(actor):
            return super()._steps_of(actor, slot)
        return self._switch_steps[self.topology.switch_of(actor)][slot]

    def _deliver_to_members(self, rows: Rows, codes: Numbers, actor: int, slot: int) -> None:
        indices = np.flatnonzero(codes)
        if len(indices):
            for member in self.topology.members[self.topology.switch_of(actor)]:
                put_codes(rows, indices, member, codes[indices], self._put_table(member, slot))

    def _deliver_to_switch(
        self, rows: Rows, violations: Numbers, codes: Numbers, sender: int, slot: int
    ) -> None:
        indices, switch = np.flatnonzero(codes), self.topology.parents[sender]
        members = self.topology.members[switch]
        messages = members.index(sender) * self._codes + codes[indices]
        if switch == ROOT:
            column, table = self._slots_column + slot, self._switch[slot]
        else:
            column, table = self.topology.actor_of(switch), self._inner[switch][slot]
        answers = table(rows[indices, column], messages)
        rows[indices, column], violations[indices] = answers[:, 0], answers[:, 1]
        for place, member in enumerate(members):
            put_codes(rows, indices, member, answers[:, 2 + place], self._put_table(member, slot))

    def _put_table(self, actor: int, slot: int) -> Table:
        """Return the table of an actor's party after a message from its parent."""
        if self.topology.is_worker(actor):
            return self._put[slot]
        return self._put_switch[self.topology.switch_of(actor)][slot]
