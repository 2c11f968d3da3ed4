"""Command that writes a folder, as ``provenance.json`` records it, and its options that name files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fanin.runs.call import Call
from fanin.runs.option import FileUse, Options, options_of

#: Names of a command's arguments that are no options of its run: call, cache and form of output.
_NO_OPTIONS = ("run", "work", "files", "argv", "json", "no_cache", "given", "spreads")


@dataclass(frozen=True)
class FileOptions:
    """Names of a command's options that name files, which ``fanin rerun`` reads and replaces.

    A parser stores the object as its default ``files``.

    - ``inputs``: options that name input files and folders.
    - ``output``: option that names the output folder.
    - ``copies``: options that name a second place for a file of the output folder.
    - ``capture``: option that names a file for captured frames, outside the output folder; None: no capture.
    """

    inputs: tuple[str, ...] = ()
    output: str = "output"
    copies: tuple[str, ...] = ()
    capture: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Names of all options that name files or folders."""
        capture = (self.capture,) if self.capture else ()
        return (*self.inputs, self.output, *self.copies, *capture)


def file_options_of(table: type[Options]) -> FileOptions:
    """Return the file options of an options table."""
    options = options_of(table)
    names = {use: tuple(option.name for option in options if option.file_use is use) for use in FileUse}
    (output,) = names[FileUse.OUTPUT]
    capture = names[FileUse.CAPTURE]
    return FileOptions(names[FileUse.INPUT], output, names[FileUse.COPY], capture[0] if capture else None)


@dataclass(frozen=True)
class Request:
    """Command that writes a folder.

    - ``argv``: words of the command line, from the command on.
    - ``options``: JSON values of its options by name.
    - ``files``: options that name files.
    """

    argv: tuple[str, ...]
    options: Mapping[str, Any]
    files: FileOptions = FileOptions()

    @classmethod
    def parsed(cls, args: argparse.Namespace) -> Self:
        """Return the request of a parsed command line, of a command without a table."""
        options = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(args).items()
            if name not in _NO_OPTIONS
        }
        return cls(tuple(args.argv), options, getattr(args, "files", FileOptions()))


def request_of(call: Call, options: Options) -> Request:
    """Return the request of a run with its table of options."""
    processes = {name: value for name, value in (("ranks", call.ranks), ("mpi", call.mpi)) if value}
    return Request(call.argv, options.as_json() | processes, file_options_of(type(options)))
