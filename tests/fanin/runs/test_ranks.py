"""``--ranks`` and ``--mpi``: what is refused, in one line, and a training on two ranks of this machine."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from fanin.cli.main import main
from fanin.runs import ranks
from tests.support import slow

TRAIN = ["train", "breast_cancer", "--preset", "tiny", "--workers", "3", "--epochs", "2"]
SERVED = ["ps", "train", "--workers", "2", "--width", "128", "--batch", "64", "--epochs", "1"]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "0"], "--ranks must be in 1…1024, not 0"),
        (["--ranks", "1025"], "--ranks must be in 1…1024, not 1025"),
        (["--ranks", "2", "--mpi"], "not allowed with argument"),
        (["--mpi", "--ports", "a,b,c"], "--mpi: does not go with --ports"),
        (["--mpi", "--on", "boards.toml"], "--mpi: does not go with --on"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(capsys, tmp_path, monkeypatch, options, message):
    monkeypatch.setattr(ranks, "_join_ranks", lambda: nullcontext(True))
    assert main([*TRAIN, "-o", str(tmp_path / "run"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["cluster", "run", "--on", "golden"], ["ps", "train", "--on", "model"]])
@pytest.mark.parametrize("option", [["--mpi"], ["--ranks", "2"]])
def test_a_model_has_no_nodes_to_spread(capsys, tmp_path, monkeypatch, command, option):
    monkeypatch.setattr(ranks, "_start", lambda argv, count: pytest.fail("processes were started"))
    monkeypatch.setattr(ranks, "_join_ranks", lambda: nullcontext(True))
    monkeypatch.setattr(ranks, "_is_started", lambda: True)
    assert main([*command, "-o", str(tmp_path / "run"), *option]) == 2
    assert f"{option[0]}: does not go with {' '.join(command[-2:])}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def _fanin(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "fanin", *map(str, arguments)], capture_output=True, text=True, timeout=3600
    )


@pytest.mark.verilator
@pytest.mark.parametrize("command", [TRAIN, [*SERVED, "--sample-seconds", "1e-6", "--no-optimum"]])
@pytest.mark.parametrize("count", slow(2, 3))
def test_a_folder_is_the_same_on_any_number_of_ranks(tmp_path, count, command):
    folders = []
    for options in ([], ["--ranks", count]):
        folders.append(tmp_path / f"run{len(options)}")
        done = _fanin(*command, "--drop", "0.01", "-o", folders[-1], *options)
        assert done.returncode == 0, done.stderr
    alone, spread = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    of_command = [json.loads(files.pop("provenance.json"))["options"] for files in (alone, spread)]
    assert alone == spread
    assert [options.get("ranks") for options in of_command] == [None, count]


@pytest.mark.verilator
@pytest.mark.parametrize("options", slow((["--ranks", "4"],), (["--ranks", "2", "--wave", "w.fst"],)))
def test_what_ranks_cannot_do_is_one_line(tmp_path, options):
    done = _fanin(*TRAIN, "-o", tmp_path / "run", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("fanin: error: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ranks_do_not_take_the_callers_input():
    """A shell's loop reads its lines from there."""
    program = "import sys; from fanin.sim.cosim.spawn import Processes; "
    program += "print(Processes(['cat'], 2).wait(), sys.stdin.read())"
    done = subprocess.run(
        [sys.executable, "-c", program], input="a\nb\n", capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "0 a\nb\n\n"


_JOINING = """
import os, signal, sys
from fanin.sim.cosim import ranks
from fanin.sim.cosim.spawn import Processes, is_started
if not is_started():
    print(Processes([sys.executable, *sys.orig_argv[1:]], 3).wait())
else:
    if "die" in sys.argv:
        ranks.serve = lambda comm: comm.rank == 2 and os.kill(os.getpid(), signal.SIGKILL)
    if ranks.join():
        both = ranks.joined()
        listening = {line.split()[9] for line in open("/proc/net/tcp") if line.split()[3] == "0A"}
        paths = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
        own = {path.rpartition("/")[2] for path in paths}
        links = [name for name in own if name[8:-1] in listening]
        print(both.size, links)
        if "die" in sys.argv:
            ranks._receive(both._comm, 2)
        both.close()
"""


def _joining(*arguments):
    command = [sys.executable, "-c", _JOINING, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_ranks_of_this_machine_meet_without_a_socket_that_listens():
    done = _joining()
    assert (done.stdout, done.stderr) == ("3 []\n0\n", "")


def test_a_rank_that_dies_is_named():
    done = _joining("die")
    assert done.stderr.splitlines()[-1].endswith("ToolFailed: rank 2 has died, and so all have ended")
    assert done.stdout == "3 []\n1\n"


def test_a_rings_nodes_are_no_ranks_of_mpi(capsys, monkeypatch):
    monkeypatch.setattr(ranks, "_start", lambda argv, count: pytest.fail("processes were started"))
    line = ["nic", "run", "--kind", "ring", "--port", "none-such", "--rank", "0", "--ranks", "3"]
    assert main([*line, "--gradient", "none.npy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_program_that_raises_ends_on_all_ranks(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("from fanin.sim.cosim import ranks\nif ranks.join():\n    raise ValueError('its own')\n")
    command = [BIN / "mpiexec", "-n", "2", sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "ValueError: its own" in done.stderr
