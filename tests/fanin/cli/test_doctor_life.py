"""``fanin doctor`` of a running, interrupted or killed run: since when, how far, which process, what next."""

import json
import os
import socket
import time

import pytest

from fanin.base.records import Record
from fanin.base.scratch import LIVE_FILE
from fanin.glm.run.diagnosis import packets_of
from fanin.runs.live import LiveFile
from fanin.runs.lock import sole_writer
from fanin.runs.unfinished import INTERRUPTED, KILLED, UNFINISHED
from tests.fanin.cli.command import run
from tests.fanin.cli.test_doctor import PARTS

BEGAN, WRITTEN = 1_000_000_000, 1_000_003_723  # seconds since 1970: 3,723 s later
LIVE = {
    "format": 1,
    "command": "train",
    "title": "a set",
    "unit": "AllReduces",
    "pid": 4711,
    "host": socket.gethostname(),
    "began": BEGAN,
    "earlier": None,
    "written": WRITTEN,
    "stage": "training",
    "done": 1200,
    "total": 4000,
    "seconds_left": None,
    "now": {"epoch": "3/10"},
    "counts": [],
    "losses": {},
}
MINIMAL = f'"links": [], "first_packet": [], "counters": [], {PARTS}'


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    """Times of day are those of UTC: 1,000,000,000 is 2001-09-09 01:46:40."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def begun(folder, **changes):
    (folder / LIVE_FILE).write_text(json.dumps(LIVE | changes))


def ended(folder, error, *, options=(), **more):
    """A run.json, and the command line that it is of."""
    text = "".join(f', "{name}": {json.dumps(value)}' for name, value in more.items())
    (folder / "run.json").write_text(f'{{"error": "{error}", {MINIMAL}{text}}}')
    argv = ["train", "breast cancer", "-o", str(folder)]
    (folder / "provenance.json").write_text(json.dumps({"argv": argv, "options": dict(options)}))


@pytest.mark.parametrize(
    ("field", "value", "cause"),
    [
        ("began", "x", '"began" must be a number of at least 0, not "x"'),
        ("began", 1e18, "began is no time in seconds since 1970"),
        ("written", None, '"written" must be a number of at least 0, not null'),
        ("command", 1, '"command" must be a text of one line, not 1'),
        ("host", [], '"host" must be a text of one line, not []'),
        ("stage", "a\x1b[31m", '"stage" must be a text of one line'),
        ("pid", "1", '"pid" must be an integer'),
        ("done", None, '"done" must be an integer'),
        ("total", 0.5, '"total" must be an integer'),
        ("earlier", "x", '"earlier" must be an integer'),
        ("now", [1], "now: must be an object, not [1]"),
        ("now", {"epoch": []}, 'now: "epoch" must be a text of one line, not []'),
    ],
)
def test_a_live_file_with_a_wrong_field_ends_in_one_line(tmp_path, capsys, field, value, cause):
    begun(tmp_path, **{field: value})
    status, _, err = run(capsys, "doctor", tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith(f"fanin: error: {tmp_path / LIVE_FILE}: ")
    assert cause in err


def test_a_running_one_is_told_with_its_process_and_epoch(tmp_path, capsys):
    with sole_writer(tmp_path):
        begun(tmp_path)
        status, out, err = run(capsys, "doctor", tmp_path)
        found = json.loads(run(capsys, "doctor", tmp_path, "--json")[1])
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "running since 2001-09-09 01:46:40: process 4711 is alive",
        "fanin train: training, epoch 3/10, 1,200 of 4,000 AllReduces",
    ]
    assert (found["error"], found["advice"]) == (None, None)
    process = found["process"]
    assert (process["running"], process["pid"], process["epoch"], process["done"]) == (True, 4711, "3/10", 1200)


def test_a_killed_one_without_a_state_is_to_be_run_again(tmp_path, capsys):
    begun(tmp_path)
    status, out, err = run(capsys, "doctor", tmp_path)
    assert (status, err) == (1, f"fanin: error: {KILLED}\n")
    assert out.splitlines() == [
        "killed: process 4711 is gone; "
        "it began at 2001-09-09 01:46:40, its last sign is of 2001-09-09 02:48:43",
        "fanin train: training, epoch 3/10, 1,200 of 4,000 AllReduces",
        "there is no state to resume from: the same command runs it from the start; "
        "with --checkpoint N it keeps states to resume from",
    ]


def test_checkpoints_are_not_advised_to_a_run_that_keeps_them(tmp_path, capsys):
    for killed in (False, True):
        for options, hint in (({}, True), ({"checkpoint": None}, True), ({"checkpoint": 5}, False)):
            ended(tmp_path, UNFINISHED if killed else INTERRUPTED, options=options)
            if killed:
                begun(tmp_path)
            status, out, _ = run(capsys, "doctor", tmp_path)
            assert (status, "there is no state to resume from" in out) == (1, True)
            assert ("--checkpoint" in out) is hint


def test_a_killed_one_with_states_is_to_be_resumed(tmp_path, capsys):
    ended(
        tmp_path, UNFINISHED, checkpoints=["states/epoch000001-00000000.npz", "states/epoch000002-00000000.npz"]
    )
    begun(tmp_path)
    status, out, err = run(capsys, "doctor", tmp_path)
    assert (status, err) == (1, f"fanin: error: {KILLED}\n")
    assert out.splitlines()[-1] == f"fanin train --resume {tmp_path} continues after epoch 2"
    with sole_writer(tmp_path):
        begun(tmp_path)
        status, out, err = run(capsys, "doctor", tmp_path)
    assert (status, err) == (0, "")
    assert "resume" not in out


def test_results_of_an_earlier_run_are_not_those_of_a_killed_one(tmp_path, capsys):
    ended(tmp_path, "node 0 stopped")
    begun(tmp_path, earlier=(tmp_path / "run.json").stat().st_mtime_ns)
    status, out, err = run(capsys, "doctor", tmp_path)
    assert (status, err) == (1, f"fanin: error: {KILLED}\n")
    assert "the same command runs it from the start" in out


def test_an_interrupted_one_names_its_command(tmp_path, capsys):
    ended(tmp_path, INTERRUPTED)
    status, out, err = run(capsys, "doctor", tmp_path)
    assert (status, err) == (1, f"fanin: error: {INTERRUPTED}\n")
    command = f"fanin train 'breast cancer' -o {tmp_path}"
    assert out.startswith(f"there is no state to resume from: {command} runs it from the start; with ")


def test_a_folder_that_another_command_writes(tmp_path, capsys):
    with sole_writer(tmp_path):
        assert run(capsys, "doctor", tmp_path) == (
            0,
            f"running: process {os.getpid()} is writing the folder\n",
            "",
        )


def test_a_process_of_another_machine_is_named_with_it(tmp_path, capsys):
    begun(tmp_path, host="node42")
    assert "killed: process 4711 on node42 is gone; " in run(capsys, "doctor", tmp_path)[1]


def test_it_reads_what_a_live_file_holds(tmp_path, capsys):
    """From the writer itself, not from a file that a test has made up."""
    with sole_writer(tmp_path), LiveFile(tmp_path, "ring train", title="digits", unit="steps") as live:
        live.stage("reading the samples")
        out = run(capsys, "doctor", tmp_path)[1]
    assert out.splitlines()[0].endswith(f": process {os.getpid()} is alive")
    assert out.splitlines()[1] == "fanin ring train: reading the samples"


def test_the_packets_of_each_node_are_counted():
    links = [
        {
            "up": {"frames": 1252, "dropped": 5, "fcs_errors": 4},
            "down": {"frames": 238, "dropped": 6, "fcs_errors": 2},
        },
        {
            "up": {"frames": 245, "dropped": 3, "fcs_errors": 7},
            "down": {"frames": 240, "dropped": 1, "fcs_errors": 6},
        },
    ]
    counters = [{"retransmissions": 36, "duplicates": 13}, {"retransmissions": 29, "duplicates": 9}]
    record = {"links": links, "first_packet": [{}, {}], "counters": counters, "switch": {}, "jobs": {}}
    found = packets_of(Record("run.json", "", record))
    assert found.rows()[1:] == [
        ["node 0", "1,252", "36", "13", "5", "6", "4", "2"],
        ["node 1", "245", "29", "9", "3", "1", "7", "6"],
        ["all", "1,497", "65", "22", "8", "7", "11", "8"],
    ]
    some = packets_of(Record("run.json", "", record | {"counters": [counters[0], {}]}))
    assert [row[1:4] for row in some.rows()[1:]] == [
        ["1,252", "36", "13"],
        ["245", "–", "–"],
        ["1,497", "36", "13"],
    ]
    assert packets_of(Record("run.json", "", record | {"counters": []})) is None
