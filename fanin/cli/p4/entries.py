"""Installation of table entries, multicast groups and clone sessions from a JSON file in a switch."""

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

_MATCHES = (Exact, Ternary, Lpm, Range)
_NUMBER = "a number, or as text hexadecimal (0x88b5), a MAC address (02:00:00:00:00:01) or IPv4 (10.0.0.1)"
_MAX_BYTES = 16 << 20  # of the file
MAX_REPLICAS = 1 << 10  # of a group or session
_SESSION_BITS = 32  # of v1model's clone
_MAC = r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"


def install_entries(switch: Switch, path: Path) -> None:
    """Install the set-up of a control plane: groups and clone sessions, then entries.

    Raises InputError that names the file, the item, the field and valid values.
    """
    items = {f"{path}: item {number}": item for number, item in enumerate(_items(path))}
    sessions = {place: _session(place, item) for place, item in items.items() if "session" in item}
    groups = {p: _group(p, item) for p, item in items.items() if "replicas" in item and p not in sessions}
    entries = {p: _entry(p, item) for p, item in items.items() if "replicas" not in item and p not in sessions}
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
    session: int
    replicas: tuple[Replica, ...]


def _check_distinct(field: str, kind: str, numbers: Mapping[str, int]) -> None:
    """Raise InputError if two items of a kind have the same number. ``numbers``: by place."""
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
        _object(f"{path}: item {number}", item)
    return items


def _entry(place: str, item: Mapping[str, Any]) -> TableEntry:
    _fields(place, item, TableEntry)
    match = _object(f"{place}: match", item["match"])
    parameters = _object(f"{place}: parameters", item.get("parameters", {}))
    return TableEntry(
        table=_text(place, item, "table"),
        match={name: _match(f"{place}: match: {name}", fields) for name, fields in match.items()},
        action=_text(place, item, "action"),
        parameters={name: _number(f"{place}: parameters: {name}", v) for name, v in parameters.items()},
        priority=_number(f"{place}: priority", item.get("priority", 0)),
    )


def _group(place: str, item: Mapping[str, Any]) -> MulticastGroup:
    _fields(place, item, MulticastGroup)
    return MulticastGroup(_number(f"{place}: id", item["id"]), _replicas(place, item))


def _session(place: str, item: Mapping[str, Any]) -> _Session:
    _fields(place, item, _Session)
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
        _fields(replica_place, _object(replica_place, replica), Replica)
        parsed = Replica(**{name: _number(f"{replica_place}: {name}", v) for name, v in replica.items()})
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


def _fields(place: str, item: Mapping[str, Any], kind: Any) -> None:
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


def _object(place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{place}: must be an object, not {json.dumps(value)}")
    return value


def _text(place: str, item: Mapping[str, Any], name: str) -> str:
    if not isinstance(item[name], str):
        raise InputError(f"{place}: {name}: must be a name, not {json.dumps(item[name])}")
    return str(item[name])


def _number(place: str, value: Any) -> int:
    """Parse a number: integer, decimal or hexadecimal text, MAC or IPv4 address. Raises InputError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        if re.fullmatch(_MAC, value):
            return int(value.replace(":", ""), 16)
        # At most 8,192 bits, as in P4; Python converts no text of more than 4,300 digits.
        if re.fullmatch(r"0[xX][0-9a-fA-F]{1,2048}|[0-9]{1,2467}", value):
            return int(value, 16 if value[:2].lower() == "0x" else 10)
        try:
            return int(ipaddress.IPv4Address(value))
        except ValueError:
            pass
    raise InputError(f"{place}: must be {_NUMBER}, not {json.dumps(value)[:100]}")


def _name_list(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "no field"
