"""Runs of the small network on the golden model."""

from fanin.cli.main import main
from fanin.cnn.run.checkpoint import flatten_states
from fanin.cnn.run.folder import open_run


def run(small, output, *options):
    """A run's exit status."""
    words = [
        "cluster",
        "run",
        small.build,
        small.data,
        "--on",
        "golden",
        "--batch",
        "8",
        "-o",
        output,
        *options,
    ]
    return main([str(word) for word in words])


def bits(folder, name):
    found = open_run(folder)
    return {
        key: values.tobytes() for key, values in flatten_states(found.network, found.state(name).states).items()
    }


def refusal(capsys, *words):
    """What is said of a command that is refused; nothing goes to stdout."""
    assert main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fanin: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("fanin: error: ").strip()
