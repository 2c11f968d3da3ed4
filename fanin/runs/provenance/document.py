"""Writer and reader of ``provenance.json``, the record of how a folder's results were computed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fanin.base.cache import recorded_emissions
from fanin.base.errors import InputError
from fanin.base.records import Record, open_record
from fanin.base.scratch import write_file
from fanin.runs.file_options import Request
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import is_inside
from fanin.runs.output import PCAP_FILE, PROVENANCE_FILE, TRACE_FILE, Kind, check_directory, output_directory
from fanin.runs.provenance.environment import fanin_json, machine_json, versions_json
from fanin.runs.provenance.inputs import Input, inputs_of, read_input
from fanin.runs.provenance.results import results_of
from fanin.runs.unfinished import RESUMABLE

FORMAT = 1
_SEED = "seed"  # suffix of the names of seeds


@contextlib.contextmanager
def run_directory(
    path: Path,
    kind: Kind,
    request: Request,
    *,
    outside: Mapping[str, Path] | None = None,
    is_locked: bool = False,
) -> Iterator[Path]:
    """Yield an ``output_directory`` for a command and add ``provenance.json`` at the end.

    The command must read its inputs and emit its Verilog inside the context. Raises InputError if another
    process writes ``path``.

    - ``outside``: paths of results outside the folder, by name.
    - ``is_locked``: True if the command already is in ``sole_writer`` of ``path``; False enters it here.
    """
    check_directory(path, kind)
    with contextlib.nullcontext() if is_locked else sole_writer(path), output_directory(path, kind) as folder:
        origin = Origin(request)
        with recorded_emissions() as verilog:
            yield folder
        origin.write(folder, kind, verilog=verilog, outside=outside)


class Origin:
    """Origin of results at the start of a command. The constructor hashes the inputs."""

    def __init__(self, request: Request):
        self._request, self._folder, self._inputs = request, Path.cwd(), inputs_of(request)

    def write(
        self,
        folder: Path,
        kind: Kind,
        *,
        verilog: Mapping[str, str],
        outside: Mapping[str, Path] | None = None,
    ) -> None:
        """Write ``provenance.json`` into a folder that holds the results."""
        write_file(folder / PROVENANCE_FILE, self.text(folder, kind, verilog=verilog, outside=outside))

    def text(
        self,
        folder: Path,
        kind: Kind,
        *,
        verilog: Mapping[str, str],
        outside: Mapping[str, Path] | None = None,
    ) -> str:
        """Return the content of ``provenance.json`` for a folder that holds the results."""
        options = self._request.options
        mark = _mark(folder, kind)
        return _text(
            {
                "format": FORMAT,
                "argv": self._request.argv,
                "working_directory": str(self._folder),
                "options": options,
                "seeds": dict(_seeds(options)) | dict(_seeds(mark)),
                "inputs": [asdict(file) for file in self._inputs],
                "fanin": fanin_json(),
                "versions": versions_json(emitted=bool(verilog)),
                "machine": machine_json(),
                "verilog": dict(verilog),
                "results": results_of(folder, kind, outside),
                "apart": list(kind.ignored),
                "resumed": [],
                "ended": _has_ended(mark),
            }
        )


def renew_results(folder: Path, kind: Kind) -> None:
    """Update the results of a resumed run in ``provenance.json``; do nothing without the file."""
    path = folder / PROVENANCE_FILE
    if path.is_file():
        record = open_record(path)
        recorded_kind = replace(kind, ignored=record.texts("apart"))
        results = results_of(folder, recorded_kind)
        if record.records("resumed"):  # the capture ends where the run was stopped, the timeline begins there
            for name in (PCAP_FILE, TRACE_FILE):
                results.pop(name, None)
        _write(folder, record.value | {"results": results, "ended": _has_ended(_mark(folder, kind))})


def note_resumption(folder: Path, request: Request, ignored: Sequence[str]) -> None:
    """Record in ``provenance.json`` that another command resumes the run; do nothing without the file.

    - ``ignored``: additional fields of JSON results that are not compared from now on.
    """
    path = folder / PROVENANCE_FILE
    if path.is_file():
        record = open_record(path)
        record.records("resumed")
        resumption = {"argv": request.argv, "options": request.options}
        listed = record.texts("apart")
        added = [field for field in ignored if field not in listed]
        resumed = [*record.value["resumed"], resumption]
        _write(folder, record.value | {"resumed": resumed, "apart": [*listed, *added], "ended": False})


def _mark(folder: Path, kind: Kind) -> dict[str, Any]:
    return open_record(folder / kind.mark).value


def _has_ended(mark: Mapping[str, Any]) -> bool:
    """Whether the command has ended with success or a failure, and was not stopped from outside."""
    return mark.get("error") not in RESUMABLE


def _write(folder: Path, value: Mapping[str, Any]) -> None:
    write_file(folder / PROVENANCE_FILE, _text(value))


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _seeds(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every seed in a JSON value, with its place."""
    if isinstance(value, dict):
        for name, member in value.items():
            name_path = f"{place}.{name}" if place else name
            if name.endswith(_SEED) and member is not None:
                yield name_path, member
            else:
                yield from _seeds(member, name_path)


@dataclass(frozen=True)
class Provenance:
    """Content of ``provenance.json``.

    - ``results``: SHA-256 by name of the file.
    - ``ignored``: fields of JSON results that are not compared.
    """

    folder: Path
    directory: Path  #: working directory of the command; paths in ``argv`` are relative to it
    argv: tuple[str, ...]
    inputs: tuple[Input, ...]
    results: dict[str, str]
    ignored: tuple[str, ...]
    value: dict[str, Any]  #: the whole file


def read_provenance(folder: Path) -> Provenance:
    """Return the provenance of a folder. Raises InputError if its results cannot be computed again."""
    path = folder / PROVENANCE_FILE
    if not path.is_file():
        raise InputError(f"{folder}: holds no {PROVENANCE_FILE}, the record of its inputs")
    record = open_record(path)
    number = record.integer("format")
    if number != FORMAT:
        raise InputError(f"{path}: has the format {number} of another version of fanin, not {FORMAT}")
    results = record.record("results")
    for name in ("options", "seeds", "fanin", "versions", "machine", "verilog"):
        record.record(name)
    provenance = Provenance(
        folder=folder,
        directory=Path(record.text("working_directory")),
        argv=record.texts("argv"),
        inputs=tuple(map(read_input, record.records("inputs"))),
        results={_checked_name(results, folder, name): results.text(name) for name in results.value},
        ignored=record.texts("apart"),
        value=record.value,
    )
    if not results.value:
        raise InputError(f"{path}: results: empty; nothing to compare with")
    _check_finished(record, folder)
    return provenance


def _checked_name(results: Record, folder: Path, name: str) -> str:
    """Return the name of a result. Raises InputError for a file outside the folder, also behind links."""
    # realpath, as Path.resolve raises RuntimeError for links in a loop
    if not is_inside(name) or not Path(os.path.realpath(folder / name)).is_relative_to(
        os.path.realpath(folder)
    ):
        raise results.error(f"{name} is no file of the folder")
    return name


def _check_finished(record: Record, folder: Path) -> None:
    """Raise InputError for a run that was stopped, or resumed with another plan."""
    for resumption in record.records("resumed"):
        plan = resumption.record("options").optional_text("plan")
        if plan is not None:
            raise InputError(f"{folder}: resumed with another plan, {plan}; no single command repeats it")
    if not record.flag("ended"):
        raise InputError(f"{folder}: was stopped before its end, and has no results to compare with")
