"""Printer of P4 text from a description: the common part of both targets, and the interface of the rest."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import jinja2

from fanin.p4 import aggregation as program
from fanin.p4 import packets
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.description import Assign, Control, Header, Operation, Register, State, Statement, Table
from fanin.wire import aggregation as wire
from fanin.wire import ethernet

WIDTH = 100  # columns of the P4 text
_INDENT = "    "


def environment() -> jinja2.Environment:
    """Return the environment of the templates."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("fanin.p4", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    """Indent lines; empty ones stay empty."""
    return [_INDENT * depth + line if line else "" for text in lines for line in text.split("\n")]


def comment(text: str) -> list[str]:
    """Return ``text`` as wrapped lines of a P4 comment; none for an empty text."""
    return [f"// {line}" for line in textwrap.wrap(text, WIDTH - 16)]


def block(header: str, body: Sequence[str]) -> list[str]:
    """Return ``header {``, the body indented, and ``}``."""
    return [f"{header} {{}}"] if not body else [f"{header} {{", *indent(body), "}"]


def join_items(items: Sequence[str], width: int) -> str:
    """Join items by commas: on one line of at most ``width`` characters, or else each on its own line."""
    line = ", ".join(items)
    return line if len(line) <= width else "\n" + ",\n".join(indent(items, 2))


class Printer(ABC):
    """Prints the program of a configuration for one target."""

    template: ClassVar[str]
    names: ClassVar[dict[str, str]]  #: target's text for each name in braces
    checks: ClassVar[tuple[str, str]]  #: conditions of a well-formed packet: always, and with IPv4

    def __init__(self, config: ProgramConfig):
        self.config = config
        self.udp = config.encap is wire.Encap.UDP
        well_formed = " && ".join(filter(None, ("hdr.values.isValid()", *self.checks[: 1 + self.udp])))
        self._names = self.names | {"well_formed": well_formed}

    def text(self) -> str:
        """Return the whole program."""
        controls = program.controls(self.config)
        return (
            environment()
            .get_template(self.template)
            .render(
                config=self.config,
                udp=self.udp,
                declarations="\n".join(self.declarations()),
                states="\n".join(indent(self.states(packets.parser(self.config)))),
                controls={c.name: "\n".join(indent(self.control(c))) for c in controls},
                comments={c.name: "\n".join(comment(c.comment)) for c in controls},
                ipv4=[field.name for field in ethernet.IPV4 if field.name != "checksum"],
            )
        )

    def declarations(self) -> list[str]:
        """Return constants and headers."""
        constants = [
            (16, "ETHERTYPE_AGGREGATION", f"{wire.ETHERTYPE_AGGREGATION:#06x}"),
            (4, "VERSION", wire.VERSION),
            *((4, kind.name, kind.value) for kind in sorted((*self.config.kinds, *self.config.answers))),
            (32, "SLOTS", self.config.slots),
            (16, "FLOOD_GROUP", program.FLOOD_GROUP),
        ]
        if self.udp:
            constants[1:1] = [
                (16, "ETHERTYPE_IPV4", f"{ethernet.ETHERTYPE_IPV4:#06x}"),
                (8, "IP_PROTOCOL_UDP", ethernet.IP_PROTOCOL_UDP),
                (16, "AGGREGATION_PORT", ethernet.UDP_PORT),
            ]
        lines = [f"const bit<{bits}> {name} = {value};" for bits, name, value in constants]
        for header in packets.headers(self.config):
            lines += ["", *self._header(header)]
        members = [f"{header.name}_t {header.name};" for header in packets.headers(self.config)]
        return [*lines, "", *block("struct headers_t", members)]

    @staticmethod
    def _header(header: Header) -> list[str]:
        width = max(len(f"bit<{f.bits}> {f.name};") for f in header.fields)
        lines = []
        for field in header.fields:
            lines.append(f"{f'bit<{field.bits}> {field.name};':{width}}  // {field.meaning}")
        return [*comment(header.comment), *block(f"header {header.name}_t", lines)]

    def states(self, states: Iterable[State]) -> list[str]:
        """Return the parser states."""
        lines: list[str] = []
        for state in states:
            body = [self.fill(f"{s.field} = {s.value};") for s in state.assignments]
            header = state.extract or "aggregation"
            if state.extract:
                body.append(f"packet.extract(hdr.{state.extract});")
            body += self.after_extraction(state)
            if state.select:
                selectors = [f"hdr.{header}.{name}" for name in state.select]
                cases = [
                    f"{match}: {next_state};"
                    for match, next_state in (*state.cases, ("default", state.default))
                ]
                body += block(f"transition select({join_items(selectors, 80)})", cases)
            else:
                body.append(f"transition {state.default};")
            lines += ["", *comment(state.comment), *block(f"state {state.name}", body)]
        return lines[1:]

    def after_extraction(self, state: State) -> list[str]:
        """Return the target's own lines of a parser state, which follow the extraction of its header."""
        return []

    def control(self, control: Control) -> list[str]:
        """Return the body of a control."""
        lines: list[str] = []
        for register in control.registers:
            lines += [*comment(register.comment), *self.register(register), ""]
            for operation in control.operations(register):
                lines += self.operation(operation)
        lines += [f"{kind}() {name};" for kind, name in control.instances] + [""] * bool(control.instances)
        for table in control.tables:
            lines += self._table(table)
        return [*lines, *block("apply", [self.fill(line) for line in self.apply(control)])]

    def apply(self, control: Control) -> tuple[str, ...]:
        """Return the lines of a control's apply block."""
        return control.apply

    def _table(self, table: Table) -> list[str]:
        lines = [f"{self.counter} {table.name}_counter;"] if table.counted else []
        for action in table.actions:
            parameters = [
                f"{self.fill(kind) if isinstance(kind, str) else f'bit<{kind}>'} {name}"
                for name, kind in action.parameters
            ]
            body = [line for statement in action.body for line in self.statement(statement)]
            if table.counted:
                body += self.count(f"{table.name}_counter")
            lines += block(f"action {action.name}({join_items(parameters, 80)})", body)
        return [*lines, *comment(table.comment), *block(f"table {table.name}", self._properties(table)), ""]

    def _properties(self, table: Table) -> list[str]:
        keys = [f'{self.fill(key.expression)}: {key.kind} @name("{key.name}");' for key in table.keys]
        actions = [f"{action.name};" for action in table.actions]
        lines = [*block("key =", keys), *block("actions =", [*actions, "@defaultonly NoAction;"])]
        lines.append("const default_action = NoAction();")
        if table.entries:
            entries = []
            for entry in table.entries:
                note = f"  // {entry.comment}" if entry.comment else ""
                entries.append(f"({', '.join(entry.match)}): {entry.action}();{note}")
            lines += block("const entries =", entries)  # p4c warns about a size that is not their number
        else:
            lines.append(f"size = {table.size};")
        return lines + ([f"counters = {table.name}_counter;"] if table.counted else [])

    def fill(self, text: str, **words: str) -> str:
        """Replace the names in braces by the target's; braces around other text are P4's."""
        for name, value in (self._names | words).items():
            text = text.replace("{" + name + "}", value)
        return text

    def statement(self, statement: Statement) -> list[str]:
        """Return the text of a statement."""
        if isinstance(statement, Assign):
            return [f"{statement.field} = {self.fill(statement.value)};"]
        return self.effect(statement)

    counter: ClassVar[str]  #: declaration of a direct counter, without its name

    @abstractmethod
    def register(self, register: Register) -> list[str]:
        """Return a register's declaration."""

    @abstractmethod
    def operation(self, operation: Operation) -> list[str]:
        """Return an operation's declaration; empty if the target has none."""

    @abstractmethod
    def effect(self, statement: Statement) -> list[str]:
        """Return the text of a statement that differs between targets."""

    @abstractmethod
    def count(self, counter: str) -> list[str]:
        """Return the lines by which an action of a counted table counts."""
