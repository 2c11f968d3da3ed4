"""What the co-simulations of all systems have in common: memories in and out, phases, words that were read."""

import sys

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.host.driver import BaseDriver
from fanin.link import LinkConfig
from fanin.sim.cosim.cluster import Cluster, Reads, check_identities
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase
from fanin.sim.cosim.simulator import SimulationFailed
from tests.sim.cosim import scan_node
from tests.sim.cosim.kinds import NODES, SCAN, SPLIT, copy, groups, scan, send

NONE = HostProgram()
SIZE = 1 << 12
REGISTERS = RegisterMap(
    (
        Register("kind", "ro", "What it is.", (Field("id", 16, "Name."), Field("version", 8, "Version."))),
        Register("frames", "counter", "Frames.", bits=64),
        Register("drops", "counter", "Frames dropped.", bits=32),
    )
)


@pytest.fixture(scope="module")
def cluster():
    return Cluster(groups, quiet=True)


@pytest.fixture
def memories():
    """One a node, shared by the ports of those that have two."""
    return [np.random.default_rng(node).integers(0, 256, SIZE, dtype=np.uint8) for node in range(NODES)]


@pytest.mark.verilator
def test_memories_are_filled_shared_by_a_nodes_ports_and_read_back(cluster, memories):
    phases = [Phase("copy", [copy(0, 0x800, 4), NONE, copy(0x40, 0x800, 2), scan()])]
    seen = HostProgram().poll(scan_node.REGISTERS.offset("seen"), int(memories[SCAN][:4].view("<u4")[0]))
    phases += [Phase("seen", [NONE] * SCAN + [seen]), Phase("again", [copy(0x800, 0, 4)])]
    result = cluster.run(([memory.view("<u4")] for memory in memories), phases, longest_wait=0)
    memories[0][0x800:0x880] = memories[0][:0x80]
    memories[SPLIT][0x800:0x840] = memories[SPLIT][0x40:0x80]  # what its one port writes its other one reads
    memories[SCAN][scan_node.TARGET : scan_node.TARGET + 8] = memories[SCAN][:8]
    for node, (found,) in enumerate(result.memories):
        assert np.array_equal(found, memories[node]), node
    assert not result.events.size


@pytest.mark.verilator
def test_nodes_after_the_last_one_given_keep_still_and_have_empty_memories(cluster, memories):
    status = copy(0, 0x800, 4)
    phases = [Phase("copy", [status, status]), Phase("one", [status])]
    result = cluster.run([[memories[0]], [memories[1]]], phases, longest_wait=0)
    assert [len(phase.reads) for phase in result.phases] == [2, 1]
    assert [found.size for (found,) in result.memories] == [SIZE, SIZE, 0, 0]
    phases[0].programs.append(status)
    with pytest.raises(SimulationFailed, match="node 2"):
        cluster.run([[memories[0]], [memories[1]]], phases, longest_wait=0)


@pytest.mark.verilator
def test_a_memory_for_each_port_and_the_events_of_the_run(cluster, memories):
    own = [memories[SCAN], np.zeros(SIZE, np.uint8)]  # of the port that reads, and of the one that writes
    contents = [*([memory] for memory in memories[:SCAN]), own]
    seen = HostProgram().poll(scan_node.REGISTERS.offset("seen"), int(own[0][:4].view("<u4")[0]))
    phases = [Phase("scan", [NONE] * SCAN + [scan()]), Phase("seen", [NONE] * SCAN + [seen])]
    # the last phase gives the write the time to end
    phases.append(Phase("settle", [copy(0, 0x800, 16)]))
    result = cluster.run(contents, phases, longest_wait=0, events=10)
    read, written = result.memories[SCAN]
    assert np.array_equal(read, own[0])
    assert np.array_equal(written[scan_node.TARGET :][:8], own[0][:8])
    assert result.events["node"].tolist() == [SCAN]


@pytest.mark.verilator
def test_macs_keep_to_the_links_rate_if_paced(cluster):
    def run(paced):
        phases = [Phase("send", [send(SPLIT, 8)])]
        return cluster.run([], phases, longest_wait=0, paced=paced, link=LinkConfig(gbps=10))

    slow, fast = run(True), run(False)
    assert slow.cycles > 2 * fast.cycles
    assert slow.switch["foreign"] == 8  # it forwards to the addresses of workers, which these nodes have not


@pytest.mark.verilator
def test_a_run_without_progress_ends_after_the_longest_wait(cluster, monkeypatch):
    monkeypatch.setattr("fanin.sim.cosim.cluster._WATCHDOG", 1000)
    seen = HostProgram().poll(scan_node.REGISTERS.offset("seen"), 1)
    ends = []
    for longest_wait in (0, 500):
        with pytest.raises(SimulationFailed) as failure:
            cluster.run([], [Phase("wait", [NONE] * SCAN + [seen])], longest_wait=longest_wait)
        ends.append(failure.value.result.cycles)
    assert ends == [1000, 1500]


def test_no_node_is_made_for_a_bad_clock_or_without_the_tools(monkeypatch):
    def groups():
        pytest.fail("Verilog takes seconds")

    with pytest.raises(InputError, match="clock_mhz must be in"):
        Cluster(groups, clock_mhz=0, quiet=True)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(InputError, match=r"missing: g\+\+, make, perl"):
        Cluster(groups, quiet=True)


def test_a_python_without_its_shared_library_is_named_before_a_node_is_made(monkeypatch):
    def groups():
        pytest.fail("Verilog takes seconds")

    monkeypatch.setattr("find_libpython.find_libpython", lambda: None)
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(InputError, match=rf"shared library, which .* has not: install it \(Debian: {name}\)"):
        Cluster(groups, quiet=True)


def driver(version):
    return BaseDriver(REGISTERS, {"id": 7, "version": version})


def test_reads_are_taken_batch_by_batch():
    reads = Reads(np.array([7 | 2 << 16, 5, 1, 9, 11, 12], np.uint32))
    driver(2).check_identity(reads.take(driver(2).identify()))
    assert driver(2).counters_of(reads.take(driver(2).counters())) == {"frames": 5 | 1 << 32, "drops": 9}
    assert reads.remaining() == [11, 12]
    with pytest.raises(ValueError, match="words must be the 3 that were read, not 2"):
        reads.take(driver(2).counters())


def test_another_node_than_the_drivers_is_found():
    words = [np.array([7 | version << 16, 1, 2], np.uint32) for version in (2, 3)]
    check_identities(driver(2), words[:1])
    with pytest.raises(ValueError, match="the node's version must be 2, not 3"):
        check_identities(driver(2), words)
