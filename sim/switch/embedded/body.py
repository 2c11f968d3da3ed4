"""Code of a function's body: statements and assignments."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fanin.sim.switch.embedded import ast, budget, types
from fanin.sim.switch.embedded.context import BlockContext, ProgramContext
from fanin.sim.switch.embedded.errors import Unsupported
from fanin.sim.switch.embedded.loops import ForIn, ForLoop
from fanin.sim.switch.embedded.source import Source
from fanin.sim.switch.embedded.types import Bits, Type, base_of, is_scalar
from fanin.sim.switch.embedded.values_code import ValueCode, has_effects, wrap

Store = Callable[[str], None]  # takes code of a value; emits code that stores the value


class Place(NamedTuple):
    """A writable place: code of its value, and a function that emits a store to it."""

    load: str
    store: Store


class Body(ValueCode):
    """Generator of the body of one Python function: statements and assignments.

    It fetches the objects in the frame of the ``instance`` once, at its start.
    """

    def __init__(self, generator: ProgramContext, instance: BlockContext | None):
        super().__init__(Source(), generator.records, {})
        self.generator = generator
        self.instance = instance
        self.out_names: list[str] = []  # Python names of the parameters whose values the function returns
        self.has_result = False
        self.loops: list[list[ast.Statement]] = []  # updates of the loops around a statement
        self.fetched: dict[str, str] = {}  # attribute of the frame, by name of the local variable

    def python_name(self, target: ast.Declaration) -> str:
        """Return the Python name of a declaration; records of the frame become local variables."""
        if target in self.python_names:
            return self.python_names[target]
        assert self.instance is not None, target
        python_name = self.instance.python_name(target)
        if (
            not python_name.startswith("f.")
            or is_scalar(target.type)
            or isinstance(base_of(target.type), types.Tuple)
        ):
            return python_name
        name = python_name[2:]
        self.fetched[name] = python_name
        return name

    def name_for(self, node: ast.Expression, code: str) -> ast.Name:
        """Return an expression of the type of ``node`` whose code is ``code``."""
        parameter = ast.Parameter(node.position, "", "in", ast.AnyType(node.position), None)
        self.python_names[parameter] = code
        name = ast.Name(node.position, "")
        name.target, name.type = parameter, node.type
        return name

    def function(self, header: str) -> Source:
        """Return the whole function; its body has been emitted."""
        function = Source()
        function.position = self.source.positions[0] if self.source.positions else None
        with function.block(header):
            for name, attribute in self.fetched.items():
                function.emit(f"{name} = {attribute}")
            for line, position in zip(self.source.lines, self.source.positions, strict=True):
                function.position = position
                function.emit(line)
        return function

    # statements

    def statement(self, node: ast.Statement) -> None:
        """Emit a statement."""
        self.source.position = node.position
        getattr(self, "_do_" + type(node).__name__.lower())(node)

    def _do_block(self, node: ast.Block) -> None:
        for number, statement in enumerate(node.statements, 1):
            self.statement(statement)
            if number % budget.CLOCK_INTERVAL == 0:
                self.source.emit(budget.CLOCK_CHECK)

    def _do_constant(self, node: ast.Constant) -> None:
        """Emit nothing, since its uses have its value."""

    def _do_variable(self, node: ast.Variable) -> None:
        self.generator.hold(node)
        code = self.records.new(node.type) if node.value is None else self.copy_code(node.value)
        name = self.python_names[node] = self.source.unique_name("v_" + node.name)
        self.source.emit(f"{name} = {code}")

    def _do_instance(self, node: ast.Instance) -> None:
        raise Unsupported(node.position, "an instance among statements")

    def _do_assignment(self, node: ast.Assignment) -> None:
        place = self.target(node.target, frozen=has_effects(node.value))
        value = node.value
        if node.compound and isinstance(value, ast.Binary) and has_effects(node.target):
            # The value repeats the target, which must be evaluated only once.
            target = self.name_for(node.target, place.load)
            value = ast.Binary(value.position, value.operator, target, value.right)
            value.type = node.value.type
        place.store(self.value(value))

    def _do_callstatement(self, node: ast.CallStatement) -> None:
        code = self.value(node.call)
        if not code.isidentifier() and code != "None":
            self.source.emit(code)

    def _do_conditional(self, node: ast.Conditional) -> None:
        with self.source.block(f"if {self.value(node.condition)}:"):
            self.statement(node.consequence)
        if node.alternative is not None:
            with self.source.block("else:"):
                self.statement(node.alternative)

    def _do_forloop(self, node: ForLoop) -> None:
        for statement in node.initial:
            self.statement(statement)
        self.source.position = node.position
        with self.source.block("for _ in rounds(ARCH):"):
            condition = self.value(node.condition)
            with self.source.block(f"if not ({condition}):"):
                self.source.emit("break")
            self._rounds(node.body, node.updates)
            for statement in node.updates:
                self.statement(statement)

    def _do_forin(self, node: ForIn) -> None:
        collection = node.collection
        name = self.python_names[node.variable] = self.source.unique_name("v_" + node.variable.name)
        if isinstance(collection, ast.Binary):
            low = self.save(self.value(collection.left), node.variable.type)
            values = f"numbers(ARCH, {low}, {self.value(collection.right)})"
        else:
            values = f"[element.copy() for element in {self.value(collection)}.elements]"
        with self.source.block(f"for {name} in {values}:"):
            self._rounds(node.body, [])

    def _rounds(self, body: ast.Statement, updates: list[ast.Statement]) -> None:
        """Emit the body of a loop; ``updates`` come before the next round."""
        self.source.emit(budget.CLOCK_CHECK)
        self.loops.append(updates)
        self.statement(body)
        self.loops.pop()

    def _do_switchstatement(self, node: ast.SwitchStatement) -> None:
        subject = self.save(self.value(node.subject), node.subject.type)
        if not isinstance(node.subject.type, types.ActionRun):
            # No label equals an undefined subject, so `default` would run. This statement refuses it instead.
            self.source.emit(f"{subject} == 0 or 0")
        keyword = "if"
        labels: list[str] = []
        for case in node.cases:
            if case.label is not None:
                labels.append(self._label(case.label))
            elif case.block is not None:
                labels = []
            if case.block is None:
                continue
            if case.label is None:
                header = "else:" if keyword == "elif" else "if True:"
            else:
                header = f"{keyword} {subject} in ({', '.join(labels)},):"
            with self.source.block(header):
                self.statement(case.block)
            keyword, labels = "elif", []

    def _label(self, label: ast.Expression) -> str:
        if isinstance(label, ast.Name) and isinstance(label.target, ast.Action):
            return str(self.generator.action_number(label.target))
        return repr(label.constant)

    def _do_jump(self, node: ast.Jump) -> None:
        if node.kind == "exit":
            self.source.emit("raise Exit")
        elif node.kind == "break":
            self.source.emit("break")
        elif node.kind == "continue":
            for statement in self.loops[-1]:
                self.statement(statement)
            self.source.emit("continue")
        else:
            self.emit_return(None if node.value is None else self.copy_code(node.value))

    def emit_return(self, result: str | None) -> None:
        """Emit a return statement with the result and the values of the out parameters."""
        parts = ([result or "None"] if self.has_result else []) + self.out_names
        if not parts:
            self.source.emit("return")
        elif self.out_names:
            self.source.emit(f"return ({', '.join(parts)},)")
        else:
            self.source.emit(f"return {parts[0]}")

    # assignments

    def target(self, node: ast.Expression, frozen: bool = False) -> Place:
        """Return the place of ``node``. The expressions in ``node`` are evaluated here, once.

        ``frozen``: their values may change before the place is used.
        """
        if isinstance(node, ast.Name):
            return self._place(self.value(node), node.type)
        if isinstance(node, ast.Slice):
            return self._slice_place(node, frozen)
        if isinstance(node, ast.Member) and not isinstance(node.base.type, types.Stack):
            base = self._holder(node.base, frozen)
            kind = base_of(node.base.type)
            if isinstance(kind, types.Record) and kind.kind == "header":
                return self._header_place(base, node)
            return self._place(f"{base}.f_{node.name}", node.type)
        return self._place(self._holder(node, frozen), node.type)

    def _holder(self, node: ast.Expression, frozen: bool) -> str:
        """Return code of the record for a store: a plain path, or a name of its value."""
        code = self.value(node)
        if code.replace(".", "").isidentifier():
            return code
        if frozen or "(" in code:
            name = self.source.unique_name("t")
            self.source.emit(f"{name} = {code}")  # the object itself, not a copy: the store changes it
            return name
        return code

    def _place(self, code: str, kind: Type) -> Place:
        if isinstance(base_of(kind), types.Record | types.Stack):
            return Place(code, lambda value: self.source.emit(f"{code}.set({value})"))
        return Place(code, lambda value: self.source.emit(f"{code} = {value}"))

    def _header_place(self, base: str, node: ast.Member) -> Place:
        """Return the place of a header's field; a store to a field of an invalid header has no effect."""
        inner = self._place(f"{base}.f_{node.name}", node.type)

        def store(code: str) -> None:
            if self.records.permissive and is_scalar(node.type):
                self.source.emit(f"{inner.load} = {code} if {base}.valid else mark_unset({code})")
                return
            with self.source.block(f"if {base}.valid:"):
                inner.store(code)

        return Place(inner.load, store)

    def _slice_place(self, node: ast.Slice, frozen: bool) -> Place:
        outer = self.target(node.base, frozen)
        high, low = node.bounds
        ones = (1 << (high - low + 1)) - 1
        kind = base_of(node.base.type)
        assert isinstance(kind, Bits)

        def store(code: str) -> None:
            kept_mask = ~(ones << low) & ((1 << kind.width) - 1)
            merged = f"({code}) << {low}" if low else code
            if kept_mask:
                merged = f"{outer.load} & {kept_mask} | {merged}"
            outer.store(wrap(merged, kind) if kind.signed else merged)

        return Place(f"({outer.load} >> {low} & {ones})", store)
