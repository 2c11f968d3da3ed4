"""What the tests of ``fanin rerun`` share."""

import json

from fanin.cli.main import main


def run(*words):
    """The exit status of a command."""
    return main([str(word) for word in words])


def same_again(capsys, folder):
    """Run a folder's command again; the names of its results, all of which are the same."""
    capsys.readouterr()
    status = run("rerun", folder, "--json")
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (status, found["same"]) == (0, True), err
    # Sources may be edited, or committed, while tests run.
    assert [each for each in found["changes"] if not each["what"].startswith("fanin.")] == []
    assert {each["same"] for each in found["results"]} == {True}
    recorded = json.loads((folder / "provenance.json").read_text())["results"]
    assert {each["name"]: each["now"] for each in found["results"]} == recorded
    return {*recorded}


def refusal(capsys, *words):
    """What is said of a rerun that is refused; nothing goes to stdout."""
    capsys.readouterr()
    assert run("rerun", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fanin: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("fanin: error: ").strip()
