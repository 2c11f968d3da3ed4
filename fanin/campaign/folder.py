"""A campaign's folder: what it is of, what it has, and what it takes."""

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
from fanin.base.records import Record, open_record, parse_json
from fanin.base.scratch import write_file
from fanin.campaign.file import Campaign, Run
from fanin.campaign.supervisor import FAILED, OUTPUT, RESULT_FILE, SCRATCH, Task
from fanin.runs.lock import writer_of
from fanin.runs.manifest import MANIFEST_FILE, Manifest, delete_files, read_manifest
from fanin.runs.output import CAMPAIGN, RUN_FILE, open_kind
from fanin.runs.provenance.environment import fanin_json, machine_json, versions_json
from fanin.runs.provenance.inputs import digests

FORMAT = 2
RUNS = "runs"  # the folder of the runs' own
MEGABYTE = 1_000_000
#: Of a run of a command that writes a page, and of any other, where nothing better is known.
_PAGE_MEGABYTES, _MEGABYTES = 4.0, 0.1
_POLL = 0.1  # seconds
_RESERVE = 100 * MEGABYTE  # of the disk, which stays free


@dataclass(frozen=True)
class Finished:
    """A run in its place: ``record`` is its run.json, ``result`` what ``--json`` printed, or None."""

    run: Run
    record: Record
    result: Any

    @property
    def failed(self) -> bool:
        """Whether it failed for a reason of its own."""
        return self.record.text("status") == FAILED


class Folder:
    """DIR of a campaign, new or not. Nothing is written but by :meth:`begin` and what follows it."""

    def __init__(self, path: Path, campaign: Campaign):
        self.path, self._campaign = path.absolute(), campaign
        self._largest = 0
        self.begun = False

    def check(self) -> None:
        """Raise InputError where what DIR holds is another campaign's, somebody's own, or of another fanin."""
        runs = self.path / RUNS
        if runs.is_symlink():
            raise InputError(f"{runs}: is a link; remove it, or choose another -o")
        listed = manifest.files if (manifest := read_manifest(self.path)) else ()
        for name in CAMPAIGN.files:
            if name not in listed and os.path.lexists(self.path / name):
                raise InputError(f"{self.path / name}: is no file of fanin's; move it, or choose another -o")
        if not self._has_runs():
            return  # nothing that new rows would have to belong to
        before = open_kind(self.path, CAMPAIGN, "fanin campaign")
        mark = self.path / CAMPAIGN.mark
        if before.integer("format") != FORMAT:
            raise InputError(f"{mark}: has the format of another version of fanin; choose another -o")
        names = {run.name for run in self._campaign.runs}
        if others := [name for name in before.texts("runs") if name not in names]:
            more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            raise InputError(f"{self.path}: is another campaign's: {others[0]}{more}; choose another -o")
        if before.record("fanin").text("sources_sha256") != self.facts["fanin"]["sources_sha256"]:
            raise InputError(f"{self.path}: its runs are another fanin's than this one; choose another -o")
        for path, files in before.record("inputs").value.items():
            if self.facts["inputs"].get(path) != files:
                raise InputError(f"{path}: is not what the runs in {self.path} have read; choose another -o")

    def _has_runs(self) -> bool:
        """Whether a run has come to its place, of this campaign or another."""
        runs = self.path / RUNS
        return runs.is_dir() and any(not each.name.startswith(SCRATCH) for each in runs.iterdir())

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What campaign.json says. Inputs are named as the file has them, and hashed once."""
        places = {str(path): self._campaign.folder / path for path in self._campaign.inputs}
        return {
            "format": FORMAT,
            "command": self._campaign.command.name,
            "file": str(self._campaign.file.resolve()),
            "runs": [run.name for run in self._campaign.runs],
            "inputs": {name: files for name, place in places.items() if (files := digests(place))},
            "fanin": fanin_json(),
            "versions": versions_json(emitted=False),
            "machine": machine_json(),
        }

    def begin(self, again: Iterable[Run]) -> None:
        """Write what DIR is of, and delete files of the runs ``again`` and of runs that are not whole.

        Files that fanin has not written stay in a run's folder. Raises InputError for a run's folder without
        a list of fanin's files.
        """
        (self.path / RUNS).mkdir(parents=True, exist_ok=True)
        Manifest(CAMPAIGN.mark, tuple(sorted({CAMPAIGN.mark, *CAMPAIGN.others}))).write(self.path)
        write_file(self.path / CAMPAIGN.mark, json.dumps(self.facts, indent=2) + "\n")
        self.begun = True
        for place in map(self.place, again):
            if place.is_symlink():
                raise InputError(f"{place}: is a link; remove it to carry out its run")
            if place.is_dir():
                _delete_run(place)
        self._tidy()

    def settle(self, seconds: float) -> None:
        """Wait for runs that end now, so long at most, and delete what they leave."""
        deadline = time.monotonic() + seconds
        while self._tidy() and time.monotonic() < deadline:
            time.sleep(_POLL)

    def _tidy(self) -> int:
        """Delete runs that are not whole and that nobody writes any more; how many somebody does."""
        left = 0
        for place in (self.path / RUNS).glob(f"{SCRATCH}*"):
            try:
                if writer_of(place):
                    left += 1
                else:
                    shutil.rmtree(place, ignore_errors=True)
            except InputError:  # its supervisor has just renamed or deleted it
                continue
        return left

    def place(self, run: Run) -> Path:
        """Where a run goes."""
        return self.path / RUNS / run.name

    def missing(self, *, failed: bool) -> list[Run]:
        """What is to be carried out, in order; with ``failed`` what has failed, too."""
        there = {each.run.name for each in self.finished() if not (failed and each.failed)}
        return [run for run in self._campaign.runs if run.name not in there]

    def finished(self) -> Iterator[Finished]:
        """What has been, in order. Raises InputError for a run whose files were damaged."""
        for run in self._campaign.runs:
            place = self.place(run)
            if os.path.lexists(place / RUN_FILE):
                result = place / RESULT_FILE
                yield Finished(
                    run, open_record(place / RUN_FILE), _parsed(result) if result.is_file() else None
                )

    def task(self, run: Run) -> Task:
        """What a worker is told of a run."""
        command = self._campaign.command
        return Task(
            place=str(self.place(run)),
            argv=tuple(command.whole_line(run.words, output=OUTPUT)),
            output=len(command.words) + 2 if command.has_output else None,
            folder=str(self._campaign.folder),
            limit=self._campaign.timeout,
            keep=self._campaign.keep,
            sources=self.facts["fanin"]["sources_sha256"],
        )

    def note_size(self, run: Run) -> None:
        """A run has come to its place: how large are they?"""
        self._largest = max(self._largest, open_record(self.place(run) / RUN_FILE).integer("bytes"))

    def check_disk(self, runs: int) -> None:
        """Raise InputError unless so many more runs fit the disk."""
        nearest = next(place for place in (self.path, *self.path.parents) if place.exists())
        free = shutil.disk_usage(nearest).free
        each = self._bytes_each()
        if runs and runs * each + _RESERVE > free:
            need = f"{runs:,} × {each / MEGABYTE:,.1f} MB for runs, and {_RESERVE / MEGABYTE:,.0f} MB to spare"
            raise InputError(f"{self.path}: {need}, do not fit the {free / MEGABYTE:,.0f} MB that are free")

    def _bytes_each(self) -> float:
        """Of a run: as the file says or, if that is more, as the largest one yet; else what is usual."""
        megabytes = self._campaign.megabytes
        if megabytes is None and not self._largest:
            writes = self._campaign.command.has_output and self._campaign.keep
            megabytes = _PAGE_MEGABYTES if writes else _MEGABYTES
        return max((megabytes or 0) * MEGABYTE, self._largest)


def _delete_run(place: Path) -> None:
    """Delete fanin's files of a run. Raises InputError if it cannot be known which these are."""
    try:
        if not delete_files(place) and os.path.lexists(place / RUN_FILE):
            raise InputError(
                f"{place}: has no list of fanin's files, {MANIFEST_FILE}; delete the folder to repeat its run"
            )
    except OSError as error:
        raise InputError(f"{place}: cannot be deleted: {error.strerror or error}") from error


def _parsed(path: Path) -> Any:
    """What a run has printed; a run that was stopped may have printed half of it."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
