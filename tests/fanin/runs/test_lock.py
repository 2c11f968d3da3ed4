"""One process writes a folder; of a process that was killed the next one deletes what is not whole."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from fanin.base.errors import InputError
from fanin.base.scratch import LIVE_FILE, WRITER_FILE, machine, write_file
from fanin.runs.lock import Writer, sole_writer, writer_of
from fanin.runs.manifest import MANIFEST_FILE
from fanin.runs.output import output_directory
from tests.fanin.cli.command import refused

RING = "ring train --on model --layers 64,16,10 --nodes 2 --batch 64"
PS = "ps train --on model --workers 2 --no-optimum"
#: A command line for each way to write a folder.
COMMANDS = (
    "train breast_cancer --preset tiny",
    "train breast_cancer --preset tiny --checkpoint 1",
    RING,
    PS,
    "plan digits_cnn arria10x1",
    "p4 emit",
    "verilog adder-tree",
)
HOLD = """
import sys, time
from pathlib import Path
from fanin.runs.output import output_directory
from fanin.runs.lock import sole_writer
folder = Path(sys.argv[1])
with sole_writer(folder), output_directory(folder) as scratch:
    (scratch / "half").write_text("written")
    print(scratch, flush=True)
    time.sleep(600)
"""
FILE = """
import sys, time
from pathlib import Path
from fanin.runs.output import output_file
with output_file(Path(sys.argv[1])) as file:
    print(file.name, flush=True)
    time.sleep(600)
"""


def begun(source, place):
    """A process that has begun to write ``place``."""
    process = subprocess.Popen([sys.executable, "-c", source, str(place)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline()
    return process


@pytest.fixture
def holder(tmp_path):
    """A process that writes ``run``."""
    process = begun(HOLD, tmp_path / "run")
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("line", COMMANDS)
def test_a_second_command_is_refused_and_leaves_the_first_alone(line, holder, tmp_path, capsys):
    folder = tmp_path / "run"
    before = sorted(folder.rglob("*"))
    option = "--package" if line.startswith("verilog") else "-o"
    said = refused(capsys, *line.split(), option, folder)
    where = f"fanin: error: {folder}: process {holder.pid} is writing it; "
    assert said == where + "wait until it ends, or choose another folder\n"
    assert sorted(folder.rglob("*")) == before


def test_the_writer_is_named_until_it_ends(holder, tmp_path):
    folder = tmp_path / "run"
    assert writer_of(folder) == Writer(holder.pid, socket.gethostname())
    holder.send_signal(signal.SIGINT)
    holder.wait()
    assert not folder.exists()


def test_a_killed_command_leaves_its_folder_to_the_next_one(holder, tmp_path):
    folder = tmp_path / "run"
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert writer_of(folder) is None
    with sole_writer(folder), output_directory(folder) as scratch:
        (scratch / "run.json").write_text("{}")
    assert {path.name for path in folder.iterdir()} == {MANIFEST_FILE, "run.json"}


def test_a_full_disk_leaves_no_name_of_a_writer(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def full(name, folder):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield

    monkeypatch.setattr("fanin.runs.lock.new_file", full)
    with pytest.raises(InputError, match="No space left on device"), sole_writer(tmp_path / "a" / "b"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_writer_of_another_machine_is_named_with_it(tmp_path):
    with sole_writer(tmp_path):
        (tmp_path / WRITER_FILE).write_text('{"pid": 7, "host": "node42"}')
        with pytest.raises(InputError, match="process 7 on node42 is writing it"), sole_writer(tmp_path):
            pass
        (tmp_path / WRITER_FILE).write_text("")
        with pytest.raises(InputError, match="another process is writing it"), sole_writer(tmp_path):
            pass


def test_a_folder_that_is_renamed_keeps_no_name(tmp_path):
    with sole_writer(tmp_path / "scratch"):
        (tmp_path / "scratch").rename(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


class TestLeftovers:
    """Files beside a place that a command writes."""

    def test_of_a_dead_process_go_and_of_a_live_one_stay(self, tmp_path):
        live, dead = begun(FILE, tmp_path / "live.v"), begun(FILE, tmp_path / "dead.v")
        try:
            dead.kill()
            dead.wait()
            assert len(list(tmp_path.iterdir())) == 2
            write_file(tmp_path / "next.v", "module")
            left = [path.name for path in tmp_path.iterdir() if path.name != "next.v"]
            assert len(left) == 1
            assert left[0].startswith(f".fanin-{machine()}-{live.pid}-")
        finally:
            for process in (live, dead):
                process.kill()
                process.communicate()

    def test_of_other_machines_and_of_nobody_stay(self, tmp_path):
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        names = [f".fanin-node-42.1-{dead.pid}-abc", ".fanin-abc", f".fanin-{machine()}-{dead.pid}"]
        for name in (*names, f".fanin-{machine()}-{dead.pid}-abc"):
            (tmp_path / name).write_text("half")
        with output_directory(tmp_path / "run") as folder:
            (folder / "run.json").write_text("{}")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "run"])

    def test_in_a_folder_the_sole_writer_deletes_those_of_the_last_one(self, tmp_path):
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        other, live = f".fanin-node-42.1-{os.getpid()}-abc", f".fanin-{machine()}-{os.getpid()}-abc"
        names = (other, live, ".fanin-notes", ".fanin-frames.pcap")
        left = (LIVE_FILE, f".fanin-{machine()}-{dead.pid}-abc")
        for folder in (tmp_path, tmp_path / "states"):
            folder.mkdir(exist_ok=True)
            (folder / ".fanin-venv").mkdir()
            for name in (*names, *left):
                (folder / name).write_text("half")
        with sole_writer(tmp_path):
            found = sorted(path.name for path in tmp_path.iterdir())
            assert found == sorted([*names, ".fanin-venv", "states", WRITER_FILE])
            found = sorted(path.name for path in (tmp_path / "states").iterdir())
            assert found == sorted([*names, ".fanin-venv", LIVE_FILE])

    def test_interrupts_while_files_are_replaced_wait_until_all_are(self, tmp_path, monkeypatch):
        """A second one would otherwise delete the new files, when the earlier ones are already gone."""
        replace = os.replace

        def interrupted(*arguments, **options):
            os.kill(os.getpid(), signal.SIGINT)
            replace(*arguments, **options)

        def write(text):
            with output_directory(tmp_path / "run") as folder:
                for name in ("run.json", "model.npz", "report.html"):
                    (folder / name).write_text(text if name != "run.json" else '{"options": {}}')
                monkeypatch.setattr(os, "replace", interrupted)

        for text in ("first", "second"):
            with pytest.raises(KeyboardInterrupt):
                write(text)
            monkeypatch.undo()
            assert (tmp_path / "run/model.npz").read_text() == text
            assert (tmp_path / "run/report.html").read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == ["run"]

    def test_a_failure_while_files_are_replaced_keeps_the_new_ones(self, tmp_path, monkeypatch, capsys):
        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("fanin.runs.output.replace_files", interrupted)
        with pytest.raises(KeyboardInterrupt), output_directory(tmp_path / "run") as folder:
            (folder / "run.json").write_text("{}")
        [kept] = tmp_path.glob("run-*")
        assert [path.name for path in kept.iterdir()] == ["run.json"]
        assert f"the new files are in {kept}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_command_that_is_killed_while_it_trains(tmp_path, capsys):
    """A real training: a second one is refused, a third one takes the folder of the killed one."""
    folder = tmp_path / "runs/ring"
    words = [*RING.split(), "-o", str(folder)]
    command = [sys.executable, "-m", "fanin", *words, "--epochs", "100000"]
    first = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        for _ in range(600):
            if (folder / ".fanin-live.json").exists():
                break
            time.sleep(0.1)
        assert f"{folder}: process {first.pid} is writing it" in refused(capsys, *words)
    finally:
        first.kill()
        first.communicate()
    assert [path.name for path in folder.parent.iterdir()] == ["ring"]
    with sole_writer(folder):
        assert [path.name for path in folder.iterdir()] == [WRITER_FILE]
