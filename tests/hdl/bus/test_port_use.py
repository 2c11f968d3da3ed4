# amaranth: UnusedElaboratable=no
"""Declared use of AXI4 ports: every port of every node has one, within the bus' rules."""

import pytest

from fanin.glm.facts import PRESETS
from fanin.hdl.bus.axi4 import BOUNDARY, MAX_BURST
from fanin.hdl.bus.port_use import page_burst
from fanin.hdl.catalog import CATALOG

NODES = [name for name, entry in CATALOG.items() if entry.registers]


@pytest.mark.parametrize("preset", ["tiny", "u280"])
@pytest.mark.parametrize("name", NODES)
def test_every_axi4_port_of_a_node_has_a_declared_use(name, preset):
    node = CATALOG[name].build(PRESETS[preset], {})
    members = {
        key: member.signature.members for key, member in node.signature.members.items() if not member.is_port
    }
    ports = {key: each for key, each in members.items() if {"arid", "awid"} & each.keys()}
    uses = getattr(node, "port_use", {})
    assert uses.keys() == ports.keys()
    for key, each in ports.items():
        assert bool(uses[key].reads) == ("arid" in each)
        assert bool(uses[key].writes) == ("awid" in each)
        data = each["rdata"].shape
        assert uses[key].burst in range(1, min(MAX_BURST, 8 * BOUNDARY // data) + 1)


def test_a_page_holds_the_longest_burst():
    assert [page_burst(width) for width in (64, 128, 512)] == [256, 256, 64]
