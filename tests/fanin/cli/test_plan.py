"""``fanin plan``: what it writes and prints, its verifier, sweeps, interrupts, and bad input."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from fanin.cli.main import main
from fanin.planner.check.plan import check_plan
from fanin.planner.plan.network import read_network
from fanin.runs.output import PROVENANCE_FILE
from tests.fanin.cli.json_page import documented
from tests.fanin.report.drawn import bars, figures, outside
from tests.planner.onnx_net import Net

QUICK = ("--workers", "1", "--time-limit", "3")
FILES = [".files.json", "connections.json", "devices", "plan.json", "provenance.json", "report.html"]


def _run(capsys, *arguments):
    status = main(["plan", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.fixture(scope="module")
def listing1(tmp_path_factory):
    """Listing 1 on four Arria 10s: a folder that no test changes."""
    folder = tmp_path_factory.mktemp("listing1") / "plan"
    assert main(["plan", "listing1", "arria10x4", "-o", str(folder), "--workers", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep that no test changes."""
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    options = ("--devices", "1..3", "--mp", "1,2", *QUICK)
    assert main(["plan", "listing1", "arria10x3", "-o", str(folder), *options]) == 0
    return folder


@pytest.fixture
def copy(listing1, tmp_path):
    return Path(shutil.copytree(listing1, tmp_path / "copy"))


SMALL = """from fanin.planner import *
x = bias(conv(4, 3, 1, add_input("x", [8, 8, 3])))
add_output("y", soft_cross_loss(dense(10, relu(x)), add_input("l", [10])))
"""
HELD_UP = """from fanin.planner import *
x = im2col([1, 3], 1, bias(add_input("x", [5, 7, 3])), padding=1)
x = online_norm(avg_pool([2, 1], 3, x, padding=[0, 0, 1, 0]))
add_output("y", soft_cross_loss(dense(3, x), add_input("l", [3])))
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return path


class TestOnePlan:
    def test_is_written_whole_and_passes_the_verifier(self, listing1, capsys):
        plan = json.loads((listing1 / "plan.json").read_text())
        assert _names(listing1) == FILES
        used = {layer["device"] for layer in plan["layers"]}
        assert _names(listing1 / "devices") == [f"{name}.json" for name in sorted(used)]
        assert plan["solver"]["status"] == "optimal"
        assert plan["throughput"] == plan["bound"] == pytest.approx(1e8 / 2304)  # two positions of 8×8 a cycle
        assert _run(capsys, "--check", listing1) == (0, "1 plan: every rule is kept\n", "")
        status, out, _ = _run(capsys, "--check", listing1, "--json")
        assert (status, documented("plan --check", out)) == (0, {"plans": 1, "complaints": {}})

    def test_is_shown_as_a_table(self, listing1, tmp_path, capsys):
        folder = tmp_path / "plan"
        status, out, err = _run(capsys, "listing1", "arria10x4", "-o", folder, "--workers", "1")
        assert (status, err) == (0, "")
        assert out.startswith("listing1 on arria10x4: 43,402.78 frames/s, optimal\n")
        plan = json.loads((folder / "plan.json").read_text())
        rows = {row[0]: row[1:] for row in map(str.split, out.splitlines()) if row}
        for name, used in plan["utilisation"].items():
            figures = [float(word) for word in rows[name] if re.fullmatch(r"[\d.]+", word)]
            layers = sum(layer["device"] == name for layer in plan["layers"])
            keys = ("dsp", "ram_blocks", "dram_bytes", "dram_read", "dram_write", "network")
            shares = [pytest.approx(100 * used[key], abs=0.051) for key in keys]
            assert figures == [layers, *shares, round(6 * used["connections"]), 6]
        assert f"cycles of {plan['limit']['layer']} on {plan['limit']['device']}" in out
        assert f"{plan['throughput_with_update']:,.2f} frames/s (batch 256)" in out

    def test_promises_no_more_than_the_flow_model(self, tmp_path, capsys):
        """Windows that skip rows leave their input in bursts, for which no cost of a layer counts."""
        (tmp_path / "model.py").write_text(HELD_UP)
        status, out, _ = _run(capsys, tmp_path / "model.py", "u280x1", "-o", tmp_path / "plan", *QUICK)
        plan = json.loads((tmp_path / "plan" / "plan.json").read_text())
        planned, found = plan["throughput"], plan["flow_throughput"]
        assert status == 0
        assert plan["throughput_with_update"] < found < 0.99 * planned
        assert f" u280x1: {found:,.2f} frames/s, planned for {planned:,.2f} frames/s, " in out
        cycles = [plan["cluster"]["devices"][0]["clock_hz"] / rate for rate in (found, planned)]
        assert "a frame every {:,.1f} cycles, where the plan counts {:,.1f}\n".format(*cycles) in out
        built = read_network(tmp_path / "plan")
        assert found == pytest.approx(built.clock / built.prediction(256).period)

    def test_is_the_same_every_time(self, listing1, tmp_path, capsys):
        _run(capsys, "listing1", "arria10x4", "-o", tmp_path, "--workers", "1")
        for path in (p for p in listing1.rglob("*.json") if p.name != PROVENANCE_FILE):  # it says where
            first, second = (
                json.loads((f / path.relative_to(listing1)).read_text()) for f in (listing1, tmp_path)
            )
            for value in (first, second):
                value.get("solver", {}).pop("seconds", None)
            assert first == second

    def test_is_as_good_with_a_pool_of_workers(self, listing1, tmp_path, capsys):
        _run(capsys, "listing1", "arria10x4", "-o", tmp_path, "--workers", "2")
        assert check_plan(tmp_path) == []
        first, second = (json.loads((f / "plan.json").read_text()) for f in (listing1, tmp_path))
        assert first["throughput"] == second["throughput"]

    def test_as_json_is_the_file(self, small, tmp_path, capsys):
        status, out, err = _run(capsys, small, "arria10x2", "-o", tmp_path / "plan", "--json", *QUICK)
        assert (status, err) == (0, "")
        assert documented("plan", out) == json.loads((tmp_path / "plan" / "plan.json").read_text())

    def test_updates_and_drains_once_a_batch(self, small, tmp_path, capsys):
        for batch in (1, 7, 1_000_000):
            _run(capsys, small, "arria10x2", "-o", tmp_path / "plan", "--batch", batch, *QUICK)
            plan = json.loads((tmp_path / "plan" / "plan.json").read_text())
            exposed = batch / plan["throughput_with_update"] - batch / plan["throughput"]
            assert 0 < exposed < plan["drain_seconds"] + plan["update_seconds"]
            assert plan["batch"] == batch

    def test_of_mixed_devices_from_files(self, small, tmp_path, capsys):
        cluster = tmp_path / "mixed.toml"
        table = '[[device]]\npart = "u280"\n[[device]]\nname = "edge"\npart = "ecp5-85"\n'
        cluster.write_text('host = "edge"\n' + table)
        status, out, _ = _run(capsys, small, cluster, "-o", tmp_path / "plan", *QUICK)
        assert (status, out.splitlines()[0].split(":")[0]) == (0, "small on mixed")
        plan = json.loads((tmp_path / "plan" / "plan.json").read_text())
        assert plan["cluster"]["host"] == "edge"
        assert {layer["device"] for layer in plan["layers"] if layer["kind"] == "input"} == {"edge"}

    def test_of_an_onnx_file(self, tmp_path, capsys):
        net = Net(1, 3, 8, 8)
        x = net("Relu", net.conv("x", (4, 3, 3, 3), bias=True, pads=[1, 1, 1, 1]))
        net.gemm(net("Flatten", net("GlobalAveragePool", x)), 4, 10)
        onnx.save(net.proto(), str(tmp_path / "net.onnx"))
        status, out, err = _run(capsys, tmp_path / "net.onnx", "arria10x2", "-o", tmp_path / "plan", *QUICK)
        assert (status, err) == (0, "")
        assert out.startswith("net on arria10x2: ")

    def test_replaces_an_earlier_one_and_leaves_the_rest(self, copy, small, capsys):
        (copy / "notes.txt").write_text("mine")
        assert _run(capsys, small, "arria10x1", "-o", copy, *QUICK)[0] == 0
        assert _names(copy) == sorted([*FILES, "notes.txt"])
        assert _names(copy / "devices") == ["fpga0.json"]
        assert check_plan(copy) == []


@pytest.mark.parametrize("which", ["listing1", "swept"])
def test_the_report_stands_by_itself(which, request):
    page = (request.getfixturevalue(which) / "report.html").read_text()
    assert outside(page) == []
    assert ("Throughput over the number of devices" in page) == (which == "swept")


def test_the_report_draws_what_is_in_its_files(listing1, swept):
    plan = json.loads((listing1 / "plan.json").read_text())
    figure = figures((listing1 / "report.html").read_text())["Utilisation of the devices"]
    for bar in bars(figure):
        device = figure["layout"]["xaxis"]["ticktext"][bar.place]
        assert bar.size in plan["utilisation"][device].values()
    curve = figures((swept / "report.html").read_text())["Throughput over devices"]
    drawn = sorted(point for series in curve["data"] for point in zip(series["x"], series["y"], strict=True))
    rows = json.loads((swept / "sweep.json").read_text())["plans"]
    assert drawn == sorted((row["devices"], row["throughput"]) for row in rows if row["throughput"])


class TestSweep:
    def test_has_a_plan_for_every_number_and_factor(self, swept, capsys):
        sweep = json.loads((swept / "sweep.json").read_text())
        assert (sweep["model"], sweep["cluster"]) == ("listing1", "arria10x3")
        assert _names(swept) == [".files.json", "plans", PROVENANCE_FILE, "report.html", "sweep.json"]
        rows = {(row["devices"], row["mp"]): row for row in sweep["plans"]}
        assert set(rows) == {(n, k) for n in (1, 2, 3) for k in (1, 2)}
        assert _names(swept / "plans") == sorted(f"devices{n}-mp{k}" for n, k in rows)
        for (devices, _), row in rows.items():
            plan = json.loads((swept / row["folder"] / "plan.json").read_text())
            assert len(plan["cluster"]["devices"]) == devices
            same = ("throughput", "bound", "gap", "flow_throughput", "throughput_with_update", "split")
            assert {key: plan[key] for key in same} == {key: row[key] for key in same}
            assert plan["solver"]["status"] == row["status"]
            assert len({layer["device"] for layer in plan["layers"]}) == row["devices_used"]
        assert _run(capsys, "--check", swept) == (0, "6 plans: every rule is kept\n", "")

    def test_never_falls_where_there_is_more(self, swept):
        rows = json.loads((swept / "sweep.json").read_text())["plans"]
        for a in rows:
            assert a["throughput"] <= a["bound"]
            for b in rows:
                if a["devices"] <= b["devices"] and a["mp"] <= b["mp"]:
                    assert a["throughput"] <= b["throughput"]

    def test_is_shown_as_a_table_or_as_json(self, small, tmp_path, capsys):
        options = ("arria10x2", "-o", tmp_path / "sweep", "--devices", "1,2", *QUICK)
        status, out, _ = _run(capsys, small, *options)
        assert status == 0
        assert out.startswith("small on arria10x2: frames/s")
        rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["plans"]
        shown = [line.split()[:2] for line in out.splitlines()[3:5]]
        assert shown == [[str(row["devices"]), f"{row['throughput']:,.2f}"] for row in rows]
        status, out, _ = _run(capsys, small, *options, "--json")
        assert documented("plan, of several", out) == json.loads(
            (tmp_path / "sweep" / "sweep.json").read_text()
        )

    def test_names_the_number_that_is_too_small(self, tmp_path, capsys):
        model = tmp_path / "wide.py"
        model.write_text(SMALL.replace("conv(4, 3", "conv(9, 7"))
        cluster = tmp_path / "two.toml"
        cluster.write_text('[[device]]\npart = "arria10"\ndsp = 70\nram_bits = 50000\ncount = 2\n')
        err = _bad(capsys, model, cluster, "-o", tmp_path / "sweep", "--devices", "1..2", *QUICK)
        assert f"{model} on 1 of {cluster}: " in err
        assert _names(tmp_path) == ["two.toml", "wide.py"]

    @pytest.mark.parametrize("lost", ["devices2-mp1", "devices3-mp2"])
    def test_that_lost_a_plan_is_none(self, swept, tmp_path, capsys, lost):
        copy = Path(shutil.copytree(swept, tmp_path / "copy"))
        shutil.rmtree(copy / "plans" / lost)
        assert f"{lost}: holds no plan.json" in _bad(capsys, "--check", copy)

    def test_with_a_plan_too_many_is_none(self, swept, tmp_path, capsys):
        copy = Path(shutil.copytree(swept, tmp_path / "copy"))
        shutil.copytree(copy / "plans" / "devices1-mp1", copy / "plans" / "devices7-mp1")
        assert "sweep.json: does not name" in _bad(capsys, "--check", copy)

    @pytest.mark.parametrize(
        ("plans", "cause"),
        [
            (None, '"plans" must be a list, not null'),
            (3, '"plans" must be a list, not 3'),
            (["a"], 'plans[0]: must be an object, not "a"'),
            ([{"devices": 1}], 'plans[0]: "folder" is missing'),
        ],
    )
    def test_that_is_none_of_ours(self, swept, tmp_path, capsys, plans, cause):
        copy = Path(shutil.copytree(swept, tmp_path / "copy"))
        _edit(copy / "sweep.json", lambda value: value.update(plans=plans))
        assert f"sweep.json: {cause}" in _bad(capsys, "--check", copy)

    def test_with_a_damaged_plan(self, swept, tmp_path, capsys):
        copy = Path(shutil.copytree(swept, tmp_path / "copy"))
        damaged = copy / "plans" / "devices2-mp1"
        _edit(damaged / "plan.json", lambda plan: plan.update(throughput=plan["throughput"] * 1.5))
        status, out, err = _run(capsys, "--check", copy)
        assert (status, err) == (1, "")
        assert all(line.startswith(f"{damaged}: ") for line in out.splitlines()[:-1])
        assert re.fullmatch(r"6 plans: \d+ complaints", out.splitlines()[-1])
        status, out, _ = _run(capsys, "--check", copy, "--json")
        assert (status, list(json.loads(out)["complaints"])) == (1, [str(damaged)])


class TestTheVerifier:
    def test_finds_what_a_hand_changed(self, copy, capsys):
        _edit(copy / "plan.json", lambda plan: plan["layers"][1].update(dsp=1))
        status, out, err = _run(capsys, "--check", copy)
        assert (status, err) == (1, "")
        assert f"{copy}: conv1: dsp is 1, not " in out

    def test_is_what_the_doctor_asks(self, copy, capsys):
        assert main(["doctor", str(copy)]) == 0
        assert capsys.readouterr().out == "1 plan: every rule is kept\n"
        _edit(copy / "plan.json", lambda plan: plan["layers"][1].update(dsp=1))
        assert main(["doctor", str(copy)]) == 1
        assert f"{copy}: conv1: dsp is 1, not " in capsys.readouterr().out

    def test_shows_twenty_complaints_and_counts_the_others(self, copy, capsys):
        _edit(copy / "plan.json", lambda plan: [layer.update(cycles=7, dsp=9999) for layer in plan["layers"]])
        status, out, _ = _run(capsys, "--check", copy)
        *lines, rest, total = out.splitlines()
        assert (status, len(lines)) == (1, 20)
        count = int(re.fullmatch(r"1 plan: (\d+) complaints", total)[1])
        assert rest == f"{copy}: and {count - 20} more, which --json has"
        complaints = json.loads(_run(capsys, "--check", copy, "--json")[1])["complaints"]
        assert len(complaints[str(copy)]) == count

    @pytest.mark.parametrize("name", ["plan.json", "connections.json"])
    def test_says_what_is_missing_or_no_json(self, copy, capsys, name):
        (copy / name).write_text('{"layers": [')
        assert name in _bad(capsys, "--check", copy)
        (copy / name).unlink()
        assert name in _bad(capsys, "--check", copy)

    def test_knows_what_is_no_plan(self, tmp_path, capsys):
        for folder in (tmp_path, tmp_path / "absent", Path(__file__)):
            assert f"{folder}: holds no plan.json and no sweep.json" in _bad(capsys, "--check", folder)
        (tmp_path / "sweep.json").write_text("[]")
        assert "holds no plan.json and no sweep.json" in _bad(capsys, "--check", tmp_path)

    def test_is_asked_about_every_plan_before_any_is_there(self, copy, small, tmp_path, capsys, monkeypatch):
        before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        monkeypatch.setattr(
            "fanin.cnn.plan.execute.check_plan", lambda folder: ["conv1: is wrong", "so is conv2"]
        )
        expected = (1, "", "fanin: error: the plan breaks a rule: conv1: is wrong (2 in all)\n")
        assert _run(capsys, small, "arria10x2", "-o", copy, *QUICK) == expected
        assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
        sweep = tmp_path / "sweep"
        assert _run(capsys, small, "arria10x2", "-o", sweep, "--devices", "1..2", *QUICK) == expected
        assert _names(tmp_path) == ["copy", "small.py"]


def _bad(capsys, *arguments):
    status, out, err = _run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("fanin: error: ")
    return err


MODELS = {  # a line in place of the second of SMALL's, and what is said
    'x = add_input("x", [8, 8, 3])\nx = add(conv(8, 3, 2, x), relu(x))': "add1: its inputs differ in shape",
    'x = lstm(add_input("x", [8, 8, 3]))': "name 'lstm' is not defined; layers are ",
    'x = add_input("x", [8, 8, 3])\nrelu(add_input("z", [8, 8, 3]))': "z leads to no output",
    'x = add_input("x", [8, 8, 0])': "x: channels must be an integer in 1",
    "raise SystemExit(3)": "SystemExit: 3",
    "x = (": "was never closed",
}
CLUSTERS = {
    "": "no [[device]]",
    '[[device]]\npart = "arria10"\ndsp = -3': "device 0: dsp must be an integer",
    '[[device]]\nname = "a"\nfamily = "arria10"': "device a: dsp is missing",
    '[[device]]\npart = "arria11"': "part: no 'arria11'; parts are ",
    'host = "b"\n[[device]]\npart = "arria10"': "host: no device is called 'b'",
    "[[device": "cluster.toml: ",
    '[[device]]\npart = "arria10"\ndsp = 2': "conv1 fits no device",
    '[[device]]\npart = "arria10"\nram_bits = 10': "fits no device",
}


class TestBadInput:
    @pytest.mark.parametrize("line", MODELS)
    def test_models(self, line, small, tmp_path, capsys):
        small.write_text("\n".join([SMALL.splitlines()[0], line, SMALL.splitlines()[2], ""]))
        err = _bad(capsys, small, "arria10x2", "-o", tmp_path / "plan")
        assert "small.py:" in err
        assert MODELS[line] in err
        assert _names(tmp_path) == ["small.py"]

    @pytest.mark.parametrize("text", CLUSTERS)
    def test_clusters(self, text, small, tmp_path, capsys):
        cluster = tmp_path / "cluster.toml"
        cluster.write_text(text)
        err = _bad(capsys, small, cluster, "-o", tmp_path / "plan")
        assert str(cluster) in err
        assert CLUSTERS[text] in err
        assert _names(tmp_path) == ["cluster.toml", "small.py"]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ("", "MODEL is missing"),
            ("listing1", "CLUSTER is missing"),
            ("listing1 arria10x2", "-o DIR is missing"),
            ("listing2 arria10x2 -o x", "listing2: must be a .py or .onnx file or one of "),
            ("absent.py arria10x2 -o x", "absent.py: no such file"),
            ("absent.onnx arria10x2 -o x", "absent.onnx: no such file"),
            ("junk.onnx arria10x2 -o x", "junk.onnx: is not a valid ONNX model"),
            ("listing1 absent.toml -o x", "absent.toml: no such file"),
            ("listing1 arria10 -o x", "arria10: must be a .toml file or one of "),
            ("listing1 arria10x0 -o x", "a cluster has 1…64 devices, not 0"),
            ("listing1 arria10x2 -o x --mp 3", "--mp must be some of 1, 2, 4, 8, with commas between, not '3'"),
            ("listing1 arria10x2 -o x --mp 1,", "--mp must be"),
            ("listing1 arria10x2 -o x --devices 2..1", "--devices must be a range as 3..9"),
            ("listing1 arria10x2 -o x --devices 0..1", "--devices must be a range as 3..9"),
            ("listing1 arria10x2 -o x --devices a", "--devices must be a range as 3..9"),
            ("listing1 arria10x2 -o x --devices 1..3", "arria10x2: has 2 devices, not 3"),
            ("listing1 arria10x2 -o x --batch 0", "batch must be in [1, 1000000], not 0"),
            ("listing1 arria10x2 -o x --workers 0", "workers must be in [1, 64], not 0"),
            ("listing1 arria10x2 -o x --workers 65", "workers must be in [1, 64], not 65"),
            ("listing1 arria10x2 -o x --seed -1", "seed must be in [0, 1000000], not -1"),
            ("listing1 arria10x2 -o x --gap -1", "gap must be in [0, 100], not -1"),
            ("listing1 arria10x2 -o x --time-limit nan", "time-limit must be in [0.1, 1e+06], not nan"),
            ("listing1 arria10x2 -o x --time-limit 0", "time-limit must be"),
            ("listing1 arria10x2 -o x --time-limit s", "--time-limit: invalid float value: 's'"),
            ("listing1 --check x", "--check takes no MODEL"),
            ("--check plan -o x", "-o: does not apply to --check"),
            ("--check plan --mp 4", "--mp: does not apply to --check"),
            ("--check plan --devices 1..2", "--devices: does not apply to --check"),
            ("--check plan --batch 3", "--batch: does not apply to --check"),
            ("--check plan --time-limit 3", "--time-limit: does not apply to --check"),
            ("--check plan --seed 1", "--seed: does not apply to --check"),
            ("listing1 arria10x2 -o junk.onnx", "junk.onnx: is a file; -o names a directory"),
            ("listing1 arria10x2 -o .", "exists and holds no plan.json of an earlier plan"),
            ("listing1 arria10x2 -o junk.onnx/x", "cannot be written"),
            ("listing1 arria10x2 -o plan --mp 1,2", "plan: exists and holds no sweep.json of an earlier sweep"),
        ],
    )
    def test_arguments(self, arguments, said, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "junk.onnx").write_text("junk")
        (tmp_path / "plan").mkdir()
        (tmp_path / "plan" / "plan.json").write_text('{"layers": []}')
        assert said in _bad(capsys, *arguments.split())
        assert _names(tmp_path) == ["junk.onnx", "plan"]

    def test_a_conflict_in_words(self, small, tmp_path, capsys):
        cluster = tmp_path / "cluster.toml"
        cluster.write_text('[[device]]\npart = "arria10"\nconnections = 0\nram_bits = 600000\ncount = 3\n')
        small.write_text(SMALL.replace("conv(4,", "conv(32,"))
        err = _bad(capsys, small, cluster, "-o", tmp_path / "plan", *QUICK)
        assert "no placement at any throughput; these cannot be kept together: at most 0 connections" in err
        assert "bits of RAM (1,800,000 on 3 devices" in err


def test_a_reader_that_has_gone_is_no_error(copy):
    command = [sys.executable, "-m", "fanin", "plan", "--check", str(copy), "--json"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=30)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
