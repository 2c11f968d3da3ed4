"""Printer for BMv2: a packet's operation on a register is a read, an expression and a write."""

from __future__ import annotations

from typing import ClassVar

from fanin.p4.description import (
    WORD_BITS,
    Case,
    Control,
    Drop,
    Execute,
    Flood,
    Multicast,
    Operation,
    Register,
    Statement,
    Unicast,
)
from fanin.p4.printer import Printer


class V1Model(Printer):
    """Prints v1model; a register entry of two words has 64 bits, with the first word on top."""

    template = "v1model.p4.j2"
    names: ClassVar[dict[str, str]] = {
        "ingress_port": "standard.ingress_port",
        "bad_checksum": "standard.checksum_error",
        "replica": "standard.egress_rid",
        "group_t": "bit<16>",
        "port_t": "bit<9>",
    }
    checks = ("", "standard.checksum_error == 0")
    counter = "direct_counter(CounterType.packets)"

    def register(self, register: Register) -> list[str]:  # noqa: D102
        return [f"register<bit<{WORD_BITS * len(register.words)}>>(SLOTS) {register.name};"]

    def operation(self, operation: Operation) -> list[str]:  # noqa: D102
        return []

    def count(self, counter: str) -> list[str]:  # noqa: D102
        return []

    def effect(self, statement: Statement) -> list[str]:  # noqa: D102
        match statement:
            case Execute():
                return self._execute(statement)
            case Multicast(group):
                return [f"standard.mcast_grp = {group};"]
            case Unicast(port):
                return [f"standard.egress_spec = {port};"]
            case Flood():
                return ["standard.mcast_grp = FLOOD_GROUP;"]
            case Drop():
                return ["mark_to_drop(standard);"]
        raise TypeError(statement)

    def _execute(self, execute: Execute) -> list[str]:
        """Return the lines of an operation, for a register ``round`` with one word for example::

        bit<32> round;
        round.read(round, index);                   // the entry's words, as local variables
        bool next = round + 1 == hdr.x.round;       // a bool per conditional case
        bit<32> result = next ? hdr.x.round : 0;    // from the old words
        round = next ? hdr.x.round : round;         // the new words
        round.write(index, round);
        destination = result;
        """
        operation, index = execute.operation, f"(bit<32>){execute.index}"
        register, words = operation.register, operation.register.words
        names = {word: word for word in words}
        cases = [case for case in operation.cases if case.condition]
        lines = []
        if cases or operation.has_result:
            lines += self._read(register, index)
        lines += [f"bool {c.name} = {self.fill(str(c.condition), **names)};" for c in cases]
        has_update = any(case.update for case in operation.cases)
        if execute.destination:
            results = [(case, self.fill(case.result or "0", **names)) for case in operation.cases]
            target = f"bit<{WORD_BITS}> result" if has_update else execute.destination
            lines.append(f"{target} = {_first_case(results, '0')};")
        for word in words:
            values = [(case, self.fill(case.update.get(word, word), **names)) for case in operation.cases]
            if any(value != word for _, value in values):
                kind = "" if cases or operation.has_result else f"bit<{WORD_BITS}> "
                lines.append(f"{kind}{word} = {_first_case(values, word)};")
        if has_update:
            lines.append(f"{register.name}.write({index}, {' ++ '.join(words)});")
        return lines + ([f"{execute.destination} = result;"] if execute.destination and has_update else [])

    @staticmethod
    def _read(register: Register, index: str) -> list[str]:
        """Return the lines that read an entry's words into local variables."""
        if len(register.words) == 1:
            (word,) = register.words
            return [f"bit<{WORD_BITS}> {word};", f"{register.name}.read({word}, {index});"]
        lines = [f"bit<{WORD_BITS * len(register.words)}> entry;", f"{register.name}.read(entry, {index});"]
        for position, word in enumerate(reversed(register.words)):
            high, low = WORD_BITS * (position + 1) - 1, WORD_BITS * position
            lines.insert(2, f"bit<{WORD_BITS}> {word} = entry[{high}:{low}];")
        return lines

    def apply(self, control: Control) -> tuple[str, ...]:
        """Return the apply block; egress drops the copy of a flooded packet at its ingress port."""
        if control.name != "Delivery":
            return control.apply
        return (
            "if (standard.egress_rid != 0) {",
            *(f"    {line}" for line in control.apply),
            *(["    meta.answer = 1;"] if self.udp else []),
            "} else if (standard.mcast_grp == FLOOD_GROUP && standard.egress_port == standard.ingress_port) {",
            "    mark_to_drop(standard);",
            "}",
        )


def _first_case(values: list[tuple[Case, str]], default: str) -> str:
    """Return an expression, nested ``?:``, for the value of the first case that holds, or ``default``."""
    text = default
    for case, value in reversed(values):
        nested = f"({text})" if "?" in text else text
        text = (
            value if case.condition is None else text if value == text else f"{case.name} ? {value} : {nested}"
        )
    return text
