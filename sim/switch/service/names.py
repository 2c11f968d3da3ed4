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
from fanin.sim.switch.service.faults import Fault, invalid, unimplemented, unknown
from fanin.sim.switch.service.verify import LISTS


class Names:
    """Objects of a P4Info by their ids and names; the P4Info is already checked against the program."""

    def __init__(self, info: p4i.P4Info):
        self.info = info
        self.tables = {message.preamble.id: message for message in info.tables}
        self.actions = {message.preamble.id: message for message in info.actions}
        self._actions_by_name = {message.preamble.name: message for message in info.actions}
        self._externs = {
            kind: {message.preamble.id: message for message in getattr(info, kind)} for kind in LISTS[2:]
        }

    def table(self, number: int) -> Any:
        """Return the P4Info of the table with the id ``number``. Raises Fault."""
        if number not in self.tables:
            raise unknown(f"there is no table with the id {number}")
        return self.tables[number]

    def action(self, number: int) -> str:
        """Return the name of the action with the id ``number``. Raises Fault."""
        if number not in self.actions:
            raise unknown(f"there is no action with the id {number}")
        return str(self.actions[number].preamble.name)

    def extern(self, kind: str, number: int) -> Any:
        """Return the P4Info of an extern; ``kind`` is the name of P4Info's list. Raises Fault."""
        if number not in self._externs[kind]:
            raise unknown(f"there is nothing of {kind} with the id {number}")
        return self._externs[kind][number]

    def externs(self, kind: str) -> list[Any]:
        """Return the P4Info of all externs of a kind."""
        return list(self._externs[kind].values())

    def select_externs(self, kind: str, number: int) -> list[Any]:
        """Return the P4Info of the extern with the id ``number``, of all of the kind if 0. Raises Fault."""
        return [self.extern(kind, number)] if number else self.externs(kind)

    def decode_entry(self, entry: p4r.TableEntry) -> TableEntry:
        """Return key and priority of a controller's entry, without its action. Raises Fault."""
        table = self.table(entry.table_id)
        if entry.priority < 0:
            raise invalid(f"table {table.preamble.name}: priority {entry.priority}")
        return TableEntry(table.preamble.name, self._decode_match(table, entry.match), "", {}, entry.priority)

    def _decode_match(self, table: p4i.Table, matches: Any) -> dict[str, Match]:
        fields = {field.id: field for field in table.match_fields}
        decoded: dict[str, Match] = {}
        for message in matches:
            if message.field_id not in fields:
                raise invalid(f"table {table.preamble.name} has no key with the id {message.field_id}")
            field = fields[message.field_id]
            kind = message.WhichOneof("field_match_type")
            if kind != p4i.MatchField.MatchType.Name(field.match_type).lower() or field.name in decoded:
                raise invalid(f"table {table.preamble.name}: {field.name} is matched {kind}, or twice")
            decoded[field.name] = _decode_field(
                getattr(message, kind), field, f"{table.preamble.name}: {field.name}"
            )
        return decoded

    def decode_call(
        self, table: p4i.Table, message: p4r.Action, *, default: bool = False
    ) -> tuple[str, dict[str, int]]:
        """Return name and parameters of an entry's action, or of a default action. Raises Fault."""
        allowed = {ref.id: ref.scope for ref in table.action_refs}
        if message.action_id not in allowed or message.action_id not in self.actions:
            raise invalid(f"table {table.preamble.name} has no action with the id {message.action_id}")
        action = self.actions[message.action_id]
        excluded_scope = p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY
        if allowed[message.action_id] == excluded_scope:
            holder = "an entry's" if default else "the default"
            raise Fault(
                rpc_code.PERMISSION_DENIED,
                f"table {table.preamble.name}: {action.preamble.name} is {holder} action only",
            )
        params = {param.id: param for param in action.params}
        parameters: dict[str, int] = {}
        for argument in message.params:
            if argument.param_id not in params:
                raise invalid(f"action {action.preamble.name} has no parameter with the id {argument.param_id}")
            param = params[argument.param_id]
            if param.name in parameters:
                raise invalid(f"action {action.preamble.name}: {param.name} is given twice")
            parameters[param.name] = _number(argument.value, param, f"{action.preamble.name}: {param.name}")
        return action.preamble.name, parameters

    def encode_entry(self, entry: TableEntry) -> p4r.TableEntry:
        """Return key and priority of an entry in a controller's form, without its action."""
        table = next(t for t in self.tables.values() if t.preamble.name == entry.table)
        message = p4r.TableEntry(table_id=table.preamble.id, priority=entry.priority)
        for field in table.match_fields:
            if field.name in entry.match:
                _encode_match(message.match.add(field_id=field.id), entry.match[field.name], field)
        return message

    def encode_call(self, name: str, parameters: Mapping[str, int]) -> p4r.Action:
        """Return an action with its parameters in a controller's form."""
        action = self._actions_by_name[name]
        params = [
            p4r.Action.Param(param_id=param.id, value=as_bytes(parameters[param.name], param.bitwidth))
            for param in action.params
        ]
        return p4r.Action(action_id=action.preamble.id, params=params)


def _encode_match(message: Any, match: Match, field: p4i.MatchField) -> None:
    width = field.bitwidth
    match match:
        case Exact(value) if field.match_type == p4i.MatchField.OPTIONAL:
            message.optional.value = as_bytes(value, width)
        case Exact(value):
            message.exact.value = as_bytes(value, width)
        case Ternary(value, mask):
            message.ternary.value, message.ternary.mask = as_bytes(value, width), as_bytes(mask, width)
        case Lpm(value, length):
            message.lpm.value, message.lpm.prefix_len = as_bytes(value, width), length
        case Range(low, high):
            message.range.low, message.range.high = as_bytes(low, width), as_bytes(high, width)


def _decode_field(message: Any, field: p4i.MatchField, subject: str) -> Match:
    """Return a match in the only form that the specification allows. Raises Fault."""
    read = functools.partial(_number, field=field, subject=subject)
    all_ones = (1 << field.bitwidth) - 1
    match: Match
    if field.match_type in (p4i.MatchField.EXACT, p4i.MatchField.OPTIONAL):
        return Exact(read(message.value))
    if field.match_type == p4i.MatchField.TERNARY:
        match = Ternary(read(message.value), read(message.mask))
        matches_all, unmatched_bits = not match.mask, match.value & ~match.mask
    elif field.match_type == p4i.MatchField.LPM:
        match = Lpm(read(message.value), message.prefix_len)
        if not 0 <= match.length <= field.bitwidth:
            raise invalid(f"{subject}: a prefix of {match.length} bits, of {field.bitwidth}")
        matches_all, unmatched_bits = not match.length, match.value & all_ones >> match.length
    else:
        match = Range(read(message.low), read(message.high))
        matches_all, unmatched_bits = (match.low, match.high) == (0, all_ones), 0
    if matches_all:
        raise invalid(f"{subject}: it matches anything; such a match is left out")
    if unmatched_bits:
        raise invalid(f"{subject}: the value has bits that are not matched")
    return match


def _number(value: bytes, field: Any, subject: str) -> int:
    """Return the number for a key or a parameter. Raises Fault."""
    if not field.bitwidth:
        raise unimplemented(f"{subject}: a value that controllers know as a text")
    return number_in(value, field.bitwidth, subject)
