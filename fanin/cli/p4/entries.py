"""Installation of table entries, multicast groups and clone sessions from a JSON file in a switch.

The file is a list of objects, in any order. Fields with a default may be missing; others are errors:

- table entry: ``table``, ``match`` ({key: match}), ``action``, ``parameters`` ({name: number}, default {}) and
  ``priority`` (default 0)
- multicast group: ``id`` and ``replicas``
- clone session: ``session`` (1 to 2^32 - 1) and ``replicas``

A match is a number (exact) or an object: ``value``, ``value`` and ``mask``, ``value`` and ``length``, or
``low`` and ``high``. A replica is an object with ``port``, ``id`` (default 0) and, for TNA, ``exclusion``. A
number is an integer, or text: decimal, hexadecimal, a MAC address or an IPv4 address.
docs/reference/embedded.md, "Entries", has an example.

``place`` in this file is the position of a value in the file, for an error's text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.plain import read_named
from fanin.base.records import parse_json
from fanin.p4.control import Exact, Lpm, Match, MulticastGroup, Range, Replica, TableEntry, Ternary
from fanin.sim.switch.embedded import Switch
from fanin.sim.switch.embedded.lexer import MAX_WIDTH

_MATCHES = (Exact, Ternary, Lpm, Range)
_NUMBER = "a number, or as text hexadecimal (0x88b5), a MAC address (02:00:00:00:00:01) or IPv4 (10.0.0.1)"
_MAX_BYTES = 16 << 20  # of the file
MAX_REPLICAS = 1 << 10  # of a group or session
_SESSION_BITS = 32  # of v1model's clone
_HEX_DIGITS, _DECIMAL_DIGITS = MAX_WIDTH // 4, len(str((1 << MAX_WIDTH) - 1))  # of the widest field
_INTEGER = rf"0[xX][0-9a-fA-F]{{1,{_HEX_DIGITS}}}|[0-9]{{1,{_DECIMAL_DIGITS}}}"
_MAC = r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"


def install_entries(switch: Switch, path: Path) -> None:
    """Install the items of the file ``path``, whose format is that of this module, in ``switch``.

    The whole file is parsed first. Then groups are installed, then clone sessions, then entries, each in the
    order of the file. Raises InputError that names the file, the item, the field and valid values. If the
    switch refuses an item, the items before it stay installed.
    """
    groups: dict[str, MulticastGroup] = {}
    sessions: dict[str, _Session] = {}
    entries: dict[str, TableEntry] = {}
    for number, item in enumerate(_items(path)):
        place = f"{path}: item {number}"
        if "session" in item:
            sessions[place] = _session(place, item)
        elif "replicas" in item:
            groups[place] = _group(place, item)
        else:
            entries[place] = _entry(place, item)
    _check_distinct("id", "group", {place: group.id for place, group in groups.items()})
    _check_distinct("session", "clone session", {place: session.session for place, session in sessions.items()})
    for place, group in groups.items():
        with _error_place(place):
            switch.set_multicast_group(group)
    for place, session in sessions.items():
        with _error_place(place):
            switch.set_clone_session(session.session, replicas=session.replicas)
    for place, entry in entries.items():
        with _error_place(place):
            switch.insert(entry)


@dataclasses.dataclass(frozen=True)
class _Session:
    """Clone session as the file has it."""

    session: int
    replicas: tuple[Replica, ...]


def _check_distinct(field: str, kind: str, numbers: Mapping[str, int]) -> None:
    """Raise InputError if two items of a kind have the same number.

    - ``field``: field of the number.
    - ``kind``: name of the kind in the error.
    - ``numbers``: number of each item by place.
    """
    first: dict[int, str] = {}
    for place, number in numbers.items():
        if first.setdefault(number, place) != place:
            raise InputError(f"{place}: {field}: {number} is the {field} of another {kind}, {first[number]}")


@contextlib.contextmanager
def _error_place(place: str) -> Iterator[None]:
    """Convert a switch's ValueError into an InputError that starts with the place."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error


def _items(path: Path) -> list[dict[str, Any]]:
    """Read the file's objects. Raises InputError."""
    try:
        items = parse_json(read_named(path, _MAX_BYTES).decode())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(items, list):
        raise InputError(f"{path}: must be a list of entries, groups and clone sessions")
    for number, item in enumerate(items):
        _check_object(f"{path}: item {number}", item)
    return items


def _entry(place: str, item: Mapping[str, Any]) -> TableEntry:
    _check_fields(place, item, TableEntry)
    match, parameters = item["match"], item.get("parameters", {})
    _check_object(f"{place}: match", match)
    _check_object(f"{place}: parameters", parameters)
    for name in ("table", "action"):
        _check_text(f"{place}: {name}", item[name])
    return TableEntry(
        table=item["table"],
        match={name: _match(f"{place}: match: {name}", fields) for name, fields in match.items()},
        action=item["action"],
        parameters={
            name: _number(f"{place}: parameters: {name}", number) for name, number in parameters.items()
        },
        priority=_number(f"{place}: priority", item.get("priority", 0)),
    )


def _group(place: str, item: Mapping[str, Any]) -> MulticastGroup:
    _check_fields(place, item, MulticastGroup)
    return MulticastGroup(_number(f"{place}: id", item["id"]), _replicas(place, item))


def _session(place: str, item: Mapping[str, Any]) -> _Session:
    _check_fields(place, item, _Session)
    number = _number(f"{place}: session", item["session"])
    if not 0 < number < 1 << _SESSION_BITS:
        raise InputError(f"{place}: session: must be 1 to {(1 << _SESSION_BITS) - 1}, not {number}")
    return _Session(number, _replicas(place, item))


def _replicas(place: str, item: Mapping[str, Any]) -> tuple[Replica, ...]:
    if not isinstance(item["replicas"], list):
        raise InputError(f"{place}: replicas: must be a list")
    if len(item["replicas"]) > MAX_REPLICAS:
        raise InputError(f"{place}: replicas: has {len(item['replicas']):,}, more than {MAX_REPLICAS:,}")
    replicas: dict[tuple[int, int], Replica] = {}
    for number, replica in enumerate(item["replicas"]):
        replica_place = f"{place}: replicas: {number}"
        _check_object(replica_place, replica)
        _check_fields(replica_place, replica, Replica)
        numbers = {name: _number(f"{replica_place}: {name}", value) for name, value in replica.items()}
        parsed = Replica(**numbers)
        if (parsed.port, parsed.id) in replicas:
            raise InputError(f"{replica_place}: port {parsed.port} occurs twice with the id {parsed.id}")
        replicas[parsed.port, parsed.id] = parsed
    return tuple(replicas.values())


def _match(place: str, fields: Any) -> Match:
    """Parse a match: an object with the fields of one kind, or a single number or text for an exact match."""
    if not isinstance(fields, dict):
        return Exact(_number(place, fields))
    for kind in _MATCHES:
        if set(fields) == {field.name for field in dataclasses.fields(kind)}:
            return kind(**{name: _number(f"{place}: {name}", value) for name, value in fields.items()})
    kinds = "value; value and mask; value and length; or low and high"
    raise InputError(f"{place}: has {_name_list(fields)}; a match has {kinds}")


def _check_fields(place: str, item: Mapping[str, Any], kind: Any) -> None:
    """Raise InputError unless ``item`` has the fields of a dataclass, and no others."""
    fields = dataclasses.fields(kind)
    names = [field.name for field in fields]
    unknown = [name for name in item if name not in names]
    if unknown:
        raise InputError(f"{place}: has no field {unknown[0]!r}; it may have {', '.join(names)}")
    for field in fields:
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if field.name not in item and not optional:
            raise InputError(f"{place}: {field.name} is missing; it has {_name_list(item)}")


def _check_object(place: str, value: Any) -> None:
    """Raise InputError unless ``value`` is a JSON object."""
    if not isinstance(value, dict):
        raise InputError(f"{place}: must be an object, not {json.dumps(value)}")


def _check_text(place: str, value: Any) -> None:
    """Raise InputError unless ``value`` is a text."""
    if not isinstance(value, str):
        raise InputError(f"{place}: must be a name, not {json.dumps(value)}")


def _number(place: str, value: Any) -> int:
    """Parse a number: integer, decimal or hexadecimal text, MAC or IPv4 address. Raises InputError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        if re.fullmatch(_MAC, value):
            return int(value.replace(":", ""), 16)
        if re.fullmatch(_INTEGER, value):  # longer text is refused: int() raises above 4,300 decimal digits
            return int(value, 16 if value[:2].lower() == "0x" else 10)
        try:
            return int(ipaddress.IPv4Address(value))
        except ValueError:
            pass
    raise InputError(f"{place}: must be {_NUMBER}, not {json.dumps(value)[:100]}")


def _name_list(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "no field"
