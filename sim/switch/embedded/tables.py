"""Tables at run time: entries, and the choice of the entry that matches a key.

A key is one number that concatenates its fields. Entries with the same mask share a dictionary. So an exact
table is one dictionary, and a ternary table has one per distinct mask; ranges are compared afterwards.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fanin.p4.control import Exact, Lpm, Match, Range, TableEntry, Ternary
from fanin.sim.switch.embedded.description import NO_ACTION, ORDERED, ActionInfo, KeyInfo, TableInfo
from fanin.sim.switch.embedded.errors import RunRefused
from fanin.sim.switch.embedded.pages import Pages

_CACHE_KEYS = 1 << 16  # maximum keys whose entry a table caches


class Entry:
    """An entry, or a table's default action.

    - ``identity``: match and priority, which no two entries of a table share.
    - ``value``, ``mask``, ``ranges``: the match, in bits of the key that concatenates the table's keys.
    - ``hit``: False for a default action.
    - ``controller_fields``: P4Runtime's fields of the entry that only the controller uses.
    - ``target``: the entry's target in an action profile.
    - ``choices``: actions of a group, of which a hash chooses one.
    - ``last_hit``: time of the last hit in a table with idle timeouts, in ns of the monotonic clock.
    - ``notified``: time of the controller's last notice that the entry is idle, in ns of the monotonic clock.
    """

    __slots__ = (
        "action",
        "action_name",
        "arguments",
        "bytes",
        "choices",
        "constant",
        "controller_fields",
        "function",
        "hit",
        "identity",
        "last_hit",
        "mask",
        "notified",
        "packets",
        "priority",
        "ranges",
        "target",
        "value",
    )  # fmt: skip

    def __init__(self, action: ActionInfo, function: Callable[..., Any], arguments: tuple[Any, ...], hit: bool):
        self.become(action, function, arguments)
        self.hit = hit
        self.packets = self.bytes = 0
        self.value = self.mask = self.priority = 0
        self.ranges: tuple[tuple[int, int, int, int], ...] = ()  # shift, mask, low, high
        self.identity: Any = None
        self.constant = False
        self.controller_fields: Any = None
        self.target: Any = None
        self.choices: tuple[Entry, ...] = ()
        self.last_hit = time.monotonic_ns()
        self.notified = 0

    def become(self, action: ActionInfo, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Set the action of the entry."""
        self.action = action.number
        self.action_name = action.name
        self.function = function
        self.arguments = arguments

    def point_to(self, target: Any) -> None:
        """Set the entry's target in an action profile; None removes it."""
        if self.target is not None:
            del self.target.entries[self]
        self.target = target


class _Group:
    """Entries with the same mask, by masked key; each list is in descending order of priority."""

    __slots__ = ("best", "entries", "mask")

    def __init__(self, mask: int):
        self.mask = mask
        self.entries: Pages[int, list[Entry]] = Pages()
        self.best = 0  # largest priority


class Table:
    """A table of a running switch."""

    def __init__(self, info: TableInfo, functions: Mapping[str, Any]):
        self.info = info
        self._functions = functions
        self.by_priority = any(key.kind in ORDERED for key in info.keys)
        self._groups: list[_Group] = []  # in descending order of ``best``
        self._by_mask: Pages[int, _Group] = Pages()
        self._entries: Pages[Any, Entry] = Pages()
        self._cache: dict[int, Entry] = {}  # cache by key; cleared when the table changes
        self.default = self._new_entry(*info.default, hit=False)
        self._shifts: dict[str, int] = {}
        shift = 0
        for key in reversed(info.keys):
            self._shifts[key.name] = shift
            shift += key.width
        for row in info.rows:
            matches = dict(zip((key.name for key in info.keys), row.matches, strict=True))
            self._add(
                {k: m for k, m in matches.items() if m is not None}, row.action, row.arguments, row.priority
            ).constant = row.constant

    def find(self, key: int) -> Entry:
        """Return the entry that ``key`` matches, or the default.

        Raises RunRefused if the choice between two entries is undefined.
        """
        entry = self._cache.get(key)
        if entry is None:
            if len(self._cache) >= _CACHE_KEYS:
                self._cache.clear()
            entry = self._cache[key] = self._search(key)
        return entry

    def _search(self, key: int) -> Entry:
        best: Entry | None = None
        for group in self._groups:
            if best is not None and best.priority > group.best:
                break
            for entry in group.entries.get(key & group.mask) or ():
                if best is not None and entry.priority < best.priority:
                    break
                if entry.ranges and not all(low <= key >> s & m <= high for s, m, low, high in entry.ranges):
                    continue
                if best is not None and entry.priority == best.priority:
                    raise RunRefused(f"table {self.info.name}: two entries of one priority match")
                best = entry
        return self.default if best is None else best

    # operations of the control plane

    def insert(
        self, match: Mapping[str, Match], action: str, parameters: Mapping[str, int], priority: int
    ) -> Entry:
        """Add an entry; one without an ``action`` does nothing. Raises ValueError with the reason."""
        if self.info.constant:
            raise ValueError(f"table {self.info.name}: its entries are constant")
        arguments = self._arguments(action, parameters)
        return self._add(self._patterns(match), action, arguments, priority)

    def modify(
        self, match: Mapping[str, Match], action: str, parameters: Mapping[str, int], priority: int
    ) -> None:
        """Replace the action of an entry, and keep its counts. Raises ValueError."""
        entry = self.entry(match, priority)
        if entry.constant:
            raise ValueError(f"table {self.info.name}: the entry is constant")
        self.rewrite(entry, action, parameters)

    def rewrite(self, entry: Entry, action: str, parameters: Mapping[str, int]) -> None:
        """Replace the action of an entry; an empty name means no action. Raises ValueError."""
        arguments = self._arguments(action, parameters)
        info = self.info.actions[action] if action else NO_ACTION
        entry.become(info, self._functions[info.function], arguments)

    def unmatched_entry(self, action: str, parameters: Mapping[str, int]) -> Entry:
        """Return a new entry without a match, for a group of an action profile. Raises ValueError."""
        return self._new_entry(action, self._arguments(action, parameters), hit=True)

    def delete(self, match: Mapping[str, Match], priority: int) -> None:
        """Remove an entry. Raises ValueError if there is none."""
        entry = self.entry(match, priority)
        if entry.constant:
            raise ValueError(f"table {self.info.name}: the entry is constant")
        self.remove(entry)

    def remove(self, entry: Entry) -> None:
        """Remove an entry of this table."""
        self._cache.clear()
        entry.point_to(None)
        self._entries.remove(entry.identity)
        group = self._by_mask.get(entry.mask)
        assert group is not None
        row = group.entries.get(entry.value)
        assert row is not None
        row.remove(entry)
        if not row:
            group.entries.remove(entry.value)
        if not group.entries:
            del self._groups[self._index_of(group)]
            self._by_mask.remove(group.mask)

    def entry(self, match: Mapping[str, Match], priority: int) -> Entry:
        """Return the entry with this match and priority. Raises ValueError if there is none."""
        entry = self.find_entry(match, priority)
        if entry is None:
            raise ValueError(f"table {self.info.name} has no such entry: {dict(match)}, priority {priority}")
        return entry

    def entries(self) -> list[Entry]:
        """Return all entries, in the order of insertion."""
        return list(self._entries.values())

    def pages(self) -> Iterator[list[Entry]]:
        """Yield all entries in lists; entries inserted meanwhile may be missing."""
        return self._entries.pages()

    def describe(self, entry: Entry) -> TableEntry:
        """Return an entry in the control plane's form; the default has no match."""
        kinds = {key.name: key for key in self.info.keys}
        matches, priority = entry.identity or ((), 0)
        match = {name: _control_match(kinds[name], pattern) for name, pattern in matches}
        names = self.info.actions.get(entry.action_name, NO_ACTION).parameters
        parameters = {name: int(value) for name, value in zip(names, entry.arguments, strict=True)}
        return TableEntry(self.info.name, match, entry.action_name, parameters, priority)

    def find_entry(self, match: Mapping[str, Match], priority: int) -> Entry | None:
        """Return the entry with this match and priority, or None. Raises ValueError if they do not fit."""
        return self._entries.get(self._identity(self._patterns(match), priority))

    def matcher(self, match: Mapping[str, Match]) -> Callable[[Entry], bool]:
        """Return a test for entries with this match, of any priority. Raises ValueError if it does not fit."""
        patterns = frozenset(self._patterns(match).items())
        return lambda entry: bool(entry.identity[0] == patterns)

    def holds(self, entry: Entry) -> bool:
        """Return whether an entry is in the table, or is its default action."""
        return entry is self.default or self._entries.get(entry.identity) is entry

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Remove all entries except the constant ones."""
        self._cache.clear()
        for entry in self._entries.values():
            entry.point_to(None)
        constant_entries = [entry for entry in self._entries.values() if entry.constant]
        self._entries = Pages()
        self._groups = []
        self._by_mask = Pages()
        for entry in constant_entries:
            self._entries.add(entry.identity, entry)
            self._add_to_group(entry)

    def reset_default(self) -> None:
        """Restore the program's default action."""
        self.default = self._new_entry(*self.info.default, hit=False)
        self._cache.clear()

    def set_default(self, action: str, parameters: Mapping[str, int]) -> None:
        """Replace the default action. Raises ValueError."""
        if self.info.default_constant:
            raise ValueError(f"table {self.info.name}: its default action is constant")
        self.default = self._new_entry(action, self._arguments(action, parameters), hit=False)
        self._cache.clear()

    # checks

    def _new_entry(self, action: str, arguments: tuple[Any, ...], hit: bool) -> Entry:
        info = self.info.actions[action] if action else NO_ACTION
        return Entry(info, self._functions[info.function], arguments, hit)

    def _arguments(self, action: str, parameters: Mapping[str, int]) -> tuple[int, ...]:
        info = self.info.actions.get(action) if action else NO_ACTION
        if info is None:
            raise ValueError(
                f"table {self.info.name} has no action {action}; it has {', '.join(self.info.actions)}"
            )
        if set(parameters) != set(info.parameters):
            expected = ", ".join(info.parameters) or "none"
            raise ValueError(
                f"action {action} takes the parameters {expected}, not {', '.join(parameters) or 'none'}"
            )
        for name, width in info.parameters.items():
            _check_width(f"action {action}: {name}", parameters[name], width)
        return tuple(parameters[name] for name in info.parameters)

    def _patterns(self, match: Mapping[str, Match]) -> dict[str, tuple[int, int] | range]:
        """Return matches as (value, mask) or range, without those that match any value."""
        keys = {key.name: key for key in self.info.keys}
        for name in match:
            if name not in keys:
                raise ValueError(f"table {self.info.name} has no key {name}; it has {', '.join(keys)}")
        patterns: dict[str, tuple[int, int] | range] = {}
        for key in self.info.keys:
            key_match = match.get(key.name)
            if key_match is None:
                if key.kind == "exact":
                    raise ValueError(f"table {self.info.name}: the exact key {key.name} is missing")
                continue
            pattern = self._pattern(key, key_match)
            if isinstance(pattern, range) or pattern[1]:
                patterns[key.name] = pattern
        return patterns

    def _pattern(self, key: KeyInfo, match: Match) -> tuple[int, int] | range:
        subject = f"table {self.info.name}: {key.name}"
        all_ones = (1 << key.width) - 1
        if isinstance(match, Exact):
            _check_width(subject, match.value, key.width)
            return range(match.value, match.value + 1) if key.kind == "range" else (match.value, all_ones)
        if isinstance(match, Range) and key.kind == "range":
            _check_width(subject, match.low, key.width)
            _check_width(subject, match.high, key.width)
            if match.low > match.high:
                raise ValueError(f"{subject}: the range {match.low} to {match.high} is empty")
            return range(match.low, match.high + 1)
        if isinstance(match, Ternary) and key.kind == "ternary":
            _check_width(subject, match.value, key.width)
            _check_width(subject, match.mask, key.width)
            return match.value & match.mask, match.mask
        if isinstance(match, Lpm) and key.kind == "lpm":
            if not 0 <= match.length <= key.width:
                raise ValueError(f"{subject}: a prefix of {match.length} bits, of {key.width}")
            _check_width(subject, match.value, key.width)
            mask = all_ones ^ (all_ones >> match.length)
            return match.value & mask, mask
        raise ValueError(f"{subject} is matched {key.kind}, not {type(match).__name__.lower()}")

    # storage

    def _identity(self, patterns: Mapping[str, Any], priority: int) -> Any:
        return frozenset(patterns.items()), priority if self.by_priority else 0

    def _add(
        self,
        patterns: Mapping[str, tuple[int, int] | range],
        action: str,
        arguments: tuple[Any, ...],
        priority: int,
    ) -> Entry:
        entry = self._new_entry(action, arguments, hit=True)
        entry.identity = self._identity(patterns, priority)
        if entry.identity in self._entries:
            raise ValueError(f"table {self.info.name} has this entry already: {dict(patterns)}")
        widths = {key.name: key.width for key in self.info.keys}
        length = 0
        ranges = []
        for name, pattern in patterns.items():
            shift = self._shifts[name]
            if isinstance(pattern, range):
                ranges.append((shift, (1 << widths[name]) - 1, pattern.start, pattern.stop - 1))
            else:
                entry.value |= pattern[0] << shift
                entry.mask |= pattern[1] << shift
                length += pattern[1].bit_count()
        entry.ranges = tuple(ranges)
        entry.priority = priority if self.by_priority else length  # the longest prefix wins
        self._entries.add(entry.identity, entry)
        self._add_to_group(entry)
        return entry

    def _add_to_group(self, entry: Entry) -> None:
        """Add an entry to the group of its mask, without a search of all groups or of a whole row."""
        self._cache.clear()
        group = self._by_mask.get(entry.mask)
        if group is None:
            group = _Group(entry.mask)
            group.best = entry.priority
            self._by_mask.add(group.mask, group)
            insort(self._groups, group, key=_by_best)
        elif entry.priority > group.best:
            del self._groups[self._index_of(group)]
            group.best = entry.priority
            insort(self._groups, group, key=_by_best)
        row = group.entries.get(entry.value)
        if row is None:
            group.entries.add(entry.value, [entry])
        else:
            insort(row, entry, key=_by_priority)

    def _index_of(self, group: _Group) -> int:
        """Return the index of a group."""
        return self._groups.index(group, bisect_left(self._groups, _by_best(group), key=_by_best))


def _by_best(group: _Group) -> int:
    return -group.best


def _by_priority(entry: Entry) -> int:
    return -entry.priority


def _control_match(key: KeyInfo, pattern: tuple[int, int] | range) -> Match:
    if isinstance(pattern, range):
        return Range(pattern.start, pattern.stop - 1)
    value, mask = pattern
    if key.kind == "ternary":
        return Ternary(value, mask)
    return Lpm(value, mask.bit_count()) if key.kind == "lpm" else Exact(value)


def _check_width(subject: str, value: int, width: int) -> None:
    if not 0 <= value < 1 << width:
        raise ValueError(f"{subject}: {value} does not fit in {width} bits")
