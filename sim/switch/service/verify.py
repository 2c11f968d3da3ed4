"""Checks of a controller's P4Info against the program's own, for each field that the server uses.

The front does these checks, so that a large P4Info costs the forwarding process no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from finsy.proto import p4i

from fanin.sim.switch.service.faults import Fault, invalid

#: Lists of P4Info's objects, without the headers between switch and controller.
LISTS = (
    "tables", "actions", "counters", "direct_counters", "registers", "meters", "direct_meters",
    "action_profiles", "digests",
)  # fmt: skip
_HEADERS = "controller_packet_metadata"
#: By list: the property of an object that must equal the program's, and a function that reads it.
_COMPARED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "tables": ("keys of table", lambda table: [(f.name, f.bitwidth, f.match_type) for f in table.match_fields]),
    "actions": ("parameters of", lambda action: [(p.name, p.bitwidth) for p in action.params]),
    "counters": ("cells of", lambda counter: counter.size),
    "registers": ("cells of", lambda register: register.size),
    "meters": ("cells of", lambda meter: meter.size),
    _HEADERS: ("metadata of", lambda header: [(f.name, f.bitwidth) for f in header.metadata]),
}
#: By list: the numbered parts of an object.
_PARTS = {"tables": "match_fields", "actions": "params", _HEADERS: "metadata"}


#: Fields of P4Info's messages that no check and no call reads.
_DOCUMENTATION = ("annotations", "annotation_locations", "structured_annotations", "doc", "type_spec")


def bare_p4info(info: p4i.P4Info) -> p4i.P4Info:
    """Remove documentation and types, which no call reads, from ``info``; return a copy of the rest."""
    info.DiscardUnknownFields()
    copy = p4i.P4Info()
    for kind in (*LISTS, _HEADERS):
        for message in getattr(info, kind):
            _strip(message)
        getattr(copy, kind).extend(getattr(info, kind))
    return copy


def _strip(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name in _DOCUMENTATION:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                _strip(part)


class Verifier:
    """Checks a controller's P4Info against ``program_info``, the P4Info of the program named ``program``."""

    def __init__(self, program_info: p4i.P4Info, program: str):
        self._program = program
        self._program_objects = {
            kind: {message.preamble.name: message for message in getattr(program_info, kind)}
            for kind in (*LISTS, _HEADERS)
        }
        actions = {action.preamble.id: action.preamble.name for action in program_info.actions}
        profiles = {profile.preamble.id: profile.preamble.name for profile in program_info.action_profiles}
        self._actions = {
            table.preamble.name: {actions[ref.id] for ref in table.action_refs} for table in program_info.tables
        }
        self._profiles = {
            table.preamble.name: profiles.get(table.implementation_id) for table in program_info.tables
        }
        tables = {table.preamble.id: table.preamble.name for table in program_info.tables}
        self._direct = {
            resource.preamble.name: tables[resource.direct_table_id]
            for resource in (*program_info.direct_counters, *program_info.direct_meters)
            if resource.direct_table_id in tables
        }

    def check(self, info: p4i.P4Info) -> None:
        """Raise Fault if ``info`` is not P4Info of the program, in the fields that the server uses."""
        for kind in (*LISTS, _HEADERS):
            messages = getattr(info, kind)
            _check_distinct(kind, messages)
            for message in messages:
                self._check_object(kind, message)
        for table in info.tables:
            self._check_table(info, table)
        self._check_direct(info)
        self._check_profiles(info)

    def _check_object(self, kind: str, message: Any) -> None:
        """Raise Fault if an object differs from the program's, or two of its parts have one id."""
        name = message.preamble.name
        if kind in _PARTS:
            _check_ids(f"a part of {name}", [part.id for part in getattr(message, _PARTS[kind])])
        original = self._program_objects[kind].get(name)
        if original is not None:
            property_name, property_of = _COMPARED.get(kind, ("", lambda message: None))
            if property_of(message) != property_of(original):
                raise self._mismatch(f"the {property_name} {name}")
        elif kind != "actions":  # p4c also lists actions that no table uses
            raise invalid(f"P4Info: the program {self._program} has no {name} in {kind}")

    def _check_table(self, info: p4i.P4Info, table: p4i.Table) -> None:
        """Raise Fault if a table refers to other actions or profiles than the program's table."""
        name = table.preamble.name
        program_actions = self._actions[name]
        actions = {action.preamble.id: action.preamble.name for action in info.actions}
        missing_actions = sorted(program_actions - set(actions.values()))
        if missing_actions:
            raise invalid(f"P4Info: it has table {name}, but not its action {missing_actions[0]}")
        _check_ids(f"an action of table {name}", [ref.id for ref in table.action_refs])
        for ref in table.action_refs:
            if actions.get(ref.id) not in program_actions:
                raise invalid(f"P4Info: table {name} has no action with the id {ref.id}")
            if ref.scope not in p4i.ActionRef.Scope.values():
                raise invalid(f"P4Info: table {name}: {ref.scope} is no scope of an action")
        profiles = {profile.preamble.id: profile.preamble.name for profile in info.action_profiles}
        profile = profiles.get(table.implementation_id)
        if profile != self._profiles[name] or bool(table.implementation_id) != bool(profile):
            raise self._mismatch(f"the action profile of table {name}")

    def _check_direct(self, info: p4i.P4Info) -> None:
        """Raise Fault if a direct counter or meter does not belong to its table."""
        tables = {table.preamble.id: table.preamble.name for table in info.tables}
        for resource in (*info.direct_counters, *info.direct_meters):
            table = tables.get(resource.direct_table_id)
            if table is None or self._direct.get(resource.preamble.name) != table:
                raise self._mismatch(f"the table of {resource.preamble.name}")

    def _check_profiles(self, info: p4i.P4Info) -> None:
        """Raise Fault if an action profile does not belong to its tables, or has a limit below 0."""
        tables = {table.preamble.id: table.preamble.name for table in info.tables}
        for profile in info.action_profiles:
            name = profile.preamble.name
            if any(self._profiles.get(tables.get(number, "")) != name for number in profile.table_ids):
                raise self._mismatch(f"the tables of {name}")
            if min(profile.max_group_size, profile.sum_of_members.max_member_weight) < 0:
                raise invalid(f"P4Info: {name} has a size or a weight below 0")

    def _mismatch(self, subject: str) -> Fault:
        return invalid(f"P4Info: {subject} must be as in {self._program}")


def _check_distinct(kind: str, messages: Iterable[Any]) -> None:
    """Raise Fault if an object has no id, or the id or name of another one."""
    names_by_id: dict[int, str] = {}
    names: set[str] = set()
    for message in messages:
        number, name = message.preamble.id, message.preamble.name
        if not number:
            raise invalid(f"P4Info: {name} of {kind} has the id 0")
        if number in names_by_id:
            raise invalid(f"P4Info: {names_by_id[number]} and {name} of {kind} have one id, {number}")
        if name in names:
            raise invalid(f"P4Info: {name} of {kind} appears twice")
        names_by_id[number] = name
        names.add(name)


def _check_ids(subject: str, numbers: list[int]) -> None:
    """Raise Fault unless ids of parts are distinct, and none of them is 0."""
    if 0 in numbers:
        raise invalid(f"P4Info: {subject} has the id 0")
    duplicate = next((number for number, count in Counter(numbers).items() if count > 1), None)
    if duplicate is not None:
        raise invalid(f"P4Info: {subject} has the id {duplicate}, which another one has as well")
