"""p4c's packet tests (STF): table entries, packets in, and expected packets out.

``expect`` compares a prefix unless it ends in ``$``; ``*`` matches any nibble. At each port, frames must arrive
in the expected order, and no others; ``expect PORT`` alone accepts any frame. A test may name tables, actions
and keys by the end of their name. Only ports that the test names exist.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from fanin.base.limits import is_number
from fanin.p4.control import Exact, Lpm, Match, MulticastGroup, Replica, TableEntry, Ternary
from fanin.sim.switch.embedded.description import KeyInfo, TableInfo
from fanin.sim.switch.embedded.errors import P4Error, Position, Unsupported
from fanin.sim.switch.embedded.program import Program, Switch

MAX_BYTES = 1 << 20  #: of a test
_PRIORITY = re.compile(r"(?:(\d+)\s+)?")
_AFTER_CALL = re.compile(r"\s*(?:=\s*\w+)?")
_REPLICAS = 1024  # of a multicast group
_COUNT = re.compile(
    r"(?P<name>[\w.$]+)\s*\(\s*(?P<index>\w+)\s*\)\s*"
    r"(?:(?P<kind>packets|bytes)\s*(?P<test>[<>=!]=?)\s*(?P<number>\d+))?$"
)
_TESTS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_SHOW_ONLY = ("mirroring_get", "counter_read", "register_read", "meter_get_rates", "wait")


@dataclass(frozen=True)
class _Entry:
    """``[PRIORITY] KEY:VALUE ... ACTION(NAME:VALUE, ...) [= HANDLE]``."""

    priority: int
    match: str
    action: str
    parameters: str

    @classmethod
    def of(cls, text: str) -> _Entry | None:
        """Return the parts of an entry's text, in time proportional to its length; None if it is malformed."""
        prefix, opening, call = text.strip().rpartition("(")
        parameters, closing, suffix = call.partition(")")
        prefix = prefix.rstrip()
        start = len(prefix)
        while start and (prefix[start - 1].isalnum() or prefix[start - 1] in "_.$"):
            start -= 1
        if not opening or not closing or start == len(prefix) or not _AFTER_CALL.fullmatch(suffix):
            return None
        priority = _PRIORITY.match(prefix, 0, start)
        assert priority
        return cls(int(priority[1] or 0), prefix[priority.end() : start].strip(), prefix[start:], parameters)


class StfTest:
    """One test on one program; ``run`` carries it out."""

    def __init__(self, program: Program, text: str, name: str):
        self._program = program
        self._name = name
        self._lines = [
            (number, line)
            for number, raw in enumerate(text.splitlines(), 1)
            if (line := raw.split("#", 1)[0].strip())
        ]
        self.switch: Switch = program.switch(self._ports())
        self._expected: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._unchecked_ports: set[int] = set()
        self._received: dict[int, list[bytes]] = defaultdict(list)
        self._nodes: list[tuple[int, list[int]]] = []
        self._groups: dict[int, list[int]] = {}
        self._deviations: list[str] = []

    def run(self) -> list[str]:
        """Return the deviations from the expected results, one per line; empty after success.

        Raises P4Error for a malformed test, and Refused for a feature that this switch does not have.
        """
        for number, line in self._lines:
            command, _, arguments = line.partition(" ")
            method = getattr(self, f"_do_{command.lower()}", None)
            position = Position(self._name, number, 1)
            if command.lower() in _SHOW_ONLY:
                continue
            if method is None:
                raise Unsupported(position, f"command {command}")
            try:
                method(arguments.strip(), number)
            except P4Error:
                raise
            except (ValueError, IndexError, KeyError) as error:
                raise P4Error(position, f"{line}: {error}") from error
        self._compare()
        return self._deviations

    def _ports(self) -> set[int]:
        ports = set()
        for number, line in self._lines:
            words = line.split()
            if words[0].lower() in ("packet", "expect"):
                if len(words) < 2 or not is_number(words[1]):
                    raise P4Error(Position(self._name, number, 1), f"{words[0]} without a port")
                ports.add(int(words[1]))
        return ports

    # packets

    def _do_packet(self, arguments: str, _line: int) -> None:
        port, *_, data = arguments.partition(" ")
        for egress_port, frame in self.switch.process(int(port), bytes.fromhex(data)):
            self._received[egress_port].append(frame)

    def _do_expect(self, arguments: str, number: int) -> None:
        port, *_, data = arguments.partition(" ")
        pattern = "".join(data.split()).upper()
        if not re.fullmatch(r"[0-9A-F*]*\$?", pattern):
            raise ValueError("expected data are hexadecimal digits, * and a last $")
        if pattern:
            self._expected[int(port)].append((number, pattern))
        else:
            self._unchecked_ports.add(int(port))

    def _compare(self) -> None:
        for port in sorted({*self._expected, *self._received} - self._unchecked_ports):
            expected, received = self._expected[port], self._received[port]
            for (number, pattern), frame in zip(expected, received, strict=False):
                if not matches(pattern, frame):
                    self._deviations.append(
                        f"{self._name}:{number}: port {port} sent {frame.hex().upper()}, not {pattern}"
                    )
            if len(expected) != len(received):
                self._deviations.append(
                    f"{self._name}: port {port} sent {len(received)} frames, not {len(expected)}"
                )

    # tables

    def _do_add(self, arguments: str, _line: int) -> None:
        title, *_, entry = arguments.partition(" ")
        table = self._table(title)
        parsed = _Entry.of(entry)
        if parsed is None:
            raise ValueError("add TABLE [PRIORITY] KEY:VALUE ... ACTION(NAME:VALUE, ...)")
        match: dict[str, Match] = {key.name: Exact(0) for key in table.keys if key.kind == "exact"}
        for word in ":".join(part.strip() for part in parsed.match.split(":")).split():
            name, _, value = word.rpartition(":")
            key = self._key(table, name)
            match[key.name] = _match(key, value)
        action, parameters = self._action(table, parsed.action, parsed.parameters)
        self.switch.insert(TableEntry(table.name, match, action, parameters, parsed.priority))

    def _do_setdefault(self, arguments: str, _line: int) -> None:
        title, *_, call = arguments.partition(" ")
        table = self._table(title)
        parsed = _Entry.of(call)
        if parsed is None or parsed.match:
            raise ValueError("setdefault TABLE ACTION(NAME:VALUE, ...)")
        self.switch.set_default(table.name, *self._action(table, parsed.action, parsed.parameters))

    def _do_remove(self, arguments: str, _line: int) -> None:
        if arguments.lower() != "all":
            raise ValueError("remove all")
        for table in self._program.tables:
            self.switch.clear(table)

    def _table(self, name: str) -> TableInfo:
        return self._program.tables[_by_end(name.strip('"'), list(self._program.tables), "table")]

    def _action(self, table: TableInfo, name: str, parameters: str) -> tuple[str, dict[str, int]]:
        action = _by_end(name, list(table.actions), "action")
        pairs = (part.split(":") for part in parameters.split(",") if part.strip())
        return action, {name.strip(): int(value.strip(), 0) for name, value in pairs}

    @staticmethod
    def _key(table: TableInfo, name: str) -> KeyInfo:
        suffix = re.sub(r"\$(\d+)", r"[\1]", name)
        suffix = re.sub(r"\.?\$?valid\$?$", ".isValid()", suffix).removeprefix(".")
        for key in table.keys:
            if key.name == suffix or key.name.endswith("." + suffix):
                return key
        raise ValueError(f"table {table.name} has no key {name}")

    # multicast, mirroring, registers, counters

    def _do_mc_mgrp_create(self, arguments: str, _line: int) -> None:
        self._groups.setdefault(int(arguments, 0), [])

    def _do_mc_node_create(self, arguments: str, _line: int) -> None:
        replica, *ports = (int(word, 0) for word in arguments.split())
        self._nodes.append((replica, ports))

    def _do_mc_node_associate(self, arguments: str, _line: int) -> None:
        group, node = (int(word, 0) for word in arguments.split())
        self._groups[group].append(node)
        if sum(max(len(self._nodes[index][1]), 1) for index in self._groups[group]) > _REPLICAS:
            raise ValueError(f"a group of more than {_REPLICAS:,} replicas; a node without ports counts as one")
        replicas = [
            Replica(port, replica)
            for replica, ports in (self._nodes[index] for index in self._groups[group])
            for port in sorted(ports)
            if port in self.switch.ports
        ]
        self.switch.set_multicast_group(MulticastGroup(group, tuple(replicas)))

    def _do_mirroring_add(self, arguments: str, _line: int) -> None:
        session, port = (int(word, 0) for word in arguments.split())
        self.switch.set_clone_session(session, port=port)

    def _do_mirroring_add_mc(self, arguments: str, _line: int) -> None:
        session, group = (int(word, 0) for word in arguments.split())
        self.switch.set_clone_session(session, group=group)

    def _do_register_write(self, arguments: str, _line: int) -> None:
        name, index, value = arguments.split()
        self.switch.registers[_by_end(name, self._program.registers, "register")][int(index, 0)] = int(value, 0)

    def _do_register_reset(self, arguments: str, _line: int) -> None:
        self.switch.registers[_by_end(arguments, self._program.registers, "register")].clear()

    def _do_check_counter(self, arguments: str, number: int) -> None:
        parts = _COUNT.fullmatch(arguments)
        if parts is None or not is_number(parts["index"]):
            raise ValueError("check_counter NAME(INDEX) [packets|bytes TEST NUMBER]")
        name = _by_end(parts["name"], self._program.counters, "counter")
        packets, octets = self.switch.counter(name, int(parts["index"]))
        value = octets if parts["kind"] == "bytes" else packets
        test: Callable[[int, int], bool] = _TESTS[parts["test"] or "=="]
        if not test(value, int(parts["number"] or 0)):
            self._deviations.append(f"{self._name}:{number}: counter {name} is {value}")


def matches(pattern: str, frame: bytes) -> bool:
    """Return whether ``frame`` matches the pattern of ``expect``."""
    exact = pattern.endswith("$")
    pattern = pattern.removesuffix("$")
    data = frame.hex().upper()
    if len(data) < len(pattern) or (exact and len(data) > len(pattern)):
        return False
    return all(p in ("*", d) for p, d in zip(pattern, data, strict=False))


def _by_end(name: str, names: list[str], kind: str) -> str:
    if name in names:
        return name
    candidates = [n for n in names if n.endswith(name)]
    if len(candidates) != 1:
        raise ValueError(
            f"{kind} {name} is {'ambiguous: ' + ', '.join(candidates) if candidates else 'not there'}"
        )
    return candidates[0]


def _match(key: KeyInfo, text: str) -> Match:
    """Return a match from a value in STF; digits may be ``*``, and the number of digits gives the width."""
    if key.kind == "exact":
        return Exact(int(text, 0))
    if key.kind == "lpm" and "/" in text:
        prefix, _, length = text.partition("/")
        return Lpm(int(prefix, 0), int(length, 0))
    bits = {"0x": 4, "0b": 1, "0o": 3}.get(text[:2].lower())
    if bits is None:
        if key.kind == "lpm":
            return Lpm(int(text), key.width)
        raise ValueError(f"{key.name}: a {key.kind} key needs binary, octal or hexadecimal digits, not {text}")
    digits = text[2:]
    value = int(digits.replace("*", "0"), 1 << bits)
    all_ones = (1 << key.width) - 1
    if key.kind == "lpm":
        prefix_bits = bits * (len(digits) - digits.count("*"))
        return Lpm(value & all_ones, min(prefix_bits, key.width))
    if key.kind != "ternary":
        raise ValueError(f"{key.name}: the format has no {key.kind} keys")
    ones = "1" * bits
    mask = int("".join("0" * bits if digit == "*" else ones for digit in digits), 2)
    if value > all_ones:
        raise ValueError(f"{key.name}: {text} does not fit in {key.width} bits")
    return Ternary(value, mask & all_ones)
