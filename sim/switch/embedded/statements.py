"""Checks statements, besides calls and expressions."""

from __future__ import annotations

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.calls import Calls
from fanin.sim.switch.embedded.errors import P4Error, Unsupported
from fanin.sim.switch.embedded.loops import ForIn, ForLoop
from fanin.sim.switch.embedded.scope import refuse_objects, refuse_strings
from fanin.sim.switch.embedded.types import BOOL, VOID, Bits, Type, base_of


class Statements(Calls):
    """Checks statements, besides calls and expressions.

    - ``returns``: result type of the function around a statement; None outside functions.
    - ``jumps``: kinds of jumps that are allowed here.
    """

    returns: Type | None = None
    jumps: tuple[str, ...] = ()

    def statement(self, node: ast.Statement) -> None:
        """Check a statement."""
        getattr(self, "_do_" + type(node).__name__.lower())(node)

    def _do_block(self, node: ast.Block) -> None:
        outer = self.open_scope()
        for statement in node.statements:
            self.statement(statement)
        self.scope = outer

    def _do_constant(self, node: ast.Constant) -> None:
        node.type = self.resolve(node.type_node)
        node.value = self.value(node.value, node.type)
        if node.value.constant is None and not isinstance(node.value, ast.ListValue | ast.StructValue):
            raise P4Error(node.value.position, f"{node.name} must be known at compile time")
        self.declare(node.name, node, node.position)

    def _do_variable(self, node: ast.Variable) -> None:
        node.type = self.resolve(node.type_node)
        refuse_strings(node.position, node.type)
        if node.type in (VOID, types.INTEGER) or isinstance(node.type, types.External | types.Block):
            raise P4Error(node.position, f"a variable of type {node.type}")
        if node.value is not None:
            node.value = self.value(node.value, node.type)
        self.declare(node.name, node, node.position)

    def _do_instance(self, node: ast.Instance) -> None:
        kind = self.resolve(node.type_node)
        node.call = ast.Call(node.position, ast.Name(node.position, str(kind)), [], node.arguments)
        node.type = self.construct(node.call, kind)
        node.arguments = node.call.arguments
        if node.body:
            self.initialiser(node)
        self.declare(node.name, node, node.position)

    def initialiser(self, node: ast.Instance) -> None:
        """Check the initialiser in braces of an extern's instance."""
        raise NotImplementedError

    def _do_assignment(self, node: ast.Assignment) -> None:
        node.target = self.value(node.target)
        self.check_writable(node.target)
        node.value = self.value(node.value, node.target.type)

    def _do_callstatement(self, node: ast.CallStatement) -> None:
        if not isinstance(node.call, ast.Call):
            raise P4Error(node.position, "a statement without effect")
        node.call = self.expression(node.call)
        if isinstance(node.call, ast.Call) and node.call.callee.kind == "construct":
            raise P4Error(node.position, "an instance without a name")

    def _do_conditional(self, node: ast.Conditional) -> None:
        node.condition = self.value(node.condition, BOOL)
        self._nested(node.consequence)
        if node.alternative is not None:
            self._nested(node.alternative)

    def _nested(self, node: ast.Statement) -> None:
        outer = self.open_scope()
        self.statement(node)
        self.scope = outer

    def _do_forloop(self, node: ForLoop) -> None:
        outer = self.open_scope()
        for statement in node.initial:
            self.statement(statement)
        node.condition = self.value(node.condition, BOOL)
        for statement in node.updates:
            self.statement(statement)
        self._rounds(node.body)
        self.scope = outer

    def _do_forin(self, node: ForIn) -> None:
        outer = self.open_scope()
        node.collection = collection = self.expression(node.collection)
        kind = self.resolve(node.variable.type_node)
        if isinstance(collection, ast.Binary) and collection.operator == ".." and isinstance(kind, Bits):
            collection.left = self.convert(collection.left, kind)
            collection.right = self.convert(collection.right, kind)
        elif not isinstance(collection.type, types.Stack):
            raise Unsupported(node.position, f"a for loop of {kind} over {collection.type}")
        elif collection.type.element != kind:
            raise P4Error(node.position, f"{collection.type.element} where {kind} is needed")
        self.statement(node.variable)
        self._rounds(node.body)
        self.scope = outer

    def _rounds(self, body: ast.Statement) -> None:
        """Check the body of a loop."""
        outer_jumps, self.jumps = self.jumps, (*self.jumps, "break", "continue")
        self._nested(body)
        self.jumps = outer_jumps

    def _do_switchstatement(self, node: ast.SwitchStatement) -> None:
        node.subject = self.expression(node.subject)
        kind = node.subject.type
        for case in node.cases:
            if case.label is not None and isinstance(kind, types.ActionRun):
                self._action_label(case.label, kind.table)
            elif case.label is not None:
                if not isinstance(base_of(kind), Bits | types.Enum | types.Simple):
                    raise P4Error(node.position, f"switch over {kind}")
                case.label = self.value(case.label, kind)
                if case.label.constant is None:
                    raise P4Error(case.position, "a label must be known at compile time")
            if case.block is not None:
                self.statement(case.block)
        if node.cases and node.cases[-1].block is None:
            raise P4Error(node.cases[-1].position, "the last case has no statements")
        if any(case.label is None for case in node.cases[:-1]):
            raise P4Error(node.position, "default is not the last case")

    def _action_label(self, label: ast.Expression, table: ast.Table) -> None:
        names = {_action_name(action.expression): action.action for action in table.actions}
        if not isinstance(label, ast.Name) or label.name not in names:
            raise P4Error(label.position, f"{table.name} has no such action")
        label.target = names[label.name]

    def _do_jump(self, node: ast.Jump) -> None:
        if node.kind not in self.jumps:
            raise P4Error(node.position, f"{node.kind} is not allowed here")
        if node.value is not None:
            if self.returns in (None, VOID):
                raise P4Error(node.position, "nothing can be returned here")
            node.value = self.value(node.value, self.returns)
        elif node.kind == "return" and self.returns not in (None, VOID):
            raise P4Error(node.position, f"{self.returns} must be returned")

    def function(self, node: ast.Function) -> None:
        """Check a function with a body, and declare it."""
        outer = self.open_scope()
        if node.type_parameters:
            raise Unsupported(node.position, "a function with type parameters")
        node.result = self.resolve(node.result_node)
        refuse_objects(node.position, node.result)
        self.parameters(node.parameters)
        self.returns = node.result
        outer_jumps, self.jumps = self.jumps, ("return",)
        assert node.body
        with self.count_calls(node):
            self._do_block(node.body)
        self.returns, self.jumps = None, outer_jumps
        self.scope = outer

    def parameters(self, nodes: list[ast.Parameter]) -> None:
        """Resolve and declare parameters."""
        for parameter in nodes:
            parameter.type = self.resolve(parameter.type_node)
            if parameter.type == VOID:
                raise P4Error(parameter.position, "a parameter of type void")
            if parameter.direction:
                refuse_objects(parameter.position, parameter.type)
            if parameter.default is not None:
                parameter.default = self.value(parameter.default, parameter.type)
            self.declare(parameter.name, parameter, parameter.position)


def _action_name(node: ast.Expression) -> str:
    """Return the name of an action in a table's list, with or without arguments."""
    function = node.function if isinstance(node, ast.Call) else node
    return function.name if isinstance(function, ast.Name) else ""
