"""What the doctor says of a run: how far it got, what stopped it, which command goes on; and that this does."""

import json
import os
import shlex
import shutil

import pytest

from fanin.cli.main import main
from fanin.cnn.run.execute import UNFINISHED
from fanin.runs.lock import sole_writer
from tests.fanin.cli.json_page import documented
from tests.fanin.cnn.run.runs import run

NAMES = ["epoch000000-00000000", "epoch000000-00000032", "epoch000001-00000000", "epoch000001-00000032"]
CONNECTIONS = [
    {
        "from": "conv1",
        "to": "relu1",
        "number": 1,
        "ends": [
            {"device": "one", "sent": 1200, "retransmitted": 3, "failure": None},
            {"device": "two", "sent": 7, "retransmitted": 0, "failure": "RETRIES"},
        ],
    }
]


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "a run"
    assert run(small, folder, "--epochs", "2", "--checkpoint", "4") == 0
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "a run")


def change(folder, **fields):
    mark = folder / "run.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | fields))


def doctor(capsys, folder, *options):
    capsys.readouterr()
    status = main(["doctor", str(folder), *options])
    return status, *capsys.readouterr()


def test_a_run_that_has_come_to_its_end(folder, capsys):
    status, out, err = doctor(capsys, folder)
    state = folder / "states/epoch000002-00000000.npz"
    assert (status, err) == (0, "")
    assert out == f"trained     2 of 2 epochs\nlast state  {state}\n"


def test_a_run_that_was_stopped_and_how_it_goes_on(folder, capsys):
    states = [f"states/{name}.npz" for name in NAMES]
    epochs = json.loads((folder / "run.json").read_text())["epochs"][:1]
    change(folder, error=UNFINISHED, checkpoints=states, epochs=epochs, connections=CONNECTIONS)
    status, out, err = doctor(capsys, folder)
    command = f"fanin cluster resume '{folder}'"
    assert (status, err) == (1, f"fanin: error: {UNFINISHED}\n")
    assert out.splitlines() == [
        "trained              1 of 2 epochs, and 32 of 40 frames of the next one",
        f"last state           {folder}/{states[3]}",
        "conv1 to relu1, one  sent 1,200, retransmitted 3",
        "conv1 to relu1, two  sent 7, retransmitted 0, failure RETRIES",
        f"{command} continues from there",
    ]
    change(folder, connections=[])
    assert main(shlex.split(command)[1:]) == 0
    assert doctor(capsys, folder)[0] == 0


def test_json(folder, capsys):
    change(folder, error="interrupted")
    status, out, _ = doctor(capsys, folder, "--json")
    found = documented("doctor, of cluster run", out)
    assert status == 1
    assert (found["error"], found["under_way"]) == ("interrupted", False)
    assert (found["epochs"], found["epochs_asked"], found["frames"], found["frames_each"]) == (2, 2, 0, 40)
    assert (found["damage"], found["ends"]) == (None, [])
    assert found["command"] == f"fanin cluster resume '{folder}'"


def test_a_state_that_is_not_whole_is_told_whether_the_run_ended_or_not(folder, capsys):
    last, before = folder / "states/epoch000002-00000000.npz", folder / f"states/{NAMES[3]}.npz"
    last.write_bytes(last.read_bytes()[:100])
    cause = f"{last}: no NumPy archive, or one that was cut off"
    status, out, err = doctor(capsys, folder)
    assert (status, err) == (1, f"fanin: error: {cause}\n")
    assert out.splitlines()[1:3] == [f"last state  {before}", f"damaged     {cause}"]
    change(folder, error="terminated")
    assert doctor(capsys, folder)[2] == "fanin: error: terminated\n"


def test_a_run_without_a_state_has_nothing_to_go_on_from(folder, capsys):
    for state in (folder / "states").iterdir():
        state.write_text("")
    status, out, err = doctor(capsys, folder)
    assert status == 1
    assert out.startswith("trained     0 of 2 epochs\nlast state  none\ndamaged     ")
    assert "cluster resume" not in out
    assert "no state is whole" in err
    change(folder, error=UNFINISHED, checkpoints=[])
    out = doctor(capsys, folder)[1].splitlines()
    assert out[:2] == ["trained     0 of 2 epochs", "last state  none"]
    assert out[2].startswith("there is no state to resume from: fanin cluster run ")


def test_a_run_that_is_under_way_has_not_failed(folder, capsys):
    change(folder, error=UNFINISHED)
    with sole_writer(folder):
        status, out, err = doctor(capsys, folder)
    assert (status, err) == (0, "")
    assert out.startswith(f"running: process {os.getpid()} is writing the folder\ntrained ")
    assert doctor(capsys, folder)[0] == 1
