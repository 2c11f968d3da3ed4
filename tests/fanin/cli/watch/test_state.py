"""What ``fanin watch`` makes of a folder: before a run, while it goes on, and behind its end."""

import json
import signal
import subprocess
import sys

import pytest

from fanin.base.scratch import LIVE_FILE
from fanin.cli.main import main
from fanin.cli.watch.state import NO_RESULT, WatchedRun
from fanin.runs.live import LiveFile
from fanin.runs.unfinished import KILLED as PROCESS_KILLED

RUN = "ps train --on model --workers 2 --epochs 1 --no-optimum"
KILLED = """
import os, sys
from pathlib import Path
from fanin.runs.live import LiveFile
with LiveFile(Path(sys.argv[1]), "train", title="x", unit="steps") as live:
    live.stage("training")
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def watched(tmp_path):
    return WatchedRun(tmp_path / "run")


def _live(watched):
    return LiveFile(watched.folder, "train", title="x", unit="steps")


def _said(watched):
    found = watched.progress()
    return found["state"], found["error"], found["reports"]


def _result(watched, error=None):
    watched.folder.mkdir(exist_ok=True)
    (watched.folder / "run.json").write_text(json.dumps({"options": {}, "error": error}))
    (watched.folder / "report.html").write_text("")


def test_a_run_is_waited_for_goes_on_and_ends(watched):
    assert _said(watched) == ("waiting", None, [])
    with _live(watched) as live:
        live.stage("training")
        assert _said(watched) == ("running", None, [])
        assert watched.progress()["run"]["stage"] == "training"
        _result(watched)
    assert _said(watched) == ("ended", None, ["/report"])
    assert watched.progress()["run"]["stage"] == "training"  # what was seen of it last


def test_a_run_that_ended_before_anybody_looked_is_shown(watched):
    _result(watched)
    assert _said(watched) == ("ended", None, ["/report"])


@pytest.mark.parametrize("error", ["interrupted", "node 0: TIMEOUT"])
def test_a_run_that_failed_says_why(error, watched):
    _result(watched, error)
    assert _said(watched) == ("failed", error, ["/report"])


def test_what_an_earlier_run_left_is_not_the_result_of_one_that_was_stopped(watched):
    _result(watched)
    with _live(watched) as live:
        live.stage("building")
        assert _said(watched) == ("running", None, [])
    assert _said(watched) == ("failed", NO_RESULT, [])


def test_a_killed_run_is_told_and_the_next_one_shown(watched):
    done = subprocess.run([sys.executable, "-c", KILLED, str(watched.folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert _said(watched) == ("failed", PROCESS_KILLED, [])
    assert main([*RUN.split(), "-o", str(watched.folder)]) == 0  # what the killed one left is in nobody's way
    assert not (watched.folder / LIVE_FILE).exists()
    assert _said(watched) == ("ended", None, ["/report"])


def test_of_another_machines_process_nothing_is_known(watched):
    subprocess.run([sys.executable, "-c", KILLED, str(watched.folder)], check=False)
    path = watched.folder / LIVE_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "another"}))
    assert _said(watched) == ("running", None, [])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "[" * 100_000])
def test_a_file_that_is_no_live_file_is_none(text, watched):
    watched.folder.mkdir()
    (watched.folder / LIVE_FILE).write_text(text)
    (watched.folder / "run.json").write_text(text)
    assert watched.progress()["run"] is None


def test_a_campaign_goes_on_and_ends(watched):
    watched.folder.mkdir()
    (watched.folder / "campaign.json").write_text('{"runs": []}')
    with _live(watched) as live:
        live.stage("training")
        assert _said(watched)[0] == "running"
    (watched.folder / "report.html").write_text("")
    assert _said(watched) == ("ended", None, ["/report"])
