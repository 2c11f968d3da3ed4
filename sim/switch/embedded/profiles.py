"""Action profiles and action selectors at run time: members and groups, to which table entries point.

The behaviour is that of BMv2 with P4Runtime. Members have handles; a new member gets the lowest free one. A
member whose weight in a group is n has n handles. A group sorts its handles in ascending order, without those
of members whose watched port is down. A hash of the selector's keys, modulo the number of handles, chooses one.
An empty group does nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fanin.sim.switch.embedded.checksums import selected
from fanin.sim.switch.embedded.runtime import ExternObject, Tracer
from fanin.sim.switch.embedded.tables import Entry, Table


class Target:
    """A target of table entries; ``number`` is its id, if it has one."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.entries: dict[Entry, Table] = {}


class Member(Target):
    """An action with its parameters."""

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

    def __init__(self, *arguments: Any, **rest: Any):
        super().__init__(**rest)
        self.selects = len(arguments) > 1
        self.size: int = arguments[1] if self.selects else arguments[0]
        self._algorithm: str = arguments[0] if self.selects else ""
        self.tables: list[Table] = []  #: tables with this implementation
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self.shots: set[Group] = set()  #: groups of one entry each, without ids
        self.tracer: Tracer | None = None
        self._down: frozenset[int] = frozenset()
        self._free: list[int] = []
        self._handles = 0

    def chosen(self, choices: Sequence[Entry], data: tuple[int, int]) -> Entry:
        """Return the action of a group for a packet. Raises RunRefused if a key is undefined."""
        place = selected(self._algorithm, data) % len(choices)
        if self.tracer is not None:
            self.tracer.chooses(self.name, place, len(choices), choices[place].action_name)
        return choices[place]

    @property
    def weight(self) -> int:
        """Sum of all groups' weights."""
        return sum(group.weight for group in (*self.groups.values(), *self.shots))

    @property
    def shares(self) -> int:
        """Number of shares in all groups."""
        return sum(len(group.shares) for group in (*self.groups.values(), *self.shots))

    # members

    def add(self, member: Member) -> None:
        """Add a new member. Raises ValueError if a table has no such action."""
        self._check(member.action, member.parameters)
        self._settle(member)
        self.members[member.number] = member

    def rewrite(self, member: Member, action: str, parameters: Mapping[str, int]) -> None:
        """Let a member run another action in all its groups. Raises ValueError."""
        self._check(action, parameters)
        member.action, member.parameters = action, parameters
        for target in (member, *member.weights):
            self._show(target)

    def drop(self, member: Member) -> None:
        """Remove a member to which nothing points."""
        self.members.pop(member.number, None)
        for handle in member.handles:
            heapq.heappush(self._free, handle)

    def _check(self, action: str, parameters: Mapping[str, int]) -> None:
        if not self.tables:
            raise ValueError(f"{self.name}: no table has it")
        for table in self.tables:
            table.made(action, parameters)

    def _settle(self, member: Member) -> None:
        """Give a member as many handles as its largest weight."""
        wanted = max(member.weights.values(), default=1)
        while len(member.handles) < wanted:
            if self._free:
                member.handles.append(heapq.heappop(self._free))
            else:
                member.handles.append(self._handles)
                self._handles += 1
        while len(member.handles) > wanted:
            heapq.heappush(self._free, member.handles.pop())

    # groups

    def regroup(self, group: Group, shares: Iterable[Share]) -> None:
        """Give a group these members, each once."""
        before = [share.member for share in group.shares]
        group.shares = tuple(shares)
        now = {share.member: share.weight for share in group.shares}
        for member in before:
            if member not in now:
                del member.weights[group]
                self._settle(member)
        for member, weight in now.items():
            member.weights[group] = weight
            self._settle(member)
        self._show(group)

    def shot(self, shares: Sequence[Share]) -> Group:
        """Make a group for one entry, with members of its own. Raises ValueError, and then makes nothing."""
        for member in dict.fromkeys(share.member for share in shares):
            self._check(member.action, member.parameters)
        group = Group()
        self.regroup(group, shares)
        self.shots.add(group)
        return group

    def unshot(self, group: Group) -> None:
        """Remove such a group after its entry."""
        members = [share.member for share in group.shares]
        self.regroup(group, ())
        self.shots.remove(group)
        for member in members:
            self.drop(member)

    def watch(self, down: frozenset[int]) -> None:
        """Set the ports that are down; all others are up."""
        self._down = down
        for group in (*self.groups.values(), *self.shots):
            if any(share.port is not None for share in group.shares):
                self._show(group)

    # entries

    def point(self, table: Table, entry: Entry, target: Target) -> None:
        """Let an entry of ``table`` run the action of ``target`` from now on."""
        entry.point_to(target)
        target.entries[entry] = table
        self._show(target, {entry: table})

    def _show(self, target: Target, entries: Mapping[Entry, Table] | None = None) -> None:
        """Update ``entries``, or all entries of ``target``, to its present actions."""
        pointing = target.entries if entries is None else entries
        if isinstance(target, Member):
            for entry, table in pointing.items():
                entry.choices = ()
                table.rewrite(entry, target.action, target.parameters)
        elif isinstance(target, Group):
            choices: dict[Table, tuple[Entry, ...]] = {}
            for entry, table in pointing.items():
                if table not in choices:
                    choices[table] = self._choices(target, table)
                entry.choices = choices[table]
                table.rewrite(entry, "", {})

    def _choices(self, group: Group, table: Table) -> tuple[Entry, ...]:
        by_handle = {}
        for member, weight, port in group.shares:
            if port not in self._down:
                made = table.made(member.action, member.parameters)
                by_handle.update(dict.fromkeys(member.handles[:weight], made))
        return tuple(by_handle[handle] for handle in sorted(by_handle))
