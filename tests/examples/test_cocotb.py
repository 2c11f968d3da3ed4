"""The testbenches of examples/cocotb: copied out and run by ``make``, as users do; what a failure says."""

import contextlib
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import cocotb
import pytest

from fanin.glm.facts import PRESETS
from fanin.hdl.catalog import entry_of
from fanin.hdl.ring.node import RingNode
from tests.peers import run_cocotb
from tests.support import new_seed

EXAMPLES = Path(__file__).parent.parent.parent / "examples/cocotb"
COMMON = EXAMPLES / "common"
FOLDERS = sorted(makefile.parent.name for makefile in EXAMPLES.glob("*/Makefile"))
SUM = "expected = all_reduce(vectors, CONFIG)"


def make(folder, *arguments, programs=Path(sys.executable).parent):
    """Run it beside the Python of these tests, by default, and none of the variables of a surrounding make."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment |= {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": ""}
    return subprocess.run(["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def copied(tmp_path):
    """The examples without anything that was made in them, out of the repository."""
    made = shutil.ignore_patterns("sim_build", "__pycache__", "*.v", "results.xml")
    return shutil.copytree(EXAMPLES, tmp_path / "copied", ignore=made)


def ring_node():
    node = entry_of("ring-node").build(PRESETS["tiny"], {})
    assert isinstance(node, RingNode)
    return node


def test_every_node_with_a_folder_has_its_tests():
    assert FOLDERS == ["cluster", "glm", "inceptionn", "rdma", "ring"]
    for folder in FOLDERS:
        text = (EXAMPLES / folder / "Makefile").read_text()
        assert re.search(r"^NODE := (\S+)$", text, re.MULTILINE)[1] in {
            *("cluster-node", "glm-node", "inceptionn-nic", "rdma-nic", "ring-node"),
        }
        assert (EXAMPLES / folder / f"test_{folder}.py").exists()
        assert f"| `{folder}` |" in (EXAMPLES / "README.md").read_text()


@pytest.mark.verilator
def test_the_ring_passes_and_a_wrong_sum_is_named_with_its_word_and_the_seed(tmp_path, monkeypatch):
    """Stalls and losses of a seed of its own; then golden is broken in one value."""
    seed = new_seed() % 2**31
    for folder in (COMMON, EXAMPLES / "ring", tmp_path):  # the runner hands its own path on
        monkeypatch.syspath_prepend(folder)
    run_cocotb(ring_node(), "test_ring", tmp_path, seed=seed)
    text = (EXAMPLES / "ring/test_ring.py").read_text()
    assert SUM in text
    (tmp_path / "broken.py").write_text(text.replace(SUM, f"{SUM}\n    expected[5] = -0.0"))
    word = 0x400 // 4 + 5
    said = rf"the node's memory, word {word}, byte \d+: expected 0x80000000, got 0x\w{{8}}; "
    said += f"COCOTB_RANDOM_SEED={seed} "
    (tmp_path / "again").mkdir()
    with pytest.raises(AssertionError, match=said):
        run_cocotb(ring_node(), "broken", tmp_path / "again", seed=seed)


@pytest.fixture
def check_equal(monkeypatch):
    monkeypatch.syspath_prepend(COMMON)
    monkeypatch.setattr(cocotb, "RANDOM_SEED", 7, raising=False)
    yield importlib.import_module("compare").check_equal
    del sys.modules["compare"]


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (b"\x01\x02\x03\x04", b"\x01\x02\x03\x05", "word 1, byte 3: expected 0x0403, got 0x0503"),
        (b"\x01\x02\x03\x04", b"\x01\x02", "word 1, byte 2: expected 0x0403, got nothing"),
        (b"\x01\x02", b"\x01\x02\x03", "word 1, byte 2: expected nothing, got 0x03"),
    ],
)
def test_the_first_difference_is_named(check_equal, expected, got, said):
    check_equal("mac_tx, frame 3", expected, expected)
    with pytest.raises(
        AssertionError, match=f"^mac_tx, frame 3, {said}; COCOTB_RANDOM_SEED=7 repeats this run$"
    ):
        check_equal("mac_tx, frame 3", expected, got, word_bytes=2)


@pytest.mark.parametrize(
    ("arguments", "programs", "said"),
    [
        (["SIM=icarus", "ICARUS_BIN_DIR=/nowhere"], None, "Unable to locate command '/nowhere/iverilog'"),
        (["SIM=nosuch"], None, 'Couldn\'t find makefile for simulator: "nosuch"!'),
        ([], "/nowhere", "cocotb-config is not on PATH: pip install 'fanin[cocotb]'"),
    ],
    ids=["not installed", "not known", "no cocotb"],
)
def test_a_simulator_that_is_missing_takes_one_line(arguments, programs, said):
    done = make(EXAMPLES / "ring", *arguments, **({"programs": programs} if programs else {}))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line


def passed(done):
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    counts = re.search(r"TESTS=(\d+) PASS=(\d+) FAIL=0 SKIP=0", done.stdout)
    assert counts
    assert counts[1] == counts[2] != "0"


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("folder", FOLDERS)
def test_make_emits_builds_and_passes(copied, folder):
    passed(make(copied / folder, f"COCOTB_RANDOM_SEED={new_seed() % 2**31}"))


@pytest.mark.slow
@pytest.mark.needs("iverilog")
@pytest.mark.parametrize("folder", FOLDERS)
def test_four_states_and_another_simulator_make_no_difference(copied, folder):
    passed(make(copied / folder, "SIM=icarus", f"COCOTB_RANDOM_SEED={new_seed() % 2**31}"))


@pytest.mark.verilator
def test_the_examples_verilator_on_path_does_not_call_itself():
    """Packages' lint needs a verilator on PATH; this one found itself there, and called itself without end."""
    folder = EXAMPLES / "common" / "bin"
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    with subprocess.Popen(
        ["verilator", "--version"],
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=10)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert out.startswith("Verilator 5.")
