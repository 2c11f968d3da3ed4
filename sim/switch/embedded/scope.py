"""Names and their declarations; conversion of types in the text to types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.errors import P4Error, Position, Unsupported
from fanin.sim.switch.embedded.lexer import MAX_WIDTH
from fanin.sim.switch.embedded.types import Bits, Type

MAX_STACK = 1 << 10  # maximum elements of a header stack
MAX_PARTS = 1 << 16  # maximum values in a struct, tuple or stack


class Scope:
    """Names of a block; functions with the same name differ in their number of parameters."""

    def __init__(self, outer: Scope | None = None):
        self.outer = outer
        self.names: dict[str, Any] = {}

    def find(self, name: str) -> Any:
        """Return the declaration, type variable or list of overloads of ``name``; None if it has none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


class Scopes:
    """The checker's current scope, and conversion of types in the text to types."""

    def __init__(self) -> None:
        self.universe = self.scope = Scope()
        self.errors: dict[str, int] = {}
        self.match_kinds: set[str] = set()

    def expression(self, node: ast.Expression, expected: Type | None = None) -> ast.Expression:
        """Check an expression; return its replacement."""
        raise NotImplementedError

    def declare(self, name: str, meaning: Any, position: Position) -> None:
        """Declare ``name`` in the current scope. Raises P4Error if it has one already."""
        names = self.scope.names
        if isinstance(meaning, ast.Function):
            overloads = names.setdefault(name, [])
            if not isinstance(overloads, list) or any(_same_arity(f, meaning) for f in overloads):
                raise P4Error(position, f"{name} is declared twice")
            overloads.append(meaning)
        elif name in names:
            raise P4Error(position, f"{name} is declared twice")
        else:
            names[name] = meaning

    def open_scope(self) -> Scope:
        """Open a scope; return the outer one, which the caller restores at the scope's end."""
        outer = self.scope
        self.scope = Scope(outer)
        return outer

    def type_variables(self, names: Iterable[str], position: Position) -> tuple[types.Variable, ...]:
        """Declare type parameters in the current scope."""
        variables = tuple(types.Variable(name) for name in names)
        for variable in variables:
            self.declare(variable.name, variable, position)
        return variables

    def resolve(self, node: ast.TypeNode) -> Type:
        """Return the type that ``node``, a type in the program's text, denotes. Raises P4Error."""
        kind = self._resolve_kind(node)
        if isinstance(kind, types.Record | types.Tuple | types.Stack) and types.parts_in(kind) > MAX_PARTS:
            raise P4Error(node.position, f"a type of more than {MAX_PARTS} values")
        return kind

    def _resolve_kind(self, node: ast.TypeNode) -> Type:
        """Return the type, whatever the number of its values."""
        if isinstance(node, ast.BaseType):
            return self._base(node)
        if isinstance(node, ast.NamedType):
            return self._resolve_name(node)
        if isinstance(node, ast.TupleType):
            elements = tuple(map(self.resolve, node.elements))
            for part, kind in zip(node.elements, elements, strict=True):
                refuse_objects(part.position, kind)
            return types.Tuple(elements)
        if isinstance(node, ast.StackType):
            element = self.resolve(node.element)
            if not isinstance(element, types.Record) or element.kind == "struct":
                raise Unsupported(node.position, f"an array of {element}")
            return types.Stack(element, self.constant(node.size, MAX_STACK))
        return types.ANY  # an ast.AnyType, ``_``

    def _base(self, node: ast.BaseType) -> Type:
        if node.name in ("bool", "error", "string", "void"):
            return types.Simple(node.name)
        if node.width is None:
            return types.INTEGER if node.name == "int" else Bits(1)
        width = self.constant(node.width, MAX_WIDTH)
        if node.name == "varbit":
            return types.Varbit(width)
        if node.name == "int" and width == 0:
            raise P4Error(node.position, "int<0>: a signed number has at least one bit")
        return Bits(width, node.name == "int")

    def constant(self, node: ast.Expression, maximum: int) -> int:
        """Return the value of an expression that must be constant, from 0 to ``maximum``. Raises P4Error."""
        value = self.expression(node).constant
        if not isinstance(value, int) or isinstance(value, bool):
            raise P4Error(node.position, "not a number that is known at compile time")
        if not 0 <= value <= maximum:
            raise P4Error(node.position, f"must be 0 to {maximum}, not {value}")
        return value

    def _resolve_name(self, node: ast.NamedType) -> Type:
        declaration = self.scope.find(node.name)
        arguments = tuple(map(self.resolve, node.arguments))
        if isinstance(declaration, types.Variable):
            return declaration
        if not isinstance(declaration, ast.Declaration) or declaration.type is None or not is_type(declaration):
            raise P4Error(node.position, f"{node.name} is not a type")
        parameters = getattr(declaration, "type_parameters", [])  # not every declaration can be generic
        if arguments and len(arguments) != len(parameters):
            raise P4Error(
                node.position, f"{node.name} takes {len(parameters)} type arguments, not {len(arguments)}"
            )
        is_object = isinstance(declaration, ast.Extern | ast.Control | ast.Parser | ast.Package)
        # A generic object has a type for each list of arguments; without arguments, its use determines them.
        if is_object and (arguments or parameters):
            kind = types.External if isinstance(declaration, ast.Extern) else types.Block
            return kind(declaration, arguments)  # type: ignore[arg-type]
        if isinstance(declaration.type, types.Record) and parameters:
            if not arguments:
                raise P4Error(node.position, f"{node.name} needs its type arguments")
            return types.instantiate(declaration.type, arguments)
        kind_of_name: Type = declaration.type
        return kind_of_name


def is_type(declaration: ast.Declaration) -> bool:
    """Return whether a declaration's name is the name of a type."""
    return isinstance(
        declaration,
        ast.Extern | ast.FieldsType | ast.Enumeration | ast.TypeAlias | ast.Control | ast.Parser | ast.Package,
    )


def refuse_strings(position: Position, kind: Type) -> None:
    """Raise Unsupported for a string, which only externs and annotations may have."""
    if kind == types.STRING:
        raise Unsupported(position, "a stored string")


def refuse_objects(position: Position, kind: Type) -> None:
    """Raise P4Error for an extern's type where a value is stored; an extern is an instance, not a value."""
    if isinstance(kind, types.External | types.Block):
        raise P4Error(position, f"a value of type {kind}")


def _same_arity(first: ast.Function, second: ast.Function) -> bool:
    return len(first.parameters) == len(second.parameters)
