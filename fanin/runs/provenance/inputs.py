"""Input files of a command, by option, with their SHA-256s."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record, read_toml
from fanin.boards.run.folder import BOARD_BUILD, BOARD_FILE, BOARDS_SUFFIX
from fanin.runs.file_options import Request
from fanin.runs.output import (
    CLUSTER_BUILD,
    CLUSTER_RUN,
    DISSECTOR_FILE,
    PCAP_FILE,
    PLAN,
    PROVENANCE_FILE,
    REPORT_FILE,
    RING_RUN,
    RUN,
    SWEEP,
    is_kind,
)

ITSELF = "."  #: key in ``Input.files`` of an input that is a single file
#: Kinds of folders that a command reads.
_FOLDERS = (PLAN, SWEEP, CLUSTER_BUILD, CLUSTER_RUN, RING_RUN, RUN, BOARD_BUILD)
_MNIST = "*-ubyte*"  #: pattern of files in a folder of data
_NOT_READ = (REPORT_FILE, PCAP_FILE, DISSECTOR_FILE, PROVENANCE_FILE)  #: they affect no result
_PART_BYTES = 1 << 20


@dataclass(frozen=True)
class Input:
    """File or folder that an option names.

    - ``option``: name of the option.
    - ``path``: absolute path.
    - ``files``: SHA-256 by file. Names are relative to the folder, or to the folder of a single file.
    """

    option: str
    path: str
    files: dict[str, str]

    def first_change(self, path: Path) -> str | None:
        """Return the first file at ``path`` that is different, missing or new; None if all are the same."""
        current = digests(path)
        for name in {**self.files, **current}:
            if current.get(name) != self.files.get(name):
                folder = path if path.is_dir() else path.parent
                return str(path if name == ITSELF else folder / name)
        return None


def inputs_of(request: Request) -> list[Input]:
    """Return the inputs that a command's file options name, without bundled data sets."""
    inputs = []
    for option in request.files.inputs:
        value = request.options[option]
        if value is not None and (files := digests(Path(value))):
            inputs.append(Input(option, str(Path(value).absolute()), files))
    return inputs


def read_input(record: Record) -> Input:
    """Read an input from JSON. Raises InputError."""
    files = record.record("files")
    return Input(record.text("option"), record.text("path"), {name: files.text(name) for name in files.value})


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, which is read in parts of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


def digests(path: Path) -> dict[str, str]:
    """Return the SHA-256s of a file and the files that it names, or of a folder's files; empty if absent."""
    if path.is_file():
        referenced = {os.path.relpath(file, path.parent): file_digest(file) for file in _referenced_files(path)}
        return {ITSELF: file_digest(path), **referenced}
    return {str(file.relative_to(path)): file_digest(file) for file in sorted(_files_read(path))}


def _referenced_files(path: Path) -> list[Path]:
    """Return the files that a file refers to: external data of ONNX, builds of a boards file."""
    if path.suffix == ".onnx":
        try:
            from fanin.planner.model.onnx_external import external_files
        except ImportError:  # without onnx no command reads the file
            return []
        return external_files(path)
    if path.suffix != BOARDS_SUFFIX:
        return []
    try:
        boards = read_toml(path).get("board")
    except InputError:
        return []
    tables = boards if isinstance(boards, list) else []
    builds = [table.get("build") for table in tables if isinstance(table, dict)]
    marks = {
        path.parent / build / BOARD_FILE for build in builds if isinstance(build, str) and "\0" not in build
    }
    return sorted(mark for mark in marks if mark.is_file())


def _files_read(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that a command reads. A folder may be of several kinds."""
    names = {name for kind in _FOLDERS if is_kind(folder, kind) for name in kind.names}
    for pattern in (_MNIST, *names):
        for path in folder.glob(pattern):
            for file in [path] if path.is_file() else path.rglob("*"):
                if file.is_file() and file.name not in _NOT_READ:
                    yield file


def converted_path(value: Any, path: Path) -> Any:
    """Return ``path`` in the type of an option's value: str or Path."""
    return type(value)(path)
