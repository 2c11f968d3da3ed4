"""Printer for Tofino: a packet's operation on a register is a RegisterAction."""

from __future__ import annotations

from typing import ClassVar

from fanin.p4.description import (
    Drop,
    Execute,
    Flood,
    Multicast,
    Operation,
    Register,
    State,
    Statement,
    Unicast,
)
from fanin.p4.printer import Printer, block, comment


class Tna(Printer):
    """Prints TNA; a register entry of two words is a struct."""

    template = "tna.p4.j2"
    names: ClassVar[dict[str, str]] = {
        "ingress_port": "intrinsic.ingress_port",
        "bad_checksum": "meta.bad_checksum",
        "replica": "intrinsic.egress_rid",
        "group_t": "MulticastGroupId_t",
        "port_t": "PortId_t",
    }
    checks = ("from_parser.parser_err == 0", "meta.bad_checksum == 0")
    counter = "DirectCounter<bit<32>>(CounterType_t.PACKETS)"

    def after_extraction(self, state: State) -> list[str]:  # noqa: D102
        if state.extract != "ipv4":
            return []
        return ["ipv4_checksum.add(hdr.ipv4);", "meta.bad_checksum = (bit<1>)ipv4_checksum.verify();"]

    def declarations(self) -> list[str]:  # noqa: D102
        pair = block("struct round_seen_t", ["bit<32> round;", "bit<32> seen;"])
        return [*super().declarations(), "", *pair]

    @staticmethod
    def _type(register: Register) -> str:
        return "bit<32>" if len(register.words) == 1 else f"{'_'.join(register.words)}_t"

    def register(self, register: Register) -> list[str]:  # noqa: D102
        return [f"Register<{self._type(register)}, bit<16>>(SLOTS) {register.name};"]

    def operation(self, operation: Operation) -> list[str]:
        """Return a RegisterAction whose ``apply`` is an if-else chain of the operation's cases."""
        register = operation.register
        kind, words = self._type(register), register.words
        names = {word: f"entry.{word}" if len(words) > 1 else word for word in words}
        entry = "entry" if len(words) > 1 else words[0]
        body = ["result = 0;"] if operation.cases[0].condition and operation.has_result else []
        for number, case in enumerate(operation.cases):
            effect = [f"result = {self.fill(case.result, **names)};"] if case.result else []
            effect += [f"{names[w]} = {self.fill(e, **names)};" for w, e in case.update.items()]
            if case.condition is None:
                body += effect
                continue
            lines = block(f"if ({self.fill(case.condition, **names)})", effect)
            if number:
                body[-1] = f"{body[-1]} else {lines[0]}"
                lines = lines[1:]
            body += lines
        result = ", out bit<32> result" if operation.has_result else ""
        apply = block(f"void apply(inout {kind} {entry}{result})", body)
        head = f"RegisterAction<{kind}, bit<16>, bit<32>>({register.name}) {operation.name} ="
        lines = block(head, apply)
        return [*comment(operation.comment), *lines[:-1], "};", ""]

    def count(self, counter: str) -> list[str]:  # noqa: D102
        return [f"{counter}.count();"]

    def effect(self, statement: Statement) -> list[str]:  # noqa: D102
        match statement:
            case Execute(operation, destination, index):
                return [f"{f'{destination} = ' if destination else ''}{operation.name}.execute({index});"]
            case Multicast(group):
                return [f"to_manager.mcast_grp_a = {group};"]
            case Unicast(port):
                return [f"to_manager.ucast_egress_port = {port};"]
            case Flood():
                return [
                    "to_manager.mcast_grp_a = FLOOD_GROUP;",
                    "to_manager.level1_exclusion_id = (bit<16>)intrinsic.ingress_port;",
                ]
            case Drop():
                return ["to_deparser.drop_ctl = 1;"]
        raise TypeError(statement)
