"""IP-XACT component (IEEE 1685-2014) of a module: ports, buses, registers, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from fanin import __version__
from fanin.hdl.bus.register_map import WORD_BITS, WORD_BYTES, Access, Register, RegisterMap
from fanin.hdl.package.harness import Port
from fanin.hdl.package.interfaces import CLOCK, RESET, Interface, Protocol

VENDOR, LIBRARY = "fanin", "node"
_NAMESPACE = "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"
_SCHEMA = "http://www.w3.org/2001/XMLSchema-instance"
_VIEW, _SOURCES = "rtl", "rtl"
_MAP, _SLAVE = "registers", "axil"  #: the memory map, and the bus through which a host accesses it
_BUS = {Protocol.AXI4: "aximm", Protocol.AXI4_LITE: "aximm", Protocol.AXI4_STREAM: "axis"}
_ACCESS = {Access.RO: "read-only", Access.PULSE: "write-only", Access.COUNTER: "read-only"}
_VOLATILE = (Access.RO, Access.COUNTER, Access.WINDOW)  # the hardware changes these

Element = ElementTree.Element


def component(
    *,
    name: str,
    description: str,
    ports: Sequence[Port],
    buses: Sequence[Interface],
    registers: RegisterMap | None,
    files: Mapping[str, Sequence[tuple[str, str]]],
) -> str:
    """Return the text of ``component.xml``. ``files``: names and types of the files of each file set.

    Buses have Xilinx' definitions, since Xilinx' tools are the ones that read them; the logical names are
    Arm's.
    """
    root = Element(f"{{{_NAMESPACE}}}component")
    location = f"{_NAMESPACE} {_NAMESPACE}/index.xsd"
    root.set(f"{{{_SCHEMA}}}schemaLocation", location)
    _add(root, vendor=VENDOR, library=LIBRARY, name=name, version=__version__)
    interfaces = _child(root, "busInterfaces")
    for bus in buses:
        _add_bus(interfaces, bus, with_map=registers is not None and bus.name == _SLAVE)
    _add_signal(interfaces, CLOCK, "clock", "CLK", _associations(buses))
    _add_signal(interfaces, RESET, "reset", "RST", {"POLARITY": "ACTIVE_HIGH"})
    if registers is not None:
        _add_map(root, registers)
    _add_model(root, name, ports)
    file_sets = _child(root, "fileSets")
    for set_name, set_files in files.items():
        _add_files(_child(file_sets, "fileSet"), set_name, set_files)
    _add(root, description=description)
    ElementTree.register_namespace("ipxact", _NAMESPACE)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _associations(buses: Sequence[Interface]) -> dict[str, str]:
    """Return the parameters that associate the clock with its buses and its reset."""
    names = ":".join(bus.name for bus in buses)
    return ({"ASSOCIATED_BUSIF": names} if names else {}) | {"ASSOCIATED_RESET": RESET}


def _add_bus(parent: Element, bus: Interface, *, with_map: bool) -> None:
    ports = {logical: port.name for logical, port in bus.ports.items()}
    element = _interface(parent, bus.name, "interface", _BUS[bus.protocol], ports)
    side = _child(element, "master" if bus.master else "slave")
    if with_map:
        _child(side, "memoryMapRef").set("memoryMapRef", _MAP)
    if bus.protocol is not Protocol.AXI4_STREAM:
        _add_parameters(element, {"PROTOCOL": bus.protocol.value})


def _add_signal(parent: Element, port: str, kind: str, logical: str, parameters: Mapping[str, str]) -> None:
    """Add an interface of one port: clock or reset."""
    element = _interface(parent, port, "signal", kind, {logical: port})
    _child(element, "slave")
    _add_parameters(element, parameters)


def _interface(parent: Element, name: str, library: str, kind: str, ports: Mapping[str, str]) -> Element:
    """Add a bus interface without its mode. ``ports``: physical names by logical names."""
    element = _child(parent, "busInterface")
    _add(element, name=name)
    reference = {"vendor": "xilinx.com", "library": library, "version": "1.0"}
    _set(_child(element, "busType"), **reference, name=kind)
    abstraction = _child(_child(element, "abstractionTypes"), "abstractionType")
    _set(_child(abstraction, "abstractionRef"), **reference, name=f"{kind}_rtl")
    port_maps = _child(abstraction, "portMaps")
    for logical, physical in ports.items():
        port_map = _child(port_maps, "portMap")
        _add(_child(port_map, "logicalPort"), name=logical)
        _add(_child(port_map, "physicalPort"), name=physical)
    return element


def _add_parameters(parent: Element, values: Mapping[str, str]) -> None:
    parameters = _child(parent, "parameters")
    for name, value in values.items():
        _add(_child(parameters, "parameter"), name=name, value=value)


def _add_model(root: Element, module: str, ports: Sequence[Port]) -> None:
    """Add the Verilog module and its ports."""
    model = _child(root, "model")
    _add(
        _child(_child(model, "views"), "view"),
        name=_VIEW,
        envIdentifier="Verilog::",
        componentInstantiationRef=_VIEW,
    )
    instantiation = _child(_child(model, "instantiations"), "componentInstantiation")
    _add(instantiation, name=_VIEW, language="Verilog", moduleName=module)
    _add(_child(instantiation, "fileSetRef"), localName=_SOURCES)
    parent = _child(model, "ports")
    for port in ports:
        element = _child(parent, "port")
        _add(element, name=port.name)
        wire = _child(element, "wire")
        _add(wire, direction="out" if port.output else "in")
        if port.width > 1:
            _add(_child(_child(wire, "vectors"), "vector"), left=port.width - 1, right=0)


def _add_map(root: Element, registers: RegisterMap) -> None:
    """Add the registers as one block at address 0.

    The bus carries one word at a time, so a register of two words becomes two registers.
    """
    memory_map = _child(_child(root, "memoryMaps"), "memoryMap")
    _add(memory_map, name=_MAP)
    block = _child(memory_map, "addressBlock")
    size = 1 << registers.address_bits
    _add(block, name=_MAP, baseAddress="'h0", range=size, width=WORD_BITS, usage="register")
    for register in registers.registers:
        offset = registers.offset(register.name)
        if register.words > 1 and register.count > 1:
            # Elements of a register array must be adjacent; a register of several words needs a register file.
            file = _child(block, "registerFile")
            _add(file, name=register.name, dim=register.count, addressOffset=_hex(offset))
            _add(file, range=register.words * WORD_BYTES)
            for word in range(register.words):
                _add_word(file, register, word, word * WORD_BYTES)
        else:
            for word in range(register.words):
                _add_word(block, register, word, offset + word * WORD_BYTES)
    _add(memory_map, addressUnitBits=8)


def _add_word(parent: Element, register: Register, word: int, offset: int) -> None:
    """Add one word of a register, with its fields, at ``offset`` in ``parent``."""
    element = _child(parent, "register")
    _add(element, name=register.word_name(word), description=register.doc)
    if register.count > 1 and register.words == 1:
        _add(element, dim=register.count)
    access = _ACCESS.get(register.access, "read-write")
    volatile = str(register.access in _VOLATILE).lower()
    _add(element, addressOffset=_hex(offset), size=WORD_BITS, volatile=volatile, access=access)
    for field, shift in register.word_shifts(word):
        part = _child(element, "field")
        _add(part, name=field.name, description=field.doc, bitOffset=shift)
        _add(_child(_child(part, "resets"), "reset"), value=_hex(field.reset))
        _add(part, bitWidth=field.bits, volatile=volatile, access=access)
        if register.access is Access.WINDOW:
            _add(part, readAction="modify")  # a read may have effects in the hardware, e.g. advance its address


def _add_files(parent: Element, set_name: str, files: Sequence[tuple[str, str]]) -> None:
    """Add files to the set ``set_name``. Types that the standard does not name become user types."""
    _add(parent, name=set_name)
    for name, file_type in files:
        file = _child(parent, "file")
        _add(file, name=name)
        is_standard = file_type in ("verilogSource", "cSource", "SDC")
        _child(file, "fileType").text = file_type if is_standard else "user"
        if not is_standard:
            _set(file[-1], user=file_type)
        if name.endswith(".h"):
            _add(file, isIncludeFile="true")


def _hex(value: int) -> str:
    """Return a number as an expression of the standard, which uses SystemVerilog's syntax."""
    return f"'h{value:x}"


def _child(parent: Element, tag: str) -> Element:
    return ElementTree.SubElement(parent, f"{{{_NAMESPACE}}}{tag}")


def _add(parent: Element, **texts: Any) -> None:
    for tag, text in texts.items():
        _child(parent, tag).text = str(text)


def _set(element: Element, **attributes: str) -> None:
    for name, value in attributes.items():
        element.set(name, value)
