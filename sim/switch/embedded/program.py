"""Translation of a P4 text to a program, and of a program to a running switch."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fanin.p4.control import MulticastGroup, Replica, TableEntry
from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.blocks import Generator, Instance
from fanin.sim.switch.embedded.checker import Checker
from fanin.sim.switch.embedded.description import ActionInfo, ControllerHeader, ExternInfo, KeyInfo, TableInfo
from fanin.sim.switch.embedded.errors import P4Error, Position, Refused, RunRefused, Unsupported
from fanin.sim.switch.embedded.lexer import Token
from fanin.sim.switch.embedded.names import annotated_id, control_name
from fanin.sim.switch.embedded.parser import parse
from fanin.sim.switch.embedded.permissive import names as permissive_names
from fanin.sim.switch.embedded.preprocessor import Preprocessor, is_bundled, read_text
from fanin.sim.switch.embedded.profiles import Profile
from fanin.sim.switch.embedded.runtime import (
    NAMES,
    CounterArray,
    RegisterArray,
    Session,
    no_action,
    run_states,
)
from fanin.sim.switch.embedded.tables import Table
from fanin.sim.switch.embedded.tna import Tna
from fanin.sim.switch.embedded.trace import TracedTable, Tracer
from fanin.sim.switch.embedded.v1model import Meter, V1Model

ARCHITECTURES = {architecture.package: architecture for architecture in (V1Model, Tna)}
#: Macros of p4c, and of its driver for each target.
P4C = {"__p4c__": "1", "__p4c_major__": "1", "__p4c_minor__": "2", "__p4c_patchlevel__": "5"}
TARGETS = {"bmv2": {"__TARGET_BMV2__": "1"}, "tofino": {"__TARGET_TOFINO__": "1"}}
TOFINO_FILES = frozenset({"tna.p4"})


def load(
    source: Path | str,
    name: str = "program.p4",
    include_dirs: Sequence[Path] = (),
    defines: Mapping[str, str] | None = None,
    *,
    permissive: bool = False,
) -> Program:
    """Read, check and compile a program.

    - ``source``: path of the program, or its text; messages about a text call it ``name``.
    - ``include_dirs``: folders of ``#include``.
    - ``defines``: macros, beside those of p4c for the target (``__p4c__`` and its version, ``__TARGET_BMV2__``
      or ``__TARGET_TOFINO__``).
    - ``permissive``: gives undefined values BMv2's behaviour (:mod:`permissive`).

    Raises P4Error for an error in the program, and its subclass Refused for an unimplemented construct.
    """
    folder = None
    if isinstance(source, Path):
        name, folder = str(source), source.parent
        try:
            source = read_text(source)
        except (OSError, UnicodeDecodeError) as error:
            raise P4Error(Position(name, 1, 1), f"cannot be read: {error}") from error
    try:
        tree = parse(_preprocess(source, name, folder, include_dirs, defines or {}), name)
        checker = Checker()
        checker.check(tree)
        return Program(tree, name, list(checker.errors), permissive=permissive)
    except P4Error:
        raise
    except RunRefused as error:
        raise Unsupported(Position(name, 1, 1), str(error)) from None
    except RecursionError:
        raise Unsupported(Position(name, 1, 1), "a text nested this deep") from None
    except Exception as error:  # an unexpected case must not give a wrong result
        raise _internal_error(Position(name, 1, 1), error) from error


def _internal_error(position: Position, error: Exception) -> Refused:
    return Refused(position, f"internal error: {type(error).__name__}: {error}")


def _preprocess(
    source: str, name: str, folder: Path | None, include_dirs: Sequence[Path], defines: Mapping[str, str]
) -> list[Token]:
    """Return the tokens under the macros of the target: Tofino if the program includes tna.p4, else BMv2."""
    if any(macro.startswith("__TARGET_") for macro in defines):
        return Preprocessor(include_dirs, {**P4C, **defines}).run(source, name, folder)
    preprocessor = Preprocessor(include_dirs, {**P4C, **TARGETS["bmv2"], **defines})
    sequence = preprocessor.run(source, name, folder)
    if TOFINO_FILES.isdisjoint(preprocessor.included):
        return sequence
    return Preprocessor(include_dirs, {**P4C, **TARGETS["tofino"], **defines}).run(source, name, folder)


class Program:
    """A compiled P4 program; :meth:`switch` returns a running switch.

    ``tables``, ``actions``, ``externs`` and ``digests`` are dictionaries by name. ``registers``, ``counters``
    and ``meters`` (always green) are the names of those externs. ``errors`` are by number.
    """

    def __init__(
        self, tree: Sequence[ast.Declaration], name: str, errors: list[str], *, permissive: bool = False
    ):
        self.errors = errors
        self.permissive = permissive
        main = next((d for d in tree if isinstance(d, ast.Instance) and d.name == "main"), None)
        if (
            main is None
            or not isinstance(main.type, types.Block)
            or not isinstance(main.type.declaration, ast.Package)
        ):
            raise P4Error(Position(name, 1, 1), "there is no package instance main")
        package = main.type.declaration.name
        declared = main.type.declaration.position
        if package not in ARCHITECTURES or not is_bundled(declared):
            raise Unsupported(main.position, f"architecture {package} (package of {declared.file})")
        self.name = name
        self._runtime = ARCHITECTURES[package]
        self.architecture = self._runtime.name
        generator = Generator(self._runtime, permissive=permissive)
        blocks = [self._block(generator, argument) for argument in _blocks_of(main)]
        self._compile(generator, blocks)
        self._states = generator.states
        self._constants = generator.constants | self._runtime.constants(blocks)
        self._python_tables = generator.tables
        self._python_externs = generator.externs
        self.tables: dict[str, TableInfo] = {info.name: info for info in generator.tables.values()}
        self.actions: dict[str, ActionInfo] = {
            a.name: a for t in self.tables.values() for a in t.actions.values()
        }
        self.externs: dict[str, ExternInfo] = {info.name: info for info in generator.externs.values()}
        self.controller_headers = tuple(_controller_headers(tree))
        self.digests = {info.name: info for info in generator.digests.values()}
        self.registers = self._extern_names(generator.externs, RegisterArray)
        self.counters = self._extern_names(generator.externs, CounterArray)
        self.meters = self._extern_names(generator.externs, Meter)

    def _extern_names(self, externs: Mapping[str, ExternInfo], extern_class: type) -> list[str]:
        return [
            info.name for info in externs.values() if issubclass(self._runtime.externs[info.kind], extern_class)
        ]

    @staticmethod
    def _block(generator: Generator, argument: ast.Argument) -> Instance:
        value = argument.value
        if isinstance(value, ast.Name) and isinstance(value.target, ast.Instance):
            call, path = value.target.call, control_name(value.target)
        elif isinstance(value, ast.Call):
            call, path = value, None
        else:
            raise Unsupported(argument.position, "a package argument other than a block")
        kind = value.type
        if not isinstance(kind, types.Block) or not isinstance(kind.declaration, ast.Parser | ast.Control):
            raise Unsupported(argument.position, f"{kind} as an argument of the package")
        block = kind.declaration
        arguments = {
            parameter: generator.static(constructor_argument.value, None)
            for parameter, constructor_argument in zip(block.constructor, call.arguments, strict=True)
            if constructor_argument.value is not None
        }
        return Instance(generator, block, path or block.name, arguments)

    def _compile(self, generator: Generator, blocks: list[Instance]) -> None:
        """Compile the text, with the names that the architecture uses.

        ``BLOCKS`` has a function per block, from the parameters' values to the block's frame; ``MAKERS`` has a
        function per type of a block's parameter, which returns a new value.
        """
        emit = generator.objects.emit
        generator.objects.position = None
        for index, block in enumerate(blocks):
            slots = [block.python_name(p).removeprefix("f.") for p in block.node.parameters]
            with generator.objects.block(f"def block_{index}({', '.join(slots)}):"):
                emit(f"f = {block.frame}()")
                for slot in slots:
                    emit(f"f.{slot} = {slot}")
                emit(f"{block.run}(f)")
                emit("return f")
        emit(f"BLOCKS = ({', '.join(f'block_{i}' for i in range(len(blocks)))},)")
        self._parsers = {
            index: (block.node.parameters[1].name, block.node.parameters[1].type)
            for index, block in enumerate(blocks)
            if isinstance(block.node, ast.Parser)
        }
        makers = [generator.records.new(kind) for kind in self._runtime.made_types(blocks)]
        emit(f"MAKERS = ({', '.join(f'lambda: {code}' for code in makers)},)")
        self.text, self._positions = generator.text()
        self._file = f"<{self.name}>"
        self._code: CodeType = compile(self.text, self._file, "exec")

    def switch(
        self,
        ports: Iterable[int] = range(8),
        tracer: Tracer | None = None,
        clock: Callable[[], int] | None = None,
        unset: Callable[[Position], None] = lambda position: None,
    ) -> Switch:
        """Return a running switch with these ports, no table entries except constant ones, and registers at 0.

        - ``tracer``: receives the events of each packet.
        - ``clock``: returns microseconds. With a clock, queues are empty; without one, the values of clocks and
          queues are undefined.
        - ``unset``: called once with each position at which a permissive program uses an uninitialized value.
        """
        switch = Switch(self, frozenset(ports), tracer, unset)
        switch._runtime.clock = clock
        return switch

    def position_of(self, error: BaseException) -> Position:
        """Return the position in the P4 text at which a run raised ``error``."""
        trace = error.__traceback__
        position = Position(self.name, 1, 1)
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._file:
                position = self._positions[trace.tb_lineno - 1] or position
            trace = trace.tb_next
        return position

    def running_position(self) -> Position | None:
        """Return the position in the P4 text of the caller's run."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self._file and (position := self._positions[frame.f_lineno - 1]):
                return position
            frame = frame.f_back
        return None


def _controller_headers(tree: Sequence[ast.Declaration]) -> Iterator[ControllerHeader]:
    """Yield the headers with ``@controller_header``."""
    for node in tree:
        kind = node.annotations.get("controller_header")
        if kind and isinstance(node, ast.FieldsType):
            fields = tuple(
                KeyInfo(name, "", types.width_of(kind) or 0, id=annotated_id(field.annotations), type=kind)
                for field in node.fields
                for name, kind in _scalar_fields(field.name, node.type.fields[field.name])
            )
            yield ControllerHeader(
                control_name(node), kind[0].text[1:-1], fields, annotated_id(node.annotations)
            )


def _scalar_fields(name: str, kind: types.Type) -> Iterator[tuple[str, types.Type]]:
    """Yield the scalar fields of a field: itself, or for a struct those of its members."""
    base = types.base_of(kind)
    if isinstance(base, types.Record):
        for inner, member_kind in base.fields.items():
            yield from _scalar_fields(f"{name}.{inner}", member_kind)
    else:
        yield name, kind


def _blocks_of(package: ast.Instance) -> Iterator[ast.Argument]:
    """Yield the arguments of a package, with those of inner packages (Tofino's pipes) in their place."""
    for argument in package.arguments:
        value = argument.value
        inner = value.target if isinstance(value, ast.Name) else None
        if isinstance(inner, ast.Instance) and isinstance(inner.type.declaration, ast.Package):
            yield from _blocks_of(inner)
        else:
            yield argument


class Switch:
    """A running switch, with operations for a control plane and for packets."""

    def __init__(
        self,
        program: Program,
        ports: frozenset[int],
        tracer: Tracer | None,
        unset: Callable[[Position], None],
    ):
        self.program = program
        self.ports = ports
        self._unset = unset
        self._reported: set[Position] = set()
        self._tracer = tracer
        self._runtime = program._runtime()
        names: dict[str, Any] = {**NAMES, **program._constants, "ARCH": self._runtime, "no_action": no_action}
        names["run_states"] = run_states if tracer is None else self._traced_states
        if program.permissive:
            names |= permissive_names(self._report_unset)
        try:
            exec(program._code, names)
        except RunRefused as error:
            raise error.refused(program.position_of(error), str(error)) from error
        except Exception as error:  # a macro may change the parameters of an extern's constructor
            raise _internal_error(program.position_of(error), error) from error
        self._tables: dict[str, Table] = {}
        for python, info in program._python_tables.items():
            table = Table(info, names) if tracer is None else TracedTable(info, names, tracer)
            names[python] = self._tables[info.name] = table
        self._externs = {info.name: names[python] for python, info in program._python_externs.items()}
        self.registers: dict[str, RegisterArray] = {name: self._externs[name] for name in program.registers}
        self.profiles = {n: extern for n, extern in self._externs.items() if isinstance(extern, Profile)}
        for table in self._tables.values():
            if table.info.profile is not None:
                self.profiles[table.info.profile].tables.append(table)
        if tracer is not None:
            for register in self.registers.values():
                register.tracer = tracer
            for profile in self.profiles.values():
                profile.tracer = tracer
            blocks = enumerate(names["BLOCKS"])
            names["BLOCKS"] = tuple(
                self._traced_parser(index, block) if index in program._parsers else block
                for index, block in blocks
            )
        self._runtime.start(names)

    def _report_unset(self) -> None:
        """Report the use of an uninitialized value."""
        position = self.program.running_position()
        if position is not None and position not in self._reported:
            self._reported.add(position)
            self._unset(position)

    # control plane

    def table(self, name: str) -> Table:
        """Return a table for inspection. Raises ValueError."""
        if name not in self._tables:
            raise ValueError(f"there is no table {name}; there are {', '.join(self._tables) or 'none'}")
        return self._tables[name]

    def insert(self, entry: TableEntry) -> None:
        """Add a table entry. Raises ValueError with the reason."""
        self.table(entry.table).insert(entry.match, entry.action, entry.parameters, entry.priority)

    def modify(self, entry: TableEntry) -> None:
        """Replace the action of an entry. Raises ValueError."""
        self.table(entry.table).modify(entry.match, entry.action, entry.parameters, entry.priority)

    def delete(self, entry: TableEntry) -> None:
        """Remove the table entry with the match and priority of ``entry``. Raises ValueError."""
        self.table(entry.table).delete(entry.match, entry.priority)

    def clear(self, table: str) -> None:
        """Remove all entries of a table except constant ones."""
        self.table(table).clear()

    def set_default(self, table: str, action: str, parameters: Mapping[str, int] | None = None) -> None:
        """Replace a table's default action. Raises ValueError."""
        self.table(table).set_default(action, parameters or {})

    def set_multicast_group(self, group: MulticastGroup) -> None:
        """Install or replace a multicast group. Raises ValueError."""
        self._check_ports(f"multicast group {group.id}", group.replicas)
        self._runtime.replication.set(group)

    def delete_multicast_group(self, number: int) -> None:
        """Remove a multicast group. Raises ValueError."""
        self._runtime.replication.delete(number)

    @property
    def multicast_groups(self) -> Mapping[int, MulticastGroup]:
        """Installed multicast groups, by number."""
        return self._runtime.replication.groups

    def _check_ports(self, subject: str, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            if replica.port not in self.ports:
                raise ValueError(f"{subject}: there is no port {replica.port}")

    def set_clone_session(
        self,
        number: int,
        *,
        port: int | None = None,
        group: int | None = None,
        replicas: Sequence[Replica] = (),
    ) -> None:
        """Set the destinations of a session's clones: a port, a multicast group, or replicas of its own.

        Raises ValueError.
        """
        subject = f"clone session {number}"
        self._runtime.replication.check(subject, replicas)
        self._check_ports(subject, replicas)
        port_replicas = [Replica(port)] if port is not None else []
        self._sessions[number] = Session((*port_replicas, *replicas), group)

    @property
    def clone_sessions(self) -> Mapping[int, Session]:
        """Configured clone sessions, by number."""
        return getattr(self._runtime, "sessions", {})

    def delete_clone_session(self, number: int) -> None:
        """Remove a clone session; its clones are lost. Raises ValueError."""
        if self._sessions.pop(number, None) is None:
            raise ValueError(f"there is no clone session {number}")

    @property
    def lost_clones(self) -> Counter[int]:
        """Clones lost because their session is not configured, by session."""
        return self._runtime.lost_clones if isinstance(self._runtime, V1Model) else Counter()

    @property
    def _sessions(self) -> dict[int, Session]:
        if not hasattr(self._runtime, "sessions"):
            raise ValueError(f"{self.program.architecture} has no clone sessions here")
        sessions: dict[int, Session] = self._runtime.sessions
        return sessions

    def counter(self, name: str, index: int) -> tuple[int, int]:
        """Return the packets and bytes of a counter. Raises ValueError."""
        counter = self._counter(name, index)
        return counter.packets[index], counter.bytes[index]

    def set_counter(self, name: str, index: int, packets: int, octets: int) -> None:
        """Set a counter, which continues from these values. Raises ValueError."""
        counter = self._counter(name, index)
        counter.packets[index], counter.bytes[index] = packets, octets

    def fill_counter(self, name: str, packets: int, octets: int) -> Iterator[bool]:
        """Set all entries of a counter to these values, in steps (:meth:`CounterArray.fill`)."""
        counter: CounterArray = self._externs[name]
        return counter.fill(packets, octets)

    def _counter(self, name: str, index: int) -> CounterArray:
        if name not in self.program.counters:
            raise ValueError(f"there is no counter {name}")
        counter: CounterArray = self._externs[name]
        if not 0 <= index < len(counter):
            raise ValueError(f"counter {name} has no index {index}; it has {len(counter)}")
        return counter

    def direct_counter(self, entry: TableEntry) -> tuple[int, int]:
        """Return packets and bytes of an entry, even of a constant one. Raises ValueError."""
        table_entry = self.table(entry.table).entry(entry.match, entry.priority)
        return table_entry.packets, table_entry.bytes

    def listen(self, digest: Callable[[str, Any], None]) -> None:
        """Call ``digest`` with name and values of each digest: numbers, and structs as tuples."""
        if isinstance(self._runtime, V1Model):  # no other architecture has them here
            self._runtime.on_digest = digest

    # packets

    def process(self, port: int, frame: bytes, timestamp: str = "") -> list[tuple[int, bytes]]:
        """Return the frames that leave, with their ports, in order, after ``frame`` enters at ``port``.

        A frame to a port that the switch does not have is lost. Raises Refused if the result is not known.
        ``timestamp``: text of the frame's time, for the tracer.
        """
        if port not in self.ports:
            raise ValueError(f"there is no port {port}")
        if self._tracer is not None:
            self._tracer.arrives(port, frame, timestamp)
        try:
            frames: list[tuple[int, bytes]] = self._runtime.process(port, frame)
        except RunRefused as error:
            raise error.refused(self.program.position_of(error), str(error)) from error
        except OSError:  # the reader of the trace has gone
            raise
        except Exception as error:  # an unexpected case must not give a wrong result
            raise _internal_error(self.program.position_of(error), error) from error
        departures = [(destination, data) for destination, data in frames if destination in self.ports]
        if self._tracer is not None:
            lost = [
                f"there is no port {destination}" for destination, _ in frames if destination not in self.ports
            ]
            self._tracer.leaves([destination for destination, _ in departures], [*self._runtime.drops, *lost])
        return departures

    def _traced_parser(self, index: int, block: Callable[..., Any]) -> Callable[..., Any]:
        """Return a parser that reports its headers to the tracer, even after an error."""
        tracer, (name, kind) = self._tracer, self.program._parsers[index]
        assert tracer is not None

        def run(*arguments: Any) -> Any:
            try:
                return block(*arguments)
            finally:
                tracer.parses(name, kind, arguments[1])

        return run

    def _traced_states(self, frame: Any, state: Any) -> None:
        """Run a parser from ``state`` as ``run_states`` does, and report each state to the tracer."""
        names, tracer = self.program._states, self._tracer
        assert tracer is not None

        def run(state: Any) -> Any:
            tracer.enters(names[state.__name__])
            next_state = state(frame)
            return None if next_state is None else lambda _: run(next_state)

        run_states(frame, lambda _: run(state))
