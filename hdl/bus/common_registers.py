"""The registers that every node has, declared once: what it is, commands, status, counters; and their hardware.

A map begins with ``id``, ``version`` and the constants of the node, then come ``control`` and ``status``; it
ends with the counters, which the command ``clear_counters`` zeroes.
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
    """Which kind of node it is, and which register map it has."""
    return (
        Register("id", Access.RO, f"{identity:#010x}"),
        Register("version", Access.RO, f"version of this register map: {version}"),
    )


def shape_register(*fields: Field) -> Register:
    """Sizes that a host checks before it relies on them."""
    return Register("shape", Access.RO, "what was fixed when this node was made", fields)


def control_register(*commands: Field, note: str = "") -> Register:
    """A bit for each command; ``note`` says what holds for some of them."""
    doc = f"commands; {note}" if note else "commands"
    clear = Field(CLEAR_COUNTERS, 1, "all counters become 0")
    return Register("control", Access.PULSE, doc, (*commands, clear))


def status_register(*fields: Field) -> Register:
    """What a host polls."""
    return Register("status", Access.RO, "what the node does", fields)


def failure_fields(causes: type[IntEnum], failed: str) -> tuple[Field, Field]:
    """Of the status: ``failed``, with this description, and ``cause``, one of ``causes``."""
    names = ", ".join(f"{cause.value} {cause.name}" for cause in causes)
    return Field("failed", 1, failed), Field("cause", max(causes).bit_length(), names)


def counter_registers(
    counters: Mapping[str, str], *, bits: int = WORD_BITS, steps: Mapping[str, int] | None = None
) -> tuple[Register, ...]:
    """A counter for each name, with what it counts.

    ``steps``: bits of what a counter adds in a cycle; 1 where it is not named.
    """
    steps = steps or {}
    return tuple(
        Register(name, Access.COUNTER, doc, bits=bits, step=steps.get(name, 1))
        for name, doc in counters.items()
    )


def node_map(*parts: Iterable[Register]) -> RegisterMap:
    """The map of a node, of its parts in this order."""
    return RegisterMap(tuple(register for part in parts for register in part), clear=CLEAR_COUNTERS)


def drive_constants(m: Module, file: RegisterFile, constants: Mapping[str, int]) -> None:
    """``constants`` by the name of their field."""
    m.d.comb += [getattr(file, name).eq(value) for name, value in constants.items()]


def drive_counters(m: Module, file: RegisterFile, sources: Mapping[str, Any]) -> None:
    """Each counter adds its source, a cycle later. Raises ValueError unless all have one, and no other has."""
    counters = {register.name for register in file.registers.registers if register.access is Access.COUNTER}
    if sources.keys() != counters:
        raise ValueError(f"sources must be those of {sorted(counters)}, not of {sorted(sources)}")
    m.d.sync += [getattr(file, name).eq(source) for name, source in sources.items()]


def drive_request(m: Module, file: RegisterFile, *, command: str, pending: str, request: Any) -> None:
    """Turn a pulse of the host into a transfer on the stream ``request``.

    ``request`` is valid from the cycle after ``command`` until it is taken; the field ``pending`` shows both.
    """
    pulse = getattr(file, command)
    m.d.comb += getattr(file, pending).eq(request.valid | pulse)
    with m.If(pulse):
        m.d.sync += request.valid.eq(1)
    with m.Elif(request.ready):
        m.d.sync += request.valid.eq(0)
