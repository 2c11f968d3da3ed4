"""Translation of controls, parsers and extern instances to Python functions and objects.

Each instance of a control or parser becomes several functions: one for each action, table and state, and one
that runs the whole block. They share a frame, an object with the parameters and local variables of one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fanin.sim.switch.embedded import ast, budget, types
from fanin.sim.switch.embedded.calls_code import CallBody
from fanin.sim.switch.embedded.context import BlockContext
from fanin.sim.switch.embedded.description import DigestInfo, ExternInfo, TableInfo
from fanin.sim.switch.embedded.errors import P4Error, Position, Unsupported
from fanin.sim.switch.embedded.names import annotated_id, annotated_words, control_name
from fanin.sim.switch.embedded.preprocessor import is_bundled
from fanin.sim.switch.embedded.records import Records
from fanin.sim.switch.embedded.source import Source
from fanin.sim.switch.embedded.tables_code import TableCode
from fanin.sim.switch.embedded.types import VOID, base_of, is_scalar

MAX_INSTANCES = 1 << 12
_OUT_DIRECTIONS = ("out", "inout")


class Generator:
    """Makes the Python text of a program: ``functions`` first, then ``objects``, which refer to them."""

    def __init__(self, architecture: type[Any], *, permissive: bool = False):
        self.architecture = architecture
        self.records = Records(permissive=permissive)
        self.functions = Source()
        self.objects = Source()
        self.tables: dict[str, TableInfo] = {}  # by Python name
        self.externs: dict[str, ExternInfo] = {}
        self.digests: dict[ast.Call, DigestInfo] = {}
        self.instances = 0  # of controls and parsers
        self._locals = 0  # values in parameters and local variables
        self.constants: dict[str, Any] = {}  # objects that the text refers to
        self.states: dict[str, str] = {}  # name of the state, by its function
        self._functions: dict[tuple[ast.Declaration, BlockContext | None], str] = {}
        self._actions: dict[ast.Action, int] = {}
        self._globals: dict[ast.Declaration, str] = {}
        self._run_functions: set[tuple[Any, BlockContext | None]] = set()

    def hold(self, node: ast.Declaration) -> None:
        """Count the values of a parameter or local variable. Raises P4Error above ``MAX_LOCALS``."""
        self._locals += types.parts_in(node.type) + (types.width_of(node.type) or 0) // 64
        if self._locals > budget.MAX_LOCALS:
            raise P4Error(
                node.position, f"parameters and variables have more than {budget.MAX_LOCALS:,} values"
            )

    def repeats(self, node: ast.Call, instance: BlockContext | None) -> bool:
        """Return whether a call in ``instance`` runs a function that an earlier such call runs, too."""
        functions: set[tuple[Any, BlockContext | None]]
        if node.callee.kind == "block" and instance is not None and isinstance(node.function, ast.Member):
            functions = {(instance.block_of(node.function.base), None)}
        else:
            owner = None if node.callee.kind == "function" else instance
            functions = {(target, owner) for target in _declarations_run(node)}
        is_repeated = not functions.isdisjoint(self._run_functions)
        self._run_functions |= functions
        return is_repeated

    def extern_class(self, position: Position, name: str) -> type[Any]:
        """Return the class that implements an extern object. Raises Refused if there is none."""
        if name not in self.architecture.externs:
            raise Unsupported(position, f"the extern {name}")
        return self.architecture.externs[name]

    def action_number(self, action: ast.Action) -> int:
        """Return the action's unique number, the value of ``action_run``."""
        return self._actions.setdefault(action, len(self._actions))

    def member_name(self, node: ast.Expression) -> str:
        """Return code of an enum member's name; only constants have one."""
        if node.constant is None:
            raise Unsupported(node.position, f"{node.type} that is not known at compile time")
        members = node.type.members
        return repr(next(name for name, value in members.items() if value == node.constant))

    def extern(
        self,
        node: ast.Call,
        kind: types.External,
        name: str,
        instance: BlockContext | None,
        body: Sequence[ast.Declaration] = (),
        annotations: ast.Annotations | None = None,
    ) -> str:
        """Emit code of an extern's instance; return its Python name."""
        python_class = self.extern_class(node.position, kind.declaration.name)
        if not is_bundled(kind.declaration.position):
            raise Unsupported(node.position, f"a second declaration of the extern {kind.declaration.name}")
        arguments = []
        for argument in node.arguments:
            if argument.value is None:
                arguments.append("None")
            elif isinstance(argument.value.type, types.External):
                assert instance is not None
                assert isinstance(argument.value, ast.Name)
                arguments.append(instance.extern_of(argument.value))
            elif isinstance(argument.value.type, types.Enum) and argument.value.type.underlying is None:
                arguments.append(self.member_name(argument.value))
            else:
                arguments.append(self.static(argument.value, instance))
        python = self.objects.unique_name("e_" + kind.declaration.name)
        class_name, types_name = f"{python}_class", f"{python}_types"
        self.constants[class_name], self.constants[types_name] = python_class, kind.arguments
        makers, zeros = (
            "".join(f"lambda: {code(argument)}, " for argument in kind.arguments)
            for code in (self.records.new, self.records.zero)
        )
        for function in body:
            if function.name not in python_class.abstract:
                raise Unsupported(function.position, f"the abstract function {function.name}")
        bodies = {f.name: self.function_of(f, instance) for f in body}
        methods = "".join(f"{method}={function}, " for method, function in bodies.items())
        self.objects.position = node.position
        self.objects.emit(
            f"{python} = {class_name}({''.join(a + ', ' for a in arguments)}name={name!r}, types={types_name}, "
            f"makers=({makers}), zeros=({zeros}), arch=ARCH, {methods})"
        )
        values = tuple(map(_constant, node.arguments))
        self.externs[python] = ExternInfo(
            kind.declaration.name, name, kind.arguments, values, annotated_id(annotations or {}),
            annotated_words(annotations or {}),
        )  # fmt: skip
        return python

    def digest(self, node: ast.Call, kind: types.Type) -> str:
        """Return a digest's name: that of its struct, or a number, as in p4c."""
        if node not in self.digests:
            unnamed = sum(not isinstance(digest.type, types.Record) for digest in self.digests.values())
            name = control_name(kind.declaration) if isinstance(kind, types.Record) else f"digest_{unnamed}"
            self.digests[node] = DigestInfo(name, kind)
        return self.digests[node].name

    def static(self, node: ast.Expression, instance: BlockContext | None) -> str:
        """Return code of a value that is known at compile time."""
        body = CallBody(self, instance)
        code = body.value(node)
        try:
            value = eval(code, {"__builtins__": {}})  # generated code of numbers and operators only
        except Exception:
            raise Unsupported(node.position, "a value that is not known at compile time") from None
        return repr(value)

    def global_extern(self, node: ast.Instance) -> str:
        """Return the Python name of an extern instance outside all blocks."""
        if node not in self._globals:
            self._globals[node] = self.extern(
                node.call, node.type, control_name(node).removeprefix("."), None, node.body, node.annotations
            )
        return self._globals[node]

    def function_of(self, node: ast.Declaration, instance: BlockContext | None) -> str:
        """Return the Python function of an action or function, written at the first call.

        The function takes the frame and the values of its parameters. It returns the result, if any, and the
        values of the out parameters.
        """
        if instance is not None and node not in instance.own_functions:
            instance = None
        key = (node, instance)
        if key in self._functions:
            return self._functions[key]
        name = self._functions[key] = self.functions.unique_name("x_" + node.name)
        assert isinstance(node, ast.Action | ast.Function)
        assert node.body is not None
        body = CallBody(self, instance)
        names = []
        for parameter in node.parameters:
            self.hold(parameter)
            body.python_names[parameter] = f"a_{parameter.name}"
            names.append(body.python_names[parameter])
            if parameter.direction in _OUT_DIRECTIONS:
                body.out_names.append(body.python_names[parameter])
        body.has_result = isinstance(node, ast.Function) and node.result != VOID
        # An action that an exit leaves still copies out its parameters: the exception carries their values.
        catches_exit = bool(body.out_names) and isinstance(node, ast.Action)
        if catches_exit:
            with body.source.block("try:"):
                body.statement(node.body)
            with body.source.block("except Exit as exiting:"):
                body.source.emit(f"exiting.out_values = ({', '.join(body.out_names)},)")
                body.source.emit("raise")
        else:
            body.statement(node.body)
        if body.has_result:
            body.source.emit("raise RunRefused('a function that ends without return')")
        elif body.out_names:
            body.emit_return(None)
        self.functions.extend(body.function(f"def {name}({', '.join(['f', *names])}):"))
        return name

    def text(self) -> tuple[str, list[Position | None]]:
        """Return the whole Python text, and the position of each line."""
        lines = [*self.records.lines, *self.functions.lines, *self.objects.lines]
        positions = [None] * len(self.records.lines) + self.functions.positions + self.objects.positions
        return "\n".join(lines) + "\n", positions


class Instance:
    """An instance of a control or parser; ``path`` is its name for the control plane."""

    def __init__(
        self,
        generator: Generator,
        node: ast.Parser | ast.Control,
        path: str,
        arguments: dict[ast.Parameter, Any],
    ):
        self.generator = generator
        generator.instances += 1
        if generator.instances > MAX_INSTANCES:
            raise P4Error(node.position, f"more than {MAX_INSTANCES} instances of controls and parsers")
        self.node = node
        self.path = path
        self.tables: dict[ast.Table, str] = {}
        self._constructor = arguments  # code of numbers, names of externs, instances of blocks
        self._externs: dict[ast.Declaration, str] = {}
        self._blocks: dict[ast.Declaration, Instance] = {}
        source = generator.functions
        self.frame, self.run = source.unique_name("Frame"), source.unique_name(f"run_{node.name}")
        variables = [v for v in node.locals if isinstance(v, ast.Variable)]
        self.own_functions: set[ast.Declaration] = {
            n for n in node.locals if isinstance(n, ast.Action | ast.Function)
        }
        for declaration in (*node.parameters, *variables):
            generator.hold(declaration)
        self._slots: dict[ast.Declaration, str] = {p: f"p_{p.name}" for p in node.parameters}
        self._slots |= {v: f"l_{v.name}" for v in variables}
        source.position = node.position
        with source.block(f"class {self.frame}:"):
            source.emit(f"__slots__ = {tuple(self._slots.values())!r}")
        for local in node.locals:
            self._local(local)
        if isinstance(node, ast.Control):
            self._control(node, variables)
        else:
            self._parser(node, variables)

    # meanings of names

    def python_name(self, target: ast.Declaration) -> str:
        """Return the Python place of a parameter or variable."""
        if target in self._slots:
            return f"f.{self._slots[target]}"
        if target in self._constructor:
            return str(self._constructor[target])
        raise Unsupported(target.position, f"a use of {target.name} as a value")

    def extern_of(self, node: ast.Name) -> str:
        """Return the Python name of the extern instance that ``node`` means; packets are parameters."""
        target = node.target
        if target in self._externs:
            return self._externs[target]
        if target in self._constructor:
            return str(self._constructor[target])
        if isinstance(target, ast.Instance):
            return self.generator.global_extern(target)
        return self.python_name(target)

    def block_of(self, node: ast.Expression) -> Instance:
        """Return the instance whose ``apply`` is called: a local one, the constructor's, or an unnamed one."""
        assert isinstance(node, ast.Name)
        target = node.target
        if target in self._constructor:
            return self._constructor[target]
        if target not in self._blocks:
            if not isinstance(target, ast.Parser | ast.Control) or target.constructor:
                raise Unsupported(node.position, f"a call of {node.name}.apply in this place")
            self._blocks[target] = Instance(self.generator, target, f"{self.path}.{target.name}", {})
        return self._blocks[target]

    # declarations

    def _local(self, node: ast.Declaration) -> None:
        if isinstance(node, ast.Instance):
            name = self.name_of(node)
            if isinstance(node.type, types.External):
                self.own_functions |= set(node.body)
                self._externs[node] = self.generator.extern(
                    node.call, node.type, name, self, node.body, node.annotations
                )
            elif isinstance(node.type, types.Block):
                arguments = {
                    parameter: self._constructor_argument(argument.value)
                    for parameter, argument in zip(
                        node.call.callee.parameters, node.call.arguments, strict=True
                    )
                }
                block = node.type.declaration
                assert isinstance(block, ast.Parser | ast.Control)
                self._blocks[node] = Instance(self.generator, block, name, arguments)
        elif isinstance(node, ast.Table):
            self.tables[node] = TableCode(self.generator, self, node).write()

    def _constructor_argument(self, value: ast.Expression | None) -> Any:
        assert value is not None
        if isinstance(value.type, types.External) and isinstance(value, ast.Name):
            return self.extern_of(value)
        if isinstance(value.type, types.External) and isinstance(value, ast.Call):
            return self.generator.extern(value, value.type, f"{self.path}.{value.type}", self)
        if isinstance(value.type, types.Block) and isinstance(value, ast.Name):
            return self.block_of(value)
        return self.generator.static(value, self)

    def name_of(self, node: ast.Declaration) -> str:
        """Return the name of a local declaration for the control plane."""
        name = control_name(node)
        return name[1:] if name.startswith(".") else f"{self.path}.{name}"

    # code

    def _begin(self, body: CallBody, variables: list[ast.Variable]) -> None:
        """Emit code that gives local variables their first values."""
        for variable in variables:
            body.source.position = variable.position
            code = body.records.new(variable.type) if variable.value is None else body.copy_code(variable.value)
            slot = self._slots[variable]
            if not is_scalar(variable.type) and not isinstance(base_of(variable.type), types.Tuple):
                body.python_names[variable] = slot  # the next line assigns it
                body.source.emit(f"{slot} = f.{slot} = {code}")
            else:
                body.source.emit(f"f.{slot} = {code}")

    def _control(self, node: ast.Control, variables: list[ast.Variable]) -> None:
        body = CallBody(self.generator, self)
        self._begin(body, variables)
        assert node.body is not None
        body.statement(node.body)
        self.generator.functions.extend(body.function(f"def {self.run}(f):"))

    def _parser(self, node: ast.Parser, variables: list[ast.Variable]) -> None:
        assert node.states is not None
        names = {
            state.name: self.generator.functions.unique_name(f"state_{state.name}") for state in node.states
        }
        for state in node.states:
            self._state(state, names)
            self.generator.states[names[state.name]] = f"{self.path}.{state.name}"
        body = CallBody(self.generator, self)
        self._begin(body, variables)
        body.source.emit(f"run_states(f, {names['start']})")
        self.generator.functions.extend(body.function(f"def {self.run}(f):"))

    def _state(self, node: ast.State, names: dict[str, str]) -> None:
        body = CallBody(self.generator, self)
        for statement in node.statements:
            body.statement(statement)
        body.source.position = node.cases[0].position if node.cases else node.position
        keys = [
            body.save(code, key.type)
            for code, key in zip(body.values(node.select or []), node.select or [], strict=True)
        ]
        # A transition to this state or an earlier one may repeat without end, so it checks the frame's time.
        earlier_states = list(names)[: list(names).index(node.name) + 1]
        if any(case.state in earlier_states for case in node.cases):
            body.source.emit(budget.CLOCK_CHECK)
        can_fall_through = True
        for case in node.cases:
            body.source.position = case.position
            tests = [
                _matches(body, key, code) for key, code in zip(case.keys, keys, strict=False) if key is not None
            ]
            target = {"accept": "return None", "reject": "raise Reject(0)"}.get(
                case.state
            ) or f"return {names[case.state]}"
            if not tests:
                body.source.emit(target)
                can_fall_through = False
                break
            with body.source.block(f"if {' and '.join(tests)}:"):
                body.source.emit(target)
        if can_fall_through:
            body.source.emit("raise Reject(NO_MATCH)")
        self.generator.functions.extend(body.function(f"def {names[node.name]}(f):"))


def _declarations_run(node: ast.Call) -> Iterator[ast.Declaration]:
    """Yield the declarations of the functions that a call runs."""
    target = node.callee.target
    if node.callee.kind in ("action", "function", "table"):
        yield target
    if node.callee.kind == "table":
        yield from (row.action for row in target.actions if row.action.body.statements)
    if isinstance(node.function, ast.Member) and isinstance(kind := node.function.base.type, types.External):
        holder = getattr(node.function.base, "target", None)
        if any("abstract" in method.annotations for method in kind.declaration.methods):
            yield holder if isinstance(holder, ast.Instance) else kind.declaration


def _constant(argument: ast.Argument) -> Any:
    """Return a constructor's argument: a number, an enum member's name, or None for any other argument."""
    value = argument.value
    if value is None or value.constant is None:
        return None
    if isinstance(value.type, types.Enum) and value.type.underlying is None:
        return next(name for name, number in value.type.members.items() if number == value.constant)
    return value.constant


def _matches(body: CallBody, key: ast.Expression, code: str) -> str:
    """Return code that tests whether ``code`` is in the set ``key``."""
    if isinstance(key, ast.Binary) and key.operator == "&&&":
        value, mask = body.values([key.left, key.right])
        return f"({code} & {mask}) == ({value} & {mask})"
    if isinstance(key, ast.Binary) and key.operator == "..":
        low, high = body.values([key.left, key.right])
        return f"({code} >= {low}) and ({code} <= {high})"
    return f"{code} == {body.value(key)}"
