"""P4Info of a program in p4c's form: the names and ids by which a P4Runtime controller uses its objects.

Ids follow p4c's rule, so that a controller with p4c's own file uses the same ids. The highest byte is the kind
of object. The rest is the value of ``@id``, or else Jenkins' one-at-a-time hash of the name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from finsy.proto import p4i

from fanin.base.errors import InputError
from fanin.sim.switch.embedded import Program, types
from fanin.sim.switch.embedded.description import ActionInfo, DigestInfo, ExternInfo, KeyInfo, TableInfo
from fanin.sim.switch.service.data import TypeSpecs, as_bytes

MATCHES = {
    "exact": p4i.MatchField.EXACT,
    "ternary": p4i.MatchField.TERNARY,
    "lpm": p4i.MatchField.LPM,
    "range": p4i.MatchField.RANGE,
    "optional": p4i.MatchField.OPTIONAL,
}
_UNITS = {
    "packets": p4i.CounterSpec.PACKETS,
    "bytes": p4i.CounterSpec.BYTES,
    "packets_and_bytes": p4i.CounterSpec.BOTH,
}
_METERS = {"packets": p4i.MeterSpec.PACKETS, "bytes": p4i.MeterSpec.BYTES}
#: For each kind of extern, of both architectures: P4Info's list, and the first byte of its ids.
_EXTERNS = {
    "register": ("registers", p4i.P4Ids.REGISTER),
    "Register": ("registers", p4i.P4Ids.REGISTER),
    "counter": ("counters", p4i.P4Ids.COUNTER),
    "Counter": ("counters", p4i.P4Ids.COUNTER),
    "direct_counter": ("direct_counters", p4i.P4Ids.DIRECT_COUNTER),
    "DirectCounter": ("direct_counters", p4i.P4Ids.DIRECT_COUNTER),
    "meter": ("meters", p4i.P4Ids.METER),
    "direct_meter": ("direct_meters", p4i.P4Ids.DIRECT_METER),
    "action_profile": ("action_profiles", p4i.P4Ids.ACTION_PROFILE),
    "action_selector": ("action_profiles", p4i.P4Ids.ACTION_PROFILE),
}


def p4info(program: Program) -> p4i.P4Info:
    """Return the P4Info of ``program``, without value sets and externs of the program's own."""
    return _Writer(program).write()


class _Writer:
    """Writes one P4Info."""

    def __init__(self, program: Program):
        self._program = program
        self._tables = {t.name: t.id for t in program.tables.values()}
        self._actions = {a.name: a.id for a in program.actions.values()}
        self._headers = {h.name: h.id for h in program.controller_headers}
        attached = {name for table in program.tables.values() for name in table.direct_externs}
        self._externs = {
            e.name: e
            for e in program.externs.values()
            if e.kind in _EXTERNS and (e.name in attached or not e.kind.lower().startswith("direct"))
        }
        self._ids: dict[int, dict[str, int]] = {
            p4i.P4Ids.TABLE: ids_of(p4i.P4Ids.TABLE, self._tables),
            p4i.P4Ids.ACTION: ids_of(p4i.P4Ids.ACTION, self._actions),
            p4i.P4Ids.CONTROLLER_HEADER: ids_of(p4i.P4Ids.CONTROLLER_HEADER, self._headers),
            p4i.P4Ids.DIGEST: ids_of(p4i.P4Ids.DIGEST, dict.fromkeys(program.digests)),
        }
        for prefix in sorted({prefix for _, prefix in _EXTERNS.values()}):
            explicit_ids = {e.name: e.id for e in self._externs.values() if _EXTERNS[e.kind][1] == prefix}
            self._ids[prefix] = ids_of(prefix, explicit_ids)
        self._aliases = aliases(name for ids in self._ids.values() for name in ids)
        self._result = p4i.P4Info(pkg_info=p4i.PkgInfo(arch=program.architecture))
        self._types = TypeSpecs(self._result.type_info, program.errors)

    def write(self) -> p4i.P4Info:
        """Return the whole P4Info."""
        for table in self._program.tables.values():
            self._table(table)
        for action in self._program.actions.values():
            self._action(action)
        for extern in self._externs.values():
            self._extern(extern)
        for header in self._program.controller_headers:
            message = self._result.controller_packet_metadata.add()
            self._preamble(message, p4i.P4Ids.CONTROLLER_HEADER, header.name)
            message.preamble.name = message.preamble.alias = header.kind  # as in p4c, whatever the type's name
            for number, field in _number_fields(header.fields):
                self._typed(message.metadata.add(id=number, name=field.name), field.type)
        for digest in self._program.digests.values():
            self._digest(digest)
        return self._result

    def _typed(self, message: Any, kind: types.Type) -> None:
        """Set the width of a key, parameter or metadata field, and its type's name if it has one."""
        message.bitwidth = self._types.width(kind)
        if isinstance(kind, types.New):
            message.type_name.name = kind.name

    def _digest(self, digest: DigestInfo) -> None:
        message = self._result.digests.add()
        self._preamble(message, p4i.P4Ids.DIGEST, digest.name)
        message.type_spec.CopyFrom(self._types.spec(digest.type))

    def _preamble(self, message: Any, prefix: int, name: str) -> None:
        message.preamble.id = self._ids[prefix][name]
        message.preamble.name = name
        message.preamble.alias = self._aliases[name]

    def _table(self, table: TableInfo) -> None:
        message = self._result.tables.add(size=table.size, is_const_table=table.constant)
        message.has_initial_entries = bool(table.rows)
        self._preamble(message, p4i.P4Ids.TABLE, table.name)
        for number, key in _number_fields(table.keys):
            field = message.match_fields.add(id=number, name=key.name, match_type=MATCHES[key.kind])
            self._typed(field, key.type)
            # A key whose type has no width for a controller has the key's; a named type of width 0 is a text.
            if not field.bitwidth and not field.HasField("type_name"):
                field.bitwidth = key.width
        if table.has_timeouts:
            message.idle_timeout_behavior = p4i.Table.NOTIFY_CONTROL
        actions = self._ids[p4i.P4Ids.ACTION]
        scopes = {"entries": p4i.ActionRef.TABLE_ONLY, "default": p4i.ActionRef.DEFAULT_ONLY}
        for name in table.actions:
            message.action_refs.add(
                id=actions[name],
                scope=scopes.get(table.limited_actions.get(name, ""), p4i.ActionRef.TABLE_AND_DEFAULT),
            )
        default, arguments = table.default
        if table.default_constant:
            message.const_default_action_id = actions[default]
        initial = message.initial_default_action
        initial.action_id = actions[default]
        action = table.actions[default]
        numbers = parameter_ids(action)
        for (name, width), value in zip(action.parameters.items(), arguments, strict=True):
            initial.arguments.add(param_id=numbers[name], value=as_bytes(int(value), width))
        if table.profile is not None:
            message.implementation_id = self._ids[p4i.P4Ids.ACTION_PROFILE][table.profile]
        for name in table.direct_externs:
            _, prefix = _EXTERNS[self._externs[name].kind]
            message.direct_resource_ids.append(self._ids[prefix][name])

    def _action(self, action: ActionInfo) -> None:
        message = self._result.actions.add()
        self._preamble(message, p4i.P4Ids.ACTION, action.name)
        numbers = parameter_ids(action)
        for name in action.parameters:
            self._typed(message.params.add(id=numbers[name], name=name), action.types[name])

    def _extern(self, extern: ExternInfo) -> None:
        list_name, prefix = _EXTERNS[extern.kind]
        message = getattr(self._result, list_name).add()
        self._preamble(message, prefix, extern.name)
        # Constructors differ in the order of their arguments. The first number is the size, the first name the
        # unit.
        size = next((a for a in extern.arguments if isinstance(a, int)), 0)
        unit = next((a for a in extern.arguments if isinstance(a, str)), "packets_and_bytes").lower()
        tables = [t for t in self._program.tables.values() if extern.name in (*t.direct_externs, t.profile)]
        numbers = [self._ids[p4i.P4Ids.TABLE][table.name] for table in tables]
        if list_name == "registers":
            message.size = size
            message.type_spec.CopyFrom(self._types.spec(extern.types[0]))
        elif list_name in ("counters", "direct_counters"):
            message.spec.unit = _UNITS.get(unit, p4i.CounterSpec.BOTH)
        elif list_name in ("meters", "direct_meters"):
            message.spec.unit = _METERS.get(unit, p4i.MeterSpec.UNSPECIFIED)
        if list_name in ("counters", "meters"):
            message.size = size
        elif list_name in ("direct_counters", "direct_meters"):
            message.direct_table_id = numbers[0] if numbers else 0
        elif list_name == "action_profiles":
            message.size = size
            message.table_ids.extend(numbers)
            if extern.kind == "action_selector":
                self._selector(message, extern.annotations)

    @staticmethod
    def _selector(message: p4i.ActionProfile, annotations: Mapping[str, str]) -> None:
        message.with_selector = True
        message.max_group_size = _annotation_number(annotations, "max_group_size")
        if annotations.get("selector_size_semantics") == "sum_of_members":
            message.sum_of_members.SetInParent()
            if "max_member_weight" in annotations:
                message.sum_of_members.max_member_weight = _annotation_number(annotations, "max_member_weight")
        elif "selector_size_semantics" in annotations:
            message.sum_of_weights.SetInParent()


def _annotation_number(annotations: Mapping[str, str], name: str) -> int:
    """Return an annotation's number, 0 without the annotation. Raises InputError."""
    text = annotations.get(name, "0")
    try:
        return int(text.rpartition("w")[2], 0)
    except ValueError:
        raise InputError(f"@{name}({text}): must be a number") from None


def _number_fields(fields: Iterable[KeyInfo]) -> Iterator[tuple[int, KeyInfo]]:
    fields = tuple(fields)
    return zip(_assign_numbers([field.id for field in fields]), fields, strict=True)


def parameter_ids(action: ActionInfo) -> dict[str, int]:
    """Return P4Info's ids of an action's parameters."""
    explicit_ids = [action.ids.get(name) for name in action.parameters]
    return dict(zip(action.parameters, _assign_numbers(explicit_ids), strict=True))


def _assign_numbers(explicit_ids: list[int | None]) -> list[int]:
    """Return p4c's ids of parameters or fields: the value of ``@id``, or else the next free position.

    As in p4c, an explicit id takes a position too: the ids of (a, @id(7) b, c) are 1, 7 and 3.
    """
    used = {number for number in explicit_ids if number is not None}
    numbers, position = [], 1
    for number in explicit_ids:
        if number is not None:
            position += 1
            numbers.append(number)
            continue
        while position in used:
            position += 1
        used.add(position)
        numbers.append(position)
    return numbers


def ids_of(prefix: int, names: Mapping[str, int | None]) -> dict[str, int]:
    """Return the ids of all objects of one kind; ``names`` holds the value of ``@id``, or None, for each."""
    ids = {
        name: prefix << 24 | explicit_id & 0xFFFFFF
        for name, explicit_id in names.items()
        if explicit_id is not None
    }
    used = set(ids.values())
    for name in sorted(names, key=str.encode):
        if name not in ids:
            hash_value = _hash(name.encode())
            while (candidate := prefix << 24 | hash_value & 0xFFFFFF) in used:
                hash_value += 1
            used.add(candidate)
            ids[name] = candidate
    return ids


def _hash(name: bytes) -> int:
    """Return Jenkins' one-at-a-time hash."""
    hash_value = 0
    for byte in name:
        hash_value = (hash_value + byte) * 1025 & 0xFFFFFFFF
        hash_value ^= hash_value >> 6
    hash_value = hash_value * 9 & 0xFFFFFFFF
    hash_value ^= hash_value >> 11
    return hash_value * 32769 & 0xFFFFFFFF


def aliases(names: Iterable[str]) -> dict[str, str]:
    """Return for each name its shortest end, in whole parts, that no other name has."""
    parts_of = {name: name.split(".") for name in names}
    ends = Counter(tuple(p[i:]) for p in parts_of.values() for i in range(len(p)))
    shortest = {}
    for name, name_parts in parts_of.items():
        begin = next((i for i in range(len(name_parts) - 1, -1, -1) if ends[tuple(name_parts[i:])] == 1), 0)
        shortest[name] = ".".join(name_parts[begin:])
    return shortest
