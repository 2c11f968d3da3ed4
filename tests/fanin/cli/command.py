"""The command as a test calls it."""

from fanin.cli.main import main


def run(capsys, *arguments):
    """Exit status, and what was printed on stdout and on stderr."""
    status = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def refused(capsys, *arguments):
    """The one line with which a command is refused."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("fanin: error: ")
    assert err.count("\n") == 1
    return err
