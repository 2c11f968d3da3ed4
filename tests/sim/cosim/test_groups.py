"""Nodes of several kinds in one top: each with its own ports, numbered through."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase
from fanin.sim.cosim.simulator import Group, Simulator, simulation_sources
from tests.sim.cosim import scan_node
from tests.sim.cosim.copy_node import CopyNode
from tests.sim.cosim.dummy import DummyNode
from tests.sim.cosim.kinds import NODES, SCAN, SPLIT, copy, groups, request, scan, send

NONE = HostProgram()
WORD = 32


@pytest.fixture(scope="module")
def simulator():
    return Simulator(groups(), quiet=True)


def after(node, made):
    """A node's memory as it is behind the run."""
    return np.fromfile(made.memories[node][0], dtype=np.uint8)


@pytest.mark.verilator
def test_each_kind_does_what_it_is_for(simulator, tmp_path):
    made = request(tmp_path)
    before = [after(node, made) for node in range(NODES)]
    seen = HostProgram().poll(scan_node.REGISTERS.offset("seen"), int(before[SCAN][:4].view("<u4")[0]))
    made.phases = [
        Phase("work", [copy(0, 0x800, 4), send(SPLIT, 3), copy(0x40, 0x800, 2), scan()]),
        Phase("read", [NONE, NONE, send(SCAN, 2), seen]),
        Phase("settle", [copy(0, 0xC00, 16), NONE, NONE, NONE]),
        Phase("count", [NONE, NONE, NONE, HostProgram().read(scan_node.REGISTERS.offset("beats"))]),
    ]
    made.trace, made.event_mask = tmp_path / "trace", 1
    result = simulator.run(made)
    expected = [memory.copy() for memory in before]
    expected[0][0x800 : 0x800 + 4 * WORD] = before[0][: 4 * WORD]
    expected[0][0xC00 : 0xC00 + 16 * WORD] = before[0][: 16 * WORD]
    expected[SPLIT][0x800 : 0x800 + 2 * WORD] = before[SPLIT][0x40 : 0x40 + 2 * WORD]
    expected[SCAN][scan_node.TARGET : scan_node.TARGET + 8] = before[SCAN][:8]
    for node in range(NODES):
        assert np.array_equal(after(node, made), expected[node]), node
    assert result.bytes_written == [[20 * WORD], [0], [0, 2 * WORD], [0, 8]]
    assert result.bytes_read[SPLIT] == [2 * WORD, 0]
    assert [link["down"]["frames"] for link in result.links] == [0, 0, 3, 2]
    assert int(result.phases[1].reads[SPLIT][0]) == 3  # frames of another kind's node
    assert int(result.phases[3].reads[SCAN][0]) == 2 * 2 * WORD // 16  # two frames of two words, in beats of 16
    trace = np.fromfile(made.trace, dtype=[("cycle", "<u8"), ("events", "<u8"), ("node", "<u4"), ("_", "<u4")])
    assert trace["node"].tolist() == [SCAN]


@pytest.mark.verilator
def test_a_port_that_reads_sees_what_another_port_of_its_file_has_written(simulator, tmp_path):
    made = request(tmp_path)
    before = after(SPLIT, made)
    twice = [copy(0, 0x100, 8), copy(0x100, 0x200, 8)]
    made.phases = [Phase("copy", [NONE, NONE, program, NONE]) for program in twice]
    simulator.run(made)
    assert np.array_equal(after(SPLIT, made)[0x200 : 0x200 + 8 * WORD], before[: 8 * WORD])


@pytest.mark.verilator
def test_files_are_per_node_and_port_of_its_kind(simulator, tmp_path):
    made = request(tmp_path)
    for node, ports in ((SPLIT, 2), (0, 1)):
        memories = list(made.memories)
        memories[node] = [made.memories[node][0]] * 3
        with pytest.raises(
            ValueError, match=f"node {node} must have a file for each of its {ports} memory ports"
        ):
            simulator.run(replace(made, memories=memories))
    with pytest.raises(ValueError, match="memories must be 4, as built, not 3"):
        simulator.run(replace(made, memories=made.memories[:3]))


def test_each_kind_is_translated_once():
    sources = simulation_sources([Group(CopyNode(), 2), Group(DummyNode(), 3), Group(CopyNode(split=True), 2)])
    assert list(sources.models) == ["copy_node", "dummy_node", "copy_node_kind2"]
    nodes = [line.split()[0] for line in sources.top["top.sv"].splitlines() if " node" in line and "(" in line]
    assert nodes == ["copy_node"] * 2 + ["dummy_node"] * 3 + ["copy_node_kind2"] * 2
    alone = simulation_sources([Group(CopyNode())])
    assert not alone.models
    assert "module copy_node(" in alone.top["node.v"]


def test_a_top_without_nodes_is_refused():
    with pytest.raises(ValueError, match="groups must have a node at least"):
        Simulator([], quiet=True)
