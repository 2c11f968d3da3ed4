"""What is emitted beside the program: run by PTF, by tshark, and by something that stands in for bfshell."""

import subprocess

import pytest

from fanin.cli.main import main
from fanin.job import SWITCH, worker_endpoint
from fanin.p4 import companions
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.deployment import default_deployment, load_deployment
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket, Encap, Kind, Protocol, encode
from tests.needs import require
from tests.p4.bridge import run_tests

ENCAPS = pytest.mark.parametrize("encap", list(Encap))


@pytest.fixture
def emitted(tmp_path, capsys):
    def emit(*options):
        assert main(["p4", "emit", "-o", str(tmp_path), *map(str, options)]) == 0
        capsys.readouterr()
        return tmp_path

    return emit


@ENCAPS
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("protocol", list(Protocol))
def test_the_ptf_tests_pass_on_the_reference_switch(emitted, encap, workers, protocol):
    folder = emitted("--encap", encap, "--workers", workers, "--protocol", protocol)
    switch = ReferenceSwitch(endpoint=SWITCH, ports=workers, protocol=protocol)
    outcomes = run_tests(folder, switch)
    assert len(outcomes) == 7 + protocol.acknowledges
    assert set(outcomes.values()) == {None}


BROKEN = {
    "complete": ("_receivers", lambda job, verdict, sender: [sender], "ResultGoesToAll"),
    "duplicate": ("_receivers", lambda job, verdict, sender: job.members, "ADuplicateIsAnswered"),
    "foreign": (
        "_is_aggregation_over_udp",
        lambda frame: False,
        "ResultGoesToAll",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_ptf_tests_find_a_broken_switch(emitted, monkeypatch, fault):
    method, broken, test = BROKEN[fault]
    monkeypatch.setattr(ReferenceSwitch, method, staticmethod(broken))
    outcomes = run_tests(emitted("--encap", "udp"), ReferenceSwitch(endpoint=SWITCH, ports=4))
    assert any(name.startswith(test) and wrong for name, wrong in outcomes.items()), outcomes


def _tshark(folder, pcap, *options):
    require("tshark")
    command = ["tshark", "-X", f"lua_script:{folder / 'aggregation.lua'}", "-r", str(pcap), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "Lua Error" not in done.stdout + done.stderr
    return done.stdout


@ENCAPS
def test_tshark_reads_every_field_of_a_packet(emitted, encap, tmp_path):
    folder = emitted("--values", 4)
    packets = [
        AggPacket(kind, 7, 500 + kind, 0xFFFF_FFFF - kind, 1 << (31 - kind), (kind, -1, 2**31 - 1, -(2**31)))
        for kind in Kind
    ]
    with PcapWriter(tmp_path / "in.pcap") as pcap:
        for packet in packets:
            pcap.write(encode(packet, encap=encap, source=worker_endpoint(0), destination=SWITCH), 0)
    fields = ["version", "kind", "job", "slot", "round", "bitmap", "value"]
    options = [option for name in fields for option in ("-e", f"fanin.{name}")]
    lines = _tshark(folder, tmp_path / "in.pcap", "-T", "fields", *options).splitlines()
    assert lines == [
        f"1\t{p.kind}\t{p.job}\t{p.slot}\t{p.round}\t0x{p.bitmap:08x}\t{','.join(map(str, p.values))}"
        for p in packets
    ]
    summary = _tshark(folder, tmp_path / "in.pcap")
    assert "FANIN" in summary
    assert "RESULT job 7 slot 501 round 4294967294 bitmap 0x40000000" in summary


def test_tshark_says_what_is_malformed(emitted, tmp_path):
    folder = emitted()
    good = AggPacket(Kind.AGG, 1, 0, 1, 1)
    ends = {"encap": Encap.L2, "source": worker_endpoint(0), "destination": SWITCH}
    frames = {
        "": encode(good, **ends),
        "version is not 1": encode(AggPacket(Kind.AGG, 1, 0, 1, 1, version=2), **ends),
        "no such kind": encode(AggPacket(9, 1, 0, 1, 1), **ends),
        "round is 0": encode(AggPacket(Kind.AGG, 1, 0, 0, 1), **ends),
        "fewer than 8 values": encode(good, **ends)[:50],
        "too short for a header": encode(good, **ends)[:20],
    }
    with PcapWriter(tmp_path / "in.pcap") as pcap:
        for frame in frames.values():
            pcap.write(frame, 0)
    said = _tshark(
        folder, tmp_path / "in.pcap", "-T", "fields", "-e", "fanin.malformed", "-e", "_ws.expert.message"
    )
    assert [line.strip().rpartition("\t")[2] for line in said.splitlines()] == list(frames)


class Node:
    """A BFRuntime object: remembers every call below it."""

    def __init__(self, calls, path=""):
        self._calls, self._path = calls, path

    def __getattr__(self, name):
        return Node(self._calls, f"{self._path}.{name}".lstrip("."))

    def __call__(self, **arguments):
        self._calls.append((self._path, arguments))
        return Node(self._calls, self._path)


@ENCAPS
def test_the_bfruntime_script_installs_every_group_and_entry(encap, capsys):
    config = ProgramConfig(target=Target.TNA, encap=encap, workers=3)
    deployment = default_deployment(config)
    calls: list = []
    exec(companions.bfruntime_script(config, deployment), {"bfrt": Node(calls)})
    everything = companions.installations(config, deployment)
    entries = [entry for installation in everything for entry in installation.entries]
    groups = [group for installation in everything for group in installation.groups]
    assert f"3 ports, {len(groups)} groups, {len(entries)} entries" in capsys.readouterr().out
    added = [(path, arguments) for path, arguments in calls if "add_with" in path]
    assert len(added) == len(entries)
    for (path, arguments), entry in zip(added, entries, strict=True):
        action = entry.action.rpartition(".")[2]
        assert path == f"aggregation.pipe.{entry.table}.add_with_{action}"
        assert arguments.items() >= entry.parameters.items()
        for key, match in entry.match.items():
            assert arguments[key] == match.value
            assert arguments.get(f"{key}_mask") == getattr(match, "mask", None)
    order = [arguments["MATCH_PRIORITY"] for path, arguments in added if "verdict" in path]
    expected = [-entry.priority for entry in entries if entry.table.endswith("verdict")]
    assert [a - b for a, b in zip(order, expected, strict=True)] == [5] * len(order)  # smaller is stronger
    nodes = {a["MULTICAST_NODE_ID"]: a for path, a in calls if path == "pre.node.entry"}
    for (_, arguments), group in zip(
        [call for call in calls if call[0] == "pre.mgid.entry"], groups, strict=True
    ):
        assert arguments["MGID"] == group.id
        members = [nodes[number] for number in arguments["MULTICAST_NODE_ID"]]
        assert [(m["DEV_PORT"], m["MULTICAST_RID"]) for m in members] == [
            ([r.port], r.id) for r in group.replicas
        ]
        excluded = zip(
            arguments["MULTICAST_NODE_L1_XID_VALID"], arguments["MULTICAST_NODE_L1_XID"], strict=True
        )
        assert list(excluded) == [(r.exclusion is not None, r.exclusion or 0) for r in group.replicas]
    ports = [arguments for path, arguments in calls if path == "port.port.entry"]
    assert [(p["DEV_PORT"], p["SPEED"], p["FEC"]) for p in ports] == [
        (n, "BF_SPEED_100G", "BF_FEC_TYP_RS") for n in range(3)
    ]
    assert {path for path, _ in calls if path.endswith("_state.clear")} == {
        "aggregation.pipe.Aggregation.agg_state.clear",
        "aggregation.pipe.Aggregation.ack_state.clear",
    }


def test_an_edited_job_file_is_not_written_over(emitted, tmp_path, capsys):
    emitted()
    job = tmp_path / "job.json"
    job.write_text(job.read_text().replace('"slots": 32768', '"slots": 256'))
    assert main(["p4", "emit", "-o", str(tmp_path)]) == 2
    assert "job.json: exists and differs" in capsys.readouterr().err
    emitted("--job", job)
    assert load_deployment(job).jobs[0].slots == 256
