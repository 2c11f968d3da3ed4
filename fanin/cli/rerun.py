"""``fanin rerun``: compute a folder's results again, and say whether the bits are the same."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.cli.cache import add_no_cache
from fanin.cli.serving import say
from fanin.runs.output import PCAP_FILE, PROVENANCE_FILE, add_json, print_json, table
from fanin.runs.provenance.comparison import Change, Verdict, changes, verdicts
from fanin.runs.provenance.document import Provenance, read_provenance
from fanin.runs.provenance.inputs import Input, resolved
from fanin.runs.wave import forget_wave

_BEHIND = "-rerun"  # of the run's name, where no -o is given


def add_parser(commands: argparse._SubParsersAction[Any], whole: argparse.ArgumentParser) -> None:
    """Declare the command and its options; ``whole`` parses the command line of the run."""
    parser = commands.add_parser(
        "rerun",
        help="repeat a run and compare its results bit by bit",
        description=f"Repeat the command of {PROVENANCE_FILE} with the same options and inputs, into a new "
        "folder. Then compare each result bit by bit, and list changed conditions, such as versions.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder of a command of fanin")
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="NEW", help=f"the new folder; DIR{_BEHIND} by default"
    )
    parser.add_argument("--changed-inputs", action="store_true", help="continue although an input has changed")
    add_json(parser)
    add_no_cache(parser)
    parser.set_defaults(run=run, whole=whole)


def run(args: argparse.Namespace) -> int:
    """Repeat a run and compare. Raises CheckFailed if a result differs, InputError if a rerun is impossible."""
    before = read_provenance(args.folder)
    output = args.output or _behind(args.folder)
    _check_new(args.folder, output)
    again = _command(before, args.whole)
    _check_listed(again, before)
    for each in before.inputs:
        _place(again, each, before, changed=args.changed_inputs)
    setattr(again, again.files.output, output)
    for copy in again.files.copies:
        setattr(again, copy, None)
    if again.files.capture and getattr(again, again.files.capture):
        setattr(again, again.files.capture, output / PCAP_FILE)
    forget_wave(again)
    say(f"runs again, as in {before.directory}: fanin {shlex.join(before.argv)}")
    failure = _carry_out(again)
    after = read_provenance(output)
    found = verdicts(before, after)
    changed = changes(before, after, again.files.paths)
    if args.json:
        print_json(_as_json(before, after, found, changed) | {"failure": failure})
    else:
        print(_text(before, output, found, changed, failure))
    if different := [each.name for each in found if not each.same]:
        raise CheckFailed(f"{output}: {len(different)} of {len(found)} results differ: {', '.join(different)}")
    return 0


def _behind(folder: Path) -> Path:
    """Return the default of ``-o``: a folder beside the run's."""
    place = folder.resolve() if folder.name in ("", "..") else folder  # "." has no name
    return place.with_name(folder.resolve().name + _BEHIND)


def _check_new(folder: Path, output: Path) -> None:
    """Raise InputError unless the new folder is absent and outside the run's."""
    place, run = output.resolve(), folder.resolve()
    if run == place or run in place.parents:
        raise InputError(f"{output}: is inside the run's folder {folder}; choose another -o")
    if output.exists() or output.is_symlink():
        raise InputError(f"{output}: exists; choose another -o, or remove it")


def _command(before: Provenance, whole: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command of a run with this fanin's parser. Raises InputError."""
    path = before.folder / PROVENANCE_FILE
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            again = whole.parse_args(before.argv)
    except InputError as error:
        raise InputError(f"{path}: argv: {error}") from None
    except SystemExit:  # --version, --help
        again = argparse.Namespace()
    if not hasattr(again, "files"):
        raise InputError(f"{path}: argv: not a command that writes a folder")
    again.argv = list(before.argv)
    again.json = False
    return again


def _check_listed(again: argparse.Namespace, before: Provenance) -> None:
    """Raise InputError if the command would read a file without a hash in the run's folder."""
    listed = {each.option for each in before.inputs}
    for option in again.files.inputs:
        value = getattr(again, option)
        if option not in listed and value is not None and Path(value).exists():  # also a FIFO or a device
            path = before.folder / PROVENANCE_FILE
            raise InputError(f"{path}: inputs: {option} is not listed, but argv would read {value}")


def _place(again: argparse.Namespace, given: Input, before: Provenance, *, changed: bool) -> None:
    """Set a command's input to its recorded path. ``changed``: accept changed files. Raises InputError."""
    place = f"{before.folder / PROVENANCE_FILE}: inputs: {given.option}"
    if given.option not in again.files.inputs:
        raise InputError(f"{place} is no input of this command")
    path, value = Path(given.path), getattr(again, given.option)
    if value is not None and path != before.directory / str(value):
        raise InputError(f"{place} is {path}, but argv names {before.directory / str(value)}")
    if not given.files:
        raise InputError(f"{place} has no SHA-256, so {path} is not read")
    if not path.exists():
        raise InputError(f"{path}: is missing; the run read it")
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: is neither a file nor a folder; the run read one")
    different = given.changed(path)
    if different and not changed:
        raise InputError(f"{different}: is not what the run read (--changed-inputs continues)")
    if value is not None:  # None: only the resumed run names the input
        setattr(again, given.option, resolved(value, path))


def _carry_out(again: argparse.Namespace) -> str | None:
    """Run the command quietly. Return the cause of a failure that left a folder, else None."""
    output = Path(getattr(again, again.files.output))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            again.run(again)
    except (CheckFailed, ToolFailed) as error:
        if not (output / PROVENANCE_FILE).is_file():
            raise
        return str(error)
    return None


def _text(
    before: Provenance, output: Path, found: list[Verdict], changed: list[Change], failure: str | None
) -> str:
    """Return the comparison as text for people."""
    lines = [f"fanin {shlex.join(before.argv)}", ""]
    if failure:
        lines += [f"failed: {failure}", ""]
    lines.append(table([[each.name, str(each)] for each in found]))
    if changed:
        lines += ["", *(f"  {each}" for each in changed)]
    return "\n".join([*lines, "", f"  {output}"])


def _as_json(
    before: Provenance, after: Provenance, found: list[Verdict], changed: list[Change]
) -> dict[str, object]:
    return {
        "run": str(before.folder),
        "rerun": str(after.folder),
        "argv": list(before.argv),
        "same": all(each.same for each in found),
        "results": [asdict(each) | {"same": each.same} for each in found],
        "changes": [asdict(each) for each in changed],
    }
