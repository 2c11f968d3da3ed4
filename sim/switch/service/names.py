"""Translation between P4Runtime's ids and bytes and the names and numbers of :mod:`fanin.p4.control`.

The ids are those of the controller's P4Info; names connect it to the program.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from finsy.proto import p4i, p4r, rpc_code

from fanin.p4.control import Exact, Lpm, Match, Range, TableEntry, Ternary
from fanin.sim.switch.service.data import as_bytes, number_in
from fanin.sim.switch.service.faults import Fault, invalid, missing, unknown
from fanin.sim.switch.service.verify import LISTS


class Names:
    """Objects of a P4Info by their ids and names; the P4Info is already checked against the program."""

    def __init__(self, info: p4i.P4Info):
        self.info = info
        self.tables = {message.preamble.id: message for message in info.tables}
        self.actions = {message.preamble.id: message for message in info.actions}
        self._action_ids = {message.preamble.name: message for message in info.actions}
        self._others = {
            kind: {message.preamble.id: message for message in getattr(info, kind)} for kind in LISTS[2:]
        }

    def table(self, number: int) -> Any:
        """Return a table's P4Info."""
        if number not in self.tables:
            raise unknown(f"there is no table with the id {number}")
        return self.tables[number]

    def action(self, number: int) -> str:
        """Return an action's name."""
        if number not in self.actions:
            raise unknown(f"there is no action with the id {number}")
        return str(self.actions[number].preamble.name)

    def other(self, kind: str, number: int) -> Any:
        """Return the P4Info of an extern; ``kind`` is the name of P4Info's list."""
        if number not in self._others[kind]:
            raise unknown(f"there is nothing of {kind} with the id {number}")
        return self._others[kind][number]

    def all_of(self, kind: str) -> list[Any]:
        """Return the P4Info of all externs of a kind."""
        return list(self._others[kind].values())

    def wanted(self, kind: str, number: int) -> list[Any]:
        """Return the P4Info of the externs of a read: one, or with id 0 all of a kind. Raises Fault."""
        return [self.other(kind, number)] if number else self.all_of(kind)

    def decoded(self, entry: p4r.TableEntry) -> TableEntry:
        """Return key and priority of a controller's entry, without its action. Raises Fault."""
        table = self.table(entry.table_id)
        if entry.priority < 0:
            raise invalid(f"table {table.preamble.name}: priority {entry.priority}")
        return TableEntry(table.preamble.name, self._decoded_match(table, entry.match), "", {}, entry.priority)

    def _decoded_match(self, table: p4i.Table, given: Any) -> dict[str, Match]:
        fields = {field.id: field for field in table.match_fields}
        match: dict[str, Match] = {}
        for item in given:
            if item.field_id not in fields:
                raise invalid(f"table {table.preamble.name} has no key with the id {item.field_id}")
            field = fields[item.field_id]
            kind = item.WhichOneof("field_match_type")
            if kind != p4i.MatchField.MatchType.Name(field.match_type).lower() or field.name in match:
                raise invalid(f"table {table.preamble.name}: {field.name} is matched {kind}, or twice")
            match[field.name] = _decoded_field(
                getattr(item, kind), field, f"{table.preamble.name}: {field.name}"
            )
        return match

    def call(self, table: p4i.Table, given: p4r.Action, *, default: bool = False) -> tuple[str, dict[str, int]]:
        """Return name and parameters of an entry's action, or of a default action. Raises Fault."""
        allowed = {ref.id: ref.scope for ref in table.action_refs}
        if given.action_id not in allowed or given.action_id not in self.actions:
            raise invalid(f"table {table.preamble.name} has no action with the id {given.action_id}")
        action = self.actions[given.action_id]
        other = p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY
        if allowed[given.action_id] == other:
            where = "an entry's" if default else "the default"
            raise Fault(
                rpc_code.PERMISSION_DENIED,
                f"table {table.preamble.name}: {action.preamble.name} is {where} action only",
            )
        params = {param.id: param for param in action.params}
        parameters: dict[str, int] = {}
        for item in given.params:
            if item.param_id not in params:
                raise invalid(f"action {action.preamble.name} has no parameter with the id {item.param_id}")
            param = params[item.param_id]
            if param.name in parameters:
                raise invalid(f"action {action.preamble.name}: {param.name} is given twice")
            parameters[param.name] = _number(item.value, param, f"{action.preamble.name}: {param.name}")
        return action.preamble.name, parameters

    def encoded(self, entry: TableEntry) -> p4r.TableEntry:
        """Return key and priority of an entry, for a controller that reads."""
        table = next(t for t in self.tables.values() if t.preamble.name == entry.table)
        result = p4r.TableEntry(table_id=table.preamble.id, priority=entry.priority)
        for field in table.match_fields:
            if field.name in entry.match:
                _encode_match(result.match.add(field_id=field.id), entry.match[field.name], field)
        return result

    def encoded_call(self, name: str, parameters: Mapping[str, int]) -> p4r.Action:
        """Return an action with its parameters."""
        action = self._action_ids[name]
        params = [
            p4r.Action.Param(param_id=param.id, value=as_bytes(parameters[param.name], param.bitwidth))
            for param in action.params
        ]
        return p4r.Action(action_id=action.preamble.id, params=params)


def _encode_match(item: Any, match: Match, field: p4i.MatchField) -> None:
    width = field.bitwidth
    match match:
        case Exact(value) if field.match_type == p4i.MatchField.OPTIONAL:
            item.optional.value = as_bytes(value, width)
        case Exact(value):
            item.exact.value = as_bytes(value, width)
        case Ternary(value, mask):
            item.ternary.value, item.ternary.mask = as_bytes(value, width), as_bytes(mask, width)
        case Lpm(value, length):
            item.lpm.value, item.lpm.prefix_len = as_bytes(value, width), length
        case Range(low, high):
            item.range.low, item.range.high = as_bytes(low, width), as_bytes(high, width)


def _decoded_field(found: Any, field: p4i.MatchField, what: str) -> Match:
    """Return a match in the only form that the specification allows. Raises Fault."""
    read = functools.partial(_number, of=field, what=what)
    full = (1 << field.bitwidth) - 1
    match: Match
    if field.match_type in (p4i.MatchField.EXACT, p4i.MatchField.OPTIONAL):
        return Exact(read(found.value))
    if field.match_type == p4i.MatchField.TERNARY:
        match = Ternary(read(found.value), read(found.mask))
        any_value, beyond = not match.mask, match.value & ~match.mask
    elif field.match_type == p4i.MatchField.LPM:
        match = Lpm(read(found.value), found.prefix_len)
        if not 0 <= match.length <= field.bitwidth:
            raise invalid(f"{what}: a prefix of {match.length} bits, of {field.bitwidth}")
        any_value, beyond = not match.length, match.value & full >> match.length
    else:
        match = Range(read(found.low), read(found.high))
        any_value, beyond = (match.low, match.high) == (0, full), 0
    if any_value:
        raise invalid(f"{what}: it matches anything; such a match is left out")
    if beyond:
        raise invalid(f"{what}: the value has bits that are not matched")
    return match


def _number(value: bytes, of: Any, what: str) -> int:
    """Return the number for a key or a parameter. Raises Fault."""
    if not of.bitwidth:
        raise missing(f"{what}: a value that controllers know as a text")
    return number_in(value, of.bitwidth, what)
