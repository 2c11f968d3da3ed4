"""The command as a test calls it."""

from fanin.cli.main import main
from fanin.runs.manifest import MANIFEST_FILE, read_manifest


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


def unlisted(folder):
    """The files of a folder that its manifest does not list: none, where only commands have written it."""
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    return names - {MANIFEST_FILE} - set(read_manifest(folder).files)
