"""Between P4Runtime's ids and bytes and the names and numbers of :mod:`fanin.p4.control`.

The ids are those of the P4Info that the controller gave; names join it to the program.
"""

from __future__ import annotations

from typing import Any

from finsy.proto import p4i, p4r, rpc_code

from fanin.p4.control import Exact, Lpm, Match, Range, TableEntry, Ternary
from fanin.sim.switch.embedded import Program
from fanin.sim.switch.service.faults import Fault, invalid, missing, unknown
from fanin.sim.switch.service.p4info import as_bytes, p4info

_LISTS = ("tables", "actions", "counters", "direct_counters", "registers", "meters", "direct_meters")


class Names:
    """A P4Info beside its program. Raises Fault where they do not speak of the same objects."""

    def __init__(self, program: Program, info: p4i.P4Info):
        self.info = info
        own = p4info(program)
        for kind in _LISTS:
            known = {message.preamble.name: message for message in getattr(own, kind)}
            for message in getattr(info, kind):
                name = message.preamble.name
                if name not in known and kind != "actions":  # p4c lists actions that no table has
                    raise invalid(f"P4Info: the program {program.name} has nothing of {kind} called {name}")
                if kind == "tables" and _shape(message) != _shape(known[name]):
                    raise invalid(f"P4Info: the keys of table {name} are others than {program.name} has")
                if kind == "actions" and name in known and _widths(message) != _widths(known[name]):
                    raise invalid(f"P4Info: the parameters of {name} are others than {program.name} has")
        offered = {message.preamble.name for message in info.actions}
        for table in info.tables:
            missed = sorted(set(program.tables[table.preamble.name].actions) - offered)
            if missed:
                raise invalid(f"P4Info: it has table {table.preamble.name}, but not its action {missed[0]}")
        self.tables = {message.preamble.id: message for message in info.tables}
        self.actions = {message.preamble.id: message for message in info.actions}
        self._action_ids = {message.preamble.name: message for message in info.actions}
        self._others = {
            kind: {message.preamble.id: message for message in getattr(info, kind)} for kind in _LISTS[2:]
        }

    def table(self, number: int) -> Any:
        """A table's P4Info."""
        if number not in self.tables:
            raise unknown(f"there is no table with the id {number}")
        return self.tables[number]

    def other(self, kind: str, number: int) -> Any:
        """P4Info of an extern, ``kind`` being P4Info's list."""
        if number not in self._others[kind]:
            raise unknown(f"there is nothing of {kind} with the id {number}")
        return self._others[kind][number]

    def all_of(self, kind: str) -> list[Any]:
        """P4Info of all externs of a kind."""
        return list(self._others[kind].values())

    def decoded(self, entry: p4r.TableEntry) -> TableEntry:
        """What a controller wrote, an action left out as none. Raises Fault."""
        table = self.table(entry.table_id)
        if entry.idle_timeout_ns:
            raise missing(f"table {table.preamble.name}: idle timeouts are not implemented")
        match = self._decoded_match(table, entry.match)
        action, parameters = self._decoded_action(table, entry) if entry.HasField("action") else ("", {})
        return TableEntry(table.preamble.name, match, action, parameters, entry.priority)

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
            found = getattr(item, kind)
            if kind in ("exact", "optional"):
                match[field.name] = Exact(_number(found.value))
            elif kind == "ternary":
                match[field.name] = Ternary(_number(found.value), _number(found.mask))
            elif kind == "lpm":
                match[field.name] = Lpm(_number(found.value), found.prefix_len)
            else:
                match[field.name] = Range(_number(found.low), _number(found.high))
        return match

    def _decoded_action(self, table: p4i.Table, entry: p4r.TableEntry) -> tuple[str, dict[str, int]]:
        kind = entry.action.WhichOneof("type")
        if kind != "action":
            raise missing(f"table {table.preamble.name}: {kind}: action profiles are not implemented")
        given = entry.action.action
        allowed = {ref.id: ref.scope for ref in table.action_refs}
        if given.action_id not in allowed or given.action_id not in self.actions:
            raise invalid(f"table {table.preamble.name} has no action with the id {given.action_id}")
        action = self.actions[given.action_id]
        other = p4i.ActionRef.TABLE_ONLY if entry.is_default_action else p4i.ActionRef.DEFAULT_ONLY
        if allowed[given.action_id] == other:
            where = "an entry's" if entry.is_default_action else "the default"
            raise Fault(
                rpc_code.PERMISSION_DENIED,
                f"table {table.preamble.name}: {action.preamble.name} is {where} action only",
            )
        names = {param.id: param.name for param in action.params}
        parameters = {}
        for param in given.params:
            if param.param_id not in names:
                raise invalid(f"action {action.preamble.name} has no parameter with the id {param.param_id}")
            parameters[names[param.param_id]] = _number(param.value)
        return action.preamble.name, parameters

    def encoded(self, entry: TableEntry) -> p4r.TableEntry:
        """The same for a controller that reads."""
        table = next(t for t in self.tables.values() if t.preamble.name == entry.table)
        result = p4r.TableEntry(table_id=table.preamble.id, priority=entry.priority)
        for field in table.match_fields:
            if field.name in entry.match:
                _encode_match(result.match.add(field_id=field.id), entry.match[field.name], field)
        action = self._action_ids[entry.action]
        result.action.action.action_id = action.preamble.id
        for param in action.params:
            value = as_bytes(entry.parameters[param.name], param.bitwidth)
            result.action.action.params.add(param_id=param.id, value=value)
        return result


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


def _number(value: bytes) -> int:
    if not value:
        raise invalid("a value of no bytes")
    return int.from_bytes(value, "big")


def _shape(table: p4i.Table) -> list[tuple[str, int, int]]:
    return [(field.name, field.bitwidth, field.match_type) for field in table.match_fields]


def _widths(action: p4i.Action) -> list[tuple[str, int]]:
    return [(param.name, param.bitwidth) for param in action.params]
