"""``fanin ps train`` as its tests run it."""

import json
import shlex

from fanin.cli.main import main

SMALL = "--on model --workers 4 --epochs 3 --no-optimum"
EACH = 1347 // 4 // 8  # mini-batches of a worker and epoch of it
FILES = [".files.json", "model.npy", "provenance.json", "report.html", "run.json", "trace.json"]


def run_ps(capsys, folder, arguments):
    status = main(["ps", "train", "-o", str(folder), *shlex.split(arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def json_of_ps(capsys, folder, arguments=SMALL):
    status, out, err = run_ps(capsys, folder, f"{arguments} --json")
    assert (status, err) == (0, "")
    return json.loads(out)


def refused_ps(capsys, folder, arguments):
    """The one line with which the command is refused; nothing may have been written."""
    before = sorted(folder.iterdir())
    status, out, err = run_ps(capsys, folder / "out", arguments)
    assert (status, out) == (2, "")
    assert err.startswith("fanin: error: ")
    assert err.count("\n") == 1
    assert sorted(folder.iterdir()) == before
    return err
