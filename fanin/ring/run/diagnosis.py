"""Diagnosis of a training over the ring: progress, and the losses of its links if it finished."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from fanin.base.records import Record
from fanin.ring.run.options import System
from fanin.runs.diagnosis import Diagnosis
from fanin.runs.output import table


@dataclass(frozen=True)
class NodeDiagnosis:
    """Frames that a node's NIC has counted."""

    sent: int
    retransmitted: int
    received: int
    bad_fcs: int
    duplicates: int
    out_of_order: int


@dataclass(frozen=True)
class RunState:
    """State of a run: its error, if any, steps that all nodes made, and for RTL the counters of NICs."""

    error: str | None
    steps: int
    steps_asked: int
    nodes: list[NodeDiagnosis]

    def rows(self) -> list[list[str]]:
        """Return a row per node."""
        return [
            [
                f"node {number}",
                f"sent {node.sent:,}, again {node.retransmitted:,}",
                f"received {node.received:,}, bad FCS {node.bad_fcs:,}, duplicate {node.duplicates:,}, "
                f"out of order {node.out_of_order:,}",
            ]
            for number, node in enumerate(self.nodes)
        ]


def diagnose(run: Record, folder: Path, *, has_state: bool) -> Diagnosis:
    """Diagnose a run from its ``run.json``. Raises InputError for another command's file.

    - ``folder``: the run's folder, for the command that resumes it.
    - ``has_state``: True if the folder holds a state to resume from.
    """
    state = _read_state(run)
    lines = [f"all nodes have made {state.steps:,} of {state.steps_asked:,} steps"]
    if state.nodes:
        lines += table(state.rows(), indent="").split("\n")
    resume = f"fanin ring train --resume {shlex.quote(str(folder))} continues after the last whole epoch"
    is_finished = "bit_exact" in run.value
    return Diagnosis(
        state.error, asdict(state), lines, resume if state.error and has_state else None, is_finished
    )


def _read_state(run: Record) -> RunState:
    # A failed run has no counters. INCEPTIONN's counters are of the hosts' transport, not of frames.
    counted = "counters" in run.value and run.record("configuration").text("system") == System.SMART_NIC
    counters = run.records("counters") if counted else []
    names = NodeDiagnosis.__dataclass_fields__
    nodes = [NodeDiagnosis(**{name: record.integer(name) for name in names}) for record in counters]
    return RunState(run.optional_text("error"), run.integer("steps"), run.integer("steps_asked"), nodes)
