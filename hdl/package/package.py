"""Package of a catalogue component: all files for its use in another design."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.lib import wiring

from fanin import __version__
from fanin.glm.facts import PRESETS
from fanin.hdl import catalog
from fanin.hdl.emit import FlatPort, flat_ports
from fanin.hdl.package.attributes import with_attributes
from fanin.hdl.package.constraints import CONSTRAINTS
from fanin.hdl.package.fusesoc import core
from fanin.hdl.package.harness import Port, harness
from fanin.hdl.package.instance import instance as instance_text
from fanin.hdl.package.interfaces import CLOCK, RESET, Interface, interfaces
from fanin.hdl.package.ip_xact import component

MARK, KEY = "package.json", "package"  #: the file that marks a folder as a package, and a key in it
IP_XACT = "component.xml"
_REGISTERS = {"h": "c", "svd": "svd", "json": "json"}  # format of the register map by suffix
_TYPES = {"v": "verilogSource", "h": "cSource", "sdc": "SDC"}  # IP-XACT types by suffix; else the suffix itself


def emit(name: str, *, preset: str, settings: Mapping[str, str], module: str | None = None) -> str:
    """Return the Verilog of a component of the catalogue. Raises InputError, ValueError.

    Attributes tell Vivado which ports are the clock, the reset (with its polarity) and buses.
    """
    node = catalog.entry_of(name).build(PRESETS[preset], settings)
    return _verilog(node, module or catalog.module_of(name), interfaces(flat_ports(node)))


def instance(name: str, *, preset: str, settings: Mapping[str, str], module: str | None = None) -> str:
    """Return an instance of a component of the catalogue with a wire for each port. Raises InputError."""
    node = catalog.entry_of(name).build(PRESETS[preset], settings)
    node._MustUse__used = True  # Amaranth warns of a component that is never elaborated
    return instance_text(module or catalog.module_of(name), _ports(flat_ports(node)))


def _ports(ports: Sequence[FlatPort]) -> list[Port]:
    """Return a module's ports, clock and reset first."""
    clocks = [Port(CLOCK, 1, False), Port(RESET, 1, False)]
    return clocks + [Port(port.name, len(port.value), port.output) for port in ports]


def _verilog(node: wiring.Component, module: str, buses: Sequence[Interface]) -> str:
    return with_attributes(catalog.verilog_of(node, module), module, buses)


def file_names(module: str) -> tuple[str, ...]:
    """Return the names of all files that a package with this module may have, except the mark."""
    suffixes = ("v", *_REGISTERS, *CONSTRAINTS, "core")
    return (IP_XACT, f"{module}_harness.v", *(f"{module}.{suffix}" for suffix in suffixes))


def package(
    name: str, *, preset: str, settings: Mapping[str, str], clock_mhz: float, module: str | None = None
) -> dict[str, str]:
    """Return the text of each file of a component's package by name, ``MARK`` included. Raises InputError.

    ``module``: name of the top module; ``catalog.module_of`` gives the default.
    """
    entry, module = catalog.entry_of(name), module or catalog.module_of(name)
    node = entry.build(PRESETS[preset], settings)
    registers = entry.registers(node) if entry.registers else None
    ports = flat_ports(node)
    buses = interfaces(ports)
    verilog_ports = _ports(ports)
    rtl = {f"{module}.v": _verilog(node, module, buses)}
    constraint_files = {f"{module}.{suffix}": text(module, clock_mhz) for suffix, text in CONSTRAINTS.items()}
    register_files = {}
    if registers is not None:
        register_files = {
            f"{module}.{suffix}": catalog.REGISTER_FORMATS[register_format](registers, module, entry.summary)
            for suffix, register_format in _REGISTERS.items()
        }
    file_sets = {"rtl": rtl, "constraints": constraint_files, "registers": register_files}
    descriptions = {
        IP_XACT: component(
            name=module,
            description=entry.summary,
            ports=verilog_ports,
            buses=buses,
            registers=registers,
            files={set_name: _with_types(set_files) for set_name, set_files in file_sets.items() if set_files},
        ),
        f"{module}_harness.v": harness(module, verilog_ports, name=f"{module}_harness"),
        f"{module}.core": core(module, entry.summary),
    }
    files = rtl | register_files | constraint_files | descriptions
    mark = {KEY: name, "module": module, "preset": preset, "settings": dict(settings), "clock_mhz": clock_mhz}
    mark |= {"fanin": __version__, "files": [*files], "interfaces": [_bus_entry(bus) for bus in buses]}
    return files | {MARK: json.dumps(mark, indent=2) + "\n"}


def _with_types(files: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return names and IP-XACT types of files."""
    suffixes = {name: name.rpartition(".")[2] for name in files}
    return [(name, _TYPES.get(suffix, suffix)) for name, suffix in suffixes.items()]


def _bus_entry(bus: Interface) -> dict[str, Any]:
    return {
        "name": bus.name,
        "protocol": bus.protocol,
        "mode": "master" if bus.master else "slave",
        "by_name": bus.by_name,
    }
