"""The files that a command reads, by the options that name them, and their SHA-256s."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record, read_toml
from fanin.boards.run.folder import BOARD_BUILD, BOARD_FILE, BOARDS_SUFFIX
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

ITSELF = "."  #: of ``Input.files``, the name of an input that is one file
_FOLDERS = (
    PLAN,
    SWEEP,
    CLUSTER_BUILD,
    CLUSTER_RUN,
    RING_RUN,
    RUN,
    BOARD_BUILD,
)  #: kinds of folders that a command takes
_MNIST = "*-ubyte*"  #: what a folder of data holds
_UNREAD = (REPORT_FILE, PCAP_FILE, DISSECTOR_FILE, PROVENANCE_FILE)  #: of a folder, what decides no bits
_PIECE = 1 << 20


@dataclass(frozen=True)
class Input:
    """What an option names: an absolute path, and the SHA-256 of each file by its name below it.

    Files that a file names (``_named``) have names from the folder of that file.
    """

    option: str
    path: str
    files: dict[str, str]

    def changed(self, path: Path) -> str | None:
        """The first file that is another at ``path``, or is missing there; None where all are the same."""
        found = digests(path)
        for name in {**self.files, **found}:
            if found.get(name) != self.files.get(name):
                folder = path if path.is_dir() else path.parent
                return str(path if name == ITSELF else folder / name)
        return None


def inputs_of(args: argparse.Namespace) -> list[Input]:
    """The inputs of a command whose parser has declared its ``files``; a bundled data set is none."""
    found = []
    for option in args.files.inputs:
        value = getattr(args, option)
        if value is not None and (files := digests(Path(value))):
            found.append(Input(option, str(Path(value).absolute()), files))
    return found


def read_input(record: Record) -> Input:
    """One that was written as JSON. Raises InputError."""
    files = record.record("files")
    return Input(record.text("option"), record.text("path"), {name: files.text(name) for name in files.value})


def file_digest(path: Path) -> str:
    """SHA-256 of a file of any size."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


def digests(path: Path) -> dict[str, str]:
    """Of a file and those that it names, or of the files of a folder; nothing for a bundled data set."""
    if path.is_file():
        named = {os.path.relpath(file, path.parent): file_digest(file) for file in _named(path)}
        return {ITSELF: file_digest(path), **named}
    return {str(file.relative_to(path)): file_digest(file) for file in sorted(_read_of(path))}


def _named(path: Path) -> list[Path]:
    """Return the files that a file names, to be read with it: external data of ONNX, boards' builds."""
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
    except (OSError, InputError):
        return []
    tables = boards if isinstance(boards, list) else []
    builds = [table.get("build") for table in tables if isinstance(table, dict)]
    marks = {
        path.parent / build / BOARD_FILE for build in builds if isinstance(build, str) and "\0" not in build
    }
    return sorted(mark for mark in marks if mark.is_file())


def _read_of(folder: Path) -> Iterator[Path]:
    """The files of a folder that a command reads."""
    kind = next((kind for kind in _FOLDERS if is_kind(folder, kind)), None)
    for pattern in kind.names if kind else (_MNIST,):
        for place in folder.glob(pattern):
            for file in [place] if place.is_file() else place.rglob("*"):
                if file.is_file() and file.name not in _UNREAD:
                    yield file


def resolved(value: Any, path: Path) -> Any:
    """``path`` as an option's value has it: a text, or a path."""
    return type(value)(path)
