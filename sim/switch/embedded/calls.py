"""Checks calls: the function, its type arguments, its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.errors import P4Error, Position, Unsupported
from fanin.sim.switch.embedded.expressions import Expressions
from fanin.sim.switch.embedded.preprocessor import is_bundled
from fanin.sim.switch.embedded.types import BOOL, INTEGER, VOID, Bindings, Bits, Type, base_of

_HEADER_METHODS = {"isValid": BOOL, "setValid": VOID, "setInvalid": VOID}
MAX_CALLS = 1 << 14  # maximum calls in a block or a function, with those within them
_SIZES = ("minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes")


@dataclass
class Callee:
    """The target of a call.

    ``kind`` is function, extern (function or method), action, table, block (``apply`` of a control or parser),
    builtin (of headers, unions and stacks) or construct.
    """

    kind: str
    target: Any
    parameters: Sequence[ast.Parameter] = ()
    bindings: Bindings = field(default_factory=Bindings)


class Calls(Expressions):
    """Checks calls, besides expressions."""

    in_action = False
    _calls = 0  # calls of the declaration in progress

    @contextmanager
    def count_calls(self, node: ast.Declaration) -> Iterator[None]:
        """Count the calls of a declaration while its body is checked."""
        outer_calls, self._calls = self._calls, 0
        try:
            yield
        finally:
            node.calls, self._calls = self._calls, outer_calls

    def _call(self, node: ast.Call, expected: Type | None) -> ast.Expression:
        if isinstance(node.function, ast.Member):
            return self._method_call(node, node.function)
        function = self.expression(node.function)
        kind = function.type
        if isinstance(kind, types.Meta) and kind.kind == "a function":
            self._call_overload(node, kind.of, Bindings())
        elif isinstance(kind, types.Meta) and kind.kind == "a action":
            node.callee = Callee("action", kind.of, kind.of.parameters)
            self._bind(node, node.callee)
            node.type = VOID
        elif isinstance(kind, types.Meta) and kind.kind == "a type":
            self._construct(node, kind.of)
        else:
            raise P4Error(node.position, f"{kind} cannot be called")
        return node

    def _method_call(self, node: ast.Call, function: ast.Member) -> ast.Expression:
        function.base = base = self.expression(function.base)
        kind, name = base.type, function.name
        if isinstance(kind, types.External):
            methods = [m for m in kind.declaration.methods if m.name == name]
            variables = kind.declaration.type.arguments
            self._call_overload(node, methods, Bindings(dict(zip(variables, kind.arguments, strict=False))))
        elif isinstance(kind, types.Meta) and kind.kind == "a table" and name == "apply":
            if self.in_action:
                raise P4Error(node.position, "an action cannot apply a table")
            self._bind(node, Callee("table", kind.of))
            node.type = types.Applied(kind.of)
        elif self._block(kind) is not None and name == "apply":
            block = self._block(kind)
            assert block
            self._bind(node, Callee("block", block.declaration, block.declaration.parameters))
            node.type = VOID
        else:
            self._builtin(node, function, kind)
        return node

    @staticmethod
    def _block(kind: Type) -> types.Block | None:
        """Return the control or parser that ``apply`` runs: that of an instance, or of a type used directly."""
        if isinstance(kind, types.Meta) and kind.kind == "a type":
            kind = kind.of
        is_runnable = isinstance(kind, types.Block) and isinstance(kind.declaration, ast.Control | ast.Parser)
        return kind if is_runnable else None  # type: ignore[return-value]

    def _builtin(self, node: ast.Call, function: ast.Member, kind: Type) -> None:
        name = function.name
        node.callee = Callee("builtin", name)
        arguments = [a.value for a in node.arguments]
        if isinstance(kind, types.Stack) and name in ("push_front", "pop_front") and len(arguments) == 1:
            assert arguments[0] is not None
            node.arguments[0].value = count = self.expression(arguments[0])
            if not isinstance(count.constant, int) or count.constant < 0:
                raise P4Error(count.position, "the count must be a known number")
            self.check_writable(function.base)
            node.type = VOID
            return
        width = types.width_of(kind)
        if name in _SIZES and width is not None and not arguments:
            node.type = INTEGER
            node.constant = width if name.endswith("Bits") else (width + 7) // 8
            if name.startswith("min"):
                node.constant = _min_bits(kind) if name.endswith("Bits") else (_min_bits(kind) + 7) // 8
            return
        has_validity = isinstance(kind, types.Record) and kind.kind != "struct"
        if not has_validity or name not in _HEADER_METHODS or arguments:
            raise P4Error(function.name_position, f"{kind} has no method {name} of {len(arguments)} arguments")
        if name != "isValid":
            if isinstance(kind, types.Record) and kind.kind == "header_union":
                raise P4Error(function.name_position, f"a header union has no method {name}")
            self.check_writable(function.base)
        node.type = _HEADER_METHODS[name]

    def _call_overload(self, node: ast.Call, candidates: list[ast.Function], bindings: Bindings) -> None:
        """Call that one of ``candidates`` which takes this many arguments."""
        count = len(node.arguments)
        matching = [f for f in candidates if _required(f.parameters) <= count <= len(f.parameters)]
        if not matching:
            raise P4Error(node.position, f"no function of this name takes {count} arguments")
        function = matching[0]
        if function.type_parameters:
            variables = dict(zip(function.type_parameters, function.type, strict=True))
            if node.type_arguments and len(node.type_arguments) != len(variables):
                raise P4Error(node.position, f"{function.name} takes {len(variables)} type arguments")
            for variable, type_node in zip(variables.values(), node.type_arguments, strict=False):
                kind = self.resolve(type_node)
                if kind is not types.ANY:
                    bindings.types[variable] = kind
        elif node.type_arguments:
            raise P4Error(node.position, f"{function.name} takes no type arguments")
        self._bind(
            node,
            Callee("extern" if function.body is None else "function", function, function.parameters, bindings),
        )
        result = bindings.substitute(function.result)
        if isinstance(result, types.Variable):
            raise P4Error(node.position, f"the type argument of {function.name} is missing")
        node.type = result
        if function.name == "static_assert" and is_bundled(function.position):
            condition = node.arguments[0].value
            node.constant = None if condition is None else condition.constant
            if not node.constant:
                raise P4Error(node.position, "static_assert does not hold")

    def _construct(self, node: ast.Call, kind: Type) -> None:
        """Check ``Type(arguments)``, an instance without a name."""
        if isinstance(kind, types.External | types.Block) and node.type_arguments:
            arguments = tuple(map(self.resolve, node.type_arguments))
            kind = type(kind)(kind.declaration, arguments)  # type: ignore[arg-type]
        node.type = self.construct(node, kind)

    def construct(self, node: ast.Call, kind: Type) -> Type:
        """Check the construction of a ``kind``; return its type with the inferred type arguments."""
        if isinstance(kind, types.External):
            constructors = [m for m in kind.declaration.methods if m.name == kind.declaration.name]
            candidates = [
                c for c in constructors if _required(c.parameters) <= len(node.arguments) <= len(c.parameters)
            ]
            if not candidates:
                raise P4Error(node.position, f"{kind} has no constructor of {len(node.arguments)} arguments")
            parameters: Sequence[ast.Parameter] = candidates[0].parameters
        elif isinstance(kind, types.Block):
            block = kind.declaration
            if isinstance(block, ast.Package):
                parameters = block.parameters
            else:
                if (block.states if isinstance(block, ast.Parser) else block.body) is None:
                    raise P4Error(node.position, f"{kind} is declared, but not defined")
                parameters = block.constructor
        else:
            raise P4Error(node.position, f"{kind} has no constructor")
        variables = kind.declaration.type.arguments
        bindings = Bindings(dict(zip(variables, kind.arguments, strict=False)))
        self._bind(node, Callee("construct", kind, parameters, bindings))
        arguments = tuple(bindings.substitute(variable) for variable in variables)
        return type(kind)(kind.declaration, arguments)  # type: ignore[arg-type]

    # arguments

    def _bind(self, node: ast.Call, callee: Callee) -> None:
        """Check and convert the arguments; put them in the order of the parameters."""
        node.callee = callee
        self._calls += 1 + (callee.target.calls if isinstance(callee.target, ast.Declaration) else 0)
        if self._calls > MAX_CALLS:
            raise P4Error(node.position, f"calls within calls: more than {MAX_CALLS} in all")
        node.arguments = order_arguments(callee.parameters, node.arguments, node.position)
        pairs = list(zip(callee.parameters, node.arguments, strict=True))
        deferred = []
        for parameter, argument in pairs:
            if argument.value is None:
                continue
            formal = callee.bindings.substitute(parameter.type)
            argument.value = self.expression(argument.value, None)
            if argument.value.type == INTEGER and isinstance(formal, types.Variable):
                deferred.append((parameter, argument))  # another argument may determine its width
            else:
                self._argument(callee, parameter, argument)
        for parameter, argument in deferred:
            self._argument(callee, parameter, argument)

    def _argument(self, callee: Callee, parameter: ast.Parameter, argument: ast.Argument) -> None:
        value = argument.value
        assert value is not None
        formal = callee.bindings.substitute(parameter.type)
        if isinstance(formal, types.Block):
            self._check_block(value, formal, callee.bindings)
            return
        if parameter.direction in ("out", "inout"):
            self.check_writable(value)
        converts = parameter.direction in ("", "in") and not _has_variables(formal)
        if (converts and not isinstance(formal, types.External)) or (
            isinstance(value, ast.ListValue) and isinstance(formal, types.Record)
        ):
            value = self.convert(value, formal)
        if not callee.bindings.unify(formal, value.type):
            raise P4Error(value.position, f"{value.type} where {formal} is needed")
        argument.value = value

    def _check_block(self, value: ast.Expression, formal: types.Block, bindings: Bindings) -> None:
        """Raise P4Error unless a control or parser has the parameters of the architecture's type for it."""
        actual = value.type
        if not isinstance(actual, types.Block) or type(actual.declaration) is not type(formal.declaration):
            raise P4Error(value.position, f"{actual} where {formal} is needed")
        if actual.declaration is formal.declaration:
            fits = bindings.unify(types.Tuple(formal.arguments), types.Tuple(actual.arguments))
        else:
            formal_bindings = Bindings(
                dict(zip(formal.declaration.type.arguments, formal.arguments, strict=False))
            )
            fits = same_parameters(
                formal.declaration.parameters, actual.declaration.parameters, formal_bindings, bindings
            )
        if not fits:
            raise P4Error(value.position, f"{actual} does not have the parameters of {formal}")

    def check_writable(self, node: ast.Expression) -> None:
        """Raise P4Error unless ``node`` can be assigned to."""
        if isinstance(node, ast.Name):
            target = node.target
            if isinstance(target, ast.Variable):
                return
            if isinstance(target, ast.Parameter) and target.direction in ("out", "inout"):
                return
        elif isinstance(node, ast.Index) and isinstance(node.base.type, types.Tuple):
            raise Unsupported(node.position, "writing an element of a tuple")
        elif (
            isinstance(node, ast.Member | ast.Index | ast.Slice)
            and node.constant is None
            and not (isinstance(node, ast.Member) and node.name == "lastIndex")
        ):
            self.check_writable(node.base)
            return
        raise P4Error(node.position, "cannot be written")


def order_arguments(
    parameters: Sequence[ast.Parameter], arguments: list[ast.Argument], position: Position
) -> list[ast.Argument]:
    """Return ``arguments`` in the order of ``parameters``, with defaults for missing ones."""
    arguments_by_name = {a.name: a for a in arguments if a.name is not None}
    if arguments_by_name and len(arguments_by_name) != len(arguments):
        raise P4Error(position, "either all arguments have a name or none, and no two the same")
    if not arguments_by_name and len(arguments) > len(parameters):
        raise P4Error(position, f"takes {len(parameters)} arguments, not {len(arguments)}")
    arguments_in_order = []
    for index, parameter in enumerate(parameters):
        argument = arguments_by_name.pop(parameter.name, None) if arguments_by_name or not arguments else None
        if argument is None and index < len(arguments) and arguments[index].name is None:
            argument = arguments[index]
        if argument is None and parameter.default is not None:
            argument = ast.Argument(position, None, parameter.default)
        if argument is None and "optional" in parameter.annotations:
            argument = ast.Argument(position, None, None)
        if argument is None:
            raise P4Error(position, f"the argument {parameter.name} is missing")
        arguments_in_order.append(argument)
    if arguments_by_name:
        raise P4Error(position, f"there is no parameter {next(iter(arguments_by_name))}")
    return arguments_in_order


def same_parameters(
    formal: Sequence[ast.Parameter],
    actual: Sequence[ast.Parameter],
    formal_bindings: Bindings,
    bindings: Bindings,
) -> bool:
    """Return whether ``actual`` parameters equal the ``formal`` ones; optional formal ones may be absent.

    - ``formal_bindings``: types for the type parameters of the formal parameters.
    - ``bindings``: receives the types that the comparison infers.
    """
    remaining = list(actual)
    for parameter in formal:
        fits = (
            bool(remaining)
            and remaining[0].direction == parameter.direction
            and bindings.unify(formal_bindings.substitute(parameter.type), remaining[0].type)
        )
        if fits:
            remaining.pop(0)
        elif "optional" not in parameter.annotations:
            return False
    return not remaining


def _required(parameters: Sequence[ast.Parameter]) -> int:
    return sum(p.default is None and "optional" not in p.annotations for p in parameters)


def _has_variables(kind: Type) -> bool:
    """Return whether type variables remain in ``kind``."""
    if isinstance(kind, types.Tuple):
        return any(map(_has_variables, kind.elements))
    return isinstance(kind, types.Variable) or any(map(_has_variables, getattr(kind, "arguments", ())))


def _min_bits(kind: Type) -> int:
    """Return the minimum number of bits in a ``kind``; a varbit has at least none."""
    kind = base_of(kind)
    if isinstance(kind, types.Varbit):
        return 0
    if isinstance(kind, types.Record):
        return sum(map(_min_bits, kind.fields.values()))
    if isinstance(kind, types.Stack):
        return kind.size * _min_bits(kind.element)
    return kind.width if isinstance(kind, Bits) else 1
