"""Code of expressions: Python expressions, preceded by statements if a call has effects.

P4 evaluates from left to right. Python does too, within one expression. If a part must become a statement, the
parts to its left are first saved in names.
"""

from __future__ import annotations

from typing import Any

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.errors import Unsupported
from fanin.sim.switch.embedded.records import Records, signed_code
from fanin.sim.switch.embedded.source import Source
from fanin.sim.switch.embedded.types import BOOL, Bits, Type, base_of, is_scalar

_DIRECT = {"&": "&", "|": "|", "^": "^", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "==": "==", "!=": "!="}


class ValueCode:
    """Turns expressions into Python code.

    - ``source``: receives the statements of calls with effects.
    - ``records``: classes of headers and structs.
    - ``python_names``: Python names of declarations.
    """

    def __init__(self, source: Source, records: Records, python_names: dict[Any, str]):
        self.source = source
        self.records = records
        self.python_names = python_names

    def call(self, node: ast.Call) -> str:
        """Return code of a call's result; emit the call itself if it has effects."""
        raise NotImplementedError

    def python_name(self, target: ast.Declaration) -> str:
        """Return the Python name of a declaration."""
        return self.python_names[target]

    # entry points

    def value(self, node: ast.Expression) -> str:
        """Return code of the value of ``node``."""
        if node.constant is not None and isinstance(node.constant, int):
            return repr(node.constant) if node.constant >= 0 else f"({node.constant})"
        code: str = getattr(self, "_" + type(node).__name__.lower())(node)
        return code

    def values(self, nodes: list[ast.Expression]) -> list[str]:
        """Return code of several values, evaluated from left to right."""
        codes = []
        for index, node in enumerate(nodes):
            code = self.value(node)
            if any(map(has_effects, nodes[index + 1 :])):
                code = self.save(code, node.type)
            codes.append(code)
        return codes

    def copy_code(self, node: ast.Expression) -> str:
        """Return code of a value to which no other variable refers: a copy, where necessary."""
        code = self.value(node)
        is_new = isinstance(node, ast.ListValue | ast.StructValue | ast.InvalidValue | ast.DefaultValue)
        needs_copy = not is_scalar(node.type) and not is_new
        return f"{code}.copy()" if needs_copy and not isinstance(base_of(node.type), types.Tuple) else code

    def save(self, code: str, kind: Type) -> str:
        """Emit code that saves the present value of ``code`` in a new variable; return its name."""
        name = self.source.unique_name("t")
        needs_copy = isinstance(base_of(kind), types.Record | types.Stack)
        self.source.emit(f"{name} = {code}{'.copy()' if needs_copy else ''}")
        return name

    # leaves

    def _name(self, node: ast.Name) -> str:
        if isinstance(node.target, ast.Constant):
            return self.value(node.target.value)
        return self.python_name(node.target)

    def _string(self, node: ast.String) -> str:
        return repr(node.value)

    def _call(self, node: ast.Call) -> str:
        return self.call(node)

    def _listvalue(self, node: ast.ListValue) -> str:
        kind = base_of(node.type)
        codes = self.copy_codes(node.items)
        if isinstance(kind, types.Record):
            return self._record(kind, dict(zip(kind.fields, codes, strict=True)))
        if isinstance(kind, types.Stack):
            raise Unsupported(node.position, "a list for a header stack")
        return "(" + "".join(code + ", " for code in codes) + ")"

    def _structvalue(self, node: ast.StructValue) -> str:
        codes = self.copy_codes(list(node.items.values()))
        return self._record(base_of(node.type), dict(zip(node.items, codes, strict=True)))

    def _invalidvalue(self, node: ast.InvalidValue) -> str:
        return self.records.new(node.type)

    def _defaultvalue(self, node: ast.DefaultValue) -> str:
        return self.records.zero(node.type)

    def copy_codes(self, nodes: list[ast.Expression]) -> list[str]:
        """Return code of several values as ``values`` does, each without other references."""
        codes = []
        for index, node in enumerate(nodes):
            code = self.copy_code(node)
            codes.append(self.save(code, node.type) if any(map(has_effects, nodes[index + 1 :])) else code)
        return codes

    def _record(self, kind: Type, codes: dict[str, str]) -> str:
        assert isinstance(kind, types.Record)
        name = self.source.unique_name("t")
        self.source.emit(f"{name} = {self.records.new(kind)}")
        if kind.kind == "header":
            self.source.emit(f"{name}.valid = True")
        for field, code in codes.items():
            self.source.emit(f"{name}.f_{field} = {code}")
        return name

    # parts

    def _member(self, node: ast.Member) -> str:
        base, name = node.base, node.name
        code = self.value(base)
        if isinstance(base.type, types.Stack):
            return code + {
                "next": ".next_element()", "last": ".last_element()", "lastIndex": ".last_index()"
            }[name]  # fmt: skip
        if isinstance(base.type, types.Applied):
            return {"hit": f"{code}.hit", "miss": f"(not {code}.hit)", "action_run": f"{code}.action"}[name]
        return f"{code}.f_{name}"

    def _index(self, node: ast.Index) -> str:
        base = self.value(node.base)  # no index can change the stack itself, so it is not copied
        index = self.value(node.index)
        if isinstance(base_of(node.base.type), types.Tuple):
            return f"{base}[{index}]"
        if node.index.constant is not None:
            return f"{base}.elements[{index}]"
        return f"{base}.element({index})"

    def _slice(self, node: ast.Slice) -> str:
        high, low = node.bounds
        shifted = f"{self.value(node.base)} >> {low}" if low else self.value(node.base)
        return f"({shifted} & {(1 << (high - low + 1)) - 1})"

    # operators

    def _unary(self, node: ast.Unary) -> str:
        code = self.value(node.operand)
        if node.operator == "!":
            return f"(not {code})"
        if node.operator == "+":
            return code
        return wrap(f"{node.operator}{code}", node.type)

    def _binary(self, node: ast.Binary) -> str:
        if node.operator in ("&&", "||"):
            return self._short_circuit(node)
        left, right = self.values([node.left, node.right])
        kind = base_of(node.left.type)
        if node.operator in ("==", "!="):
            return self._equality(node.operator, kind, left, right)
        if node.operator in _DIRECT:
            return f"({left} {_DIRECT[node.operator]} {right})"
        if node.operator in ("<<", ">>"):
            return self._shift(node, left, right)
        if node.operator == "++":
            width = base_of(node.right.type).width  # type: ignore[attr-defined]
            if base_of(node.right.type).signed:  # type: ignore[attr-defined]
                right = f"({right} & {(1 << width) - 1})"
            code = f"({left} << {width} | {right})"
            return wrap(code, node.type) if node.type.signed else code
        if node.operator in ("|+|", "|-|"):
            low, high = node.type.limits
            return f"clamp({left} {node.operator[1]} {right}, {low}, {high})"
        if node.operator in ("/", "%"):
            return f"{'divide' if node.operator == '/' else 'modulo'}({left}, {right})"
        return wrap(f"{left} {node.operator} {right}", node.type)

    @staticmethod
    def _equality(operator: str, kind: Type, left: str, right: str) -> str:
        if isinstance(kind, types.Record | types.Stack):
            code = f"{left}.equals({right})"
        elif isinstance(kind, types.Tuple):
            code = f"equal_parts({left}, {right})"
        else:
            return f"({left} {operator} {right})"
        return code if operator == "==" else f"(not {code})"

    def _shift(self, node: ast.Binary, left: str, right: str) -> str:
        kind = node.type
        assert isinstance(kind, Bits)
        if node.operator == ">>":
            return f"({left} >> {right})"
        if node.right.constant is None:
            return wrap(f"shift_left({left}, {right}, {kind.width})", kind)
        return wrap(f"{left} << {right}", kind) if node.right.constant < kind.width else f"({left} & 0)"

    def _short_circuit(self, node: ast.Binary) -> str:
        left = self.value(node.left)
        word = {"&&": "and", "||": "or"}[node.operator]
        if not has_effects(node.right):
            return f"({left} {word} {self.value(node.right)})"
        name = self.save(left, BOOL)
        with self.source.block(f"if {name}:" if word == "and" else f"if not {name}:"):
            self.source.emit(f"{name} = {self.value(node.right)}")
        return name

    def _ternary(self, node: ast.Ternary) -> str:
        condition = self.value(node.condition)
        if not has_effects(node.yes) and not has_effects(node.no) and is_scalar(node.type):
            return f"({self.value(node.yes)} if {condition} else {self.value(node.no)})"
        name = self.source.unique_name("t")
        with self.source.block(f"if {condition}:"):
            self.source.emit(f"{name} = {self.copy_code(node.yes)}")
        with self.source.block("else:"):
            self.source.emit(f"{name} = {self.copy_code(node.no)}")
        return name

    def _cast(self, node: ast.Cast) -> str:
        code = self.value(node.operand)
        actual, kind = base_of(node.operand.type), base_of(node.type)
        if actual == kind or not isinstance(kind, Bits):
            return f"({code} == 1)" if kind == BOOL and actual != BOOL else code
        if actual == BOOL:
            return f"({code} & 1)"
        if not isinstance(actual, Bits):
            return code
        if actual.signed == kind.signed:
            return code if kind.width >= actual.width else wrap(code, kind)
        return f"({signed_code(code, kind.width)})" if kind.signed else f"({code} & {(1 << kind.width) - 1})"


def wrap(code: str, kind: Type) -> str:
    """Return ``code`` cut to the width of ``kind``."""
    if not isinstance(kind, Bits):
        return f"({code})"
    mask = (1 << kind.width) - 1
    if not kind.signed:
        return f"(({code}) & {mask})"
    half = 1 << (kind.width - 1)
    return f"((({code}) + {half} & {mask}) - {half})"


def has_effects(node: ast.Expression | None) -> bool:
    """Return whether evaluating ``node`` may emit statements: it has a call, or builds or chooses a record."""
    if node is None or node.constant is not None:
        return False
    if isinstance(node, ast.Call):
        builtin = node.callee.kind == "builtin" and isinstance(node.function, ast.Member)
        return not builtin or has_effects(node.function.base)  # type: ignore[attr-defined]
    if isinstance(node, ast.StructValue):
        return True
    if isinstance(node, ast.ListValue):
        return not isinstance(node.type, types.Tuple) or any(map(has_effects, node.items))
    if isinstance(node, ast.Ternary) and not is_scalar(node.type):
        return True
    return any(map(has_effects, _operands(node)))


def _operands(node: ast.Expression) -> list[ast.Expression]:
    if isinstance(node, ast.Binary):
        return [node.left, node.right]
    if isinstance(node, ast.Ternary):
        return [node.condition, node.yes, node.no]
    if isinstance(node, ast.Unary | ast.Cast):
        return [node.operand]
    if isinstance(node, ast.Index):
        return [node.base, node.index]
    if isinstance(node, ast.Member | ast.Slice):
        return [node.base]
    return []
