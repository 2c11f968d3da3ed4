"""Checks expressions: names, types, widths; computes constants; makes conversions explicit."""

from __future__ import annotations

from typing import Any

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.errors import P4Error, Position, Unsupported
from fanin.sim.switch.embedded.fold import fold_binary, fold_cast, fold_slice, fold_unary
from fanin.sim.switch.embedded.lexer import MAX_WIDTH
from fanin.sim.switch.embedded.scope import Scopes, is_type
from fanin.sim.switch.embedded.types import BOOL, INTEGER, Bits, Type, base_of

_ARITHMETIC = {"+", "-", "*", "|+|", "|-|", "&", "|", "^"}


class Expressions(Scopes):
    """Checks expressions. Each method returns the replacement for its node in the tree."""

    def expression(self, node: ast.Expression, expected: Type | None = None) -> ast.Expression:
        """Check ``node``; convert it to ``expected`` if that is set. Raises P4Error."""
        result = getattr(self, "_" + type(node).__name__.lower())(node, expected)
        return result if expected is None else self.convert(result, expected)

    def value(self, node: ast.Expression, expected: Type | None = None) -> ast.Expression:
        """Check an expression that must have a value. Raises P4Error for a type, table or function."""
        result = self.expression(node, expected)
        if isinstance(result.type, types.Meta | types.Block | types.External | types.SetOf):
            raise P4Error(node.position, f"{result.type} is no value")
        return result

    # leaves

    def _number(self, node: ast.Number, _: Type | None) -> ast.Expression:
        node.type = INTEGER if node.width is None else Bits(node.width, node.signed)
        node.constant = node.value
        return node

    def _boolean(self, node: ast.Boolean, _: Type | None) -> ast.Expression:
        node.type, node.constant = BOOL, node.value
        return node

    def _string(self, node: ast.String, _: Type | None) -> ast.Expression:
        node.type, node.constant = types.STRING, node.value
        return node

    def _errorvalue(self, node: ast.ErrorValue, _: Type | None) -> ast.Expression:
        if node.name not in self.errors:
            raise P4Error(node.position, f"error.{node.name} is not declared")
        node.type, node.constant = types.ERROR, self.errors[node.name]
        return node

    def _name(self, node: ast.Name, _: Type | None) -> ast.Expression:
        target = (self.universe if node.outermost else self.scope).find(node.name)
        if target is None:
            raise P4Error(node.position, f"{node.name} is not declared")
        node.target = target
        if isinstance(target, list):
            node.type = types.Meta("a function", target)
        elif isinstance(target, types.Variable) or is_type(target):
            node.type = types.Meta("a type", target if isinstance(target, types.Variable) else target.type)
        elif isinstance(target, ast.Table | ast.Action | ast.State):
            node.type = types.Meta(f"a {type(target).__name__.lower()}", target)
        elif target.type is None:
            raise P4Error(node.position, f"{node.name} is used before its declaration")
        else:
            node.type = target.type
            node.constant = target.value.constant if isinstance(target, ast.Constant) else None
        return node

    # members and parts

    def _member(self, node: ast.Member, _: Type | None) -> ast.Expression:
        node.base = base = self.expression(node.base)
        kind = base.type
        if isinstance(kind, types.Meta) and kind.kind == "a type" and isinstance(kind.of, types.Enum):
            if node.name not in kind.of.members:
                raise P4Error(node.name_position, f"{kind.of} has no member {node.name}")
            node.type, node.constant = kind.of, kind.of.members[node.name]
        elif isinstance(kind, types.Record):
            if node.name not in kind.fields:
                raise P4Error(node.name_position, f"{kind} has no field {node.name}")
            node.type = kind.fields[node.name]
        elif isinstance(kind, types.Stack):
            node.type = self._stack_member(node, kind)
        elif isinstance(kind, types.Applied):
            results = {"hit": BOOL, "miss": BOOL, "action_run": types.ActionRun(kind.table)}
            if node.name not in results:
                raise P4Error(node.name_position, f"{kind} has no member {node.name}")
            node.type = results[node.name]
        else:
            raise P4Error(node.name_position, f"{kind} has no member {node.name}")
        return node

    def _stack_member(self, node: ast.Member, kind: types.Stack) -> Type:
        if node.name in ("next", "last"):
            return kind.element
        if node.name == "size":
            node.constant = kind.size
        if node.name in ("size", "lastIndex"):
            return Bits(32)
        raise P4Error(node.name_position, f"a stack has no member {node.name}")

    def _index(self, node: ast.Index, _: Type | None) -> ast.Expression:
        node.base, node.index = self.value(node.base), self.value(node.index)
        kind, index = node.base.type, node.index
        if not isinstance(base_of(index.type), Bits) and index.type is not INTEGER:
            raise P4Error(index.position, f"an index of type {index.type}")
        if isinstance(kind, types.Tuple):
            if index.constant is None or not 0 <= index.constant < len(kind.elements):
                raise P4Error(index.position, f"a tuple's index must be known, 0 to {len(kind.elements) - 1}")
            node.type = kind.elements[index.constant]
            return node
        if not isinstance(kind, types.Stack):
            raise P4Error(node.position, f"{kind} has no elements")
        if index.constant is not None and not 0 <= index.constant < kind.size:
            raise P4Error(index.position, f"index {index.constant} of a stack of {kind.size}")
        node.type = kind.element
        return node

    def _slice(self, node: ast.Slice, _: Type | None) -> ast.Expression:
        node.base = self.value(node.base)
        kind = base_of(node.base.type)
        if not isinstance(kind, Bits) and kind is not INTEGER:
            raise P4Error(node.position, f"a slice of {node.base.type}")
        width = kind.width if isinstance(kind, Bits) else MAX_WIDTH
        high, low = self.constant(node.high, width - 1), self.constant(node.low, width - 1)
        if low > high:
            raise P4Error(node.position, f"slice [{high}:{low}]: the larger bound comes first")
        node.bounds, node.type = (high, low), Bits(high - low + 1)
        if node.base.constant is not None:
            node.constant = fold_slice(node.base.constant, high, low)
        return node

    # operators

    def _unary(self, node: ast.Unary, _: Type | None) -> ast.Expression:
        node.operand = self.value(node.operand)
        kind = self._number_type(node.operand)
        if node.operator == "!":
            is_valid = node.operand.type is BOOL or node.operand.type == BOOL
        else:
            is_valid = isinstance(kind, Bits) or (kind == INTEGER and node.operator != "~")
        if not is_valid:
            raise P4Error(node.position, f"{node.operator} of {node.operand.type}")
        node.type = kind
        node.constant = fold_unary(node.operator, node.operand.constant, kind)
        return node

    def _binary(self, node: ast.Binary, _: Type | None) -> ast.Expression:
        node.left, node.right = self.expression(node.left), self.expression(node.right)
        operator = node.operator
        if operator in ("&&", "||"):
            node.left, node.right = self.convert(node.left, BOOL), self.convert(node.right, BOOL)
            node.type = BOOL
        elif operator in ("==", "!="):
            self._unify_operands(node, equality=True)
            node.type = BOOL
        elif operator in ("<<", ">>"):
            node.type = self._shift(node)
        elif operator == "++":
            node.type = self._concatenation(node)
        else:
            kind = self._unify_operands(node)
            if not isinstance(kind, Bits) and (kind != INTEGER or operator in ("|+|", "|-|")):
                raise P4Error(node.position, f"{kind} {operator} {kind}")
            self._check_division(node, kind)
            node.type = kind
            if operator in ("<", ">", "<=", ">="):
                node.type = BOOL
            elif operator in ("&&&", ".."):
                node.type = types.SetOf(kind)
        node.constant = fold_binary(node)
        if node.type == INTEGER and isinstance(node.constant, int) and node.constant.bit_length() > MAX_WIDTH:
            raise P4Error(node.position, f"a number without width that has more than {MAX_WIDTH} bits")
        return node

    def _check_division(self, node: ast.Binary, kind: Type) -> None:
        if node.operator not in ("/", "%"):
            return
        if isinstance(kind, Bits) and kind.signed:
            raise P4Error(node.position, f"{node.operator} of signed numbers")
        if node.right.constant == 0 or (kind == INTEGER and min(node.left.constant, node.right.constant) < 0):
            raise P4Error(node.position, f"{node.operator} by 0 or of a negative number")

    def _unify_operands(self, node: ast.Binary, equality: bool = False) -> Type:
        """Convert both operands to one type and return it; converts only constants, enums and lists."""
        left, right = node.left, node.right
        if equality and not isinstance(left.type, Bits | types.Simple) and left.type == right.type:
            self._check_comparable(node.position, left.type)
            return left.type
        if equality and (_is_list(left) or _is_list(right)):
            if _is_list(left):
                node.left = self.convert(left, right.type)
            else:
                node.right = self.convert(right, left.type)
            return node.left.type
        kinds = self._number_type(left), self._number_type(right)
        kind = kinds[1] if kinds[0] == INTEGER else kinds[0]
        node.left, node.right = self.convert(left, kind), self.convert(right, kind)
        if equality:
            self._check_comparable(node.position, kind)
        return kind

    def _check_comparable(self, position: Position, kind: Type) -> None:
        if isinstance(kind, types.Meta | types.External | types.Block | types.Applied | types.SetOf):
            raise P4Error(position, f"{kind} cannot be compared")

    @staticmethod
    def _number_type(node: ast.Expression) -> Type:
        """Return an operand's type; for an enum its underlying type, if any."""
        kind = node.type
        return kind.underlying if isinstance(kind, types.Enum) and kind.underlying else kind

    def _shift(self, node: ast.Binary) -> Type:
        left, right = self._number_type(node.left), self._number_type(node.right)
        if not isinstance(left, Bits) and left != INTEGER:
            raise P4Error(node.position, f"{node.operator} of {left}")
        if not (isinstance(right, Bits) and not right.signed) and not (right == INTEGER):
            raise P4Error(node.right.position, f"a shift by {right}")
        amount = node.right.constant
        if amount is not None and amount < 0:
            raise P4Error(node.right.position, f"a shift by {amount}")
        if left == INTEGER and (amount is None or amount > MAX_WIDTH):
            raise P4Error(
                node.position, "a shift of a number without width by an amount that is not known or too large"
            )
        return left

    def _concatenation(self, node: ast.Binary) -> Type:
        left, right = self._number_type(node.left), self._number_type(node.right)
        if not isinstance(left, Bits) or not isinstance(right, Bits):
            raise P4Error(node.position, f"{left} ++ {right}: both need a width")
        if left.width + right.width > MAX_WIDTH:
            raise P4Error(node.position, f"a number of more than {MAX_WIDTH} bits")
        return Bits(left.width + right.width, left.signed)

    def _ternary(self, node: ast.Ternary, expected: Type | None) -> ast.Expression:
        node.condition = self.value(node.condition, BOOL)
        node.yes, node.no = self.value(node.yes, expected), self.value(node.no, expected)
        kind = node.no.type if node.yes.type == INTEGER else node.yes.type
        node.yes, node.no = self.convert(node.yes, kind), self.convert(node.no, kind)
        if kind == INTEGER and node.condition.constant is None:
            raise P4Error(node.position, "a choice between numbers without width")
        node.type = kind
        if node.condition.constant is not None:
            node.constant = (node.yes if node.condition.constant else node.no).constant
        return node

    # conversions

    def _cast(self, node: ast.Cast, _: Type | None) -> ast.Expression:
        if node.target is None:
            return node  # inserted by the checker itself
        kind = self.resolve(node.target)
        operand = self.expression(node.operand)
        if _is_list(operand) or isinstance(operand.type, types.Record | types.Tuple):
            node.operand, node.type = self.convert(operand, kind), kind
            return node
        if kind == INTEGER and isinstance(base_of(operand.type), Bits) and operand.constant is None:
            raise Unsupported(node.position, "an int whose value is not known at compile time")
        if not _castable(operand.type, kind):
            raise P4Error(node.position, f"no cast from {operand.type} to {kind}")
        node.operand, node.type = operand, kind
        node.constant = fold_cast(operand, kind)
        return node

    def convert(self, node: ast.Expression, kind: Type) -> ast.Expression:
        """Return ``node`` converted to ``kind`` if the language does so implicitly. Raises P4Error if not."""
        actual = node.type
        if actual == kind or types.ANY in (actual, kind) or isinstance(kind, types.Variable):
            return node
        if _is_list(node):
            self._convert_items(node, kind)
            return node
        from_enum = isinstance(actual, types.Enum) and actual.underlying == kind
        # A number without a width also becomes a value of a type declared by `type`, as in p4c.
        is_new_type = isinstance(kind, types.New) and isinstance(base_of(kind), Bits)
        if not from_enum and not (actual == INTEGER and (is_new_type or isinstance(kind, Bits))):
            raise P4Error(node.position, f"{actual} where {kind} is needed")
        cast = ast.Cast(node.position, None, node)
        cast.type = kind
        cast.constant = fold_cast(node, kind)
        return cast

    def _convert_items(self, node: ast.Expression, kind: Type) -> None:
        if isinstance(node, ast.InvalidValue):
            if not isinstance(kind, types.Record) or kind.kind == "struct":
                raise P4Error(node.position, f"{{#}} where {kind} is needed")
            node.type = kind
            return
        if isinstance(node, ast.DefaultValue):
            self._convert_default(node, kind)
            return
        parts = parts_of(kind)
        if parts is None:
            raise P4Error(node.position, f"a list where {kind} is needed")
        if isinstance(node, ast.StructValue):
            if not (
                node.items.keys() <= parts.keys() if node.has_defaults else node.items.keys() == parts.keys()
            ):
                raise P4Error(node.position, f"{kind} has the fields {', '.join(map(str, parts))}")
            for name in parts.keys() - node.items.keys():
                node.items[name] = self._defaultvalue(ast.DefaultValue(node.position), None)
            node.items = {str(name): self.convert(node.items[str(name)], part) for name, part in parts.items()}
        elif isinstance(node, ast.ListValue):
            if node.items and isinstance(node.items[-1], ast.DefaultValue):
                position = node.items.pop().position
                missing = len(parts) - len(node.items)
                node.items += [self._defaultvalue(ast.DefaultValue(position), None) for _ in range(missing)]
            if len(node.items) != len(parts):
                raise P4Error(node.position, f"{kind} has {len(parts)} parts, not {len(node.items)}")
            node.items = [self.convert(i, p) for i, p in zip(node.items, parts.values(), strict=True)]
        node.type = kind

    @staticmethod
    def _convert_default(node: ast.DefaultValue, kind: Type) -> None:
        base = base_of(kind)
        if isinstance(base, types.Meta | types.Block | types.External | types.SetOf | types.Variable):
            raise P4Error(node.position, f"{kind} has no default")
        node.type = kind
        if isinstance(base, Bits | types.Enum) or base in (INTEGER, BOOL, types.ERROR):
            node.constant = False if base == BOOL else 0

    @staticmethod
    def _defaultvalue(node: ast.DefaultValue, _: Type | None) -> ast.Expression:
        node.type = types.Tuple(())  # until its conversion to the expected type
        return node

    _invalidvalue = _defaultvalue

    def _listvalue(self, node: ast.ListValue, expected: Type | None) -> ast.Expression:
        parts = parts_of(expected)
        kinds: list[Type | None] = (
            [*parts.values()] if parts and len(parts) == len(node.items) else [None] * len(node.items)
        )
        node.items = [self.value(item, kind) for item, kind in zip(node.items, kinds, strict=True)]
        node.type = types.Tuple(tuple(item.type for item in node.items))
        return node

    def _structvalue(self, node: ast.StructValue, expected: Type | None) -> ast.Expression:
        parts: dict[Any, Type] = parts_of(expected) or {}
        node.items = {name: self.value(item, parts.get(name)) for name, item in node.items.items()}
        fields = {name: item.type for name, item in node.items.items()}
        declaration = ast.FieldsType(node.position, "a list of names and values", "struct", [], [])
        node.type = declaration.type = types.Record("struct", declaration.name, fields, declaration)
        return node


def parts_of(kind: Type | None) -> dict[Any, Type] | None:
    """Return the elements of a list for a ``kind``, by name or number; None if no list can replace it."""
    if isinstance(kind, types.Record) and kind.kind != "header_union":
        return dict(kind.fields)
    if isinstance(kind, types.Tuple):
        return dict(enumerate(kind.elements))
    if isinstance(kind, types.Stack):
        return dict(enumerate([kind.element] * kind.size))
    return None


def _is_list(node: ast.Expression) -> bool:
    """Return whether ``node`` takes the expected type."""
    return isinstance(node, ast.ListValue | ast.StructValue | ast.InvalidValue | ast.DefaultValue)


def _castable(actual: Type, kind: Type) -> bool:
    """Return whether an explicit cast between these scalars is allowed."""
    if actual == kind:
        return True
    if isinstance(kind, types.New):
        return _castable(actual, kind.base)
    if isinstance(actual, types.New):
        return _castable(actual.base, kind)
    if isinstance(kind, types.Enum):
        return kind.underlying is not None and _castable(actual, kind.underlying)
    if isinstance(actual, types.Enum):
        return actual.underlying is not None and _castable(actual.underlying, kind)
    if INTEGER in (actual, kind):
        return isinstance(kind, Bits) or isinstance(actual, Bits)
    if isinstance(actual, Bits) and isinstance(kind, Bits):
        return actual.width == kind.width or actual.signed == kind.signed
    pair = {actual, kind}
    return pair == {BOOL, Bits(1)}
