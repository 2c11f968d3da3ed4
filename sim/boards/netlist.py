"""Reader of flat netlists in the JSON of yosys and nextpnr: cells, their pins, and the module's ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.plain import read_regular
from fanin.base.records import parse_json

MAX_BYTES = 1 << 30  #: bytes of a netlist
MAX_PARAMETER_BITS = 4096  #: bits of a number among a cell's parameters; those of Lattice's cells have 320
Bit = int | str  #: number of a net, or a constant: "0", "1" or "x"

_CONSTANTS: dict[str, Bit] = {"$PACKER_GND": "0", "$PACKER_VCC": "1"}


@dataclass
class Cell:
    """An instance: its kind, its parameters and, by pin, its bits."""

    name: str
    kind: str
    parameters: dict[str, str]
    pins: dict[str, list[Bit]]
    outputs: frozenset[str]

    def text(self, parameter: str, default: str = "") -> str:
        """Return a string parameter. nextpnr appends a space to strings that look like numbers."""
        return self.parameters.get(parameter, default).rstrip(" ")

    def number(self, parameter: str, default: int = 0) -> int:
        """Return a number parameter, with zeros for don't-care bits. Raises InputError."""
        text = self.parameters.get(parameter)
        if text is not None and not re.fullmatch("[01x]+", text):
            raise InputError(f"{self.name}: {parameter} must have the bits 0, 1 and x alone, not {text[:40]!r}")
        if text is not None and len(text) > MAX_PARAMETER_BITS:
            limit = f"at most {MAX_PARAMETER_BITS:,} bits"
            raise InputError(f"{self.name}: {parameter} must have {limit}, not {len(text):,}")
        return default if text is None else int(text.replace("x", "0"), 2)

    def bit(self, pin: str) -> Bit | None:
        """Return the bit at a one-bit pin; None if it is not connected."""
        bits = self.pins.get(pin)
        return bits[0] if bits else None

    def inputs(self) -> Iterator[tuple[str, Bit]]:
        """Yield each input bit with its pin."""
        for pin, bits in self.pins.items():
            if pin not in self.outputs:
                yield from ((pin, bit) for bit in bits)


@dataclass
class Port:
    """A port of the module: its direction, ``input``, ``output`` or ``inout``, and its bits."""

    direction: str
    bits: list[Bit]


@dataclass
class Netlist:
    """A module without hierarchy. ``names``: names of each net in the source, by number."""

    module: str
    ports: dict[str, Port]
    cells: dict[str, Cell]
    names: dict[int, list[str]]

    def replace(self, bits: dict[int, Bit]) -> None:
        """Replace each key of ``bits`` by its value in all ports and cells; follow chains of replacements.

        Raises InputError for a chain that leads back to its beginning.
        """
        resolved: dict[int, Bit] = {}

        def resolve(bit: Bit) -> Bit:
            chain: list[int] = []
            while isinstance(bit, int) and bit in bits and bit not in resolved:
                if len(chain) > len(bits):
                    raise InputError(f"{self.module}: net {bit} drives itself through pads or buffers")
                chain.append(bit)
                bit = bits[bit]
            end = resolved.get(bit, bit) if isinstance(bit, int) else bit
            resolved.update(dict.fromkeys(chain, end))
            return end

        for port in self.ports.values():
            port.bits = [resolve(bit) for bit in port.bits]
        for cell in self.cells.values():
            cell.pins = {pin: [resolve(bit) for bit in pin_bits] for pin, pin_bits in cell.pins.items()}
        for replaced in bits:
            target = resolve(replaced)
            if isinstance(target, int):
                self.names.setdefault(target, []).extend(self.names.pop(replaced, []))

    def settle_constants(self) -> None:
        """Replace nextpnr's nets of constant 0 and 1 by constants."""
        values: dict[int, Bit] = {}
        for name in [name for name in self.cells if name in _CONSTANTS]:
            cell = self.cells.pop(name)
            values |= {bit: _CONSTANTS[name] for bit in cell.pins.get("F", []) if isinstance(bit, int)}
        self.replace(values)

    def drivers(self) -> dict[int, tuple[Cell, str]]:
        """Return, per net, the cell and pin that drive it."""
        return {
            bit: (cell, pin)
            for cell in self.cells.values()
            for pin in cell.outputs
            for bit in cell.pins.get(pin, [])
            if isinstance(bit, int)
        }


def read_netlist(path: Path) -> Netlist:
    """Return the top module of a JSON file of yosys or nextpnr. Raises InputError for another file."""
    try:
        modules = parse_json(read_regular(path, MAX_BYTES))["modules"]
        tops = [name for name, module in modules.items() if _is_top(module)] or list(modules)
        if len(tops) == 1:
            return netlist_of(tops[0], modules[tops[0]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: no netlist in JSON, as yosys or nextpnr writes it ({error})") from error
    raise InputError(f"{path}: a netlist has one top module, not {len(tops)}")


def _is_top(module: dict[str, Any]) -> bool:
    return int(str(module["attributes"].get("top", "0")), 2) != 0


def netlist_of(name: str, module: dict[str, Any]) -> Netlist:
    """Return the netlist of module ``name`` from its JSON. Raises ValueError for an invalid bit or direction.

    Bits and directions become part of Verilog; unchecked text could call programs.
    """
    ports = {
        key: Port(_direction(port["direction"]), _bits(port["bits"])) for key, port in module["ports"].items()
    }
    cells = {key: _cell(key, cell) for key, cell in module["cells"].items()}
    names: dict[int, list[str]] = {}
    for key, net in module["netnames"].items():
        width = len(net["bits"])
        for index, bit in enumerate(net["bits"]):
            if isinstance(bit, int):
                names.setdefault(bit, []).append(key if width == 1 else f"{key}[{index}]")
    return Netlist(name, ports, cells, names)


def _cell(name: str, cell: dict[str, Any]) -> Cell:
    directions = cell["port_directions"]
    pins = {pin: _bits(bits) for pin, bits in cell["connections"].items()}
    outputs = frozenset(pin for pin in pins if directions.get(pin) in ("output", "inout"))
    if not isinstance(cell["type"], str):
        raise ValueError(f"a cell's type is {cell['type']!r}")
    return Cell(name, cell["type"], {k: str(v) for k, v in cell["parameters"].items()}, pins, outputs)


def _direction(direction: object) -> str:
    if direction not in ("input", "output", "inout"):
        raise ValueError(f"a port's direction is {direction!r}")
    return str(direction)


def _bits(bits: Any) -> list[Bit]:
    """Return the bits of a port, a pin or a name, checked."""
    for bit in bits:
        if not (type(bit) is int and bit >= 0) and bit not in ("0", "1", "x", "z"):
            raise ValueError(f"a bit is {bit!r}")
    return list(bits)
