"""Checks all declarations of a program, in order.

The checker is one class in five files: Scopes, Expressions, Calls, Statements and Checker, each derived from
the previous one. ``_do_x`` checks a statement or declaration of class X, ``_x`` an expression of class X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.calls import same_parameters
from fanin.sim.switch.embedded.errors import P4Error, Unsupported
from fanin.sim.switch.embedded.lexer import Token, integer
from fanin.sim.switch.embedded.names import translation
from fanin.sim.switch.embedded.scope import Scope, refuse_objects
from fanin.sim.switch.embedded.statements import Statements
from fanin.sim.switch.embedded.types import Bindings, Bits, base_of


class Checker(Statements):
    """Checks a program's declarations; afterwards the tree has types, and names have declarations."""

    def check(self, program: Sequence[ast.Declaration]) -> None:
        """Check all declarations. Raises P4Error at the first error."""
        for node in program:
            self.statement(node)

    def _do_namelist(self, node: ast.NameList) -> None:
        for name in node.names:
            if name in self.errors and node.name == "error":
                raise P4Error(node.position, f"error.{name} is declared twice")
            if node.name == "error":
                self.errors[name] = len(self.errors)
            else:
                self.match_kinds.add(name)

    def _do_fieldstype(self, node: ast.FieldsType) -> None:
        self.declare(node.name, node, node.position)
        outer = self.open_scope()
        arguments = self.type_variables(node.type_parameters, node.position)
        fields: dict[str, types.Type] = {}
        for field in node.fields:
            kind = self.resolve(field.type_node)
            if field.name in fields:
                raise P4Error(field.position, f"{node.name} has {field.name} twice")
            _check_field(node, field, kind)
            self._number_lists(field)
            fields[field.name] = kind
        self.scope = outer
        node.type = types.Record(node.kind, node.name, fields, node, arguments)

    def _number_lists(self, field: ast.Variable) -> None:
        """Replace constants in ``@field_list`` with their numbers."""
        if "field_list" in field.annotations:
            items = _split_at_commas(field.annotations["field_list"])
            field.annotations["field_list"] = [
                replace(item[0], type="INT", text=str(self._list_number(item))) for item in items
            ]

    def _list_number(self, item: list[Token]) -> int:
        """Return the number of a field list: a number, a constant, or ``Enum.member``."""
        if [token.type for token in item] == ["INT"]:
            return integer(item[0])[0]
        declaration = self.scope.find(item[0].text)
        value = None
        if isinstance(declaration, ast.Constant) and len(item) == 1:
            value = declaration.value.constant
        elif isinstance(declaration, ast.Enumeration) and [token.text for token in item[1:2]] == ["."]:
            value = declaration.type.members.get(item[-1].text)
        if not isinstance(value, int):
            text = "".join(token.text for token in item)
            raise P4Error(item[0].position, f"@field_list: {text} is not a known number")
        return value

    def _do_enumeration(self, node: ast.Enumeration) -> None:
        underlying = base_of(self.resolve(node.underlying)) if node.underlying else None
        if underlying is not None and not isinstance(underlying, Bits):
            raise P4Error(node.position, f"an enum of {underlying}")
        members: dict[str, int] = {}
        for name, value in node.members:
            if name in members or (value is None) != (underlying is None):
                raise P4Error(node.position, f"{node.name}.{name}: twice, or with a value too many or too few")
            members[name] = len(members) if value is None else self.value(value, underlying).constant
            if members[name] is None:
                raise P4Error(node.position, f"{node.name}.{name} must be known at compile time")
        node.type = types.Enum(node.name, members, underlying)
        self.declare(node.name, node, node.position)

    def _do_typealias(self, node: ast.TypeAlias) -> None:
        kind = self.resolve(node.type_node)
        if node.new:
            refuse_objects(node.position, kind)
        node.type = types.New(node.name, kind, translation(node.annotations)) if node.new else kind
        self.declare(node.name, node, node.position)

    def _do_extern(self, node: ast.Extern) -> None:
        self.declare(node.name, node, node.position)
        outer = self.open_scope()
        node.type = types.External(node, self.type_variables(node.type_parameters, node.position))
        for method in node.methods:
            self._prototype(method)
        self.scope = outer

    def _do_function(self, node: ast.Function) -> None:
        if node.body is None:
            self._prototype(node)
        else:
            self.function(node)
        self.declare(node.name, node, node.position)

    def _prototype(self, node: ast.Function) -> None:
        outer = self.open_scope()
        node.type = self.type_variables(node.type_parameters, node.position)
        node.result = self.resolve(node.result_node)
        refuse_objects(node.position, node.result)
        self.parameters(node.parameters)
        self.scope = outer

    def _do_package(self, node: ast.Package) -> None:
        outer = self.open_scope()
        arguments = self.type_variables(node.type_parameters, node.position)
        self.parameters(node.parameters)
        self.scope = outer
        node.type = types.Block(node, arguments)
        self.declare(node.name, node, node.position)

    def _do_action(self, node: ast.Action) -> None:
        outer = self.open_scope()
        self.parameters(node.parameters)
        directionless = [p.direction == "" for p in node.parameters]
        if directionless != sorted(directionless):
            raise P4Error(node.position, "an action's parameters without direction come last")
        self.in_action, self.jumps = True, ("exit", "return")
        with self.count_calls(node):
            self._do_block(node.body)
        self.in_action, self.jumps = False, ()
        self.scope = outer
        self.declare(node.name, node, node.position)

    # parsers

    def _do_parser(self, node: ast.Parser) -> None:
        outer = self._begin_block(node)
        if node.states is not None:
            for local in node.locals:
                self.statement(local)
            names = {"accept", "reject"}
            for state in node.states:
                if state.name in names:
                    raise P4Error(state.position, f"state {state.name} is declared twice")
                names.add(state.name)
            if "start" not in names:
                raise P4Error(node.position, f"parser {node.name} has no state start")
            with self.count_calls(node):
                for state in node.states:
                    self._state(state, names)
        self.scope = outer
        self.declare(node.name, node, node.position)

    def _begin_block(self, node: ast.Parser | ast.Control) -> Scope:
        outer = self.open_scope()
        arguments = self.type_variables(node.type_parameters, node.position)
        self.parameters(node.parameters)
        self.parameters(node.constructor)
        node.type = types.Block(node, arguments)
        return outer

    def _state(self, node: ast.State, names: set[str]) -> None:
        outer = self.open_scope()
        for statement in node.statements:
            self.statement(statement)
        if node.select is not None:
            node.select = [self.value(key) for key in node.select]
        for case in node.cases:
            if case.state not in names:
                raise P4Error(case.position, f"there is no state {case.state}")
            if node.select is not None:
                case.keys = self._keyset(case.keys, [key.type for key in node.select], case)
        self.scope = outer

    def _keyset(
        self, keys: list[ast.Expression | None], kinds: list[types.Type], node: ast.Node
    ) -> list[ast.Expression | None]:
        """Check the values that are matched with keys of these types; a single ``_`` matches all keys."""
        if keys == [None]:
            return [None] * len(kinds)
        if len(keys) == 1 and isinstance(keys[0], ast.ListValue):  # {1, 2} for (1, 2)
            keys = list(keys[0].items)
        if len(keys) != len(kinds):
            raise P4Error(node.position, f"{len(keys)} values for {len(kinds)} keys")
        return [None if key is None else self._match(key, kind) for key, kind in zip(keys, kinds, strict=True)]

    def _match(self, key: ast.Expression, kind: types.Type) -> ast.Expression:
        """Check a value, or a set such as ``a &&& b`` or ``a .. b``, that is matched with a key of ``kind``."""
        key = self.expression(key)
        if isinstance(key.type, types.SetOf) and isinstance(key, ast.Binary):
            bits = kind.underlying if isinstance(kind, types.Enum) and kind.underlying else base_of(kind)
            key.left, key.right = self.convert(key.left, bits), self.convert(key.right, bits)
            return key
        return self.convert(key, kind)

    # controls

    def _do_control(self, node: ast.Control) -> None:
        outer = self._begin_block(node)
        if node.body is not None:
            for local in node.locals:
                self.statement(local)
            self.jumps = ("exit", "return")
            with self.count_calls(node):
                self.statement(node.body)
            self.jumps = ()
        self.scope = outer
        self.declare(node.name, node, node.position)

    def initialiser(self, node: ast.Instance) -> None:
        """Check the functions in an instance's braces: exactly the abstract functions of its extern."""
        if not isinstance(node.type, types.External):
            raise P4Error(node.position, f"{node.type} takes no initialiser")
        abstract = {m.name: m for m in node.type.declaration.methods if "abstract" in m.annotations}
        bindings = Bindings(dict(zip(node.type.declaration.type.arguments, node.type.arguments, strict=True)))
        for function in node.body:
            if not isinstance(function, ast.Function) or function.name not in abstract:
                raise P4Error(function.position, f"{node.type} has no abstract function {function.name}")
            self.function(function)
            if not same_parameters(
                abstract[function.name].parameters, function.parameters, bindings, Bindings()
            ):
                raise P4Error(
                    function.position, f"{function.name} does not have the parameters that {node.type} wants"
                )

    def _do_table(self, node: ast.Table) -> None:
        for key in node.keys:
            key.expression = self.value(key.expression)
            if key.kind not in self.match_kinds:
                raise P4Error(key.position, f"there is no match kind {key.kind}")
            if not isinstance(base_of(key.expression.type), Bits | types.Enum | types.Simple | types.Varbit):
                raise P4Error(key.position, f"a key of type {key.expression.type}")
        for row in node.actions:
            self._table_action(row)
        by_action = {row.action: row for row in node.actions}
        node.calls = max((action.calls for action in by_action), default=0)
        if node.entries is not None:
            for entry in node.entries:
                self._entry(node, entry, by_action)
        for table_property in node.properties.values():
            if table_property.name == "default_action":
                table_property.value = self._action_call(table_property.value, by_action)
            else:
                table_property.value = self.expression(table_property.value)
        self.declare(node.name, node, node.position)

    def _table_action(self, row: ast.TableAction) -> None:
        """Check an action in a table's list, which gives values for the parameters with a direction."""
        expression = row.expression
        name = expression.function if isinstance(expression, ast.Call) else expression
        function = self.expression(name)
        if not isinstance(function.type, types.Meta) or function.type.kind != "a action":
            raise P4Error(row.position, "not an action")
        row.action = action = function.type.of
        directed = [p for p in action.parameters if p.direction]
        arguments = expression.arguments if isinstance(expression, ast.Call) else []
        if len(arguments) != len(directed):
            raise P4Error(
                row.position, f"{action.name} needs {len(directed)} arguments here, not {len(arguments)}"
            )
        for parameter, argument in zip(directed, arguments, strict=True):
            assert argument.value is not None
            argument.value = self.expression(argument.value, parameter.type)
            if parameter.direction != "in":
                self.check_writable(argument.value)

    def _action_call(self, node: ast.Expression, by_action: dict[ast.Action, ast.TableAction]) -> ast.Call:
        """Check the action of an entry or of the default.

        The result has the arguments of parameters without direction only, which must be constants.
        """
        call = node if isinstance(node, ast.Call) else ast.Call(node.position, node, [], [])
        function = self.expression(call.function)
        action = function.type.of if isinstance(function.type, types.Meta) else None
        if action not in by_action:
            raise P4Error(node.position, "not an action of this table")
        call.callee = by_action[action]
        directed = [p for p in action.parameters if p.direction]
        data = [p for p in action.parameters if not p.direction]
        if len(call.arguments) == len(action.parameters) and directed:
            call.arguments = call.arguments[len(directed) :]  # the list of actions has already given the others
        if len(call.arguments) != len(data):
            raise P4Error(
                node.position, f"{action.name} takes {len(data)} arguments, not {len(call.arguments)}"
            )
        for parameter, argument in zip(data, call.arguments, strict=True):
            if argument.value is None:
                raise P4Error(argument.position, "an argument is missing")
            argument.value = self.value(argument.value, parameter.type)
            if argument.value.constant is None:
                raise Unsupported(argument.position, "an argument that is not known at compile time")
        return call

    def _entry(self, table: ast.Table, entry: ast.Entry, by_action: dict[ast.Action, ast.TableAction]) -> None:
        entry.keys = self._keyset(entry.keys, [key.expression.type for key in table.keys], entry)
        if entry.priority is not None:
            entry.priority = self.value(entry.priority)
        entry.action = self._action_call(entry.action, by_action)


def _split_at_commas(body: list[Token]) -> list[list[Token]]:
    """Return the items of a list of tokens, without empty ones."""
    items: list[list[Token]] = [[]]
    for token in body:
        if token.text == ",":
            items.append([])
        else:
            items[-1].append(token)
    return [item for item in items if item]


def _check_field(node: ast.FieldsType, field: ast.Variable, kind: types.Type) -> None:
    base = base_of(kind)
    is_header = isinstance(base, types.Record) and base.kind == "header"
    allowed = {
        "struct": not isinstance(base, types.External | types.Block),
        "header": isinstance(base, Bits | types.Varbit | types.Variable)
        or base == types.BOOL
        or (isinstance(base, types.Record) and base.kind == "struct" and types.width_of(base) is not None),
        "header_union": is_header,
    }[node.kind]
    if not allowed or base in (types.VOID, types.INTEGER, types.STRING):
        raise P4Error(field.position, f"a {node.kind} with a field of type {kind}")
