"""Diagnosis of a training over the ring: progress, and the losses of its links if it finished."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.base.records import Record
from fanin.ring.run.options import System


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
class Diagnosis:
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


def diagnose(run: Record) -> Diagnosis:
    """Diagnose a run from its ``run.json``. Raises InputError for another file."""
    # A failed run has no counters. INCEPTIONN's counters are of the hosts' transport, not of frames.
    counted = "counters" in run.value and run.record("configuration").text("system") == System.SMART_NIC
    counters = run.records("counters") if counted else []
    names = NodeDiagnosis.__dataclass_fields__
    nodes = [NodeDiagnosis(**{name: record.integer(name) for name in names}) for record in counters]
    return Diagnosis(run.optional_text("error"), run.integer("steps"), run.integer("steps_asked"), nodes)
