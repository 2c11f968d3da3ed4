"""Waveforms of the least node: what is in the file, by Surfer's reader, is what the run did."""

import functools
import re

import numpy as np
import pytest
import pywellen

from fanin.base.errors import InputError
from fanin.link import LinkConfig
from fanin.sim.capture import read_capture
from fanin.sim.cosim.cluster import Cluster
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase
from fanin.sim.cosim.simulator import Group
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.wave_views import gtkwave, surfer
from fanin.sim.cosim.waves import Waveform, check_complete, span
from fanin.sim.cosim.window import Window
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AGGREGATION, Encap, Kind, header_length
from fanin.wire.ethernet import Endpoint
from fanin.wire.fields import unpack_fields
from tests.sim.cosim.dummy import JOB, REGISTERS, SLOTS, WIDTH, DummyNode

NODES, OPERATIONS, CLOCK_MHZ = 3, 20, 250
PERIOD = 4000  # ps
FRAMES = FrameFormat(AGGREGATION, header_length(Encap.L2), ("kind", "slot", "round"), {"kind": Kind})
HEADER = slice(header_length(Encap.L2), None)


def cluster(wave):
    """Of nodes that write a wave."""
    return Cluster(
        lambda: [Group(DummyNode(), NODES, frames=FRAMES)], clock_mhz=CLOCK_MHZ, wave=wave, quiet=True
    )


def run(nodes, **settings):
    """A run of ``nodes``, whose frames reach the switch in the instant in which they leave."""
    at = REGISTERS.offset
    programs = [
        HostProgram()
        .write(at("worker"), node)
        .write(at("operations"), OPERATIONS)
        .write(at("control"), 1)
        .poll(at("busy"), 0)
        for node in range(NODES)
    ]
    members = tuple(Member(n, 1 << n, Endpoint(mac=n + 1)) for n in range(NODES))
    values = np.random.default_rng(3).integers(-(10**6), 10**6, (NODES, OPERATIONS, 8), dtype=np.int32)
    return nodes.run(
        [[value] for value in values],
        [Phase("all", programs)],
        longest_wait=0,
        switch=functools.partial(ReferenceSwitch, endpoint=Endpoint(mac=99), ports=NODES),
        jobs=[Job(JOB, 0, SLOTS, members)],
        link=LinkConfig(delay_ns=0, gbps=float("inf")),
        switch_ns=0.0,
        paced=False,
        **settings,
    )


class Recorded:
    """A waveform as it was written: values by name, as they are at a rising edge."""

    def __init__(self, path):
        self.variables = {each.full_name: each for each in pywellen.Waveform(str(path)).all_vars()}

    def at(self, edge, name):
        """What an edge samples: the value before it."""
        return int(self.variables[name].signal.value_at(edge * PERIOD - PERIOD // 2))

    def frames(self, node, way, edges):
        """Frames that a node's MAC transfers, with the edges of their last beats, and the views of them."""
        found, frame = [], b""
        for edge in edges:
            beat = {
                name: self.at(edge, f"node{node}.mac_{way}_t{name}")
                for name in ("valid", "ready", "last", "keep", "data")
            }
            if not (beat["valid"] and beat["ready"]):
                continue
            data = beat["data"].to_bytes(WIDTH // 8, "little")
            frame += data[: beat["keep"].bit_count()]
            if beat["last"]:
                view = f"node{node}.dummy_node.view"
                fields = {name: self.at(edge, f"{view}.{way}_{name}") for name in FRAMES.shown_fields}
                assert self.at(edge, f"{view}.cycle") == edge
                found.append((edge, frame, fields))
                frame = b""
        return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The waveform of nodes 0 and 2 in the middle of a run, and the run's frames with their times."""
    folder = tmp_path_factory.mktemp("wave")
    wave = Waveform(Window(150, 200, nodes=(0, 2)), folder / "w.fst")
    run(cluster(wave), pcap=folder / "frames.pcap")
    return wave, Recorded(wave.path), read_capture(folder / "frames.pcap")


@pytest.mark.verilator
def test_frames_in_the_window_are_those_of_the_capture(recorded):
    wave, found, capture = recorded
    assert wave.recorded == wave.window.count
    edges = range(wave.window.first, wave.window.first + wave.window.count)
    inside = [(time, frame) for time, frame in capture if time * 1000 // PERIOD in edges]
    for node in (0, 2):
        sent = found.frames(node, "tx", edges)
        bit = 1 << node
        expected = [
            (time * 1000 // PERIOD, frame)
            for time, frame in inside
            if unpack_fields(AGGREGATION, frame[HEADER])["bitmap"] == bit
        ]
        assert [(edge, frame) for edge, frame, _ in sent] == expected
        assert len(sent) > 5
        received = found.frames(node, "rx", edges)
        assert len(received) > 5
        for _, frame, fields in sent + received:
            header = unpack_fields(AGGREGATION, frame[HEADER])
            assert fields == {name: header[name] for name in FRAMES.shown_fields}


@pytest.mark.verilator
def test_the_clock_has_an_edge_for_each_cycle_and_kinds_have_names(recorded):
    _, found, _ = recorded
    changes = list(found.variables["node0.clk"].signal)
    rising = [time for time, value in changes if value == 1]
    assert rising == [edge * PERIOD for edge in range(150, 350)]
    _, names = found.variables["node0.dummy_node.view.tx_kind"].enum_type
    assert names == [(f"{kind:04b}", kind.name) for kind in Kind]
    assert {name.split(".")[0] for name in found.variables} == {"node0", "node2"}


@pytest.mark.verilator
def test_what_save_files_name_is_there(recorded, tmp_path):
    wave, found, _ = recorded
    depth = wave.window.depth
    long = span(wave.path)
    assert 199 * PERIOD <= long <= 201 * PERIOD
    save = tmp_path / "w.gtkw"
    text = gtkwave(wave.nodes, depth=depth, wave=wave.path, save=save, span=long)
    zoom = float(re.search(r"^\*(-[\d.]+) ", text, re.MULTILINE)[1])
    assert 2**-zoom / 200 * 800 == pytest.approx(long)  # GTKWave's units: the window's 800 pixels show all
    named = re.findall(r"^(node\d\.[\w.]+)(?:\[(\d+):0\])?$", text, re.MULTILINE)
    widths = {name: int(last or 0) + 1 for name, last in named}
    assert widths == {name: found.variables[name].bitwidth for name in widths}
    assert {"node2.mac_tx_tdata", "node0.samples0_araddr", "node0.dummy_node.registers.total"} <= set(widths)
    lines = [line.split()[1] for line in surfer(wave.nodes, depth=depth).splitlines() if "variable_add" in line]
    assert set(lines) <= set(widths)
    assert "node2.mac_rx_tdata" in lines


@pytest.mark.verilator
def test_a_level_alone_has_ports_and_the_nodes_own_signals(tmp_path):
    wave = Waveform(Window(300, 20, nodes=(1,), depth=1), tmp_path / "w.fst")
    nodes = cluster(wave)
    first = run(nodes).cycles
    assert wave.recorded == 20
    names = set(Recorded(wave.path).variables)
    assert {"node1.mac_tx_tdata", "node1.dummy_node.operand", "node1.dummy_node.view.cycle"} <= names
    assert not [name for name in names if name.startswith("node1.dummy_node.registers.")]
    assert not [line for line in surfer(wave.nodes, depth=1).splitlines() if "registers" in line]
    run(nodes)  # behind the window: nothing more is written
    assert (wave.recorded, wave.cycles) == (20, 2 * first)


@pytest.mark.verilator
def test_a_window_may_begin_in_a_later_run_and_ends_with_it(tmp_path):
    wave = Waveform(Window(0, 1), tmp_path / "first.fst")
    first = run(cluster(wave)).cycles
    wave = Waveform(Window(2 * first - 30, 1000), tmp_path / "w.fst")
    nodes = cluster(wave)
    run(nodes)
    assert wave.recorded == 0
    assert not wave.path.exists()
    run(nodes)
    assert 28 <= wave.recorded <= 32
    check_complete(wave.path, wave.path)
    found = Recorded(wave.path)
    assert found.at(first - 20, "node0.dummy_node.view.cycle") == first - 20


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first": -1}, "first must be 0 to"),
        ({"count": 0}, "count must be 1 to"),
        ({"depth": 0}, "depth must be 1 to"),
    ],
)
def test_a_window_that_no_run_has_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Window(**fields)


def test_nodes_of_a_window():
    assert Window().selected_nodes(3) == (0, 1, 2)
    assert Window(nodes=(0, 2)).selected_nodes(3) == (0, 2)
    with pytest.raises(InputError, match=r"^--wave-nodes 3: the nodes are 0 to 2$"):
        Window(nodes=(1, 3)).selected_nodes(3)


def test_cycles_are_counted_through_all_runs(tmp_path):
    wave = Waveform(Window(250, 100), tmp_path / "w.fst")
    assert wave.next_window() == Window(250, 100)
    wave.count_run(200, 0)
    assert wave.next_window() == Window(50, 100)
    wave.count_run(80, 30)
    assert (wave.next_window(), wave.recorded) == (None, 30)
    over = Waveform(Window(10), tmp_path / "w.fst", cycles=11)
    assert over.next_window() is None


def test_a_file_that_ends_early_is_not_whole(tmp_path):
    block = b"\x00" + (16).to_bytes(8, "big") + bytes(8)
    path = tmp_path / "w.fst"
    path.write_bytes(2 * block)
    check_complete(path, path)
    for broken in (b"", block + block[:-1], block + b"\xff" + bytes(16)):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"x\.fst: the waveform could not be written to its end"):
            check_complete(path, tmp_path / "x.fst")
