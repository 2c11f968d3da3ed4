"""The testbenches of examples/verilog: run by ``make``, as users do, in two simulators; what a failure says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.glm.facts import PRESETS
from fanin.hdl.catalog import entry_of
from tests.needs import require

EXAMPLES = Path(__file__).parent.parent.parent / "examples/verilog"
BENCHES = sorted(bench.name.removesuffix("_tb.v") for bench in EXAMPLES.glob("*_tb.v"))
NODES = {
    "cluster": "cluster-node",
    "glm": "glm-node",
    "inceptionn": "inceptionn-nic",
    "param_server": "param-server",
    "rdma": "rdma-nic",
    "ring": "ring-node",
}
SUM = "all_reduce(list(vectors), config)"
REPORT = re.compile(
    r"(?P<place>\S+)\.report: (?P<way>read|write)s: \d+ bursts, at most (?P<words>\d+) words, "
    r"(?P<flight>\d+) in flight(?:, (?P<partial>\d+) partial words)?"
)
# Emission and elaboration of the cluster node take a minute.
each_bench = pytest.mark.parametrize(
    "bench", [pytest.param(name, marks=[pytest.mark.slow] * (name == "cluster")) for name in BENCHES]
)


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The examples beside the cocotb ones, whose Verilator they use; emitted nodes are kept for the module."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(EXAMPLES.parent / "cocotb/common", folder / "cocotb/common")
    return shutil.copytree(EXAMPLES, folder / "verilog", ignore=shutil.ignore_patterns("build"))


def make(folder, *arguments):
    """Run ``make`` with the Python of these tests, and none of the variables of a surrounding make."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        ["make", "--silent", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def output_of(done):
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return "".join(line for line in done.stdout.splitlines(True) if not line.startswith("- "))


def test_every_bench_has_a_node_and_a_recorded_output():
    assert sorted(NODES) == BENCHES == sorted(path.stem for path in EXAMPLES.glob("*.out"))


@pytest.mark.needs("iverilog")
@each_bench
def test_icarus_prints_the_recorded_output(copied, bench):
    assert output_of(make(copied, f"BENCH={bench}")) == (EXAMPLES / f"{bench}.out").read_text()


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("bench", BENCHES)
def test_verilator_prints_the_same(copied, bench):
    output = output_of(make(copied, f"BENCH={bench}", "SIM=verilator"))
    assert output == (EXAMPLES / f"{bench}.out").read_text()


@pytest.mark.needs("iverilog")
@each_bench
@pytest.mark.parametrize("latency", [1, 300])
def test_ports_keep_their_declared_limits_at_any_latency(copied, bench, latency):
    """The monitors of the memories report what the ports did; more bursts are in flight at a long latency."""
    output = output_of(make(copied, f"BENCH={bench}", f"FLAGS=-DLATENCY={latency}"))
    assert output.endswith("PASS\n")
    uses = getattr(entry_of(NODES[bench]).build(PRESETS["tiny"], {}), "port_use", {})
    reports = [match for line in output.splitlines() if (match := REPORT.match(line))]
    assert bool(reports) == bool(uses)
    for report in reports:
        use = uses[re.sub(r"(_port|\d+)$", "", report["place"].split(".")[-1])]
        assert 1 <= int(report["words"]) <= use.burst
        assert 1 <= int(report["flight"]) <= (use.reads if report["way"] == "read" else use.writes)
        assert use.partial or not int(report["partial"] or 0)


@pytest.mark.needs("iverilog")
def test_a_wrong_sum_fails_and_names_the_word(copied, tmp_path):
    folder = shutil.copytree(copied, tmp_path / "broken")
    vectors = folder / "vectors.py"
    text = vectors.read_text()
    assert SUM in text
    vectors.write_text(text.replace(SUM, f"(np.float32(2) * {SUM})"))
    done = make(folder, "BENCH=ring")
    assert done.returncode
    assert re.search(r"^FAIL: word 0 is ([0-9a-f]{64}) and \1, not [0-9a-f]{64}$", done.stdout, re.MULTILINE)
    assert "PASS" not in done.stdout


MASTER = """
module master_tb;
    reg clk = 0, valid = 0;
    always #1 clk = !clk;
    wire arready, awready, wready, rvalid, bvalid;
    axi_memory #(.WIDTH(64), .ADDRESS(32), .WORDS(1024), .BURST(16)) memory (
        .clk(clk), .arid(%(id)s), .araddr(%(address)s), .arlen(%(length)s), .arsize(%(size)s),
        .arburst(%(burst)s), .arvalid(valid), .arready(arready), .rvalid(rvalid),
        .rready(%(rready)s), .awready(awready),
        .awvalid(1'b0), .wvalid(1'b0), .wready(wready), .bvalid(bvalid), .bready(1'b1)
    );
    initial begin
        @(negedge clk) valid = 1;
        @(negedge clk) valid = 0;
        repeat (100) @(negedge clk);
        $display("PASS");
        $finish;
    end
endmodule
"""
RIGHT = {
    "id": "1'd0", "address": "32'hf80", "length": "8'd15", "size": "3'd3", "burst": "2'd1", "rready": "1'b1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({}, None),
        ({"id": "1'd1"}, "the ID is 0"),
        ({"burst": "2'd2"}, "bursts are INCR"),
        ({"size": "3'd2"}, "beats are whole words"),
        ({"length": "8'd16"}, "a burst is not longer than BURST"),
        ({"address": "32'hf84"}, "addresses are aligned to the word"),
        ({"address": "32'hf88"}, "no burst crosses 4 KiB"),
        ({"address": "32'h2000"}, "addresses are in the memory"),
        ({"rready": "1'b0"}, "rready and bready are high"),
    ],
)
def test_the_memory_names_the_rule_that_a_master_breaks(tmp_path, wrong, rule):
    require("iverilog")
    (tmp_path / "master_tb.v").write_text(MASTER % (RIGHT | wrong))
    sources = [tmp_path / "master_tb.v", EXAMPLES / "axi_memory.v"]
    command = ["iverilog", "-g2012", "-s", "master_tb", "-o", tmp_path / "master", *sources]
    subprocess.run(command, check=True)
    done = subprocess.run(["vvp", "-n", tmp_path / "master"], capture_output=True, text=True)
    expected = "PASS" if rule is None else f"FAIL: master_tb.memory.check: {rule}"
    assert expected in done.stdout
    assert bool(done.returncode) == (rule is not None)
