"""Registers common to all nodes, with their hardware: identity, commands, status, counters.

A map starts with ``id``, ``version`` and the node's constants, followed by ``control`` and ``status``. The
counters, which the command ``clear_counters`` zeroes, are at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from amaranth import Module

from fanin.hdl.bus.register_map import WORD_BITS, Access, Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile

CLEAR_COUNTERS = "clear_counters"


def identity_registers(identity: int, version: int) -> tuple[Register, ...]:
    """Return registers with the kind of node and the version of its register map."""
    return (
        Register("id", Access.RO, f"{identity:#010x}", reset=identity),
        Register("version", Access.RO, f"version of this register map: {version}", reset=version),
    )


def shape_register(*fields: Field) -> Register:
    """Return the register of the node's sizes and options, which a host checks before it uses the node."""
    return Register("shape", Access.RO, "sizes and options of this node", fields)


def control_register(*commands: Field, note: str = "") -> Register:
    """Return the register with a bit for each command; ``note``: rules for some of them."""
    doc = f"commands; {note}" if note else "commands"
    clear = Field(CLEAR_COUNTERS, 1, "set all counters to 0")
    return Register("control", Access.PULSE, doc, (*commands, clear))


def status_register(*fields: Field) -> Register:
    """Return the register that a host polls."""
    return Register("status", Access.RO, "state of the node", fields)


def failure_fields(causes: type[IntEnum], failed: str) -> tuple[Field, Field]:
    """Return two fields of the status: ``failed``, with this description, and ``cause``, one of ``causes``."""
    names = ", ".join(f"{cause.value} {cause.name}" for cause in causes)
    return Field("failed", 1, failed), Field("cause", max(causes).bit_length(), names)


def counter_registers(
    counters: Mapping[str, str], *, bits: int = WORD_BITS, steps: Mapping[str, int] | None = None
) -> tuple[Register, ...]:
    """Return a counter for each name, with its description.

    ``steps``: width in bits of the number that a counter adds in a cycle; 1 for names without an entry.
    """
    steps = steps or {}
    return tuple(
        Register(name, Access.COUNTER, doc, bits=bits, step=steps.get(name, 1))
        for name, doc in counters.items()
    )


def node_map(*parts: Iterable[Register]) -> RegisterMap:
    """Return the register map of a node: its parts in this order."""
    return RegisterMap(tuple(register for part in parts for register in part), clear=CLEAR_COUNTERS)


def drive_constants(m: Module, file: RegisterFile, constants: Mapping[str, int]) -> None:
    """Drive fields with ``constants``, by the name of the field."""
    m.d.comb += [getattr(file, name).eq(value) for name, value in constants.items()]


def drive_counters(m: Module, file: RegisterFile, sources: Mapping[str, Any]) -> None:
    """Add the source of each counter, a cycle later.

    Raises ValueError unless sources and counters have the same names.
    """
    counters = {register.name for register in file.registers.registers if register.access is Access.COUNTER}
    if sources.keys() != counters:
        raise ValueError(f"sources must have the names {sorted(counters)}, not {sorted(sources)}")
    m.d.sync += [getattr(file, name).eq(source) for name, source in sources.items()]
