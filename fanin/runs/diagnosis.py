"""Diagnosis of a run, for ``fanin doctor`` and for the page of a failed run.

The ``run/diagnosis.py`` of each system makes it from the system's ``run.json``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record, open_record
from fanin.runs.output import PROVENANCE_FILE, RUN_FILE


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of a run that has finished, failed, or was interrupted."""

    error: str | None  #: cause of a failure; None without one
    facts: dict[str, Any]  #: content of the JSON output
    lines: list[str]  #: progress and counters, for people
    resume: str | None = None  #: command that continues the run, and its starting point
    finished: bool = False  #: the run has finished, with an error or without

    def advice(self, argv: Sequence[str] | None, *, suggest_checkpoint: bool = False) -> str | None:
        """Return advice after a failure; None without one.

        - ``argv``: command line of the run, if known.
        - ``suggest_checkpoint``: True if the command has an option ``--checkpoint`` that this run did not use.
        """
        if self.error is None or self.resume or self.finished:
            return self.resume
        command = shlex.join(["fanin", *argv]) if argv else "the same command"
        hint = "; with --checkpoint N it keeps states to resume from" if suggest_checkpoint else ""
        return f"there is no state to resume from: {command} runs it from the start{hint}"


def record_of(run: Any) -> Record:
    """Return a run in the form of its ``run.json``."""
    return Record(RUN_FILE, "", json.loads(json.dumps(run)))


def options_in(folder: Path) -> Mapping[str, Any]:
    """Return the option values by name of a folder's run; empty if the folder does not record them."""
    try:
        return open_record(folder / PROVENANCE_FILE).record("options").value
    except InputError:
        return {}


def argv_of(folder: Path) -> Sequence[str] | None:
    """Return the command line of a folder's run; None if the folder does not record it."""
    try:
        return list(open_record(folder / PROVENANCE_FILE).texts("argv"))
    except InputError:
        return None
