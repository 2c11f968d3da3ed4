"""Folder of a campaign: its description, its finished and missing runs, and its disk space."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record, open_record, read_object
from fanin.base.scratch import write_file
from fanin.campaign.file import Campaign, Run
from fanin.campaign.supervisor import FAILED, OUTPUT, RESULT_FILE, SCRATCH, Task
from fanin.runs.lock import writer_of
from fanin.runs.manifest import MANIFEST_FILE, Manifest, delete_files, read_manifest
from fanin.runs.output import CAMPAIGN, RUN_FILE, open_kind
from fanin.runs.provenance.environment import fanin_json, machine_json, versions_json
from fanin.runs.provenance.inputs import digests

FORMAT = 2
RUNS = "runs"  # folder of the runs' folders
MEGABYTE = 1_000_000
#: Default disk space of a run, in MB: for a command that writes a page, and for any other command.
_PAGE_MEGABYTES, _MEGABYTES = 4.0, 0.1
_POLL_SECONDS = 0.1  # between two checks for runs in progress
_RESERVE_BYTES = 100 * MEGABYTE  # of the disk, which must stay free


@dataclass(frozen=True)
class Finished:
    """Finished run.

    - ``run``: the run in the campaign's file.
    - ``record``: content of its ``run.json``.
    - ``result``: output of ``--json``; None if it is absent, no JSON object or larger than ``MAX_FILE_BYTES``.
    """

    run: Run
    record: Record
    result: dict[str, Any] | None

    @property
    def failed(self) -> bool:
        """Whether the run failed."""
        return self.record.text("status") == FAILED


class Folder:
    """New or existing folder DIR of a campaign. Nothing is written before :meth:`begin`.

    ``has_begun``: True after :meth:`begin` has written the campaign's description.
    """

    def __init__(self, path: Path, campaign: Campaign):
        self.path, self._campaign = path.absolute(), campaign
        self._largest = 0
        self.has_begun = False

    def check(self) -> None:
        """Raise InputError if DIR holds conflicting user files, or runs of another campaign, fanin or input."""
        runs = self.path / RUNS
        if runs.is_symlink():
            raise InputError(f"{runs}: is a link; remove it, or choose another -o")
        own_files = manifest.files if (manifest := read_manifest(self.path)) else ()
        for name in CAMPAIGN.files:
            if name not in own_files and os.path.lexists(self.path / name):
                raise InputError(f"{self.path / name}: is no file of fanin's; move it, or choose another -o")
        if not self._has_runs():
            return  # no earlier runs that must match
        description = open_kind(self.path, CAMPAIGN, "fanin campaign")
        mark = self.path / CAMPAIGN.mark
        if description.integer("format") != FORMAT:
            raise InputError(f"{mark}: has the format of another version of fanin; choose another -o")
        names = {run.name for run in self._campaign.runs}
        if foreign_runs := [name for name in description.texts("runs") if name not in names]:
            remainder = f" and {len(foreign_runs) - 1:,} more" if len(foreign_runs) > 1 else ""
            raise InputError(
                f"{self.path}: is another campaign's: {foreign_runs[0]}{remainder}; choose another -o"
            )
        if description.record("fanin").text("sources_sha256") != self.facts["fanin"]["sources_sha256"]:
            raise InputError(f"{self.path}: its runs are of another fanin; choose another -o")
        for path, files in description.record("inputs").value.items():
            if self.facts["inputs"].get(path) != files:
                raise InputError(f"{path}: is not what the runs in {self.path} have read; choose another -o")

    def _has_runs(self) -> bool:
        """Return whether DIR holds a finished run of any campaign."""
        runs = self.path / RUNS
        return runs.is_dir() and any(not path.name.startswith(SCRATCH) for path in runs.iterdir())

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Content of campaign.json. Inputs have their names in the file, and are hashed once."""
        paths = {str(path): self._campaign.folder / path for path in self._campaign.inputs}
        return {
            "format": FORMAT,
            "command": self._campaign.command.name,
            "file": str(self._campaign.file.resolve()),
            "runs": [run.name for run in self._campaign.runs],
            "inputs": {name: files for name, path in paths.items() if (files := digests(path))},
            "fanin": fanin_json(),
            "versions": versions_json(emitted=False),
            "machine": machine_json(),
        }

    def begin(self, reruns: Iterable[Run]) -> None:
        """Write the campaign's description; delete unfinished runs, and fanin's files of the runs ``reruns``.

        User files stay in a run's folder. Raises InputError for a run's folder without a list of fanin's files.
        """
        (self.path / RUNS).mkdir(parents=True, exist_ok=True)
        Manifest(CAMPAIGN.mark, tuple(sorted({CAMPAIGN.mark, *CAMPAIGN.other_names}))).write(self.path)
        write_file(self.path / CAMPAIGN.mark, json.dumps(self.facts, indent=2) + "\n")
        self.has_begun = True
        for run_folder in map(self.run_folder, reruns):
            if run_folder.is_symlink():
                raise InputError(f"{run_folder}: is a link; remove it to carry out its run")
            if run_folder.is_dir():
                _delete_run(run_folder)
        self._delete_unfinished()

    def settle(self, seconds: float) -> None:
        """Wait for at most ``seconds`` until runs in progress have ended, and delete unfinished runs."""
        deadline = time.monotonic() + seconds
        while self._delete_unfinished() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _delete_unfinished(self) -> int:
        """Delete unfinished runs that no process writes; return the number of runs in progress."""
        in_progress = 0
        for scratch in (self.path / RUNS).glob(f"{SCRATCH}*"):
            try:
                if writer_of(scratch):
                    in_progress += 1
                else:
                    shutil.rmtree(scratch, ignore_errors=True)
            except InputError:  # its supervisor has just renamed or deleted it
                continue
        return in_progress

    def run_folder(self, run: Run) -> Path:
        """Return the folder of a run."""
        return self.path / RUNS / run.name

    def missing(self, *, failed: bool) -> list[Run]:
        """Return the runs to carry out, in order. ``failed``: include failed runs."""
        present = {finished.run.name for finished in self.finished() if not (failed and finished.failed)}
        return [run for run in self._campaign.runs if run.name not in present]

    def finished(self) -> Iterator[Finished]:
        """Yield the finished runs, in order. Raises InputError for a run with damaged files."""
        for run in self._campaign.runs:
            run_folder = self.run_folder(run)
            if os.path.lexists(run_folder / RUN_FILE):
                record = open_record(run_folder / RUN_FILE)
                yield Finished(run, record, read_object(run_folder / RESULT_FILE))

    def task(self, run: Run) -> Task:
        """Return the task of a run for a worker."""
        command = self._campaign.command
        return Task(
            place=str(self.run_folder(run)),
            argv=tuple(command.command_line(run.words, output=OUTPUT)),
            output=len(command.words) + 2 if command.has_output else None,
            folder=str(self._campaign.folder),
            limit=self._campaign.timeout,
            keep=self._campaign.keep,
            sources=self.facts["fanin"]["sources_sha256"],
        )

    def note_size(self, run: Run) -> None:
        """Take a finished run's size into account for :meth:`check_disk`."""
        self._largest = max(self._largest, open_record(self.run_folder(run) / RUN_FILE).integer("bytes"))

    def check_disk(self, runs: int) -> None:
        """Raise InputError unless ``runs`` more runs fit the disk."""
        nearest = next(path for path in (self.path, *self.path.parents) if path.exists())
        free = shutil.disk_usage(nearest).free
        run_bytes = self._expected_run_bytes()
        if runs and runs * run_bytes + _RESERVE_BYTES > free:
            need = f"{runs:,} × {run_bytes / MEGABYTE:,.1f} MB for runs, "
            need += f"and {_RESERVE_BYTES / MEGABYTE:,.0f} MB to spare"
            raise InputError(f"{self.path}: {need}, do not fit the {free / MEGABYTE:,.0f} MB that are free")

    def _expected_run_bytes(self) -> float:
        """Return the expected size of a run in bytes.

        The larger of the campaign file's value and the largest finished run; without both, a default.
        """
        megabytes = self._campaign.megabytes
        if megabytes is None and not self._largest:
            writes = self._campaign.command.has_output and self._campaign.keep
            megabytes = _PAGE_MEGABYTES if writes else _MEGABYTES
        return max((megabytes or 0) * MEGABYTE, self._largest)


def _delete_run(run_folder: Path) -> None:
    """Delete fanin's files of a run. Raises InputError if the folder has no list of them."""
    try:
        if not delete_files(run_folder) and os.path.lexists(run_folder / RUN_FILE):
            raise InputError(
                f"{run_folder}: has no list of fanin's files, {MANIFEST_FILE}; "
                "delete the folder to repeat its run"
            )
    except OSError as error:
        raise InputError(f"{run_folder}: cannot be deleted: {error.strerror or error}") from error
