"""``fanin train --racks``: files of every switch, resumption, wrong trees."""

import contextlib
import json
import re
from types import SimpleNamespace

import pytest

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.glm.run.restarts import Attempts, Survival
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import load_deployment
from fanin.sim.network import NetworkConfig
from fanin.tree import tree_of
from tests.fanin.report.traces import read
from tests.support import slow

OPTIONS = ["breast_cancer", "--preset", "tiny", "--racks", "2x2"]


def run(*words):
    return main(["train", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("racks") / "run"
    assert run(*OPTIONS, "--epochs", 2, "--drop", 0.01, "-o", folder) == 0
    return folder


pytestmark = pytest.mark.verilator


@pytest.mark.slow
def test_a_run_counts_every_switch_and_every_link(folder):
    record = json.loads((folder / "run.json").read_text())
    assert record["bit_exact"]
    assert record["options"]["workers"] == 4
    assert record["options"]["network"]["tree"] == {
        "switch": ["switch-0", "switch-1"],
        "switch-0": ["worker 0", "worker 1"],
        "switch-1": ["worker 2", "worker 3"],
    }
    assert record["switches"].keys() == {"switch", "switch-0", "switch-1"}
    assert record["trunks"].keys() == {f"switch-{n} {way}" for n in (0, 1) for way in ("up", "down")}
    assert sum(trunk["dropped"] for trunk in record["trunks"].values()) > 0
    page = (folder / "report.html").read_text()
    assert "Links between switches" in page
    assert "to_parent_again" in page


@pytest.mark.parametrize("name", ["", "-switch-0", "-switch-1"])
def test_each_switchs_frames_replay_on_its_own(folder, name, capsys):
    job, frames = folder / f"job{name}.json", folder / f"frames{name}.pcap"
    (part,) = load_deployment(job).jobs
    assert (part.uplink is None) == (not name)
    capsys.readouterr()
    assert (
        main(["p4", "run", str(folder / "aggregation.p4"), "--job", str(job), "--recorded", str(frames)]) == 0
    )
    assert capsys.readouterr().out.splitlines()[-1].endswith(" equal, 0 differ")


def test_the_trace_has_every_level(folder):
    """Each switch is a process, leaves first; a sum at a leaf takes longer than that at the root in it."""
    slices = read((folder / "trace.json").read_text()).slices
    processes = list(dict.fromkeys(process for process, _ in slices))
    assert sorted(processes) == sorted(
        [
            *(f"node {number}" for number in range(4)),
            *("switch-1", "switch-0", "switch"),
            *("AllReduce", "AllReduce at switch-0", "AllReduce at switch-1"),
        ]
    )
    tracks = {(process, track.split(" (")[0]) for process, track in slices}
    ends = {"switch": ("switch-0", "switch-1"), "switch-0": ("node 0", "node 1", "switch")}
    for switch, peers in ends.items():
        found = {track for process, track in tracks if process == switch}
        assert found == {f"{way} {peer}" for way in ("from", "to") for peer in peers}
    names = {name for name, *_ in slices["switch-0", "from switch"]}
    assert names <= {"RESULT", "CONFIRM", "RESULT again", "CONFIRM again"}
    root, *leaves = (
        {name: (begin, end) for name, begin, end, _ in slices[f"AllReduce{where}", "slot 0"]}
        for where in ("", " at switch-0", " at switch-1")
    )
    assert all(leaf.keys() == root.keys() for leaf in leaves)
    for name, (begin, end) in root.items():
        assert min(leaf[name][0] for leaf in leaves) < begin, "a leaf has AGGs before the root"
        assert all(end < leaf[name][1] for leaf in leaves), "the root has the sum before the leaves"


def test_a_stopped_worker_and_a_resumed_run(tmp_path, folder):
    states = tmp_path / "states"
    assert run(*OPTIONS, "--epochs", 1, "--checkpoint", 1, "-o", states) == 0
    assert {"frames-switch-1.pcap", "job-switch-1.json"} <= {path.name for path in states.iterdir()}
    assert not list(states.glob(".fanin-*"))
    assert run("--resume", states, "--epochs", 2) == 0
    assert (states / "model.npz").read_bytes() == (folder / "model.npz").read_bytes()
    record = json.loads((states / "run.json").read_text())
    results = [counters["results"] for counters in record["switches"].values()]
    assert len(set(results)) == 1
    assert results[0] == json.loads((folder / "run.json").read_text())["switches"]["switch"]["results"]


def test_the_doctor_names_the_rack_that_stopped(tmp_path, capsys):
    folder = tmp_path / "run"
    assert (
        run(*OPTIONS, "--epochs", 2, "--stop", "3:2e-5", "--timeout-ns", 3000, "--retries", 4, "-o", folder)
        == 1
    )
    assert "node 3 stopped" in capsys.readouterr().err
    assert main(["doctor", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    heading = [number for number, line in enumerate(lines) if line.startswith("switch  ")]
    rows = [line.split() for line in lines[heading[0] : heading[0] + 4]]
    assert [row[0] for row in rows] == ["switch", "switch", "switch-0", "switch-1"]
    assert int(rows[3][2]) < int(rows[2][2]), "ACKs of the second rack"
    assert lines[heading[0] + 4].startswith("switch-1 lacks ")
    assert lines[heading[0] + 4].endswith(" ACKs of its 2 members")


#: A worker at the root beside a rack; ports, bits, job and slots of their own. Nodes are those of ``folder``.
FABRIC = """
job = 9
base = 64
slots = 4

[switch.spine]
mac = "02:00:00:00:bb:00"
ip = "10.9.0.1"
members = [{ port = 3, bit = 30, switch = "leaf" },
           { port = 5, bit = 7, mac = "02:00:00:00:cc:01", ip = "10.9.1.1" }]

[switch.leaf]
mac = "02:00:00:00:bb:01"
ip = "10.9.0.2"
udp_port = 34997
uplink = 12
members = [{ port = 1, bit = 9, mac = "02:00:00:00:cc:02", ip = "10.9.1.2", udp_port = 34997 },
           { port = 0, bit = 2, mac = "02:00:00:00:cc:03", ip = "10.9.1.3" },
           { port = 7, bit = 8, mac = "02:00:00:00:cc:04", ip = "10.9.1.4" }]
"""


@pytest.fixture
def fabric(tmp_path):
    path = tmp_path / "fabric.toml"
    path.write_text(FABRIC)
    return path


TREE = ["breast_cancer", "--preset", "tiny", "--epochs", 1]


@pytest.mark.parametrize("encap", ["l2", *slow("udp")])
def test_a_fabrics_file_decides_workers_slots_job_and_addresses(tmp_path, fabric, encap, capsys):
    folder = tmp_path / "run"
    assert run(*TREE, "--tree", fabric, "--encap", encap, "--drop", 0.01, "-o", folder) == 0
    record = json.loads((folder / "run.json").read_text())
    assert record["options"]["network"]["tree"] == {
        "spine": ["leaf", "worker 0"],
        "leaf": ["worker 1", "worker 2", "worker 3"],
    }
    assert record["options"]["network"]["slots"] == 4
    (job,) = load_deployment(folder / "job-leaf.json").jobs
    assert (job.id, job.base, job.slots, job.uplink.port, job.uplink.bitmap) == (9, 64, 4, 12, 1 << 30)
    capsys.readouterr()
    replay = ["p4", "run", str(folder / "aggregation.p4"), "--job", str(folder / "job-leaf.json")]
    assert main([*replay, "--recorded", str(folder / "frames-leaf.pcap")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" equal, 0 differ")


def test_a_restart_and_a_resumption_take_the_files_next_job(tmp_path, fabric):
    folder = tmp_path / "run"
    words = ["--tree", fabric, "--checkpoint", 1, "--restart", 1, "--stop", "leaf:1e-5", "--retries", 4]
    assert run(*TREE, *words, "--timeout-ns", 3000, "-o", folder) == 0
    record = json.loads((folder / "run.json").read_text())
    assert [restart["job"] for restart in record["restarts"]] == [10]
    assert run("--resume", folder, "--epochs", 2) == 0
    assert json.loads((folder / "run.json").read_text())["job"] == 12  # the link stops in job 11, too
    (job,) = load_deployment(folder / "job.json").jobs
    assert (job.id, job.base) == (12, 64)


def test_a_restart_whose_slots_no_switch_has_takes_one_line(tmp_path):
    """The fourth job of 16,384 slots from slot 16,384 on would end at slot 81,920."""
    network = NetworkConfig(ports=("a",), tree=tree_of(2, job=200, base=16_384, slots=16_384))
    trainer = SimpleNamespace(
        training=SimpleNamespace(network=network),
        nodes=SimpleNamespace(program=lambda _: ProgramConfig(slots=16_384)),
    )
    survival = Survival(job=202)
    attempts = Attempts(trainer, tmp_path, survival, None, lambda: None)
    assert (attempts.course().job, attempts.course().base) == (202, 49_152)
    survival.next_job()
    with pytest.raises(InputError, match="job 203 needs slots 65536 to 81919; a switch has 65536"):
        attempts.course()


def test_a_dead_link_between_switches_is_named(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ["--epochs", 2, "--stop", "switch-1:2e-5", "--timeout-ns", 3000, "--retries", 4]
    assert run(*OPTIONS, *words, "-o", folder) == 1
    assert "stopped" in capsys.readouterr().err
    assert main(["doctor", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    waiting = [line for line in lines if " lacks " in line]
    assert len(waiting) == 1, waiting
    assert re.fullmatch(
        r"switch-1 lacks (\d+) RESULTs of its parent switch; \1 lost on switch-1's link", waiting[0]
    )


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--slots", "64"], "--slots 64: --tree {} has 4"),
        (["--workers", "3"], "--workers 3: --tree {} has 4"),
        (["--racks", "2x2"], "not allowed with argument"),
        (["--ports", "lo"], "--ports lo: --tree {} has 4 workers"),
        (["--stop", "spine:1"], "--stop spine:1: workers are 0 to 3; switches below the root are leaf"),
        (["--stop", "4:1"], "--stop 4:1: workers are 0 to 3"),
        (["--switch", "bmv2"], "--tree {}: not with --switch bmv2"),
    ],
)
def test_options_that_contradict_the_file_take_one_line(tmp_path, fabric, capsys, words, cause):
    with contextlib.suppress(SystemExit):
        assert run(*TREE, "--tree", fabric, *words, "-o", tmp_path / "run") == 2
    assert cause.format(fabric) in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        (', ip = "10.9.1.3"', "", "worker 2 has no ip"),
        ('ip = "10.9.0.2"', "", "switch leaf has no ip"),
        ("udp_port = 34997 }", "udp_port = 6000 }", "udp_port of worker 1 must be 34997, not 6000"),
    ],
)
def test_udp_needs_an_ip_of_each_and_the_switchs_port(tmp_path, fabric, capsys, old, new, cause):
    fabric.write_text(FABRIC.replace(old, new, 1))
    assert run(*TREE, "--tree", fabric, "--encap", "udp", "-o", tmp_path / "run") == 2
    assert f"--encap udp: --tree {fabric}: {cause}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--racks", "2x33"], "--racks: a switch must have 1 to 32 members, not 33"),
        (
            ["--racks", "x"],
            "--racks: a tree must be like 4x8 (four racks of eight workers), 2x4x8 or 1+2, not 'x'",
        ),
        (["--racks", "2x2", "--workers", "3"], "--workers 3: --racks 2x2 has 4"),
        (
            ["--racks", "2x2", "--switch", "bmv2"],
            "--racks 2x2: not with --switch bmv2; embedded and reference make trees",
        ),
        (
            ["--racks", "2x2", "--ports", "lo"],
            "--racks needs simulated switches; with --ports, --tree describes others",
        ),
    ],
)
def test_a_wrong_tree_takes_one_line(tmp_path, capsys, words, cause):
    assert run("breast_cancer", *words, "-o", tmp_path / "run") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert cause in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_more_workers_than_a_switch_has_train_bit_for_bit(tmp_path):
    """65 workers need a clamp of 24 bits, one for more than 64."""
    words = ["--preset", "tiny", "--racks", "32+32+1", "--epochs", 1, "--drop", 0.005, "--frac", 20]
    assert run("digits", *words, "-o", tmp_path / "run") == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["bit_exact"]
    assert len(record["counters"]) == 65


@pytest.mark.parametrize("text", slow("2x4", "4x8", "2x2x4"))
@pytest.mark.parametrize("data", slow("breast_cancer", "digits"))
def test_trees_train_real_data(tmp_path, data, text):
    faults = [word for fault in ("drop", "duplicate", "reorder", "corrupt") for word in (f"--{fault}", "0.02")]
    assert run(data, "--preset", "tiny", "--racks", text, "--epochs", 1, *faults, "-o", tmp_path / "run") == 0
