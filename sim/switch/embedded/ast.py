"""The syntax tree of a P4 program.

The checker fills in the fields that ``__init__`` does not take: types, constants, and declarations of names.

Every node has a ``position``. Nodes compare by identity: the same text at two places gives two different nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fanin.sim.switch.embedded.errors import Position
from fanin.sim.switch.embedded.lexer import Token

Annotations = dict[str, list[Token]]


@dataclass(slots=True, eq=False)
class Node:
    """Base class of all nodes."""

    position: Position


# Expressions -------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Expression(Node):
    """An expression.

    The checker sets ``type``, and ``constant`` if the value is known at compile time.
    """

    type: Any = field(default=None, init=False)
    constant: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Number(Expression):
    """A number; ``width`` is None without an explicit one."""

    value: int
    width: int | None
    signed: bool


@dataclass(slots=True, eq=False)
class Boolean(Expression):
    """``true`` or ``false``."""

    value: bool


@dataclass(slots=True, eq=False)
class String(Expression):
    """A string."""

    value: str


@dataclass(slots=True, eq=False)
class Name(Expression):
    """A name; ``target`` is its declaration. ``outermost``: the name has a leading dot."""

    name: str
    outermost: bool = False
    target: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class ErrorValue(Expression):
    """``error.name``."""

    name: str


@dataclass(slots=True, eq=False)
class Member(Expression):
    """``base.name``; ``target`` is set if ``base`` is not a value (an enum, an extern instance, a table)."""

    base: Expression
    name: str
    name_position: Position
    target: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Index(Expression):
    """``base[index]``."""

    base: Expression
    index: Expression


@dataclass(slots=True, eq=False)
class Slice(Expression):
    """``base[high:low]``; the checker sets ``bounds``."""

    base: Expression
    high: Expression
    low: Expression
    bounds: tuple[int, int] = field(default=(0, 0), init=False)


@dataclass(slots=True, eq=False)
class Argument(Node):
    """An argument; ``name`` is None for a positional one, ``value`` is None for ``_``."""

    name: str | None
    value: Expression | None


@dataclass(slots=True, eq=False)
class Call(Expression):
    """A call; the checker sets ``callee`` (:class:`calls.Callee`) and puts ``arguments`` in order."""

    function: Expression
    type_arguments: list[TypeNode]
    arguments: list[Argument]
    callee: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Unary(Expression):
    """``operator operand``."""

    operator: str
    operand: Expression


@dataclass(slots=True, eq=False)
class Binary(Expression):
    """``left operator right``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(slots=True, eq=False)
class Ternary(Expression):
    """``condition ? yes : no``."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(slots=True, eq=False)
class Cast(Expression):
    """``(target) operand``; the checker also inserts casts for the language's implicit conversions."""

    target: TypeNode | None
    operand: Expression


@dataclass(slots=True, eq=False)
class ListValue(Expression):
    """``{a, b}``."""

    items: list[Expression]


@dataclass(slots=True, eq=False)
class StructValue(Expression):
    """``{x = a, y = b}``; ``has_defaults``: a final ``...`` gives the other fields their default values."""

    items: dict[str, Expression]
    has_defaults: bool = field(default=False, kw_only=True)


@dataclass(slots=True, eq=False)
class InvalidValue(Expression):
    """``{#}``, an invalid header or header union of the expected type."""


@dataclass(slots=True, eq=False)
class DefaultValue(Expression):
    """``...``, the default of the expected type: zeros, and invalid headers."""


# Types as written --------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class TypeNode(Node):
    """A type in the program's text."""


@dataclass(slots=True, eq=False)
class NamedType(TypeNode):
    """A type's name, with or without arguments."""

    name: str
    arguments: list[TypeNode]


@dataclass(slots=True, eq=False)
class BaseType(TypeNode):
    """``bool``, ``bit<8>`` and similar types; ``width`` is None without an explicit one."""

    name: str
    width: Expression | None


@dataclass(slots=True, eq=False)
class StackType(TypeNode):
    """``element[size]``."""

    element: TypeNode
    size: Expression


@dataclass(slots=True, eq=False)
class TupleType(TypeNode):
    """``tuple<...>``."""

    elements: list[TypeNode]


@dataclass(slots=True, eq=False)
class AnyType(TypeNode):
    """``_`` as a type argument."""


# Statements --------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Statement(Node):
    """A statement."""


@dataclass(slots=True, eq=False)
class Block(Statement):
    """``{ ... }``."""

    statements: list[Statement]


@dataclass(slots=True, eq=False)
class Assignment(Statement):
    """``target = value``; ``compound``: the text was ``target += ...``, and ``value`` contains ``target``."""

    target: Expression
    value: Expression
    compound: bool = False


@dataclass(slots=True, eq=False)
class CallStatement(Statement):
    """A call whose result is unused."""

    call: Expression


@dataclass(slots=True, eq=False)
class Conditional(Statement):
    """``if``."""

    condition: Expression
    consequence: Statement
    alternative: Statement | None


@dataclass(slots=True, eq=False)
class SwitchCase(Node):
    """A case with a label (None: ``default``); a ``block`` of None means the block of the next case."""

    label: Expression | None
    block: Block | None


@dataclass(slots=True, eq=False)
class SwitchStatement(Statement):
    """``switch``."""

    subject: Expression
    cases: list[SwitchCase]


@dataclass(slots=True, eq=False)
class Jump(Statement):
    """``exit``, ``return``, ``break`` or ``continue``."""

    kind: str
    value: Expression | None


# Declarations ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Declaration(Statement):
    """A declaration, which gives an object a name. ``type`` is the type that the checker has found."""

    name: str
    annotations: Annotations = field(default_factory=dict, init=False)
    type: Any = field(default=None, init=False)
    calls: int = field(default=0, init=False)  #: calls in it, with all calls within these; a loop counts once


@dataclass(slots=True, eq=False)
class Constant(Declaration):
    """``const``."""

    type_node: TypeNode
    value: Expression


@dataclass(slots=True, eq=False)
class Variable(Declaration):
    """A local variable."""

    type_node: TypeNode
    value: Expression | None


@dataclass(slots=True, eq=False)
class Instance(Declaration):
    """An instance of an extern, control, parser or package.

    ``body``: functions of its initialiser.
    """

    type_node: TypeNode
    arguments: list[Argument]
    body: list[Declaration]
    call: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Parameter(Declaration):
    """A parameter; ``direction`` is in, out, inout or empty."""

    direction: str
    type_node: TypeNode
    default: Expression | None


@dataclass(slots=True, eq=False)
class Function(Declaration):
    """A function, extern function or method of ``owner``; a function that is only declared has no ``body``."""

    result_node: TypeNode
    type_parameters: list[str]
    parameters: list[Parameter]
    body: Block | None
    result: Any = field(default=None, init=False)
    owner: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Extern(Declaration):
    """An extern object; its constructors are functions with the object's name."""

    type_parameters: list[str]
    methods: list[Function]


@dataclass(slots=True, eq=False)
class Action(Declaration):
    """An action."""

    parameters: list[Parameter]
    body: Block


@dataclass(slots=True, eq=False)
class Package(Declaration):
    """A package type."""

    type_parameters: list[str]
    parameters: list[Parameter]


@dataclass(slots=True, eq=False)
class FieldsType(Declaration):
    """A header, struct or header union: ``kind`` is the keyword."""

    kind: str
    type_parameters: list[str]
    fields: list[Variable]


@dataclass(slots=True, eq=False)
class Enumeration(Declaration):
    """An enum; its members have a value if it has an underlying type."""

    underlying: TypeNode | None
    members: list[tuple[str, Expression | None]]


@dataclass(slots=True, eq=False)
class TypeAlias(Declaration):
    """``typedef``, or with ``new`` a ``type``, which is distinct from its base type."""

    type_node: TypeNode
    new: bool


@dataclass(slots=True, eq=False)
class NameList(Declaration):
    """Names of errors (``name`` is error) or of match kinds."""

    names: list[str]


@dataclass(slots=True, eq=False)
class Case(Node):
    """A case of ``select``; None in ``keys`` matches any value."""

    keys: list[Expression | None]
    state: str


@dataclass(slots=True, eq=False)
class State(Declaration):
    """A parser's state; without a ``select`` (None) it goes to the state of its only case."""

    statements: list[Statement]
    select: list[Expression] | None
    cases: list[Case]


@dataclass(slots=True, eq=False)
class Parser(Declaration):
    """A parser, or only its type if ``states`` is None."""

    type_parameters: list[str]
    parameters: list[Parameter]
    constructor: list[Parameter]
    locals: list[Declaration]
    states: list[State] | None


@dataclass(slots=True, eq=False)
class Key(Node):
    """A key of a table, with its name for the control plane."""

    expression: Expression
    kind: str
    annotations: Annotations
    name: str = field(default="", init=False)


@dataclass(slots=True, eq=False)
class Entry(Node):
    """A table entry in the program's text; None in ``keys`` matches any value."""

    keys: list[Expression | None]
    action: Expression
    priority: Expression | None
    constant: bool
    annotations: Annotations


@dataclass(slots=True, eq=False)
class TableAction(Node):
    """An action that a table may run; ``action`` is its declaration."""

    expression: Expression
    annotations: Annotations
    action: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Property(Node):
    """A property of a table."""

    name: str
    value: Expression
    constant: bool
    annotations: Annotations = field(default_factory=dict, init=False)


@dataclass(slots=True, eq=False)
class Table(Declaration):
    """A table."""

    keys: list[Key]
    actions: list[TableAction]
    entries: list[Entry] | None
    constant_entries: bool
    properties: dict[str, Property]


@dataclass(slots=True, eq=False)
class Control(Declaration):
    """A control, or only its type if ``body`` is None."""

    type_parameters: list[str]
    parameters: list[Parameter]
    constructor: list[Parameter]
    locals: list[Declaration]
    body: Block | None
