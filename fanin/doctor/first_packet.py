"""Diagnosis by first packets: how far each node's got, and the counters that explain what stopped it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from fanin.base.records import Record
from fanin.sim.switch.operations import Step, steps_of
from fanin.wire.aggregation import Protocol


@dataclass(frozen=True)
class NodeDiagnosis:
    """Steps that a node's first packet reached, with their cycles, and reasons why the next one is missing."""

    node: int
    steps: dict[str, int]
    missing: str | None
    reasons: list[str]

    def __str__(self) -> str:
        """Return some lines for people."""
        lines = [f"node {self.node}"]
        lines += [f"  {step:<28} cycle {cycle:>10,}" for step, cycle in self.steps.items()]
        if self.missing:
            lines.append(f"  {self.missing:<28} never")
            lines += [f"    {reason}" for reason in self.reasons or ["no counter says why"]]
        return "\n".join(lines)


@dataclass(frozen=True)
class Seen:
    """Counters of a run: per node its steps, both directions of its link, and its own counters."""

    steps: list[dict[str, int]]
    up: list[dict[str, int]]
    down: list[dict[str, int]]
    counters: list[dict[str, int]]
    switch: dict[str, int]
    jobs: dict[str, dict[str, int]]


@dataclass(frozen=True)
class NodePackets:
    """Packets of a node, and faults of its link in both directions."""

    sent: int
    retransmitted: int | None  #: None: the run failed before the node's counters were read
    duplicates: int | None  #: answers that the node received more than once
    dropped_up: int  #: by the network, from the node to the switch
    dropped_down: int  #: by the network, from the switch to the node
    corrupted_up: int  #: frames with a wrong check sequence at the switch
    corrupted_down: int  #: frames with a wrong check sequence at the node


@dataclass(frozen=True)
class Packets:
    """Packets of every node."""

    nodes: list[NodePackets]

    def rows(self) -> list[list[str]]:
        """Return a header, a row per node, and their sums."""
        head = [
            "packets",
            "sent",
            "retransmitted",
            "duplicate",
            "lost up",
            "lost down",
            "bad FCS up",
            "bad FCS down",
        ]
        counts = [list(asdict(node).values()) for node in self.nodes]
        names = [f"node {number}" for number in range(len(counts))]
        sums = [sum(filter(None, column)) for column in zip(*counts, strict=True)]
        rows = zip([*names, "all"], [*counts, sums], strict=True)
        return [
            head,
            *([name, *("–" if count is None else f"{count:,}" for count in row)] for name, row in rows),
        ]


def packets(run: Record) -> Packets | None:
    """Return the packets of a run from its ``run.json``; None if nodes or links were not counted."""
    seen = _seen(run)
    if not seen.counters or not all("frames" in way for way in (*seen.up, *seen.down)):
        return None
    return Packets(
        [
            NodePackets(
                sent=up["frames"],
                retransmitted=counters.get("retransmissions"),
                duplicates=counters.get("duplicates"),
                dropped_up=up.get("dropped", 0),
                dropped_down=down.get("dropped", 0),
                corrupted_up=up.get("fcs_errors", 0),
                corrupted_down=down.get("fcs_errors", 0),
            )
            for counters, up, down in zip(seen.counters, seen.up, seen.down, strict=True)
        ]
    )


def _seen(run: Record) -> Seen:
    links, jobs = run.records("links"), run.record("jobs")
    seen = Seen(
        steps=[steps.counts() for steps in run.records("first_packet")],
        up=[link.record("up").counts() for link in links],
        down=[link.record("down").counts() for link in links],
        counters=[counters.counts() for counters in run.records("counters")],
        switch=run.record("switch").counts(),
        jobs={job: jobs.record(job).counts() for job in jobs.value},
    )
    if not len(seen.steps) == len(links) == (len(seen.counters) or len(links)):
        raise run.wrong("must have as many first_packet, links and counters, one of a node")
    return seen


def diagnose(run: Record) -> list[NodeDiagnosis]:
    """Diagnose every node of a run from its ``run.json``. Raises InputError for another file."""
    seen, protocol = _seen(run), run.record("options").record("node").text("protocol", tuple(Protocol))
    diagnoses, expected = [], steps_of(Protocol(protocol))
    for node, steps in enumerate(seen.steps):
        missing = next((step for step in expected if step not in steps), None)
        reasons = list(_reasons(seen, node, missing)) if missing else []
        diagnoses.append(NodeDiagnosis(node, steps, missing, reasons))
    return diagnoses


def _reasons(run: Seen, node: int, missing: Step) -> Iterator[str]:
    """Yield the non-zero counters that can explain why the packet did not reach that step."""
    counters = run.counters[node] if run.counters else {}
    if missing == Step.AGG_LEFT:
        yield from _nonzero(f"node {node}", counters, "stall_no_word", "stall_fifo_full", "stall_model_wait")
    if missing == Step.AGG_ARRIVED:
        yield from _nonzero(f"link of node {node}, up", run.up[node], "dropped", "fcs_errors")
    if missing in (Step.RESULT_ARRIVED, Step.CONFIRM_ARRIVED):
        yield from _nonzero("switch", run.switch, "malformed", "foreign")
        for job, counts in run.jobs.items():
            yield from _nonzero(f"switch, job {job}", counts, "stale", "duplicate")
        yield from _nonzero(f"link of node {node}, down", run.down[node], "dropped", "fcs_errors")
        before = Step.AGG_ARRIVED if missing == Step.RESULT_ARRIVED else Step.ACK_LEFT
        yield from _others(run, before)
        yield from _nonzero(f"node {node}", counters, "retransmissions", "round_trip", *_rejected(counters))
    if missing == Step.ACK_LEFT:
        yield from _nonzero(f"node {node}", counters, *_rejected(counters), "stale")


def _rejected(counters: dict[str, int]) -> list[str]:
    return [name for name in counters if name.startswith("bad_")]


def _others(run: Seen, step: Step) -> Iterator[str]:
    """Yield the members for which the switch still waits."""
    late = [str(node) for node, steps in enumerate(run.steps) if step not in steps]
    if late:
        yield f"the switch waits for node {', '.join(late)}: not yet '{step}'"


def _nonzero(where: str, counters: dict[str, int], *names: str) -> Iterator[str]:
    for name in names:
        if counters.get(name):
            yield f"{where}: {name} {counters[name]:,}"
