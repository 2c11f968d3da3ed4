"""Trees of switches in the network: times, faults and counters of every link, captures of every switch."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.link import LinkConfig
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import make_switch, make_tree
from fanin.sim.tree import TreeNetwork
from fanin.tree import parse_shape, tree_of
from fanin.wire.aggregation import AggPacket, Encap, Kind, Protocol, decode_payload, encode, header_length
from tests.support import new_seed, slow

FAULTS = {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "corrupt": 0.02}


def tree(text, protocol=Protocol.P4SGD, kind=SwitchKind.REFERENCE, slots=16):
    """The programs of a tree's switches, and their configuration."""
    shape = tree_of(parse_shape(text), job=1, base=0, slots=slots)
    config = ProgramConfig(workers=shape.bits, slots=slots, encap=Encap.L2, protocol=protocol)
    return make_tree(shape, kind=kind, config=config), config


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2x4", SwitchKind.EMBEDDED),
        ("1+2", SwitchKind.REFERENCE),
        ("2x2x2", SwitchKind.REFERENCE),
        *slow(("4x8", SwitchKind.EMBEDDED), ("2x2x4", SwitchKind.EMBEDDED), ("32x32", SwitchKind.REFERENCE)),
    ],
)
@pytest.mark.parametrize("faults", [{}, FAULTS])
def test_sums_are_right_on_every_tree(text, kind, protocol, faults):
    seed = new_seed()
    switch, config = tree(text, protocol, kind)
    rows = np.random.default_rng(seed).integers(-1000, 1000, (len(switch.tree.workers), 400)).astype(np.int32)
    network = NetworkConfig(link=LinkConfig(**faults), seed=seed, tree=switch.tree)
    result = allreduce(rows, switch=switch, program=config, network=network)
    np.testing.assert_array_equal(result.sums, rows.sum(axis=0))
    for counters in result.switches.values():
        assert counters["results"] == 50
    dropped = sum(trunk["dropped"] for trunk in result.trunks.values())
    assert (dropped > 0) == bool(faults) or text in ("1+2", "2x2x2"), "links between switches have faults, too"
    if not faults:
        assert result.retransmissions == 0
        inner = {name: counters for name, counters in result.switches.items() if name != "switch"}
        assert all(c["to_parent"] == 50 * (1 + protocol.acknowledges) for c in inner.values())
        assert all(trunk["frames"] == 50 * (1 + protocol.acknowledges) for trunk in result.trunks.values())


def latency(text, network):
    """Latency in ns of an AllReduce, the same of five one after another."""
    switch, config = tree(text, slots=1)
    workers = len(switch.tree.workers)
    if len(switch.switches) == 1:
        switch = make_switch(workers, kind=SwitchKind.REFERENCE, config=config)
    rows = np.ones((workers, 8 * 5), np.int32)
    (single,) = set(allreduce(rows, switch=switch, program=config, network=network).latencies_ns)
    return single


def test_a_level_costs_a_link_and_a_switch_each_way():
    """A frame of 60 bytes occupies 10 Gb/s for (8 + 60 + 4) · 0.8 ns = 57.6 ns."""
    network = NetworkConfig(link=LinkConfig(delay_ns=70, gbps=10), switch_ns=300)
    hop = 57.6 + 70
    assert latency("4", network) == pytest.approx(2 * hop + 300)
    assert latency("2x2", network) == pytest.approx(4 * hop + 3 * 300)
    assert latency("2x2x1", network) == pytest.approx(6 * hop + 5 * 300)


def test_a_hosts_time_is_not_one_of_switches():
    network = NetworkConfig(link=LinkConfig(delay_ns=70, gbps=10, host_ns=1000), switch_ns=300)
    assert latency("2x2", network) == pytest.approx(2 * 1000 + 4 * (57.6 + 70) + 3 * 300)


def with_links(text, **links):
    """The programs of a tree with links of their own to some parents, by name of a switch with ``_``."""
    plain = tree_of(parse_shape(text), job=1, base=0, slots=16)
    own = {name.replace("_", "-"): link for name, link in links.items()}
    tree = replace(plain, switches=tuple(replace(each, link=own.get(each.name, {})) for each in plain.switches))
    config = ProgramConfig(workers=tree.bits, slots=16, encap=Encap.L2)
    return make_tree(tree, kind=SwitchKind.REFERENCE, config=config), config


def test_a_link_between_switches_has_its_own_delay_and_rate():
    """A frame of 60 bytes occupies 40 Gb/s for 14.4 ns, 10 Gb/s for 57.6 ns."""
    switch, config = with_links("2x1", switch_0={"delay_ns": 500, "gbps": 40})
    network = NetworkConfig(link=LinkConfig(delay_ns=70, gbps=10), switch_ns=300, tree=switch.tree)
    result = allreduce(np.ones((2, 8), np.int32), switch=switch, program=config, network=network)
    hop, trunk = 57.6 + 70, 14.4 + 500
    up = hop + 300 + trunk + 300  # the root waits for the slower rack
    assert sorted(result.latencies_ns) == pytest.approx([up + 2 * hop + 300, up + trunk + 300 + hop])
    longest = 2 * (70 + 500) + 3 * 300 + 2 * 8 * (8 + 182 + 4) * (1 / 10 + 1 / 40)  # 182 bytes: UDP, 32 values
    assert network.trip_ns() == pytest.approx(longest)


def test_a_link_between_switches_has_its_own_faults():
    switch, config = with_links("2x2", switch_1={"drop": 0.2})
    rows = np.random.default_rng(1).integers(-1000, 1000, (4, 800)).astype(np.int32)
    network = NetworkConfig(tree=switch.tree)
    result = allreduce(rows, switch=switch, program=config, network=network)
    np.testing.assert_array_equal(result.sums, rows.sum(axis=0))
    dropped = {name: trunk["dropped"] for name, trunk in result.trunks.items()}
    assert dropped["switch-1 up"] > 0
    assert dropped["switch-1 down"] > 0
    assert dropped["switch-0 up"] == dropped["switch-0 down"] == 0


def test_a_timeout_is_longer_than_the_longest_way():
    """20 µs for each switch that a round trip passes, or ten round trips: the first timeout is an eighth."""
    assert NetworkConfig().ceiling_ns == 20_000
    switch, _ = with_links("2x1")
    assert NetworkConfig(tree=switch.tree).ceiling_ns == 60_000
    switch, config = with_links("2x1", switch_1={"delay_ns": 1e6})
    network = NetworkConfig(tree=switch.tree)
    assert network.ceiling_ns == pytest.approx(2e7, rel=0.01)
    result = allreduce(np.ones((2, 800), np.int32), switch=switch, program=config, network=network)
    assert result.time_ns == pytest.approx(
        14 * 2e6, rel=0.01
    )  # a slot is used 7 times, each for two round trips
    assert result.retransmissions == 0
    assert NetworkConfig(link=LinkConfig(delay_ns=1e9)).ceiling_ns == 4e9


def test_every_switch_has_a_capture_of_its_own():
    switch, _ = tree("2x1")
    captured = [[], [], []]
    network = TreeNetwork(
        tree=switch,
        link=LinkConfig(),
        captures=[lambda frame, time, own=own: own.append(frame) for own in captured],
    )
    source = switch.tree.workers[0][1]
    for worker in (0, 1):
        packet = AggPacket(Kind.AGG, 1, 0, 1, 1)
        network.send(worker, encode(packet, encap=Encap.L2, source=source, destination=source), 0)
    received = []
    while network.next_time is not None:
        received += network.advance(network.next_time)
    network.close()
    assert sorted(reception.port for reception in received) == [0, 1]
    kinds = [
        [Kind(decode_payload(frame[header_length(Encap.L2) :]).kind).name for frame in own] for own in captured
    ]
    assert kinds == [["AGG", "AGG", "RESULT", "RESULT"], *[["AGG", "AGG", "RESULT", "RESULT"]] * 2]


def test_a_worker_whose_link_is_cut_hears_nothing():
    switch, _ = tree("2x1")
    network = TreeNetwork(tree=switch, link=LinkConfig(), cuts={1: 0})
    source = switch.tree.workers[0][1]
    for worker in (0, 1):
        packet = AggPacket(Kind.AGG, 1, 0, 1, 1)
        network.send(worker, encode(packet, encap=Encap.L2, source=source, destination=source), 0)
    while network.next_time is not None:
        assert network.advance(network.next_time) == []
    assert network.first_arrival == [pytest.approx(105_760, rel=0.01), None]


EXAMPLE = Path(__file__).parents[2] / "examples/racks/tree.toml"


def test_the_command_takes_a_fabrics_file(tmp_path, capsys):
    """Links of 200 Gb/s between switches, and racks with their own delays."""
    path, text = tmp_path / "tree.toml", EXAMPLE.read_text()
    for delay in (300, 500):
        text = text.replace("uplink = 8\n", f"uplink = 0x8\nlink = {{ gbps = 200, delay_ns = {delay} }}\n", 1)
    path.write_text(text)
    status, out, err = run(capsys, "--tree", str(path), "--window", "1", "--json")
    assert (status, err) == (0, "")
    figures = json.loads(out)
    hop, trunk = 5.76 + 100, 2.88 + 500
    assert figures["latency_ns"]["p99"] == pytest.approx(2 * (hop + trunk) + 3 * 400)
    assert (figures["tree"], figures["workers"]) == (str(path), 4)
    assert figures["levels"] == {"root": 0, "rack0": 1, "rack1": 1}
    status, out, _ = run(capsys, "--tree", str(path))
    assert [line.split()[:3] for line in out.splitlines()[-2:]] == [["root", "1", "20"], ["1", "2", "40"]]
    status, _, err = run(capsys, "--tree", str(path), "--encap", "udp")
    assert (status, err) == (2, f"fanin: error: --encap udp: --tree {path}: switch root has no ip\n")


def run(capsys, *words):
    status = main(["p4", "allreduce", "--operations", "20", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_command_shows_the_levels(capsys):
    status, out, _ = run(capsys, "--racks", "2x2x2", "--switch", "reference")
    assert status == 0
    assert [line.split()[:3] for line in out.splitlines()[-3:]] == [
        ["root", "1", "20"],
        ["1", "2", "40"],
        ["2", "4", "80"],
    ]
    status, out, _ = run(capsys, "--racks", "1+2", "--json")
    figures = json.loads(out)
    assert (figures["workers"], figures["racks"]) == (3, "1+2")
    assert figures["switches"].keys() == {"switch", "switch-0", "switch-1"}
    assert figures["trunks"].keys() == {f"switch-{n} {way}" for n in (0, 1) for way in ("up", "down")}


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (
            ["--racks", "32x32", "--operations", "16385"],
            "--operations 16,385: 1,024 workers take at most 16,384",
        ),
        (["--racks", "2x33"], "--racks: a switch must have 1 to 32 members, not 33"),
        (["--racks", "two"], "--racks: a tree must be like 4x8"),
        (["--racks", "2x2", "--protocol", "published"], "--racks: the published protocol has one switch"),
    ],
)
def test_a_wrong_tree_takes_one_line(capsys, words, cause):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert cause in err
    assert err.count("\n") == 1


def test_a_flooded_frame_ends_at_ports_without_a_link():
    shape = tree_of((1, 1), job=1, base=0, slots=16)
    leaf = shape.switches[1]
    far = replace(leaf, part=replace(leaf.part, uplink=replace(leaf.part.uplink, port=5)))
    shape = replace(shape, switches=(shape.root, far, shape.switches[2]))
    config = ProgramConfig(workers=2, slots=16, encap=Encap.L2)
    network = TreeNetwork(tree=make_tree(shape, kind=SwitchKind.EMBEDDED, config=config), link=LinkConfig())
    network.send(0, b"\xff" * 6 + bytes([2, 0, 0, 0, 0, 1]) + b"\x08\x06" + bytes(46), 0)
    received = []
    while network.next_time is not None:
        received += network.advance(network.next_time)
    assert [reception.port for reception in received] == [1]
