"""Output of the commands: atomic files and folders, JSON and tables."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.interrupts import deferred_interrupts
from fanin.base.printable import print_note
from fanin.base.records import Record, open_record, read_object
from fanin.base.scratch import (
    as_input_error,
    check_replaceable,
    delete_leftovers,
    is_scratch,
    output_file,
    scratch_prefix,
    umask,
)
from fanin.runs.manifest import MANIFEST_FILE, check_places, read_manifest, replace_files

RUN_FILE, REPORT_FILE, PCAP_FILE, MODEL_FILE = "run.json", "report.html", "frames.pcap", "model.npz"
WEIGHTS_FILE = "model.npy"  # of a parameter server: float32
JOB_FILE, PROGRAM_FILE, STATE_FILE = "job.json", "aggregation.p4", "state.npz"
CLASSES_FOLDER = "classes"  # of a run with more than two classes: a run's folder per class
DISSECTOR_FILE = "link.lua"  # for Wireshark: frames on links
SWITCH_DISSECTOR_FILE = "aggregation.lua"  # for Wireshark: frames at the switch
PROVENANCE_FILE = "provenance.json"  # for fanin rerun (fanin.runs.provenance)
TRACE_FILE = "trace.json"  # a timeline for Perfetto
LINK_LOG = "links"  # temporary; becomes a part of the timeline


@dataclass(frozen=True)
class Kind:
    """A kind of directory that a command writes."""

    name: str
    mark: str  #: JSON file that describes the directory; an earlier directory with it may be replaced
    key: str  #: field of the mark that identifies the kind
    other_names: tuple[str, ...]  #: other files and folders of the directory
    option: str = "-o"  #: option that names the directory
    results: tuple[str, ...] = ()  #: patterns of files that the same command reproduces bit by bit
    ignored: tuple[str, ...] = ()  #: fields of ``results`` that are not compared: versions, times, paths

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all files and folders of the directory, the mark first."""
        return (self.mark, PROVENANCE_FILE, *self.other_names)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files of the directory, without folders."""
        return tuple(name for name in self.names if "." in name)


RUN = Kind(
    "run",
    RUN_FILE,
    "options",
    (
        REPORT_FILE,
        TRACE_FILE,
        PCAP_FILE,
        SWITCH_DISSECTOR_FILE,
        MODEL_FILE,
        JOB_FILE,
        PROGRAM_FILE,
        CLASSES_FOLDER,
        "states",
    ),
    results=(
        MODEL_FILE,
        "states/*.npz",
        RUN_FILE,
        TRACE_FILE,
        PCAP_FILE,
        JOB_FILE,
        PROGRAM_FILE,
        "frames-*.pcap",
        "job-*.json",
        *(f"{CLASSES_FOLDER}/*/{name}" for name in (RUN_FILE, TRACE_FILE, PCAP_FILE, JOB_FILE, PROGRAM_FILE)),
    ),
    ignored=("fanin", "options.data"),
)
PARAM_SERVER_RUN = Kind(
    "run",
    RUN_FILE,
    "gradients_applied",
    (REPORT_FILE, TRACE_FILE, WEIGHTS_FILE),
    results=(WEIGHTS_FILE, RUN_FILE, TRACE_FILE),
    ignored=("configuration.data",),
)
RING_RUN = Kind(
    "run",
    RUN_FILE,
    "all_reduces",
    (REPORT_FILE, TRACE_FILE, DISSECTOR_FILE, STATE_FILE),
    results=(STATE_FILE, RUN_FILE, TRACE_FILE),
    ignored=("configuration.data", "resumed"),
)
CLUSTER_BUILD = Kind(
    "build",
    "build.json",
    "network",
    ("plan", "memory", "verilog"),
    results=("build.json", "memory/*", "verilog/*"),
    ignored=("fanin",),
)
CLUSTER_RUN = Kind(
    "run",
    RUN_FILE,
    "checkpoints",
    (REPORT_FILE, TRACE_FILE, PCAP_FILE, DISSECTOR_FILE, "build", "builds", "states"),
    results=("states/*.npz", RUN_FILE, TRACE_FILE, PCAP_FILE),
    ignored=("fanin", "build.fanin", "data.name"),
)
CLUSTER_VERIFICATION = Kind("verification", "verification.json", "layers", (REPORT_FILE, "layers"))
PLAN = Kind(
    "plan",
    "plan.json",
    "layers",
    (REPORT_FILE, "connections.json", "devices"),
    results=("plan.json", "connections.json", "devices/*"),
    ignored=("solver",),
)
SWEEP = Kind(
    "sweep",
    "sweep.json",
    "plans",
    (REPORT_FILE, "plans"),
    results=("sweep.json", "plans/*/plan.json", "plans/*/connections.json", "plans/*/devices/*"),
    ignored=("solver",),
)
CAMPAIGN = Kind("campaign", "campaign.json", "runs", (REPORT_FILE, "results.csv", "results.parquet"))
P4_PROGRAM = Kind("program", JOB_FILE, "program", (PROGRAM_FILE,))
FABRIC = Kind("fabric", "fabric.index.json", "switches", ())  # no switch has a name with a dot
REPRODUCTION = Kind("reproduction", "reproduction.json", "rows", (REPORT_FILE, "table.csv", "table.md"))


@contextlib.contextmanager
def scratch_file(path: Path) -> Iterator[Path]:
    """Create an empty temporary file near ``path``, for another process to write; a context manager.

    ``keep_file`` moves the file to ``path``; otherwise, the end of the context deletes it. Raises InputError if
    the file cannot be created.
    """
    folder = _nearest(path.absolute().parent)
    delete_leftovers(folder)
    with as_input_error(path):
        handle, name = tempfile.mkstemp(dir=folder, prefix=scratch_prefix())
        os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def keep_file(scratch: Path, path: Path) -> None:
    """Move a complete temporary file to ``path``. Raises InputError if its folder cannot be written."""
    with as_input_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.chmod(0o666 & ~umask())
        scratch.replace(path)


def check_writable(path: Path) -> None:
    """Raise InputError if ``path`` cannot be written, or is no file; for a check before the work starts."""
    check_replaceable(path)
    if path.name == MANIFEST_FILE or is_scratch(path):
        raise InputError(f"{path}: is a name of fanin's own files; name another file")
    with as_input_error(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        tempfile.TemporaryFile(dir=_nearest(path.absolute().parent), prefix=scratch_prefix()).close()


def check_directory(path: Path, kind: Kind = RUN) -> None:
    """Raise InputError unless ``path`` is writable and absent, empty, or an earlier directory of this kind."""
    with as_input_error(path):
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: is a file; {kind.option} names a directory")
        if path.exists() and not all(map(is_scratch, path.iterdir())) and not _is_ours(path, kind):
            missing = f"holds no {kind.mark} of an earlier {kind.name}"
            if is_kind(path, kind):
                missing = f"holds no {MANIFEST_FILE}, which lists the files that fanin has written"
            raise InputError(f"{path}: exists and {missing}; choose another {kind.option}")
        check_places(path, [*kind.files, *(f"{name}/x" for name in kind.names if name not in kind.files)])
        tempfile.TemporaryFile(dir=_nearest(path.absolute()), prefix=scratch_prefix()).close()


@contextlib.contextmanager
def output_directory(path: Path, kind: Kind = RUN) -> Iterator[Path]:
    """Yield a temporary directory; after the body, its files replace fanin's earlier files in ``path``.

    If the body fails, ``path`` stays as it was. Other files of ``path`` always stay. The mark is deleted first
    and written last, so a directory with a mark is complete. An interrupt waits until the files are replaced.
    Raises InputError as ``check_directory`` does. If the files cannot be moved in the end, they are kept in a
    folder beside ``path``.
    """
    check_directory(path, kind)
    delete_leftovers(path.absolute().parent)
    with as_input_error(path):
        scratch = Path(tempfile.mkdtemp(dir=_nearest(path.absolute()), prefix=scratch_prefix()))
    try:
        yield scratch
        with (
            deferred_interrupts()
        ):  # a second signal would otherwise delete the new files after the earlier ones
            try:
                with as_input_error(path):
                    path.mkdir(parents=True, exist_ok=True)
                    replace_files(path, scratch, kind.mark)
            except BaseException as error:  # the earlier files may be deleted by now
                _rescue(path, scratch, error)
                raise
    except InputError as error:
        if str(scratch) not in str(error):
            raise
        raise InputError(str(error).replace(str(scratch), str(path))) from error  # a name that users know
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _rescue(path: Path, scratch: Path, error: BaseException) -> None:
    """Move the new files to a folder beside ``path``, and name it: in an InputError, or else in a note."""
    target = path.absolute()
    rescue = Path(tempfile.mkdtemp(dir=_nearest(target.parent), prefix=f"{target.name}-"))
    scratch.rename(rescue)
    advice = f"the new files are in {rescue}"
    if isinstance(error, InputError):
        raise InputError(f"{error}; {advice}") from error
    print_note(f"fanin: {path}: not all files are replaced; {advice}")


def check_capture(path: Path, output: Path, kind: Kind) -> None:
    """Raise InputError if frames cannot be written to ``path``, or ``path`` collides with the output folder."""
    check_writable(path)
    capture, folder = path.resolve(), output.resolve()
    if capture == folder or capture in folder.parents:
        raise InputError(f"{path}: cannot be a file and the folder of others")
    for name in kind.names:
        if folder / name in (capture, *capture.parents):
            raise InputError(f"{path}: cannot be {PCAP_FILE} and {name} at once")


def keep_capture(capture: Path | None, path: Path) -> None:
    """Move the frames in ``capture``, if any, to ``path``."""
    if capture and capture.exists():
        with output_file(path) as file, capture.open("rb") as frames:
            shutil.copyfileobj(frames, file)
        capture.unlink()


def is_kind(path: Path, kind: Kind) -> bool:
    """Whether a directory's mark has the key of this kind."""
    return kind.key in _mark(path, kind)


def class_folders(folder: Path) -> list[Path]:
    """Return the folders of a run's classes, in their order; none of a run of two classes."""
    if (folder / CLASSES_FOLDER).is_symlink():
        return []
    folders = (path.parent for path in (folder / CLASSES_FOLDER).glob(f"*/{RUN.mark}"))
    numbered = (part for part in folders if part.name.isdecimal() and not part.is_symlink())
    return sorted(numbered, key=lambda part: int(part.name))


def _is_ours(path: Path, kind: Kind) -> bool:
    """Whether fanin wrote a directory of this kind, completely or in part; a new one may replace it."""
    manifest = read_manifest(path)
    if manifest is None:
        return False
    is_partial = not os.path.lexists(path / kind.mark)  # a process ended while it replaced the files
    return is_kind(path, kind) or (is_partial and manifest.mark == kind.mark)


def _mark(path: Path, kind: Kind) -> dict[str, Any]:
    """Return the JSON object in a directory's mark; empty if the mark is absent or broken."""
    return read_object((path / kind.mark).resolve()) or {}


def open_kind(path: Path, kind: Kind, command: str, hint: str = "") -> Record:
    """Return the mark of a directory that ``command`` wrote. Raises InputError if it is absent or broken.

    - ``hint``: text appended to the error, with advice.
    """
    mark = path / kind.mark
    record = open_record(mark) if mark.is_file() else None
    if record is None or kind.key not in record.value:
        raise InputError(f"{path}: holds no {kind.mark} of {command}{hint}")
    return record


def _nearest(folder: Path) -> Path:
    """Return ``folder``, or its nearest parent that exists."""
    return next(candidate for candidate in (folder, *folder.parents) if candidate.exists())


def finite(value: Any) -> Any:
    """Return a JSON value with None in place of every number that is not finite; JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: finite(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def add_json(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Declare ``--json``. docs/reference/json.md lists the output of each command."""
    parser.add_argument("--json", action="store_true", help="print a JSON object on stdout")


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout; a number that is not finite is null."""
    print(json_text(value))


def json_text(value: dict[str, Any]) -> str:
    """Return the JSON text that commands print; a number that is not finite is null."""
    return json.dumps(finite(value), indent=2)


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "  ") -> str:
    """Return rows as aligned text. ``right``: indices of right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return (indent + "  ".join(cells)).rstrip()

    return "\n".join(map(line, rows))
