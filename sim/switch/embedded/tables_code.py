"""Code of a table: the function that applies it, and its description for the control plane."""

from __future__ import annotations

from typing import Any

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.calls import Callee
from fanin.sim.switch.embedded.calls_code import CallBody
from fanin.sim.switch.embedded.context import BlockContext, ProgramContext
from fanin.sim.switch.embedded.description import (
    DEFAULT_SIZE,
    NO_ACTION,
    NO_ACTION_NAME,
    ORDERED,
    ActionInfo,
    KeyInfo,
    RowInfo,
    TableInfo,
)
from fanin.sim.switch.embedded.errors import P4Error, Position, Refused, Unsupported
from fanin.sim.switch.embedded.names import annotated_id, annotated_name, control_name, key_name
from fanin.sim.switch.embedded.types import BOOL, Bits, base_of

_KINDS = ("exact", "ternary", "lpm", "range", "optional")
_ATTACHED = ("counters", "meters", "registers", "filters")  # properties that attach an extern
# Other properties that a table may have; any further property is refused.
_ACCEPTED = (
    "size", "default_action", "support_timeout", "idle_timeout", "psa_idle_timeout", "implementation",
    "largest_priority_wins", "priority_delta", "requires_versioning",
)  # fmt: skip


class TableCode:
    """Writes one table of an instance."""

    def __init__(self, generator: ProgramContext, instance: BlockContext, node: ast.Table):
        self.generator = generator
        self.instance = instance
        self.node = node
        self._externs: dict[ast.Property, str] = {}

    def write(self) -> str:
        """Emit the function, which takes the frame and returns the entry that it ran; return its name."""
        node = self.node
        name = self.instance.name_of(node)
        for table_property in node.properties.values():
            if table_property.name not in (*_ACCEPTED, *_ATTACHED):
                raise Unsupported(table_property.position, f"the table property {table_property.name}")
        function, table = (
            self.generator.functions.unique_name(f"{prefix}_{node.name}") for prefix in ("apply", "table")
        )
        if any(info.name == name for info in self.generator.tables.values()):
            raise Unsupported(node.position, f"a second table of the name {name}")
        actions = {row.action: self._action(row) for row in node.actions}
        infos = {info.name: info for info in actions.values()}
        default = self._default(actions, infos)
        counters = self._counters()
        info = TableInfo(
            name=name,
            keys=tuple(map(self._key, self._match_keys())),
            actions=infos,
            default=default,
            default_constant="default_action" in node.properties and node.properties["default_action"].constant,
            rows=self._rows(actions),
            constant=node.constant_entries,
            counters=counters,
            size=self._flag("size", DEFAULT_SIZE),
            limited_actions=self._limited_actions(actions, infos),
            direct_externs=self._names_of(*_ATTACHED),
            profile=next(iter(self._names_of("implementation")), None),
            id=annotated_id(node.annotations),
            has_timeouts=bool(self._flag("support_timeout", 0)),
        )
        self.generator.tables[table] = info
        self._function(function, table, info)
        return function

    def _match_keys(self) -> list[ast.Key]:
        """Return the keys except selector keys, which matter only with groups."""
        return [key for key in self.node.keys if key.kind != "selector"]

    def _function(self, function: str, table: str, info: TableInfo) -> None:
        body = CallBody(self.generator, self.instance)
        body.source.position = self.node.position
        nodes = [key.expression for key in self._match_keys()]
        code = ""
        for part, key in zip(body.values(nodes), info.keys, strict=True):
            if key.signed:
                part = f"{part} & {(1 << key.width) - 1}"
            code = f"({code}) << {key.width} | {part}" if code else part
        body.source.emit(f"entry = {table}.find({code or '0'})")
        for counter in info.counters:
            body.source.emit(f"{counter}.hit(entry)")
        if info.has_timeouts:
            body.source.emit("entry.last_hit = monotonic_ns()")
        self._choose(body)
        body.source.emit("entry.function(f, *entry.arguments)")
        body.source.emit("return entry")
        self.generator.functions.extend(body.function(f"def {function}(f):"))

    def _choose(self, body: CallBody) -> None:
        """Emit the choice of one of a group's actions, if the table has a selector."""
        nodes = [key.expression for key in self.node.keys if key.kind == "selector"]
        if not nodes:
            return
        implementation = self.node.properties.get("implementation")
        if implementation is None:  # like p4c, ignore such a key
            return
        with body.source.block("if entry.choices:"):
            data = body.pack_code(ast.ListValue(self.node.position, nodes))
            body.source.emit(f"entry = {self._extern(implementation)}.choose(entry.choices, {data})")

    def _extern(self, table_property: ast.Property) -> str:
        """Return the Python name of the extern that a property names or constructs."""
        value = table_property.value
        if isinstance(value, ast.Name):
            return self.instance.extern_of(value)
        if not isinstance(value, ast.Call) or not isinstance(value.type, types.External):
            raise P4Error(table_property.position, f"{table_property.name} is no extern")
        if table_property not in self._externs:
            name = annotated_name(table_property.annotations) or self._default_extern_name(table_property)
            self._externs[table_property] = self.generator.extern(
                value, value.type, name, self.instance, annotations=table_property.annotations
            )
        return self._externs[table_property]

    def _default_extern_name(self, table_property: ast.Property) -> str:
        """Return p4c's name of an extern that is constructed in a property."""
        return self.instance.name_of(self.node) if table_property.name == "counters" else table_property.name

    def _key(self, node: ast.Key) -> KeyInfo:
        kind = base_of(node.expression.type)
        if node.kind not in _KINDS:
            raise Unsupported(node.position, f"the match kind {node.kind}")
        if kind == BOOL:
            width, signed = 1, False
        elif isinstance(kind, Bits):
            width, signed = kind.width, kind.signed
        elif isinstance(kind, types.Enum) or kind == types.ERROR:
            width, signed = 32, False
        else:
            raise Unsupported(node.position, f"a key of type {node.expression.type}")
        if signed and node.kind == "range":
            raise Unsupported(node.position, "a range of signed numbers")
        name = annotated_name(node.annotations) or key_name(node.expression)
        return KeyInfo(name, node.kind, width, signed, annotated_id(node.annotations), node.expression.type)

    def _action(self, row: ast.TableAction) -> ActionInfo:
        """Return an action of the table; if its list gives arguments, with a function that adds them."""
        action: ast.Action = row.action
        function = self.generator.function_of(action, self.instance)
        data = [p for p in action.parameters if not p.direction]
        if isinstance(row.expression, ast.Call) and row.expression.arguments:
            body = CallBody(self.generator, self.instance)
            arguments = list(row.expression.arguments)
            for parameter in data:
                body.python_names[parameter] = f"a_{parameter.name}"
                parameter_name = ast.Name(row.position, parameter.name)
                parameter_name.target, parameter_name.type = parameter, parameter.type
                arguments.append(ast.Argument(row.position, None, parameter_name))
            call = ast.Call(row.position, row.expression.function, [], arguments)
            call.callee, call.type = Callee("action", action, action.parameters), types.VOID
            body.source.position = row.position
            body.call(call)
            function = self.generator.functions.unique_name("bound_" + action.name)
            names = ", ".join(["f", *(body.python_names[p] for p in data)])
            self.generator.functions.extend(body.function(f"def {function}({names}):"))
        local = action in self.instance.own_functions
        name = self.instance.name_of(action) if local else control_name(action)
        widths = {control_name(p): self._data_width(p) for p in data}
        ids = {control_name(p): number for p in data if (number := annotated_id(p.annotations)) is not None}
        return ActionInfo(
            name=name.removeprefix("."),
            parameters=widths,
            function=function,
            number=self.generator.action_number(action),
            id=annotated_id(action.annotations),
            ids=ids,
            types={control_name(p): p.type for p in data},
        )

    @staticmethod
    def _data_width(parameter: ast.Parameter) -> int:
        kind = base_of(parameter.type)
        if isinstance(kind, Bits):
            return kind.width
        if kind == BOOL:
            return 1
        raise Unsupported(parameter.position, f"action data of type {parameter.type}")

    def _default(
        self, actions: dict[ast.Action, ActionInfo], infos: dict[str, ActionInfo]
    ) -> tuple[str, tuple[int, ...]]:
        """Return name and arguments of the default action; add ``NoAction`` to ``infos`` if there is none."""
        table_property = self.node.properties.get("default_action")
        if table_property is not None:
            assert isinstance(table_property.value, ast.Call)
            return actions[table_property.value.callee.action].name, _constants(table_property.value)
        infos.setdefault(NO_ACTION_NAME, NO_ACTION)
        return NO_ACTION_NAME, ()

    def _counters(self) -> tuple[str, ...]:
        counters = []
        for name in _ATTACHED:
            table_property = self.node.properties.get(name)
            if table_property is None:
                continue
            if name == "counters":
                counters.append(self._extern(table_property))
            elif name != "meters":
                raise Unsupported(table_property.position, f"the table property {name}")
        return tuple(counters)

    def _names_of(self, *properties: str) -> tuple[str, ...]:
        """Return the control plane's names of the externs that these properties name."""
        names = []
        for name in properties:
            table_property = self.node.properties.get(name)
            if table_property is not None:
                names.append(self.generator.externs[self._extern(table_property)].name)
        return tuple(names)

    def _limited_actions(
        self, actions: dict[ast.Action, ActionInfo], infos: dict[str, ActionInfo]
    ) -> dict[str, str]:
        """Return the actions that are only for entries, or only for the default."""
        limits = dict.fromkeys(infos.keys() - {info.name for info in actions.values()}, "default")
        for row in self.node.actions:
            for annotation, use in (("tableonly", "entries"), ("defaultonly", "default")):
                if annotation in row.annotations:
                    limits[actions[row.action].name] = use
        return limits

    # entries of the program

    def _rows(self, actions: dict[ast.Action, ActionInfo]) -> tuple[RowInfo, ...]:
        entries = self.node.entries or []
        largest = self._flag("largest_priority_wins", 1)
        delta = self._flag("priority_delta", 1)
        priorities = self._priorities(entries, bool(largest), delta)
        ordered = any(key.kind in ORDERED for key in self.node.keys)
        positions: dict[Any, Position] = {}
        rows = []
        for entry, priority in zip(entries, priorities, strict=True):
            if "priority" in entry.annotations:
                raise Refused(
                    entry.position,
                    "@priority on an entry is not supported here; the language has priority = N: before it",
                )
            pairs = list(zip(self.node.keys, entry.keys, strict=True))
            matches = tuple(
                self._row_match(key, match, self._key(key).width)
                for key, match in pairs
                if key.kind != "selector"
            )
            position = positions.setdefault((matches, priority if ordered else 0), entry.position)
            if position != entry.position:
                raise P4Error(entry.position, f"table {self.node.name} has this entry already, at {position}")
            assert isinstance(entry.action, ast.Call)
            info = actions[entry.action.callee.action]
            constant = self.node.constant_entries or entry.constant
            rows.append(RowInfo(matches, info.name, _constants(entry.action), priority, constant))
        return tuple(rows)

    def _flag(self, name: str, default: int) -> int:
        table_property = self.node.properties.get(name)
        if table_property is None:
            return default
        if table_property.value.constant is None:
            raise P4Error(table_property.position, f"{name} must be known at compile time")
        return int(table_property.value.constant)

    @staticmethod
    def _priorities(entries: list[ast.Entry], largest: bool, delta: int) -> list[int]:
        """Return a number for each entry; the larger wins. Without explicit priorities, the first entry wins.

        By P4's rule, an entry without a priority has that of the previous entry minus ``delta``, or plus
        ``delta`` if the smallest priority wins. If the first of n entries has none, it gets
        ``(n - 1) * delta + 1``, or 1 if the smallest priority wins.
        """
        step = -delta if largest else delta
        explicit = [None if e.priority is None else int(e.priority.constant) for e in entries]
        first = (len(entries) - 1) * delta + 1 if largest else 1
        numbers: list[int] = []
        for number in explicit:
            numbers.append(number if number is not None else numbers[-1] + step if numbers else first)
        return numbers if largest else [-number for number in numbers]

    def _row_match(
        self, key: ast.Key, match: ast.Expression | None, width: int
    ) -> tuple[int, int] | range | None:
        all_ones = (1 << width) - 1
        if match is None:
            if key.kind == "exact":
                raise P4Error(key.position, "an exact key has to be matched")
            return None
        if isinstance(match, ast.Binary) and match.operator in ("&&&", ".."):
            low, high = match.left.constant, match.right.constant
            if low is None or high is None:
                raise Unsupported(match.position, "a match that is not known at compile time")
            if match.operator == "..":
                return self._row_range(key, match, low, high)
            if key.kind not in ("ternary", "lpm"):
                raise P4Error(match.position, f"&&& in a key that is {key.kind}")
            if key.kind == "lpm" and not _is_prefix(high & all_ones, width):
                raise P4Error(match.position, "the mask of an lpm key is not a prefix")
            return low & high & all_ones, high & all_ones
        if match.constant is None:
            raise Unsupported(match.position, "a match that is not known at compile time")
        value = int(match.constant) & all_ones
        return range(value, value + 1) if key.kind == "range" else (value, all_ones)

    @staticmethod
    def _row_range(key: ast.Key, match: ast.Expression, low: int, high: int) -> range:
        if key.kind != "range" or low < 0:
            raise P4Error(match.position, f".. in a key that is {key.kind}, or of negative numbers")
        if low > high:
            raise P4Error(match.position, f"{low} .. {high} is empty")
        return range(low, high + 1)


def _constants(call: ast.Call) -> tuple[Any, ...]:
    return tuple(a.value.constant for a in call.arguments if a.value is not None)


def _is_prefix(mask: int, width: int) -> bool:
    low = ((1 << width) - 1) & ~mask
    return low & (low + 1) == 0
