"""What the tests of ``fanin ring train`` share: to run it, and to read what it leaves."""

import json
import shlex

from fanin.cli.main import main
from fanin.golden.mlp import Mlp
from fanin.ring.run.resume import load_state

SMALL = "--on model --layers 64,16,10 --nodes 3 --batch 64 --epochs 3"
STEPS = 1347 // 3 // 64  # of an epoch
FILES = [".files.json", "provenance.json", "report.html", "run.json", "state.npz", "trace.json"]
RTL = SMALL.replace("--on model", "--on rtl")


def run(capsys, folder, arguments):
    status = main(["ring", "train", "-o", str(folder), *shlex.split(arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def run_json(capsys, folder, arguments=SMALL):
    status, out, err = run(capsys, folder, f"{arguments} --json")
    assert (status, err) == (0, "")
    return json.loads(out)


def refused(capsys, folder, arguments):
    """The one line with which the command is refused; nothing may have been written."""
    before = sorted(folder.iterdir())
    status, out, err = run(capsys, folder / "out", arguments)
    assert (status, out) == (2, "")
    assert err.startswith("fanin: error: ")
    assert err.count("\n") == 1
    assert sorted(folder.iterdir()) == before
    return err


def state_of(folder, widths=(64, 16, 10)):
    return load_state(folder / "state.npz", Mlp(widths))
