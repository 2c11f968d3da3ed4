"""Diagnosis of a run of ``fanin train``: how far each node's first packet got, and counters that say why."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fanin.base.records import Record
from fanin.runs.diagnosis import Diagnosis
from fanin.runs.output import table
from fanin.runs.states import STATES
from fanin.sim.switch.operations import Step, steps_of
from fanin.wire.aggregation import Protocol

_EPOCH = re.compile(rf"{STATES}/epoch(\d{{6,9}})-", re.ASCII)  # name of a state


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
class RunCounters:
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


def switches_of(run: Record) -> list[list[str]]:
    """Return a header and a row per switch of a tree: how far its members' and its parent's packets got.

    Empty for a run with one switch.
    """
    if "switches" not in run.value:
        return []
    switches, trunks = run.record("switches"), run.record("trunks")
    rows = [["switch", *_SWITCH_COLUMNS.values(), "lost up", "lost down"]]
    for name in switches.value:
        counts = switches.record(name).counts(list(_SWITCH_COLUMNS))
        lost = ["–", "–"]
        if f"{name} up" in trunks.value:
            lost = [f"{_lost(trunks, name, way):,}" for way in ("up", "down")]
        rows.append([name, *(f"{counts[key]:,}" for key in _SWITCH_COLUMNS), *lost])
    return rows


#: Columns of a table of switches, by a switch's counter.
_SWITCH_COLUMNS = {
    "aggregated": "AGGs",
    "acknowledged": "ACKs",
    "to_parent": "to parent",
    "to_parent_again": "again",
    "results": "RESULTs",
    "confirms": "CONFIRMs",
}


def waiting_switches(run: Record) -> Iterator[str]:
    """Yield a line for each switch of a tree that waits: for packets of its members, or of its parent.

    A switch whose members wait themselves has no line. A line also has the packets lost on the links to these
    members or to the parent.
    """
    if "switches" not in run.value:
        return
    switches, trunks = run.record("switches"), run.record("trunks")
    counts = {name: switches.record(name).counts(list(_SWITCH_COLUMNS)) for name in switches.value}
    tree = run.record("options").record("network").record("tree")
    members = {name: tree.texts(name) for name in counts}
    if empty := [name for name in counts if not members[name]]:
        raise tree.error(f"switch {empty[0]} must have members")
    parents = {member: name for name in counts for member in members[name] if member in counts}

    def lost(children: Iterable[str], way: str) -> str:
        numbers = {child: _lost(trunks, child, way) for child in children}
        return "".join(f"; {number:,} lost on {child}'s link" for child, number in numbers.items() if number)

    unanswered = dict.fromkeys(counts, 0)  # members' packets that cannot come before the parent's answer
    for kind, sent, answer, answered in (
        ("AGG", "aggregated", "RESULT", "results"),
        ("ACK", "acknowledged", "CONFIRM", "confirms"),
    ):
        rounds = max(-(-counts[name][sent] // len(members[name])) for name in counts)
        lacking = {name: rounds * len(members[name]) - counts[name][sent] for name in counts}
        for name, number in lacking.items():
            below = [member for member in members[name] if member in counts]
            if number > unanswered[name] and not any(lacking[member] for member in below):
                yield f"{name} lacks {number:,} {kind}s of its {len(members[name])} members{lost(below, 'up')}"
        for name, parent in parents.items():
            if (number := counts[parent][answered] - counts[name][answered]) > 0:
                yield f"{name} lacks {number:,} {answer}s of its parent {parent}{lost([name], 'down')}"
                unanswered[name] = number * len(members[name])


def _lost(trunks: Record, switch: str, way: str) -> int:
    """Return the frames lost on a switch's link to its parent; ``way``: ``up`` or ``down``."""
    link = trunks.record(f"{switch} {way}")
    return link.integer("dropped") + link.integer("fcs_errors")


def packets_of(run: Record) -> Packets | None:
    """Return the packets of a run from its ``run.json``; None if nodes or links were not counted."""
    counted = _counters_of(run)
    if not counted.counters or not all("frames" in direction for direction in (*counted.up, *counted.down)):
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
            for counters, up, down in zip(counted.counters, counted.up, counted.down, strict=True)
        ]
    )


def _counters_of(run: Record) -> RunCounters:
    links, jobs = run.records("links"), run.record("jobs")
    counted = RunCounters(
        steps=[steps.counts() for steps in run.records("first_packet")],
        up=[link.record("up").counts() for link in links],
        down=[link.record("down").counts() for link in links],
        counters=[counters.counts() for counters in run.records("counters")],
        switch=run.record("switch").counts(),
        jobs={job: jobs.record(job).counts() for job in jobs.value},
    )
    if not len(counted.steps) == len(links) == (len(counted.counters) or len(links)):
        raise run.error("must have as many first_packet, links and counters, one of a node")
    return counted


def diagnose(run: Record, folder: Path) -> Diagnosis:
    """Diagnose a run from its ``run.json``. Raises InputError for another command's file.

    - ``folder``: the run's folder, for the command that resumes it.
    """
    nodes = diagnose_nodes(run)
    error = run.text("error") if "error" in run.value else None
    packets = packets_of(run)
    states = run.texts("checkpoints") if "checkpoints" in run.value else ()
    resume = None
    if error and states:
        epoch = _EPOCH.match(states[-1])
        if epoch is None:
            raise run.error(f'"checkpoints" must name states, not {states[-1][:40]!r}')
        resume = (
            f"{shlex.join(['fanin', 'train', '--resume', str(folder)])} continues after epoch {int(epoch[1])}"
        )
    lines = [line for node in nodes for line in str(node).split("\n")]
    if error is None:
        epochs, exact = len(run.records("epochs")), run.flag("bit_exact")
        lines.insert(0, f"ended: {epochs:,} epochs, {'' if exact else 'NOT '}bit-exact with the golden model")
    if packets:
        lines += ["", *table(packets.rows(), right=range(1, 8), indent="").split("\n")]
    if switches := switches_of(run):
        lines += ["", *table(switches, right=range(1, len(switches[0])), indent="").split("\n")]
        lines += waiting_switches(run) if error else ()
    facts = {
        "error": error,
        "nodes": [asdict(node) for node in nodes],
        "packets": [asdict(node) for node in packets.nodes] if packets else None,
        **({"switches": run.value["switches"]} if switches else {}),
    }
    return Diagnosis(error, facts, lines, resume)


def diagnose_nodes(run: Record) -> list[NodeDiagnosis]:
    """Diagnose every node of a run from its ``run.json``. Raises InputError for another file."""
    counted, protocol = (
        _counters_of(run),
        run.record("options").record("node").text("protocol", tuple(Protocol)),
    )
    diagnoses, expected = [], steps_of(Protocol(protocol))
    for node, steps in enumerate(counted.steps):
        missing = next((step for step in expected if step not in steps), None)
        reasons = list(_reasons(counted, node, missing)) if missing else []
        diagnoses.append(NodeDiagnosis(node, steps, missing, reasons))
    return diagnoses


def _reasons(run: RunCounters, node: int, missing: Step) -> Iterator[str]:
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
        awaited = Step.AGG_ARRIVED if missing == Step.RESULT_ARRIVED else Step.ACK_LEFT
        yield from _missing_nodes(run, awaited)
        yield from _nonzero(f"node {node}", counters, "retransmissions", "round_trip", *_rejected(counters))
    if missing == Step.ACK_LEFT:
        yield from _nonzero(f"node {node}", counters, *_rejected(counters), "stale")


def _rejected(counters: dict[str, int]) -> list[str]:
    return [name for name in counters if name.startswith("bad_")]


def _missing_nodes(run: RunCounters, step: Step) -> Iterator[str]:
    """Yield the members for which the switch still waits."""
    missing = [str(node) for node, steps in enumerate(run.steps) if step not in steps]
    if missing:
        yield f"the switch waits for node {', '.join(missing)}: not yet '{step}'"


def _nonzero(part: str, counters: dict[str, int], *names: str) -> Iterator[str]:
    for name in names:
        if counters.get(name):
            yield f"{part}: {name} {counters[name]:,}"
