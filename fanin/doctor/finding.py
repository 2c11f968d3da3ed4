"""State of a run for ``fanin doctor`` and the page of a failed run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record, open_record
from fanin.doctor import first_packet, gradients, ring
from fanin.runs.output import PROVENANCE_FILE, RUN_FILE, table
from fanin.runs.states import STATES


@dataclass(frozen=True)
class Finding:
    """State of a run that has finished, failed, or was interrupted."""

    error: str | None  #: cause of a failure; None without one
    facts: dict[str, Any]  #: content of the JSON output
    lines: list[str]  #: progress and counters, for people
    resume: str | None = None  #: command that continues the run, and its starting point
    ended: bool = False  #: the run has finished, with an error or without

    def advice(self, argv: Sequence[str] | None, *, keeps_states: bool = False) -> str | None:
        """Return advice after a failure; None without one.

        - ``argv``: command line of the run, if known.
        - ``keeps_states``: the run could have kept states, but did not.
        """
        if self.error is None or self.resume or self.ended:
            return self.resume
        again = shlex.join(["fanin", *argv]) if argv else "the same command"
        hint = "; with --checkpoint N it keeps states to resume from" if keeps_states else ""
        return f"there is no state to resume from: {again} runs it from the start{hint}"


def train_finding(run: Record, folder: Path) -> Finding:
    """Return the finding of a ``fanin train`` run. Raises InputError for another run.json."""
    nodes = first_packet.diagnose(run)
    error = run.text("error") if "error" in run.value else None
    packets = first_packet.packets(run)
    states = run.texts("checkpoints") if "checkpoints" in run.value else ()
    resume = None
    if error and states:
        epoch = int(states[-1].removeprefix(f"{STATES}/epoch").partition("-")[0])
        resume = f"{shlex.join(['fanin', 'train', '--resume', str(folder)])} continues after epoch {epoch}"
    lines = [line for node in nodes for line in str(node).split("\n")]
    if error is None:
        epochs, exact = len(run.records("epochs")), run.flag("bit_exact")
        lines.insert(0, f"ended: {epochs:,} epochs, {'' if exact else 'NOT '}bit-exact with the golden model")
    if packets:
        lines += ["", *table(packets.rows(), right=range(1, 8), indent="").split("\n")]
    facts = {
        "error": error,
        "nodes": [asdict(node) for node in nodes],
        "packets": [asdict(one) for one in packets.nodes] if packets else None,
    }
    return Finding(error, facts, lines, resume)


def param_server_finding(run: Record) -> Finding:
    """Return the finding of a ``fanin ps train`` run. Raises InputError for another run.json."""
    found = gradients.diagnose(run)
    lines = table(found.rows(), indent="").split("\n") if found.workers else []
    return Finding(found.error, asdict(found), lines, ended="workers" in run.value)


def ring_finding(run: Record, folder: Path, *, state: bool) -> Finding:
    """Return the finding of a ``fanin ring train`` run; ``state``: its folder has one. Raises InputError."""
    found = ring.diagnose(run)
    lines = [f"all nodes have made {found.steps:,} of {found.steps_asked:,} steps"]
    if found.nodes:
        lines += table(found.rows(), indent="").split("\n")
    resume = f"fanin ring train --resume {shlex.quote(str(folder))} continues after the last whole epoch"
    ended = "bit_exact" in run.value
    return Finding(found.error, asdict(found), lines, resume if found.error and state else None, ended)


def record_of(run: Any) -> Record:
    """Return a run in the form of its ``run.json``."""
    return Record(RUN_FILE, "", json.loads(json.dumps(run)))


def argv_of(folder: Path) -> Sequence[str] | None:
    """Return the command line of a folder's run; None if the folder does not record it."""
    try:
        return list(open_record(folder / PROVENANCE_FILE).texts("argv"))
    except InputError:
        return None
