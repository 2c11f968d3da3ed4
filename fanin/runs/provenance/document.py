"""``provenance.json`` itself: written beside a command's results, and read back by ``fanin rerun``."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fanin.base.cache import emissions_noted
from fanin.base.errors import InputError
from fanin.base.records import Record, open_record
from fanin.base.scratch import write_file
from fanin.runs.lock import sole_writer
from fanin.runs.output import PCAP_FILE, PROVENANCE_FILE, TRACE_FILE, Kind, check_directory, output_directory
from fanin.runs.provenance.environment import fanin_json, machine_json, versions_json
from fanin.runs.provenance.inputs import Input, inputs_of, read_input
from fanin.runs.provenance.results import results_of
from fanin.runs.unfinished import STOPPED

FORMAT = 1
#: Of a command's arguments, what is no option of its run: how it is called, and how it tells.
_NO_OPTIONS = ("run", "work", "files", "argv", "json", "no_cache", "given")
_SEED = "seed"  # how the names of seeds end


@contextlib.contextmanager
def run_directory(
    path: Path,
    kind: Kind,
    args: argparse.Namespace,
    *,
    elsewhere: Mapping[str, Path] | None = None,
    held: bool = False,
) -> Iterator[Path]:
    """``output_directory`` for a command: its folder holds ``provenance.json``, too.

    The command reads its inputs, and emits its Verilog, inside. ``elsewhere``: results by name that it writes
    to another place. ``held``: the command is in ``sole_writer`` of ``path``; else it is so until the end.
    Raises InputError where another process writes ``path``.
    """
    check_directory(path, kind)
    with contextlib.nullcontext() if held else sole_writer(path), output_directory(path, kind) as folder:
        origin = Origin(args)
        with emissions_noted() as verilog:
            yield folder
        origin.write(folder, kind, verilog=verilog, elsewhere=elsewhere)


class Origin:
    """Where results will come from, as it is when a command begins: its inputs are hashed here."""

    def __init__(self, args: argparse.Namespace):
        self._args, self._folder, self._inputs = args, Path.cwd(), inputs_of(args)

    def write(
        self,
        folder: Path,
        kind: Kind,
        *,
        verilog: Mapping[str, str],
        elsewhere: Mapping[str, Path] | None = None,
    ) -> None:
        """Write the file into a folder that holds the results."""
        options = _options(self._args)
        mark = _mark(folder, kind)
        _write(
            folder,
            {
                "format": FORMAT,
                "argv": self._args.argv,
                "working_directory": str(self._folder),
                "options": options,
                "seeds": dict(_seeds(options)) | dict(_seeds(mark)),
                "inputs": [asdict(one) for one in self._inputs],
                "fanin": fanin_json(),
                "versions": versions_json(emitted=bool(verilog)),
                "machine": machine_json(),
                "verilog": dict(verilog),
                "results": results_of(folder, kind, elsewhere),
                "apart": list(kind.apart),
                "resumed": [],
                "ended": _ended(mark),
            },
        )


def renew_results(folder: Path, kind: Kind) -> None:
    """The results of a run that has gone on in its folder; nothing where that has no provenance."""
    path = folder / PROVENANCE_FILE
    if path.is_file():
        record = open_record(path)
        kept = replace(kind, apart=record.texts("apart"))
        results = results_of(folder, kept)
        if record.records("resumed"):  # the capture ends where the run was stopped, the timeline begins there
            for name in (PCAP_FILE, TRACE_FILE):
                results.pop(name, None)
        _write(folder, record.value | {"results": results, "ended": _ended(_mark(folder, kind))})


def note_resumption(folder: Path, args: argparse.Namespace, apart: Sequence[str]) -> None:
    """Another command goes on with the run in a folder; nothing where that has no provenance.

    ``apart``: fields of JSON that are then no results any more.
    """
    path = folder / PROVENANCE_FILE
    if path.is_file():
        record = open_record(path)
        record.records("resumed")
        again = {"argv": args.argv, "options": _options(args)}
        known = record.texts("apart")
        more = [field for field in apart if field not in known]
        resumed = [*record.value["resumed"], again]
        _write(folder, record.value | {"resumed": resumed, "apart": [*known, *more], "ended": False})


def _mark(folder: Path, kind: Kind) -> dict[str, Any]:
    return open_record(folder / kind.mark).value


def _ended(mark: Mapping[str, Any]) -> bool:
    """Whether the command has come to its end, for better or worse."""
    return mark.get("error") not in STOPPED


def _write(folder: Path, value: Mapping[str, Any]) -> None:
    write_file(folder / PROVENANCE_FILE, json.dumps(value, indent=2) + "\n")


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """A command's options, by name, as JSON."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(args).items()
        if name not in _NO_OPTIONS
    }


def _seeds(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every seed that JSON holds, by its place."""
    if isinstance(value, dict):
        for name, inner in value.items():
            where = f"{place}.{name}" if place else name
            if name.endswith(_SEED) and inner is not None:
                yield where, inner
            else:
                yield from _seeds(inner, where)


@dataclass(frozen=True)
class Provenance:
    """What a folder's results came from. ``apart``: fields of JSON that are none."""

    folder: Path
    directory: Path  #: in which the command ran: paths of ``argv`` are relative to it
    argv: tuple[str, ...]
    inputs: tuple[Input, ...]
    results: dict[str, str]
    apart: tuple[str, ...]
    value: dict[str, Any]  #: the whole file


def read_provenance(folder: Path) -> Provenance:
    """Of a folder whose results can be computed again. Raises InputError of one line for any other."""
    path = folder / PROVENANCE_FILE
    if not path.is_file():
        raise InputError(f"{folder}: holds no {PROVENANCE_FILE}, which says what its results came from")
    record = open_record(path)
    found = record.integer("format")
    if found != FORMAT:
        raise InputError(f"{path}: has the format {found} of another version of fanin, not {FORMAT}")
    results = record.record("results")
    for name in ("options", "seeds", "fanin", "versions", "machine", "verilog"):
        record.record(name)
    provenance = Provenance(
        folder=folder,
        directory=Path(record.text("working_directory")),
        argv=record.texts("argv"),
        inputs=tuple(map(read_input, record.records("inputs"))),
        results={name: results.text(name) for name in results.value},
        apart=record.texts("apart"),
        value=record.value,
    )
    if not results.value:
        raise InputError(f"{path}: results: names none, so there is nothing to compare with")
    _check_whole(record, folder)
    return provenance


def _check_whole(record: Record, folder: Path) -> None:
    """Raise InputError for a run that has no results to be compared with, or none of its own command."""
    for resumption in record.records("resumed"):
        other = resumption.record("options").optional_text("plan")
        if other is not None:
            raise InputError(f"{folder}: went on with another plan, {other}, and no command comes to its bits")
    if not record.flag("ended"):
        raise InputError(f"{folder}: was stopped before its end, and has no results to compare with")
