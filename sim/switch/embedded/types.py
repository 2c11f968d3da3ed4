"""P4's types. Those with a declaration compare by identity, the others by their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fanin.sim.switch.embedded import ast


class Type:
    """A type; its ``str`` is its form in messages."""


@dataclass(frozen=True)
class Simple(Type):
    """A type without parameters."""

    name: str

    def __str__(self) -> str:
        return self.name


INTEGER = Simple("int")  # unlimited size; constants only
BOOL = Simple("bool")
ERROR = Simple("error")
STRING = Simple("string")
VOID = Simple("void")
ANY = Simple("_")


@dataclass(frozen=True)
class Bits(Type):
    """``bit<width>`` or ``int<width>``."""

    width: int
    signed: bool = False

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"

    def wrap(self, value: int) -> int:
        """Return ``value`` cut to this width."""
        value &= (1 << self.width) - 1
        return value - (1 << self.width) if self.signed and value >> (self.width - 1) else value

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return 0, (1 << self.width) - 1


@dataclass(frozen=True)
class Varbit(Type):
    """``varbit<width>``."""

    width: int

    def __str__(self) -> str:
        return f"varbit<{self.width}>"


@dataclass(frozen=True)
class Tuple(Type):
    """``tuple<...>``, also the type of a list expression."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class SetOf(Type):
    """A set, the type of ``a &&& b`` and ``a .. b``; only matches may use it."""

    element: Type

    def __str__(self) -> str:
        return f"set<{self.element}>"


@dataclass(eq=False)
class Record(Type):
    """A header, struct or header_union (``kind``). ``parts``: cached result of ``parts_in``."""

    kind: str
    name: str
    fields: dict[str, Type]
    declaration: ast.FieldsType
    arguments: tuple[Type, ...] = ()
    instances: dict[tuple[Type, ...], Record] = field(default_factory=dict)
    parts: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Stack(Type):
    """A stack of headers or header unions."""

    element: Record
    size: int

    def __str__(self) -> str:
        return f"{self.element}[{self.size}]"


@dataclass(eq=False)
class Enum(Type):
    """An enum. Without underlying type, a member's value is its index."""

    name: str
    members: dict[str, int]
    underlying: Bits | None

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False)
class New(Type):
    """A ``type``: distinct from ``base``, with the same values.

    ``translation``: URI and width (None for a string) of its form for a controller, if it has one.
    """

    name: str
    base: Type
    translation: tuple[str, int | None] | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False)
class Variable(Type):
    """A type parameter."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class External(Type):
    """An extern object's type."""

    declaration: ast.Extern
    arguments: tuple[Type, ...]

    def __str__(self) -> str:
        return self.declaration.name


@dataclass(frozen=True)
class Block(Type):
    """A parser's, control's or package's type."""

    declaration: ast.Parser | ast.Control | ast.Package
    arguments: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return self.declaration.name


@dataclass(frozen=True)
class Meta(Type):
    """The type of a name of a declaration without a value: a type, action, table or function.

    - ``kind``: ``"a type"``, ``"a function"``, ``"a action"``, ``"a table"`` or ``"a state"``.
    - ``of``: the type, the list of overloaded functions, or the declaration.
    """

    kind: str
    of: Any

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class Applied(Type):
    """The result of applying a table."""

    table: ast.Table

    def __str__(self) -> str:
        return f"the result of {self.table.name}.apply()"


@dataclass(frozen=True)
class ActionRun(Type):
    """The type of ``action_run`` of the result of applying a table."""

    table: ast.Table

    def __str__(self) -> str:
        return f"an action of {self.table.name}"


@dataclass
class Bindings:
    """Types that the checker has found for type variables."""

    types: dict[Variable, Type] = field(default_factory=dict)

    def substitute(self, kind: Type) -> Type:
        """Return ``kind`` with known type variables replaced."""
        if isinstance(kind, Variable):
            bound = self.types.get(kind, kind)
            return bound if bound is kind else self.substitute(bound)
        if isinstance(kind, Tuple):
            return Tuple(tuple(map(self.substitute, kind.elements)))
        if isinstance(kind, External):
            return External(kind.declaration, tuple(map(self.substitute, kind.arguments)))
        if isinstance(kind, Block):
            return Block(kind.declaration, tuple(map(self.substitute, kind.arguments)))
        if isinstance(kind, Record) and kind.arguments:
            return instantiate(kind, tuple(map(self.substitute, kind.arguments)))
        return kind

    def unify(self, formal: Type, actual: Type) -> bool:
        """Return whether ``actual`` fits ``formal``; bind variables of ``formal``."""
        formal = self.substitute(formal)
        if formal == actual or ANY in (formal, actual):
            return True
        if isinstance(formal, Variable):
            self.types[formal] = actual
            return True
        if isinstance(formal, Record) and isinstance(actual, Record):
            return formal.declaration is actual.declaration and self._all(formal.arguments, actual.arguments)
        if isinstance(formal, External) and isinstance(actual, External):
            return formal.declaration is actual.declaration and self._all(formal.arguments, actual.arguments)
        if isinstance(formal, Tuple) and isinstance(actual, Tuple):
            return self._all(formal.elements, actual.elements)
        return False

    def _all(self, formal: tuple[Type, ...], actual: tuple[Type, ...]) -> bool:
        return len(formal) == len(actual) and all(map(self.unify, formal, actual))


def instantiate(record: Record, arguments: tuple[Type, ...]) -> Record:
    """Return the generic ``record`` with its parameters replaced; one object for equal arguments."""
    generic: Record = record.declaration.type
    if arguments == generic.arguments:
        return generic
    if arguments not in generic.instances:
        bindings = Bindings(dict(zip(generic.arguments, arguments, strict=True)))  # type: ignore[arg-type]
        instance = Record(record.kind, record.name, {}, record.declaration, arguments)
        generic.instances[arguments] = instance
        instance.fields = {name: bindings.substitute(kind) for name, kind in generic.fields.items()}
    return generic.instances[arguments]


def parts_in(kind: Type) -> int:
    """Return the number of scalar values in a ``kind``; any type without parts counts as one."""
    if isinstance(kind, New):
        return parts_in(kind.base)
    if isinstance(kind, Record):
        if not kind.parts:
            kind.parts = max(1, sum(map(parts_in, kind.fields.values())))
        return kind.parts
    if isinstance(kind, Stack):
        return max(1, kind.size * parts_in(kind.element))
    return max(1, sum(map(parts_in, kind.elements))) if isinstance(kind, Tuple) else 1


def base_of(kind: Type) -> Type:
    """Return the type under ``type`` declarations and under enums with an underlying type."""
    while True:
        if isinstance(kind, New):
            kind = kind.base
        elif isinstance(kind, Enum) and kind.underlying:
            kind = kind.underlying
        else:
            return kind


def width_of(kind: Type) -> int | None:
    """Return the bits of a ``kind`` in a packet: a varbit's maximum, and None for a type without a width."""
    kind = base_of(kind)
    if isinstance(kind, Bits | Varbit):
        return kind.width
    if kind == BOOL:
        return 1
    parts: Mapping[Any, Type] | None = None
    if isinstance(kind, Record):
        parts = kind.fields
    elif isinstance(kind, Tuple):
        parts = dict(enumerate(kind.elements))
    elif isinstance(kind, Stack):
        element = width_of(kind.element)
        return None if element is None else element * kind.size
    if parts is None:
        return None
    widths = [width_of(part) for part in parts.values()]
    if isinstance(kind, Record) and kind.kind == "header_union":
        return None
    return None if None in widths else sum(w for w in widths if w is not None)


def is_scalar(kind: Type) -> bool:
    """Return whether values of ``kind`` are plain Python objects that need no copying."""
    return not isinstance(base_of(kind), Record | Stack | Tuple)
