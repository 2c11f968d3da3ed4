"""Checks of a controller's P4Info against the program: each field that the server uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from finsy.proto import p4i

from fanin.sim.switch.embedded import Program
from fanin.sim.switch.service.faults import Fault, invalid
from fanin.sim.switch.service.p4info import p4info

#: Lists of P4Info's objects, without the headers between switch and controller.
LISTS = (
    "tables", "actions", "counters", "direct_counters", "registers", "meters", "direct_meters",
    "action_profiles", "digests",
)  # fmt: skip
_HEADERS = "controller_packet_metadata"
#: By list: what of an object must be the program's, and how it is found.
_SAME: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "tables": ("keys of table", lambda table: [(f.name, f.bitwidth, f.match_type) for f in table.match_fields]),
    "actions": ("parameters of", lambda action: [(p.name, p.bitwidth) for p in action.params]),
    "counters": ("cells of", lambda counter: counter.size),
    "registers": ("cells of", lambda register: register.size),
    "meters": ("cells of", lambda meter: meter.size),
    _HEADERS: ("metadata of", lambda header: [(f.name, f.bitwidth) for f in header.metadata]),
}
#: By list: the numbered parts of an object.
_PARTS = {"tables": "match_fields", "actions": "params", _HEADERS: "metadata"}


def check_p4info(program: Program, info: p4i.P4Info) -> None:
    """Raise Fault where ``info`` is not P4Info of ``program``, as far as the server uses it."""
    own = p4info(program)
    for kind in (*LISTS, _HEADERS):
        messages = getattr(info, kind)
        _check_distinct(kind, messages)
        known = {message.preamble.name: message for message in getattr(own, kind)}
        for message in messages:
            name = message.preamble.name
            if kind in _PARTS:
                _check_ids(f"a part of {name}", [part.id for part in getattr(message, _PARTS[kind])])
            if name in known:
                what, found = _SAME.get(kind, ("", lambda message: None))
                if found(message) != found(known[name]):
                    raise _others(program, f"the {what} {name}")
            elif kind != "actions":  # p4c lists actions that no table has
                raise invalid(f"P4Info: the program {program.name} has nothing of {kind} called {name}")
    for table in info.tables:
        _check_table(program, info, table)
    _check_direct(program, info)
    _check_profiles(program, info)


def _check_table(program: Program, info: p4i.P4Info, table: p4i.Table) -> None:
    """Raise Fault where a table's references are not to the program's actions and action profile."""
    name = table.preamble.name
    own = program.tables[name]
    actions = {action.preamble.id: action.preamble.name for action in info.actions}
    missed = sorted(set(own.actions) - set(actions.values()))
    if missed:
        raise invalid(f"P4Info: it has table {name}, but not its action {missed[0]}")
    _check_ids(f"an action of table {name}", [ref.id for ref in table.action_refs])
    for ref in table.action_refs:
        if actions.get(ref.id) not in own.actions:
            raise invalid(f"P4Info: table {name} has no action with the id {ref.id}")
        if ref.scope not in p4i.ActionRef.Scope.values():
            raise invalid(f"P4Info: table {name}: {ref.scope} is no scope of an action")
    profiles = {profile.preamble.id: profile.preamble.name for profile in info.action_profiles}
    if profiles.get(table.implementation_id) != own.profile or bool(table.implementation_id) != bool(
        own.profile
    ):
        raise _others(program, f"the action profile of table {name}")


def _check_direct(program: Program, info: p4i.P4Info) -> None:
    """Raise Fault where a direct counter or meter is not of its table."""
    tables = {table.preamble.id: program.tables[table.preamble.name] for table in info.tables}
    for resource in (*info.direct_counters, *info.direct_meters):
        table = tables.get(resource.direct_table_id)
        if table is None or resource.preamble.name not in table.attached:
            raise _others(program, f"the table of {resource.preamble.name}")


def _check_profiles(program: Program, info: p4i.P4Info) -> None:
    """Raise Fault where an action profile is not of its tables, or has a limit below 0."""
    tables = {table.preamble.id: program.tables[table.preamble.name] for table in info.tables}
    for profile in info.action_profiles:
        name = profile.preamble.name
        if any(number not in tables or tables[number].profile != name for number in profile.table_ids):
            raise _others(program, f"the tables of {name}")
        if min(profile.max_group_size, profile.sum_of_members.max_member_weight) < 0:
            raise invalid(f"P4Info: {name} has a size or a weight below 0")


def _check_distinct(kind: str, messages: Iterable[Any]) -> None:
    """Raise Fault where an object has no id, or the id or the name of another one."""
    seen: dict[int, str] = {}
    for message in messages:
        number, name = message.preamble.id, message.preamble.name
        if not number:
            raise invalid(f"P4Info: {name} of {kind} has the id 0")
        if number in seen:
            raise invalid(f"P4Info: {seen[number]} and {name} of {kind} have one id, {number}")
        if name in seen.values():
            raise invalid(f"P4Info: {name} of {kind} is in it twice")
        seen[number] = name


def _check_ids(what: str, numbers: list[int]) -> None:
    """Raise Fault unless ids of parts are distinct, and none of them is 0."""
    if 0 in numbers:
        raise invalid(f"P4Info: {what} has the id 0")
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise invalid(f"P4Info: {what} has the id {twice}, as another one has")


def _others(program: Program, what: str) -> Fault:
    return invalid(f"P4Info: {what} are others than {program.name} has")
