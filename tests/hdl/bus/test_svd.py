# amaranth: UnusedElaboratable=no
"""Register maps as CMSIS-SVD: the schema and a reader of others agree with the map."""

from pathlib import Path
from xml.etree import ElementTree

import cmsis_svd
import pytest
from lxml import etree

from fanin.glm.facts import PRESETS
from fanin.hdl import catalog
from fanin.hdl.bus import svd
from tests.hdl.bus.test_register_map import MAP

NODES = [name for name, entry in catalog.CATALOG.items() if entry.registers]


def read(text):
    """The peripheral as another's parser sees it, after the schema has accepted the text."""
    folder = Path(cmsis_svd.__file__).parent / "schemas"
    schema = etree.XMLSchema(etree.parse(folder / "CMSIS-SVD_1_3_11.xsd"))
    device = etree.fromstring(text.encode())
    schema.assertValid(device)
    (peripheral,) = cmsis_svd.SVDParser(device.getroottree()).get_device().peripherals
    return peripheral


@pytest.mark.parametrize("name", NODES)
def test_every_node_s_map_is_valid_and_complete(name):
    entry = catalog.CATALOG[name]
    registers = entry.registers(entry.build(PRESETS["tiny"], {}))
    peripheral = read(catalog.registers(name, "svd", preset="tiny", settings={}))
    assert peripheral.name == catalog.module_of(name)
    assert {register.address_offset for register in peripheral.get_registers()} == {
        4 * number for number, *_ in registers.words()
    }


def test_words_fields_resets_and_accesses_are_the_map_s():
    registers = {
        register.name: register
        for register in read(svd.cmsis_svd(MAP, name="x", description="Test.")).get_registers()
    }
    assert [*registers] == [
        "control",
        "rate",
        "level",
        *("address_low[0]", "address_low[1]", "address_high[0]", "address_high[1]"),
        "drops",
        "model",
    ]
    assert registers["address_high[1]"].address_offset == 28
    assert registers["address_high[1]"].fields[0].bit_width == 8
    mantissa, shift = registers["rate"].fields
    assert (mantissa.bit_width, shift.bit_offset, shift.bit_width) == (16, 16, 6)
    assert registers["rate"].reset_value == 24 << 16
    accesses = {name: register.access.value for name, register in registers.items()}
    assert (accesses["control"], accesses["level"], accesses["rate"]) == (
        "write-only",
        "read-only",
        "read-write",
    )


def test_what_the_schema_requires_is_said_in_its_order():
    device = ElementTree.fromstring(svd.cmsis_svd(MAP, name="x", description="Test."))
    assert [child.tag for child in device] == (
        [
            "name",
            "version",
            "description",
            "addressUnitBits",
            "width",
            "size",
            "access",
            "resetValue",
            "resetMask",
            "peripherals",
        ]
    )
    peripheral = device.find("peripherals/peripheral")
    assert [child.tag for child in peripheral] == [
        "name",
        "version",
        "description",
        "baseAddress",
        "addressBlock",
        "registers",
    ]
    order = [
        "dim",
        "dimIncrement",
        "name",
        "description",
        "addressOffset",
        "access",
        "resetValue",
        "readAction",
        "fields",
    ]
    for register in peripheral.iter("register"):
        tags = [child.tag for child in register]
        assert tags == [tag for tag in order if tag in tags]
        assert {"name", "addressOffset", "fields"} <= {*tags}
    fields = [[child.tag for child in field] for field in peripheral.iter("field")]
    assert {tuple(tags) for tags in fields} == {("name", "description", "bitOffset", "bitWidth")}
