"""``fanin plan`` that is ended in the middle of its search: nothing is left of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.fixture
def searching(tmp_path):
    """The command in the middle of a search, all its processes there."""

    def start(*options):
        command = [sys.executable, "-m", "fanin", "plan", "mobilenet_v2", "arria10x6"]
        process = subprocess.Popen(
            [*command, "-o", str(tmp_path / "plan"), "--workers", "2", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(process)
        end = time.monotonic() + 30
        while len(_session(process.pid)) < 4 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(_session(process.pid)) == 4  # the command, its search, two climbs
        time.sleep(0.5)
        return process

    started = []
    yield start
    for process in started:
        for pid in _session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def _session(leader):
    """Processes of a session that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended
            continue
        if int(session) == leader and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def _gone(leader):
    end = time.monotonic() + 5
    while _session(leader) and time.monotonic() < end:
        time.sleep(0.02)
    return not _session(leader)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
class TestASearchThatIsEnded:
    @pytest.mark.parametrize(
        ("send", "number", "status", "said"),
        [
            (os.killpg, signal.SIGINT, 130, "fanin: error: interrupted\n"),  # as the terminal does
            (os.kill, signal.SIGINT, 130, "fanin: error: interrupted\n"),
            (os.kill, signal.SIGTERM, 143, ""),
        ],
    )
    def test_leaves_nothing(self, searching, tmp_path, send, number, status, said):
        process = searching()
        begin = time.monotonic()
        send(process.pid, number)
        assert process.communicate(timeout=20) == ("", said)
        assert time.monotonic() - begin < 5
        assert process.returncode == status
        assert _gone(process.pid)
        assert list(tmp_path.iterdir()) == []

    def test_ends_with_the_command_even_where_that_is_killed(self, searching):
        process = searching()
        process.kill()
        assert process.communicate(timeout=20) == ("", "")
        assert _gone(process.pid)

    def test_says_that_one_of_its_processes_was_killed(self, searching, tmp_path):
        process = searching()
        os.kill(max(set(_session(process.pid)) - {process.pid}), signal.SIGKILL)  # a climb
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err.count("\n")) == (1, 1)
        assert "a process of the search was killed" in err
        assert _gone(process.pid)
        assert list(tmp_path.iterdir()) == []
