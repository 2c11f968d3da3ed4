"""``fanin rerun``: compute a folder's results again, and compare them bit by bit."""

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
from fanin.runs.provenance.comparison import Change, ResultComparison, changes, compare_results
from fanin.runs.provenance.document import Provenance, read_provenance
from fanin.runs.provenance.inputs import Input, converted_path
from fanin.runs.wave import forget_wave

_SUFFIX = "-rerun"  # appended to the run's name if -o is absent


def add_parser(commands: argparse._SubParsersAction[Any], fanin_parser: argparse.ArgumentParser) -> None:
    """Declare the command and its options; ``fanin_parser`` parses the command line of the run."""
    parser = commands.add_parser(
        "rerun",
        help="repeat a run and compare its results bit by bit",
        description=f"Repeat the command of {PROVENANCE_FILE} with the same options and inputs, into a new "
        "folder. Then compare each result bit by bit, and list changed conditions, such as versions.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder of a command of fanin")
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="NEW", help=f"the new folder; DIR{_SUFFIX} by default"
    )
    parser.add_argument("--changed-inputs", action="store_true", help="continue although an input has changed")
    add_json(parser)
    add_no_cache(parser)
    parser.set_defaults(run=run, whole=fanin_parser)


def run(args: argparse.Namespace) -> int:
    """Repeat a run and compare. Raises CheckFailed if a result differs, InputError if a rerun is impossible."""
    original = read_provenance(args.folder)
    output = args.output or _default_output(args.folder)
    _check_new(args.folder, output)
    command = _command(original, args.whole)
    _check_listed(command, original)
    for input_file in original.inputs:
        _set_input(command, input_file, original, accept_changed=args.changed_inputs)
    setattr(command, command.files.output, output)
    for copy in command.files.copies:
        setattr(command, copy, None)
    if command.files.capture and getattr(command, command.files.capture):
        setattr(command, command.files.capture, output / PCAP_FILE)
    forget_wave(command)
    say(f"runs again, as in {original.directory}: fanin {shlex.join(original.argv)}")
    failure = _carry_out(command)
    rerun = read_provenance(output)
    results = compare_results(original, rerun)
    changed = changes(original, rerun, command.files.paths)
    if args.json:
        print_json(_as_json(original, rerun, results, changed) | {"failure": failure})
    else:
        print(_text(original, output, results, changed, failure))
    if unequal := [comparison.name for comparison in results if not comparison.is_same]:
        raise CheckFailed(f"{output}: {len(unequal)} of {len(results)} results differ: {', '.join(unequal)}")
    return 0


def _default_output(folder: Path) -> Path:
    """Return the default of ``-o``: a folder beside the run's."""
    named_folder = folder.resolve() if folder.name in ("", "..") else folder  # "." has no name
    return named_folder.with_name(folder.resolve().name + _SUFFIX)


def _check_new(folder: Path, output: Path) -> None:
    """Raise InputError unless the new folder is absent and outside the run's."""
    new_folder, run_folder = output.resolve(), folder.resolve()
    if run_folder == new_folder or run_folder in new_folder.parents:
        raise InputError(f"{output}: is inside the run's folder {folder}; choose another -o")
    if output.exists() or output.is_symlink():
        raise InputError(f"{output}: exists; choose another -o, or remove it")


def _command(original: Provenance, parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command of a run with this fanin's parser. Raises InputError."""
    path = original.folder / PROVENANCE_FILE
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            args = parser.parse_args(original.argv)
    except InputError as error:
        raise InputError(f"{path}: argv: {error}") from None
    except SystemExit:  # --version, --help
        args = argparse.Namespace()
    if not hasattr(args, "files"):
        raise InputError(f"{path}: argv: not a command that writes a folder")
    args.argv = list(original.argv)
    args.json = False
    return args


def _check_listed(args: argparse.Namespace, original: Provenance) -> None:
    """Raise InputError if the command would read a file without a hash in the run's folder."""
    listed = {input.option for input in original.inputs}
    for option in args.files.inputs:
        value = getattr(args, option)
        if option not in listed and value is not None and Path(value).exists():  # also a FIFO or a device
            path = original.folder / PROVENANCE_FILE
            raise InputError(f"{path}: inputs: {option} is not listed, but argv would read {value}")


def _set_input(args: argparse.Namespace, input: Input, original: Provenance, *, accept_changed: bool) -> None:
    """Set a command's input to its recorded path. Raises InputError.

    - ``accept_changed``: accept files that differ from those that the run read.
    """
    field = f"{original.folder / PROVENANCE_FILE}: inputs: {input.option}"
    if input.option not in args.files.inputs:
        raise InputError(f"{field} is no input of this command")
    path, value = Path(input.path), getattr(args, input.option)
    if value is not None and path != original.directory / str(value):
        raise InputError(f"{field} is {path}, but argv names {original.directory / str(value)}")
    if not input.files:
        raise InputError(f"{field} has no SHA-256, so {path} is not read")
    if not path.exists():
        raise InputError(f"{path}: is missing; the run read it")
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: is neither a file nor a folder; the run read one")
    different = input.first_change(path)
    if different and not accept_changed:
        raise InputError(f"{different}: is not what the run read (--changed-inputs continues)")
    if value is not None:  # None: only the resumed run names the input
        setattr(args, input.option, converted_path(value, path))


def _carry_out(args: argparse.Namespace) -> str | None:
    """Run the command quietly. Return the cause of a failure that left a folder, else None."""
    output = Path(getattr(args, args.files.output))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            args.run(args)
    except (CheckFailed, ToolFailed) as error:
        if not (output / PROVENANCE_FILE).is_file():
            raise
        return str(error)
    return None


def _text(
    original: Provenance,
    output: Path,
    results: list[ResultComparison],
    changed: list[Change],
    failure: str | None,
) -> str:
    """Return the comparison as text for people."""
    lines = [f"fanin {shlex.join(original.argv)}", ""]
    if failure:
        lines += [f"failed: {failure}", ""]
    lines.append(table([[comparison.name, str(comparison)] for comparison in results]))
    if changed:
        lines += ["", *(f"  {change}" for change in changed)]
    return "\n".join([*lines, "", f"  {output}"])


def _as_json(
    original: Provenance, rerun: Provenance, results: list[ResultComparison], changed: list[Change]
) -> dict[str, object]:
    return {
        "run": str(original.folder),
        "rerun": str(rerun.folder),
        "argv": list(original.argv),
        "same": all(comparison.is_same for comparison in results),
        "results": [asdict(comparison) | {"same": comparison.is_same} for comparison in results],
        "changes": [asdict(change) for change in changed],
    }
