"""State of a run, as ``fanin doctor`` prints it and the page of a failed run shows it."""

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
    """State of a run that has ended, failed, or has not come to its end."""

    error: str | None  #: cause of a failure; None without one
    facts: dict[str, Any]  #: as JSON
    lines: list[str]  #: how far the run got and what was counted, for people
    resume: str | None = None  #: command that continues the run from a state, and from which
    ended: bool = False  #: the run has come to its end, with an error or without

    def advice(self, argv: Sequence[str] | None, *, keeps_states: bool = False) -> str | None:
        """Return what to do after a failure; None without one.

        ``argv``: of the run, if it is known. ``keeps_states``: the run could have kept states, and has not.
        """
        if self.error is None or self.resume or self.ended:
            return self.resume
        again = shlex.join(["fanin", *argv]) if argv else "the same command"
        hint = "; with --checkpoint N it keeps states to resume from" if keeps_states else ""
        return f"there is no state to resume from: {again} runs it from the start{hint}"


def train_finding(run: Record, folder: Path) -> Finding:
    """Of ``fanin train``. Raises InputError for another run.json."""
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
    """Of ``fanin ps train``. Raises InputError for another run.json."""
    found = gradients.diagnose(run)
    lines = table(found.rows(), indent="").split("\n") if found.workers else []
    return Finding(found.error, asdict(found), lines, ended="workers" in run.value)


def ring_finding(run: Record, folder: Path, *, state: bool) -> Finding:
    """Of ``fanin ring train``; ``state``: the folder has one. Raises InputError for another run.json."""
    found = ring.diagnose(run)
    lines = [f"all nodes have made {found.steps:,} of {found.steps_asked:,} steps"]
    if found.nodes:
        lines += table(found.rows(), indent="").split("\n")
    resume = f"fanin ring train --resume {shlex.quote(str(folder))} continues after the last whole epoch"
    ended = "bit_exact" in run.value
    return Finding(found.error, asdict(found), lines, resume if found.error and state else None, ended)


def record_of(run: Any) -> Record:
    """Return a run as its ``run.json`` will have it."""
    return Record(RUN_FILE, "", json.loads(json.dumps(run)))


def argv_of(folder: Path) -> Sequence[str] | None:
    """Return the command line of a folder's run; None where the folder does not say it."""
    try:
        return list(open_record(folder / PROVENANCE_FILE).texts("argv"))
    except InputError:
        return None
