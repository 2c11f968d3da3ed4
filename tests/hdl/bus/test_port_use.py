# amaranth: UnusedElaboratable=no
"""Declared use of AXI4 ports: every port of every node has one, within the bus' rules."""

import re

import pytest

from fanin.glm.facts import PRESETS
from fanin.hdl.bus.axi4 import BOUNDARY, MAX_BURST
from fanin.hdl.bus.port_use import CONSTANTS, page_burst
from fanin.hdl.catalog import CATALOG, verilog_of

NODES = [name for name, entry in CATALOG.items() if entry.registers]

MASTERS = [name for name in NODES if hasattr(CATALOG[name].component, "port_use")]


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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "cluster-node")) for name in MASTERS]
)
def test_constant_signals_have_their_values_in_the_emitted_verilog(name):
    """Each assignment to such a signal is the constant, or another signal of that name."""
    text = verilog_of(CATALOG[name].build(PRESETS["tiny"], {}), "node")
    names = "|".join(key if key.endswith("ready") else f"a[rw]{key}" for key in CONSTANTS)
    seen = set()
    for signal, source in re.findall(rf"^ +assign \\?\S*_({names}) += ([^;]+);$", text, re.MULTILINE):
        if not re.fullmatch(rf"\\?\S*_{signal} ?", source):
            key = signal if signal.endswith("ready") else signal[2:]
            width, _, digits = source.partition("'h")
            assert (width.isdigit(), int(digits, 16)) == (True, CONSTANTS[key]), (signal, source)
            seen.add(key)
    assert seen >= CONSTANTS.keys() - {"bready"}


def test_a_page_holds_the_longest_burst():
    assert [page_burst(width) for width in (64, 128, 512)] == [256, 256, 64]
