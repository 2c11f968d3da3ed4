"""Commands as functions: arguments of Python become the command's own, and its folder an object."""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fanin.api.arguments import path_of
from fanin.api.shown import page_frame
from fanin.cli.main import build_parser
from fanin.cli.output import REPORT_FILE
from fanin.cli.scratch import write_file
from fanin.errors import InputError
from fanin.extras import how_to_install
from fanin.runs.call import Call
from fanin.runs.option import Options
from fanin.threads import one_blas_thread

PathLike = str | os.PathLike[str]
Repeatable = str | Sequence[str]  #: the value of an option, or of each time that it is given


class Folder:
    """What a command has left: its folder, its results as JSON, what it said, its report.

    It may be given where a function takes a folder. One without ``output`` is deleted with the object.
    """

    mark: str  #: the file with the results

    def __init__(self, folder: Path, said: str):
        self.folder = folder
        self.said = said  #: what the command prints
        self.values: dict[str, Any] = json.loads((folder / self.mark).read_bytes())

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return self.said

    @property
    def page(self) -> str:
        """The report: one HTML document that refers to nothing outside itself."""
        return (self.folder / REPORT_FILE).read_text(encoding="utf-8")

    def write_report(self, path: PathLike) -> None:
        """The report, to another place."""
        write_file(Path(path), self.page)

    def _repr_html_(self) -> str:
        """What was said, and the report in a frame, so that its styles stay its own."""
        report = page_frame(self.page) if (self.folder / REPORT_FILE).exists() else ""
        return f"<pre>{html.escape(self.said)}</pre>{report}"


Result = TypeVar("Result", bound=Folder)


Asked = TypeVar("Asked", bound=Options)


def arguments(command: Sequence[str], given: Mapping[str, Any]) -> argparse.Namespace:
    """The arguments of a command as its parser gives them; ``given`` by the names that they have there.

    An option that may be repeated takes a list, too.
    Raises InputError as the command does.
    """
    parser = build_parser()
    leaf = parser_of(command, parser)
    argv: list[str] = []
    places: list[str] = []
    left_out = ""  # an argument in front of others
    for action in leaf._actions:
        value = given.get(action.dest, action.default)
        if value is None or value == action.default:
            left_out = left_out or (action.dest if not action.option_strings else "")
        elif not action.option_strings:
            if left_out:
                raise InputError(f"{action.dest} needs {left_out}, which stands in front of it")
            places.append(str(path_of(action.dest, value)))
        elif action.nargs == 0:
            if not isinstance(value, bool | np.bool_):
                raise InputError(f"{action.dest} must be True or False, not {value!r}")
            argv.append(action.option_strings[0 if value else -1])
        else:
            several = isinstance(action, argparse._AppendAction) and isinstance(value, list | tuple)
            for each in value if several else [value]:
                argv += _option(action.option_strings[-1], each)
    argv = [*command, *argv, *(["--", *places] if places else [])]
    args = parser.parse_args(argv)
    args.argv = argv
    return args


def _option(name: str, value: Any) -> list[str]:
    """The words of an option with its value."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return [f"{name}={text}"] if name.startswith("--") else [name, text]


def parser_of(command: Sequence[str], parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser of a command within that of all."""
    for name in command:
        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = commands.choices[name]
    return parser


def run_in_folder(
    kind: type[Result],
    command: Sequence[str],
    table: type[Asked],
    given: Mapping[str, Any],
    execute: Callable[[Asked, Call, Callable[[str], None]], None],
) -> Result:
    """Carry out a run whose options are a table; its result.

    Without ``output`` its folder is a temporary one, or that of the run it resumes. Raises what the run raises.
    """
    output = given.get("output") or given.get("resume")
    scratch = None if output else tempfile.mkdtemp(prefix="fanin-")
    said: list[str] = []
    try:
        options = table.read({**given, "output": output or Path(scratch or "") / "run"})
        folder: Path = getattr(options, "output")  # noqa: B009 (each table of a run has it)
        with one_blas_thread(), missing_named():
            execute(options, Call((*command, *options.words())), said.append)
        result = kind(folder, "\n".join(said))
    except BaseException:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    if scratch:
        weakref.finalize(result, shutil.rmtree, scratch, ignore_errors=True)
    return result


@contextlib.contextmanager
def missing_named() -> Iterator[None]:
    """Raise InputError with the install command for a library that is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if install := how_to_install(error):
            raise InputError(install) from error
        raise


def carried_out(kind: type[Result], command: Sequence[str], given: Mapping[str, Any]) -> Result:
    """Run a command that writes a folder; its result.

    Without ``output`` the folder is a temporary one. Raises what the command raises: InputError, CheckFailed.
    """
    output = given.get("output")
    if output is not None:
        return _run(kind, command, given, path_of("output", output))
    scratch = tempfile.mkdtemp(prefix="fanin-")
    try:
        result = _run(kind, command, given, Path(scratch) / "run")
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, scratch, ignore_errors=True)
    return result


def _run(kind: type[Result], command: Sequence[str], given: Mapping[str, Any], folder: Path) -> Result:
    args = arguments(command, {**given, "output": folder})
    said = io.StringIO()
    with one_blas_thread(), missing_named(), contextlib.redirect_stdout(said):
        args.run(args)
    return kind(folder, said.getvalue().rstrip())
