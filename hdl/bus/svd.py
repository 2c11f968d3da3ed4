"""CMSIS-SVD of a register map, for debuggers, IDEs and generators of driver code."""

from __future__ import annotations

from xml.etree import ElementTree

from fanin import __version__
from fanin.hdl.bus.register_map import WORD_BITS, WORD_BYTES, Access, Register, RegisterMap

_SCHEMA = "http://www.w3.org/2001/XMLSchema-instance"
_ACCESS = {
    Access.RO: "read-only",
    Access.RW: "read-write",
    Access.PULSE: "write-only",
    Access.COUNTER: "read-only",
    Access.WINDOW: "read-write",
}


def cmsis_svd(registers: RegisterMap, *, name: str, description: str) -> str:
    """Return the map as a device with one peripheral at address 0, both called ``name``; CMSIS-SVD 1.3.

    The bus carries 32 bits at a time, so a register of two words becomes two: ``x_low`` and ``x_high``.
    """
    device = ElementTree.Element("device")
    device.set("schemaVersion", "1.3")
    device.set("xmlns:xs", _SCHEMA)
    device.set("xs:noNamespaceSchemaLocation", "CMSIS-SVD.xsd")
    _add(device, name=name, version=__version__, description=description, addressUnitBits=8, width=WORD_BITS)
    _add(device, size=WORD_BITS, access="read-write", resetValue="0x0", resetMask="0xffffffff")
    peripheral = _child(_child(device, "peripherals"), "peripheral")
    _add(peripheral, name=name, version=__version__, description=description, baseAddress="0x0")
    block = _child(peripheral, "addressBlock")
    _add(block, offset="0x0", size=hex(1 << registers.address_bits), usage="registers")
    parent = _child(peripheral, "registers")
    for register in registers.registers:
        for word in range(register.words):
            _add_word(_child(parent, "register"), registers, register, word)
    ElementTree.indent(device)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(device, encoding="unicode")}\n'


def _add_word(element: ElementTree.Element, registers: RegisterMap, register: Register, word: int) -> None:
    """Add a word of a register, with the elements in the order that the schema requires."""
    name = register.word_name(word)
    if register.count > 1:
        _add(element, dim=register.count, dimIncrement=register.words * WORD_BYTES)
        name += "[%s]"
    parts = list(register.word_shifts(word))
    reset = sum(field.reset << shift for field, shift in parts)
    _add(element, name=name, description=register.doc)
    _add(element, addressOffset=hex(registers.offset(register.name) + word * WORD_BYTES))
    _add(element, access=_ACCESS[register.access], resetValue=hex(reset))
    if register.access is Access.WINDOW:
        _add(element, readAction="modify")  # a read may have effects in the hardware, e.g. advance its address
    fields = _child(element, "fields")
    for field, shift in parts:
        _add(
            _child(fields, "field"),
            name=field.name,
            description=field.doc,
            bitOffset=shift,
            bitWidth=field.bits,
        )


def _child(parent: ElementTree.Element, tag: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag)


def _add(parent: ElementTree.Element, **texts: object) -> None:
    for tag, text in texts.items():
        _child(parent, tag).text = str(text)
