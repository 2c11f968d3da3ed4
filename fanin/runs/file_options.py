"""Options that name a command's input and output files; ``fanin rerun`` reads and replaces them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from fanin.runs.call import Call
from fanin.runs.option import FileUse, Options, options_of


@dataclass(frozen=True)
class FileOptions:
    """Names of a command's options that name files. A parser stores the object as its default ``files``.

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


def command_arguments(call: Call, options: Options) -> argparse.Namespace:
    """Return a call's options, file options and ranks as the namespace that provenance records."""
    files = file_options_of(type(options))
    processes = {name: value for name, value in (("ranks", call.ranks), ("mpi", call.mpi)) if value}
    return argparse.Namespace(files=files, argv=list(call.argv), **options.as_json(), **processes)
