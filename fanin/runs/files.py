"""What a command that writes a folder reads and writes, by its options: what ``fanin rerun`` has to know."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from fanin.runs.call import Call
from fanin.runs.option import Options, Place, options_of


@dataclass(frozen=True)
class Files:
    """Options of a command, by their names in its arguments. A parser has it as its default ``files``.

    ``inputs`` name files and folders that it reads; ``output`` its folder. ``copies`` name places for what the
    folder holds, too; ``capture`` one for frames, which it does not hold.
    """

    inputs: tuple[str, ...] = ()
    output: str = "output"
    copies: tuple[str, ...] = ()
    capture: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """All options that name places."""
        capture = (self.capture,) if self.capture else ()
        return (*self.inputs, self.output, *self.copies, *capture)


def files_of(table: type[Options]) -> Files:
    """The files that a run reads and writes, by its options."""
    names = {place: tuple(o.name for o in options_of(table) if o.place is place) for place in Place}
    (output,) = names[Place.OUTPUT]
    capture = names[Place.CAPTURE]
    return Files(names[Place.INPUT], output, names[Place.COPY], capture[0] if capture else None)


def asked(call: Call, options: Options) -> argparse.Namespace:
    """What provenance takes of a call: its options, and the files among them."""
    files = files_of(type(options))
    processes = {name: value for name, value in (("ranks", call.ranks), ("mpi", call.mpi)) if value}
    return argparse.Namespace(files=files, argv=list(call.argv), **options.as_json(), **processes)
