"""Action profiles and action selectors at run time: members and groups, to which table entries point.

A packet's choice in a group is that of BMv2 with P4Runtime, for which members have *handles*, small numbers:

- A new member gets the lowest free handle. A member has as many handles as its largest weight in any group.
- A group has, of each member, as many handles as the member's weight in this group, the oldest ones first.
  Members whose watched port is down do not count.
- The hash of the selector's keys, modulo the number n of the group's handles, is an index of its handles in
  ascending order. The member with that handle runs.

A group without handles does nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fanin.sim.switch.embedded.checksums import selector_hash
from fanin.sim.switch.embedded.runtime import ExternObject, Tracer
from fanin.sim.switch.embedded.tables import Entry, Table


class Target:
    """A member or group to which table entries point.

    - ``number``: its id for the controller; 0 for none.
    - ``entries``: the entries that point to it, with their tables.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.entries: dict[Entry, Table] = {}


class Member(Target):
    """An action with its parameters.

    - ``action``: name of the action.
    - ``parameters``: values by name.
    - ``number``: id for the controller; 0 for none.
    - ``handles``: its handles, the oldest first.
    """

    def __init__(self, action: str, parameters: Mapping[str, int], number: int = 0):
        super().__init__(number)
        self.action = action
        self.parameters = parameters
        self.handles: list[int] = []
        self.weights: dict[Group, int] = {}  #: by group


class Share(NamedTuple):
    """A member of a group; its chance is proportional to ``weight``, and 0 while ``port`` is down."""

    member: Member
    weight: int = 1
    port: int | None = None


class Group(Target):
    """A set of members, one of which runs for each packet."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.shares: tuple[Share, ...] = ()

    @property
    def weight(self) -> int:
        """Sum of all members' weights."""
        return sum(share.weight for share in self.shares)


class Profile(ExternObject):
    """``action_profile(size)`` and ``action_selector(algorithm, size, width)``; BMv2 ignores the width.

    An entry with a direct action, from the program or a control plane without P4Runtime, is a group of one.
    """

    def __init__(self, *arguments: Any, **extern: Any):
        super().__init__(**extern)
        self.selects = len(arguments) > 1
        self.size: int = arguments[1] if self.selects else arguments[0]
        self._algorithm: str = arguments[0] if self.selects else ""
        self.tables: list[Table] = []  #: tables with this implementation
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self.one_shots: set[Group] = set()  #: groups of one entry each, without ids
        self.tracer: Tracer | None = None
        self._down: frozenset[int] = frozenset()
        self._free: list[int] = []
        self._handles = 0

    def choose(self, choices: Sequence[Entry], data: tuple[int, int]) -> Entry:
        """Return the entry of ``choices`` that runs for a packet.

        - ``choices``: the group's entries, one per handle in ascending order; at least one.
        - ``data``: the selector's keys as one number, and its width in bits.

        Raises RunRefused if a key is undefined.
        """
        index = selector_hash(self._algorithm, data) % len(choices)
        if self.tracer is not None:
            self.tracer.chooses(self.name, index, len(choices), choices[index].action_name)
        return choices[index]

    @property
    def weight(self) -> int:
        """Sum of all groups' weights."""
        return sum(group.weight for group in (*self.groups.values(), *self.one_shots))

    @property
    def shares(self) -> int:
        """Number of shares in all groups."""
        return sum(len(group.shares) for group in (*self.groups.values(), *self.one_shots))

    # members

    def add(self, member: Member) -> None:
        """Add a new member. Raises ValueError if no table uses the profile, or one has no such action."""
        self._check(member.action, member.parameters)
        self._allocate_handles(member)
        self.members[member.number] = member

    def rewrite(self, member: Member, action: str, parameters: Mapping[str, int]) -> None:
        """Replace the action of a member, in all its groups. Raises ValueError as :meth:`add` does."""
        self._check(action, parameters)
        member.action, member.parameters = action, parameters
        for target in (member, *member.weights):
            self._update_entries(target)

    def drop(self, member: Member) -> None:
        """Remove a member to which nothing points."""
        self.members.pop(member.number, None)
        for handle in member.handles:
            heapq.heappush(self._free, handle)

    def _check(self, action: str, parameters: Mapping[str, int]) -> None:
        """Raise ValueError unless every table with this implementation can run the action."""
        if not self.tables:
            raise ValueError(f"{self.name}: no table has it")
        for table in self.tables:
            table.unmatched_entry(action, parameters)  # raises ValueError; the entry itself is not used

    def _allocate_handles(self, member: Member) -> None:
        """Set the number of a member's handles to its largest weight."""
        count = max(member.weights.values(), default=1)
        while len(member.handles) < count:
            if self._free:
                member.handles.append(heapq.heappop(self._free))
            else:
                member.handles.append(self._handles)
                self._handles += 1
        while len(member.handles) > count:
            heapq.heappush(self._free, member.handles.pop())

    # groups

    def regroup(self, group: Group, shares: Iterable[Share]) -> None:
        """Replace the members of a group; each member appears in at most one of ``shares``."""
        old_members = [share.member for share in group.shares]
        group.shares = tuple(shares)
        weights = {share.member: share.weight for share in group.shares}
        for member in old_members:
            if member not in weights:
                del member.weights[group]
                self._allocate_handles(member)
        for member, weight in weights.items():
            member.weights[group] = weight
            self._allocate_handles(member)
        self._update_entries(group)

    def add_one_shot(self, shares: Sequence[Share]) -> Group:
        """Return a new group for one entry, with members of its own. Raises ValueError before any change."""
        for member in dict.fromkeys(share.member for share in shares):
            self._check(member.action, member.parameters)
        group = Group()
        self.regroup(group, shares)
        self.one_shots.add(group)
        return group

    def remove_one_shot(self, group: Group) -> None:
        """Remove a group of :meth:`add_one_shot` after the removal of its entry."""
        members = [share.member for share in group.shares]
        self.regroup(group, ())
        self.one_shots.remove(group)
        for member in members:
            self.drop(member)

    def watch(self, down: frozenset[int]) -> None:
        """Set the ports that are down; all others are up."""
        self._down = down
        for group in (*self.groups.values(), *self.one_shots):
            if any(share.port is not None for share in group.shares):
                self._update_entries(group)

    # entries

    def point(self, table: Table, entry: Entry, target: Target) -> None:
        """Set the target of an entry of ``table``, whose action the entry runs from now on."""
        entry.point_to(target)
        target.entries[entry] = table
        self._update_entries(target, {entry: table})

    def _update_entries(self, target: Target, entries: Mapping[Entry, Table] | None = None) -> None:
        """Set the actions of ``entries``, or of all entries of ``target``, to the target's present ones."""
        entries_to_update = target.entries if entries is None else entries
        if isinstance(target, Member):
            for entry, table in entries_to_update.items():
                entry.choices = ()
                table.rewrite(entry, target.action, target.parameters)
        elif isinstance(target, Group):
            choices: dict[Table, tuple[Entry, ...]] = {}
            for entry, table in entries_to_update.items():
                if table not in choices:
                    choices[table] = self._choices(target, table)
                entry.choices = choices[table]
                table.rewrite(entry, "", {})

    def _choices(self, group: Group, table: Table) -> tuple[Entry, ...]:
        """Return the entries of a group in ``table``, one per handle in ascending order."""
        by_handle = {}
        for member, weight, port in group.shares:
            if port not in self._down:
                entry = table.unmatched_entry(member.action, member.parameters)
                by_handle.update(dict.fromkeys(member.handles[:weight], entry))
        return tuple(by_handle[handle] for handle in sorted(by_handle))
