"""How far each node's first packet got, and which counters say what stopped it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fanin.sim.cosim.exchange import Step, steps_of
from fanin.wire.aggregation import Protocol


@dataclass(frozen=True)
class NodeDiagnosis:
    """The steps that a node's first packet has reached, with their cycles; what kept it from the next one."""

    node: int
    steps: dict[str, int]
    missing: str | None
    reasons: list[str]

    def __str__(self) -> str:
        """Some lines for people."""
        lines = [f"node {self.node}"]
        lines += [f"  {step:<28} cycle {cycle:>10,}" for step, cycle in self.steps.items()]
        if self.missing:
            lines.append(f"  {self.missing:<28} never")
            lines += [f"    {reason}" for reason in self.reasons or ["no counter says why"]]
        return "\n".join(lines)


def diagnose(run: dict[str, Any]) -> list[NodeDiagnosis]:
    """Diagnose every node of a run, given its ``run.json``.

    Raises ValueError, LookupError, TypeError or AttributeError if it is none.
    """
    if not run["first_packet"]:
        raise ValueError("no nodes")
    diagnoses, expected = [], steps_of(Protocol(run["options"]["node"]["protocol"]))
    for node, steps in enumerate(run["first_packet"]):
        missing = next((step for step in expected if step not in steps), None)
        reasons = list(_reasons(run, node, missing)) if missing else []
        diagnoses.append(NodeDiagnosis(node, steps, missing, reasons))
    return diagnoses


def _reasons(run: dict[str, Any], node: int, missing: str) -> Iterator[str]:
    """What may have kept the packet from that step: the counters there that are not zero."""
    link, counters = run["links"][node], run["counters"][node] if run["counters"] else {}
    if missing == Step.AGG_LEFT:
        yield from _nonzero(f"node {node}", counters, "stall_no_word", "stall_fifo_full", "stall_model_wait")
    if missing == Step.AGG_ARRIVED:
        yield from _nonzero(f"link of node {node}, up", link["up"], "dropped", "fcs_errors")
    if missing in (Step.RESULT_ARRIVED, Step.CONFIRM_ARRIVED):
        yield from _nonzero("switch", run["switch"], "malformed", "foreign")
        for job, counts in run["jobs"].items():
            yield from _nonzero(f"switch, job {job}", counts, "stale", "duplicate")
        yield from _nonzero(f"link of node {node}, down", link["down"], "dropped", "fcs_errors")
        before = Step.AGG_ARRIVED if missing == Step.RESULT_ARRIVED else Step.ACK_LEFT
        yield from _others(run, before)
        yield from _nonzero(f"node {node}", counters, "retransmissions", *_rejected(counters))
    if missing == Step.ACK_LEFT:
        yield from _nonzero(f"node {node}", counters, *_rejected(counters), "stale")


def _rejected(counters: dict[str, int]) -> list[str]:
    return [name for name in counters if name.startswith("bad_")]


def _others(run: dict[str, Any], step: str) -> Iterator[str]:
    """The members that the switch still waits for."""
    late = [str(node) for node, steps in enumerate(run["first_packet"]) if step not in steps]
    if late:
        yield f"the switch waits for node {', '.join(late)}: not yet '{step}'"


def _nonzero(where: str, counters: dict[str, int], *names: str) -> Iterator[str]:
    for name in names:
        if counters.get(name):
            yield f"{where}: {name} {counters[name]:,}"
