"""How far a training over the ring got, and what its links lost if it came to its end."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.base.records import Record
from fanin.ring.run.options import System


@dataclass(frozen=True)
class NodeDiagnosis:
    """What a node's NIC has counted: frames."""

    sent: int
    retransmitted: int
    received: int
    bad_fcs: int
    duplicates: int
    out_of_order: int


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run, if anything is; steps that all nodes have made, and NICs, of a run in RTL."""

    error: str | None
    steps: int
    steps_asked: int
    nodes: list[NodeDiagnosis]

    def rows(self) -> list[list[str]]:
        """A row per node."""
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
    """From a run's ``run.json``. Raises InputError if it is none."""
    # A run that has failed has none, and INCEPTIONN's count what a host's transport does, not frames.
    counted = "counters" in run.value and run.record("configuration").text("system") == System.SMART_NIC
    counters = run.records("counters") if counted else []
    names = NodeDiagnosis.__dataclass_fields__
    nodes = [NodeDiagnosis(**{name: record.integer(name) for name in names}) for record in counters]
    return Diagnosis(run.optional_text("error"), run.integer("steps"), run.integer("steps_asked"), nodes)
