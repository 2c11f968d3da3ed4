"""Translation of tokens to the tree of ``ast.py``, by the grammar in ``grammar.lark``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lark
from lark.lexer import Lexer

from fanin.sim.switch.embedded import ast
from fanin.sim.switch.embedded.classify import Classifier
from fanin.sim.switch.embedded.errors import P4Error, Position, Unsupported
from fanin.sim.switch.embedded.lexer import Token, integer
from fanin.sim.switch.embedded.loops import ForIn, ForLoop

_GRAMMAR = Path(__file__).with_name("grammar.lark")
_PUNCTUATION = {
    ";": "_SEMI", ",": "_COMMA", ":": "_COLON", "(": "_LPAR", ")": "_RPAR", "{": "_LBRACE", "}": "_RBRACE",
    "[": "_LBRACK", "]": "_RBRACK", "=": "_EQUAL", ".": "_DOT", "?": "_QUESTION", "+": "PLUS", "-": "MINUS",
    "...": "ELLIPSIS", "+:": "_PLUSCOLON", "#": "_HASH",
}  # fmt: skip
_DESCRIPTIONS = {name: repr(text) for text, name in _PUNCTUATION.items()}
_DESCRIPTIONS |= {"NAME": "a name", "TYPE": "a type", "_LT_ARGS": "'<'", "_GT_ARGS": "'>'"}
_MAX_EXPECTED = 4  # maximum terminals that an error names
# Keywords without information beyond their grammar rule: lark drops names with an underscore.
_DROPPED = {
    "LT_ARGS", "GT_ARGS", "TRANSITION", "PARSER", "CONTROL", "PACKAGE", "ENUM", "TYPEDEF", "TUPLE", "EXTERN",
    "KEY", "ACTIONS", "MATCH_KIND", "APPLY", "PRIORITY", "ACTION", "TABLE", "STATE",
}  # fmt: skip
_RENAMED = {"TYPE": "_TYPE_KW", "STRING": "STRING_TYPE"}  # names of keywords
# Binary operators that share a level of precedence; the first level binds least.
_LEVELS = (
    ("&&&", ".."), ("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("|",), ("^",), ("&",),
    ("<<", ">>"), ("+", "-", "++", "|+|", "|-|"), ("*", "/", "%"),
)  # fmt: skip
_PRECEDENCE = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}


class _Terminals(Lexer):
    """Gives lark the tokens under lark's names, and the builder the position of the last token.

    lark makes the builder before any lexer, so the position is an attribute of the builder's class.
    """

    def __init__(self, _: Any):
        pass

    def lex(self, data: Any, *_: Any) -> Iterator[Any]:
        """Yield the tokens in ``data``."""
        for token in data:
            _Builder.position_now = token.position
            if token.type in _PUNCTUATION:
                token.type = _PUNCTUATION[token.type]
            elif token.text in ("type", "string") and token.type in _RENAMED:
                token.type = _RENAMED[token.type]
            elif token.type in _DROPPED:
                token.type = "_" + token.type
            yield token


def parse(sequence: list[Token], file: str) -> list[ast.Declaration]:
    """Return the declarations of a program. Raises P4Error at the first token that does not fit."""
    end = sequence[-1].position if sequence else Position(file, 1, 1)
    try:
        result: Any = _grammar().parse(Classifier(sequence).run())
    except lark.exceptions.UnexpectedToken as error:
        if isinstance(error.token, Token):
            if error.token.type == "NAME" and "TYPE" in error.expected and "NAME" not in error.expected:
                raise P4Error(error.token.position, f"{error.token.text} is not a declared type") from None
            raise P4Error(
                error.token.position, f"syntax error at {error.token.text!r}{_expected_text(error)}"
            ) from None
        raise P4Error(end, f"syntax error: the text ends too early{_expected_text(error)}") from None
    except lark.exceptions.VisitError as error:
        raise error.orig_exc from None
    declarations: list[ast.Declaration] = result
    return declarations


def _expected_text(error: lark.exceptions.UnexpectedToken) -> str:
    """Return the end of an error text: the expected tokens, if they are few, or a missing semicolon."""
    terminals = error.accepts or set()
    expected = sorted(_DESCRIPTIONS.get(name, name.strip("_").lower().replace("_", " ")) for name in terminals)
    if 0 < len(expected) <= _MAX_EXPECTED:
        return f", expected {' or '.join(expected)}"
    starts_statement = (
        not isinstance(error.token, Token) or error.token.text == "}" or error.token.text.isidentifier()
    )
    return ", perhaps ';' is missing before it" if starts_statement and "_SEMI" in terminals else ""


@cache
def _grammar() -> lark.Lark:
    return lark.Lark(
        _GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer=_Terminals,
        transformer=_Builder(),
        maybe_placeholders=False,
    )


class _Builder(lark.Transformer):
    """A method per rule. Names arrive as ``ast.Name``, absent optional parts as an empty list."""

    position_now = Position("", 1, 1)  # position of the last token, for nodes without a token of their own

    def start(self, parts: list[Any]) -> list[ast.Declaration]:
        return parts

    def declaration(self, parts: list[Any]) -> ast.Declaration:
        annotations, node = parts
        node.annotations = annotations
        return node

    local = abstract_body = declaration

    def annotations(self, parts: list[Token]) -> ast.Annotations:
        return {token.text: token.value for token in reversed(parts)}  # of equal names, p4c takes the first

    # types

    def named_type(self, parts: list[Any]) -> ast.TypeNode:
        return ast.NamedType(parts[0].position, parts[0].text, parts[1] if len(parts) > 1 else [])

    def base_type(self, parts: list[Any]) -> ast.TypeNode:
        return ast.BaseType(parts[0].position, parts[0].text, parts[1] if len(parts) > 1 else None)

    def stack_type(self, parts: list[Any]) -> ast.TypeNode:
        return ast.StackType(parts[0].position, parts[0], parts[1])

    def tuple_type(self, parts: list[Any]) -> ast.TypeNode:
        return ast.TupleType(self.position_now, parts[0])

    def any_type(self, parts: list[Any]) -> ast.TypeNode:
        return ast.AnyType(parts[0].position)

    def name(self, parts: list[Any]) -> ast.Name:
        return ast.Name(parts[0].position, parts[0].text)

    def names(self, parts: list[Any]) -> list[str]:
        return [part.name for part in parts]

    def type_parameters(self, parts: list[Any]) -> list[str]:
        return [part.text for part in parts]

    def _list(self, parts: list[Any]) -> list[Any]:
        return parts

    type_arguments = parameters = expressions = arguments = enum_members = keyset_items = _list
    list_items = struct_items = _list

    # declarations

    def constant(self, parts: list[Any]) -> ast.Declaration:
        _, kind, name, value = parts
        return ast.Constant(name.position, name.name, kind, value)

    def instance(self, parts: list[Any]) -> ast.Declaration:
        kind, arguments, name, *body = parts
        return ast.Instance(name.position, name.name, kind, arguments, body)

    def instances(self, parts: list[Any]) -> ast.Declaration:
        raise Unsupported(parts[2].position, f"an array of instances ({parts[2].name})")

    def function(self, parts: list[Any]) -> ast.Function:
        result, name, type_parameters, parameters, body = parts
        return ast.Function(name.position, name.name, result, type_parameters, parameters, body)

    def prototype(self, parts: list[Any]) -> ast.Function:
        return self.function([*parts, None])

    def constructor(self, parts: list[Any]) -> ast.Function:
        name, parameters = parts
        void = ast.BaseType(name.position, "void", None)
        return ast.Function(name.position, name.text, void, [], parameters, None)

    def constructor_parameters(self, parts: list[Any]) -> list[ast.Parameter]:
        return parts[0] if parts else []

    def method(self, parts: list[Any]) -> ast.Function:
        annotations, *abstract, function = parts
        function.annotations = dict(annotations, **({"abstract": []} if abstract else {}))
        return function

    def extern_object(self, parts: list[Any]) -> ast.Declaration:
        name, type_parameters, *methods = parts
        extern = ast.Extern(name.position, name.name, type_parameters, methods)
        for method in methods:
            method.owner = extern
        return extern

    def extern_function(self, parts: list[Any]) -> ast.Declaration:
        return parts[0]

    def action(self, parts: list[Any]) -> ast.Declaration:
        name, parameters, body = parts
        return ast.Action(name.position, name.name, parameters, body)

    def package(self, parts: list[Any]) -> ast.Declaration:
        return ast.Package(parts[0].position, parts[0].name, *parts[1:])

    def fields_type(self, parts: list[Any]) -> ast.Declaration:
        kind, name, type_parameters, *fields = parts
        return ast.FieldsType(name.position, name.name, kind.text, type_parameters, fields)

    def field(self, parts: list[Any]) -> ast.Variable:
        annotations, kind, name, *size = parts
        if size:
            raise Unsupported(name.position, f"an array's size after its name ({name.name}[...])")
        variable = ast.Variable(name.position, name.name, kind, None)
        variable.annotations = annotations
        return variable

    def enumeration(self, parts: list[Any]) -> ast.Declaration:
        *underlying, name, members = parts
        return ast.Enumeration(name.position, name.name, underlying[0] if underlying else None, members)

    def enum_member(self, parts: list[Any]) -> tuple[str, ast.Expression | None]:
        _, name, *value = parts
        return name.name, value[0] if value else None

    def typedef(self, parts: list[Any]) -> ast.Declaration:
        if isinstance(parts[0], ast.Declaration):
            raise Unsupported(parts[0].position, f"a typedef that declares {parts[0].name}")
        return ast.TypeAlias(parts[1].position, parts[1].name, parts[0], False)

    def new_type(self, parts: list[Any]) -> ast.Declaration:
        return ast.TypeAlias(parts[1].position, parts[1].name, parts[0], True)

    def error_names(self, parts: list[Any]) -> ast.Declaration:
        return ast.NameList(parts[0].position, "error", parts[1])

    def match_kinds(self, parts: list[Any]) -> ast.Declaration:
        return ast.NameList(self.position_now, "match_kind", parts[0])

    def parameter(self, parts: list[Any]) -> ast.Declaration:
        annotations, direction, kind, name, *default = parts
        parameter = ast.Parameter(name.position, name.name, direction, kind, default[0] if default else None)
        parameter.annotations = annotations
        return parameter

    def direction(self, parts: list[Any]) -> str:
        return parts[0].text if parts else ""

    # parsers

    def parser(self, parts: list[Any]) -> ast.Declaration:
        name, type_parameters, parameters, *definition = parts
        if not definition:
            return ast.Parser(name.position, name.name, type_parameters, parameters, [], [], None)
        constructor, *body = definition
        states = [part for part in body if isinstance(part, ast.State)]
        local = [part for part in body if not isinstance(part, ast.State)]
        return ast.Parser(name.position, name.name, type_parameters, parameters, constructor, local, states)

    def state(self, parts: list[Any]) -> ast.Declaration:
        annotations, name, *body = parts
        select, cases = None, [ast.Case(name.position, [], "reject")]  # meaning of a state without transition
        if body and isinstance(body[-1], tuple):
            select, cases = body.pop()
        state = ast.State(name.position, name.name, body, select, cases)
        state.annotations = annotations
        return state

    def transition(self, parts: list[Any]) -> tuple[list[ast.Expression] | None, list[ast.Case]]:
        if isinstance(parts[0], ast.Name):
            return None, [ast.Case(parts[0].position, [], parts[0].name)]
        return parts[1], parts[2:]

    def case(self, parts: list[Any]) -> ast.Case:
        return ast.Case(parts[1].position, parts[0], parts[1].name)

    def keyset(self, parts: list[Any]) -> list[ast.Expression | None]:
        return [parts[0], *(parts[1] if len(parts) > 1 else [])]

    def anything(self, parts: list[Any]) -> None:
        return None

    # controls

    def control(self, parts: list[Any]) -> ast.Declaration:
        name, type_parameters, parameters, *definition = parts
        if not definition:
            return ast.Control(name.position, name.name, type_parameters, parameters, [], [], None)
        constructor, *local, body = definition
        return ast.Control(name.position, name.name, type_parameters, parameters, constructor, local, body)

    def table(self, parts: list[Any]) -> ast.Declaration:
        name, *properties = parts
        table = ast.Table(name.position, name.name, [], [], None, False, {})
        titles: set[str] = set()
        for key, value in properties:
            title = value.name if isinstance(value, ast.Property) else key
            if title in titles:
                raise P4Error(name.position, f"table {name.name} has {title} twice")
            titles.add(title)
            if key == "entries":
                table.entries, table.constant_entries = value
            elif isinstance(value, ast.Property):
                table.properties[value.name] = value
            else:
                setattr(table, key, value)
        return table

    def property(self, parts: list[Any]) -> tuple[str, Any]:
        annotations, (_, value) = parts
        if isinstance(value, ast.Property):
            value.annotations = annotations
        return parts[1]

    def keys(self, parts: list[Any]) -> tuple[str, Any]:
        return "keys", parts

    def table_actions(self, parts: list[Any]) -> tuple[str, Any]:
        return "actions", parts

    def entries(self, parts: list[Any]) -> tuple[str, Any]:
        rows = [part for part in parts if isinstance(part, ast.Entry)]
        return "entries", (rows, parts[0].type == "CONST")

    def table_property(self, parts: list[Any]) -> tuple[str, Any]:
        *const, name, value = parts
        return "property", ast.Property(name.position, name.name, value, bool(const))

    def table_key(self, parts: list[Any]) -> ast.Key:
        expression, kind, annotations = parts
        return ast.Key(expression.position, expression, kind.name, annotations)

    def table_action(self, parts: list[Any]) -> ast.TableAction:
        return ast.TableAction(parts[1].position, parts[1], parts[0])

    def entry(self, parts: list[Any]) -> ast.Entry:
        constant, priority, keys, action, annotations = parts
        return ast.Entry(action.position, keys, action, priority, constant, annotations)

    def entry_constant(self, parts: list[Any]) -> bool:
        return bool(parts)

    def entry_priority(self, parts: list[Any]) -> ast.Expression | None:
        return parts[0] if parts else None

    # statements

    def annotated(self, parts: list[Any]) -> ast.Statement:
        return parts[1]

    def block(self, parts: list[Any]) -> ast.Block:
        return ast.Block(parts[0].position if parts else self.position_now, parts)

    def empty(self, parts: list[Any]) -> ast.Block:
        return ast.Block(self.position_now, [])

    def variable(self, parts: list[Any]) -> ast.Variable:
        kind, name, *value = parts
        return ast.Variable(name.position, name.name, kind, value[0] if value else None)

    def assignment(self, parts: list[Any]) -> ast.Assignment:
        target, *operator, value = parts
        if operator:
            value = ast.Binary(operator[0].position, operator[0].text[:-1], target, value)
        return ast.Assignment(target.position, target, value, bool(operator))

    def call_statement(self, parts: list[Any]) -> ast.CallStatement:
        return ast.CallStatement(parts[0].position, parts[0])

    def conditional(self, parts: list[Any]) -> ast.Conditional:
        keyword, condition, consequence, *alternative = parts
        return ast.Conditional(
            keyword.position, condition, consequence, alternative[1] if alternative else None
        )

    def switch_statement(self, parts: list[Any]) -> ast.SwitchStatement:
        return ast.SwitchStatement(parts[0].position, parts[1], parts[2:])

    def switch_case(self, parts: list[Any]) -> ast.SwitchCase:
        label, *block = parts
        position = label.position if label else self.position_now
        return ast.SwitchCase(position, label, block[0] if block else None)

    def for_loop(self, parts: list[Any]) -> ForLoop:
        keyword, initial, condition, updates, body = parts
        return ForLoop(keyword.position, initial, condition, updates, body)

    def loop_parts(self, parts: list[Any]) -> list[ast.Statement]:
        return parts

    def for_in(self, parts: list[Any]) -> ForIn:
        *_, kind, name, _, collection, body = parts
        return ForIn(parts[0].position, ast.Variable(name.position, name.name, kind, None), collection, body)

    def jump(self, parts: list[Any]) -> ast.Jump:
        kind, *value = parts
        return ast.Jump(kind.position, kind.text, value[0] if value else None)

    # expressions

    def binary(self, parts: list[Any]) -> ast.Expression:
        """Build the tree of ``operand operator operand ...`` by precedence climbing."""
        tokens = iter(parts[1:])
        stack: list[tuple[ast.Expression, Token]] = []
        operand = parts[0]

        def close(level: int) -> None:
            nonlocal operand
            while stack and _PRECEDENCE[stack[-1][1].text] >= level:
                left_operand, operator = stack.pop()
                operand = ast.Binary(left_operand.position, operator.text, left_operand, operand)

        for operator in tokens:
            close(_PRECEDENCE[operator.text])
            stack.append((operand, operator))
            operand = next(tokens)
        close(0)
        return operand

    def ternary(self, parts: list[Any]) -> ast.Ternary:
        return ast.Ternary(parts[0].position, *parts)

    def unary_operation(self, parts: list[Any]) -> ast.Unary:
        return ast.Unary(parts[0].position, parts[0].text, parts[1])

    def cast(self, parts: list[Any]) -> ast.Cast:
        return ast.Cast(parts[0].position, *parts)

    def member(self, parts: list[Any]) -> ast.Member:
        return ast.Member(parts[0].position, parts[0], parts[1].name, parts[1].position)

    def index(self, parts: list[Any]) -> ast.Index:
        return ast.Index(parts[0].position, *parts)

    def slice(self, parts: list[Any]) -> ast.Slice:
        return ast.Slice(parts[0].position, *parts)

    def part(self, parts: list[Any]) -> ast.Slice:
        raise Unsupported(parts[1].position, "a slice [base +: width]")

    def call(self, parts: list[Any]) -> ast.Call:
        return ast.Call(parts[0].position, parts[0], [], parts[1])

    def generic_call(self, parts: list[Any]) -> ast.Call:
        return ast.Call(parts[0].position, *parts)

    def argument(self, parts: list[Any]) -> ast.Argument:
        name = parts[0].name if len(parts) > 1 else None
        if isinstance(parts[-1], Token):  # _
            return ast.Argument(parts[-1].position, name, None)
        return ast.Argument(parts[-1].position, name, parts[-1])

    def number(self, parts: list[Any]) -> ast.Number:
        return ast.Number(parts[0].position, *integer(parts[0]))

    def boolean(self, parts: list[Any]) -> ast.Boolean:
        return ast.Boolean(parts[0].position, parts[0].text == "true")

    def string(self, parts: list[Any]) -> ast.String:
        return ast.String(parts[0].position, parts[0].text[1:-1])

    def reference(self, parts: list[Any]) -> ast.Name:
        return ast.Name(parts[0].position, parts[0].text)

    type_reference = reference

    def global_reference(self, parts: list[Any]) -> ast.Name:
        return ast.Name(parts[0].position, parts[0].name, True)

    def error_value(self, parts: list[Any]) -> ast.ErrorValue:
        return ast.ErrorValue(parts[1].position, parts[1].name)

    def parenthesised(self, parts: list[Any]) -> ast.Expression:
        return parts[0]

    def list_element(self, parts: list[Any]) -> ast.Expression:
        raise Unsupported(self.position_now, "an element of a list in braces")

    def list_value(self, parts: list[Any]) -> ast.ListValue:
        return ast.ListValue(parts[0][0].position if parts[0] else self.position_now, parts[0])

    def invalid_value(self, _: list[Any]) -> ast.InvalidValue:
        return ast.InvalidValue(self.position_now)

    def default_value(self, parts: list[Any]) -> ast.DefaultValue:
        return ast.DefaultValue(parts[0].position)

    def struct_item(self, parts: list[Any]) -> tuple[str, ast.Expression]:
        return parts[0].name, parts[1]

    def struct_value(self, parts: list[Any]) -> ast.StructValue:
        fields = [part for part in parts[0] if not isinstance(part, Token)]
        items = dict(fields)
        position = fields[0][1].position
        if len(items) < len(fields):
            raise P4Error(position, "a field is named twice")
        return ast.StructValue(position, items, has_defaults=len(fields) < len(parts[0]))
