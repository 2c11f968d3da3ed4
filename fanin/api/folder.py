"""Runs as functions: executed in this process, with the run's folder as an object."""

from __future__ import annotations

import contextlib
import html
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fanin.api.shown import page_frame
from fanin.base.errors import InputError
from fanin.base.extras import how_to_install
from fanin.base.printable import printable
from fanin.base.processes import one_blas_thread
from fanin.base.scratch import write_file
from fanin.runs.call import Call
from fanin.runs.option import RunOptions
from fanin.runs.output import REPORT_FILE

PathLike = str | os.PathLike[str]
Repeatable = str | Sequence[str]  #: one value of a repeatable option, or several


class Folder:
    """Folder that a command has written: its files, results as JSON, output and report.

    The object is accepted wherever a function takes a folder. Without ``output`` the folder is temporary and is
    deleted with the object.
    """

    mark: str  #: file with the content of ``values``
    #: Result of the run, with its arrays, counters and times; None for a folder that was only opened.
    result: Any = None

    def __init__(self, folder: Path, said: str):
        self.folder = folder
        self.said = printable(said)  #: output of the command
        self.values: dict[str, Any] = json.loads((folder / self.mark).read_bytes())

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return self.said

    @property
    def page(self) -> str:
        """Report as one HTML document without external references."""
        return (self.folder / REPORT_FILE).read_text(encoding="utf-8")

    def write_report(self, path: PathLike) -> None:
        """Copy the report to another path."""
        write_file(Path(path), self.page)

    def _repr_html_(self) -> str:
        """Return the output, and the report in a frame, which keeps their styles separate."""
        report = page_frame(self.page) if (self.folder / REPORT_FILE).exists() else ""
        return f"<pre>{html.escape(self.said)}</pre>{report}"


Result = TypeVar("Result", bound=Folder)
Table = TypeVar("Table", bound=RunOptions)


def run_in_folder(
    kind: Callable[[Path, str], Result],
    command: Sequence[str],
    table: type[Table],
    arguments: Mapping[str, Any],
    execute: Callable[[Table, Call, Callable[[str], None]], Any],
    prepare: Callable[[Path], Mapping[str, Any]] | None = None,
) -> Result:
    """Run a command with the options of ``table``; return its folder.

    ``prepare``: called with the folder's path before the options are read; returns arguments to add.

    Without ``output`` the folder is a temporary one, or that of the run it resumes. Raises the run's errors.
    """
    output = arguments.get("output") or arguments.get("resume")
    scratch = "" if output else tempfile.mkdtemp(prefix="fanin-")
    output = output or os.path.join(scratch, "run")
    lines: list[str] = []
    try:
        prepared = prepare(Path(output)) if prepare else {}
        options = table.read({**arguments, **prepared, "output": output})
        with one_blas_thread(), install_advice():
            run_result = execute(options, Call((*command, *options.words())), lines.append)
        result = kind(Path(output), "\n".join(lines))
        result.result = run_result
    except BaseException:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    if scratch:
        weakref.finalize(result, shutil.rmtree, scratch, ignore_errors=True)
    return result


@contextlib.contextmanager
def install_advice() -> Iterator[None]:
    """Raise InputError with the install command if a library is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if install := how_to_install(error):
            raise InputError(install) from error
        raise
