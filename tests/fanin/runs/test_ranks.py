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
    monkeypatch.setattr(ranks, "_joined", lambda: nullcontext(True))
    assert main([*TRAIN, "-o", str(tmp_path / "run"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["cluster", "run", "--on", "golden"], ["ps", "train", "--on", "model"]])
@pytest.mark.parametrize("option", [["--mpi"], ["--ranks", "2"]])
def test_a_model_has_no_nodes_to_spread(capsys, tmp_path, monkeypatch, command, option):
    monkeypatch.setattr(ranks, "_start", lambda argv, count: pytest.fail("processes were started"))
    monkeypatch.setattr(ranks, "_joined", lambda: nullcontext(True))
    monkeypatch.setattr(ranks, "_check_met", lambda count: None)
    monkeypatch.setenv(ranks._STARTED, "2")
    assert main([*command, "-o", str(tmp_path / "run"), *option]) == 2
    assert f"{option[0]}: does not go with {' '.join(command[-2:])}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_a_launcher_it_is_said_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    assert main([*TRAIN, "-o", str(tmp_path / "run"), "--ranks", "2"]) == 2
    assert "mpiexec is missing: pip install 'fanin[mpi]'" in capsys.readouterr().err


def test_without_mpi4py_it_is_said_which_extra_brings_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert main([*TRAIN, "-o", str(tmp_path / "run"), "--ranks", "2"]) == 2
    assert "pip install 'fanin[mpi]'" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["mpiexec (Open MPI) 5.0.6", "mpiexec (OpenRTE) 4.1.4"])
def test_open_mpi_is_not_made_to_run_as_root(monkeypatch, said):
    done = subprocess.CompletedProcess([], 0, said)
    monkeypatch.setattr(ranks.subprocess, "run", lambda *arguments, **options: done)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(ranks.InputError, match="OMPI_ALLOW_RUN_AS_ROOT and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        ranks.launcher_options("mpiexec")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "--oversubscribe" in ranks.launcher_options("mpiexec")


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
    assert [options["ranks"] for options in of_command] == [None, count]


@pytest.mark.verilator
@pytest.mark.parametrize("options", slow((["--ranks", "4"],), (["--ranks", "2", "--wave", "w.fst"],)))
def test_what_ranks_cannot_do_is_one_line(tmp_path, options):
    done = _fanin(*TRAIN, "-o", tmp_path / "run", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("fanin: error: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_launcher_does_not_take_the_callers_input(tmp_path):
    """A shell's loop reads its lines from there."""
    launcher = tmp_path / "mpiexec"
    launcher.write_text("#!/bin/sh\ncat\n")
    launcher.chmod(0o755)
    program = "import sys; from fanin.runs import ranks; ranks.launcher = lambda: sys.argv[1]; "
    program += "print(ranks._start([], 2), sys.stdin.read())"
    command = [sys.executable, "-c", program, str(launcher)]
    done = subprocess.run(command, input="a\nb\n", capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 a\nb\n\n"


def test_a_rings_nodes_are_no_ranks_of_mpi(capsys, monkeypatch):
    monkeypatch.setattr(ranks, "_start", lambda argv, count: pytest.fail("processes were started"))
    line = ["nic", "run", "--kind", "ring", "--port", "none-such", "--rank", "0", "--ranks", "3"]
    assert main([*line, "--gradient", "none.npy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_ranks_that_do_not_meet_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv(ranks._STARTED, "2")  # as if a launcher of another MPI had started this process
    monkeypatch.setattr(ranks, "_joined", lambda: nullcontext(True))
    assert main([*TRAIN, "-o", str(tmp_path / "run"), "--ranks", "2"]) == 2
    assert "mpiexec and mpi4py are of different MPIs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_program_that_raises_ends_on_all_ranks(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("from fanin.sim.cosim import ranks\nif ranks.join():\n    raise ValueError('its own')\n")
    command = [BIN / "mpiexec", "-n", "2", sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "ValueError: its own" in done.stderr
