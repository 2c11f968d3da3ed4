"""Page of a GLM training: losses, timeline of micro-batches, AllReduce latencies, stalls, counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.glm.page import charts
from fanin.glm.page.charts import Span
from fanin.report.html import Rows, Tables, fill, joined
from fanin.sim.glm.course import Timeline
from fanin.sim.glm.result import TrainResult

TIMELINE_NODES = 4
TIMELINE_BARS = 12  # micro-batches per node: more bars would be too narrow to read
# Stage: its first event, its last event (each counts micro-batches in order), and the events' delay in cycles.
_STAGES = {
    "F": ("forward_first", "forward_last", 1),
    "C": ("agg", "fa", 0),
    "B": ("backward_first", "backward_last", 1),
}
_WORD, _ITEM = "word taken", "item taken"
# Cause of an engine cycle: its counter, and the style that colours it; the rest is the end of each epoch.
_CAUSES = {
    _WORD: ("words", "forward"),
    "model waits for its gradient": ("stall_model_wait", "communication"),
    "no word from memory": ("stall_no_word", "waiting"),
    "replay FIFO full": ("stall_fifo_full", "blocked"),
    "PA queue full": ("stall_pa_full", "sum"),
}
_OTHER = "epoch's start and end"


def train_page(result: TrainResult, options: Tables) -> str:
    """Render the run as one HTML document without external references. ``options``: its options."""
    training, run = result.training, result.run
    losses = {
        "run": [epoch.loss for epoch in result.epochs],
        "golden": result.golden_loss,
        "binary64": result.float64_loss,
    }
    fits = {"run": [epoch.fit for epoch in result.epochs], "binary64": result.float64_fit}
    timeline = _timeline(result)
    percentiles = {f"p{share}": result.percentile(share) for share in (50, 99)}
    causes = {_name(cause, result): style for cause, (_, style) in _CAUSES.items()} | {_OTHER: "overhead"}
    return fill(
        "glm.html.j2",
        title=f"{training.data}: {_task(result)}, {_count(training.workers, 'worker')}{_local_nodes(result)}",
        bit_exact=result.bit_exact,
        verdict="bit-exact with the golden model" if result.bit_exact else "differs from the golden model",
        warning=result.warning,
        headline=_headline(result),
        measure=result.measure.name,
        loss=charts.loss_chart(losses),
        beside=[charts.difference_chart(losses), charts.fit_chart(fits, result.measure)],
        timeline=charts.timeline_chart(timeline, 1000 / training.clock_mhz) if timeline else None,
        window=_window_text(len(run.counters)),
        latency=charts.histogram_chart(run.allreduce_ns.tolist(), percentiles, "ns"),
        stalls=charts.stall_chart(_stalls(result), causes),
        configuration=joined(options, _facts(result)),
        counters=_counters(result),
        epochs=_epochs(result),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _local_nodes(result: TrainResult) -> str:
    """Return text about the workers of the simulated nodes; empty if all workers were simulated here."""
    local_workers = result.training.network.here
    nodes = ", ".join(f"node {index} here is worker {worker}'s" for index, worker in enumerate(local_workers))
    return f" ({nodes})" if local_workers else ""


def _task(result: TrainResult) -> str:
    loss, label = f"{result.training.loss.key} loss", result.against_the_rest
    return loss if label is None else f"{label} against the rest, {loss}"


def _headline(result: TrainResult) -> Rows:
    fit = "–" if result.test_fit is None else result.measure.text(result.test_fit)
    return [
        (f"test {result.measure.name}", fit),
        ("loss", result.measure.loss_text(result.epochs[-1].loss)),
        ("cycles", f"{result.cycles:,}"),
        ("utilisation", f"{100 * result.cycles_ideal / result.cycles:.1f} %"),
        ("AllReduce p50", f"{result.percentile(50):,.0f} ns"),
        ("retransmissions", f"{result.total('retransmissions'):,}"),
    ]


def _timeline(result: TrainResult) -> list[Span]:
    """Return the spans to draw; without C for data-parallel nodes, which send gradients, not micro-batches."""
    if result.run.timeline is None:
        return []
    all_spans = spans(result.run.timeline, result.shape.micro_batches)
    return [span for span in all_spans if span.stage != "C" or not result.shape.data_parallel]


def _window_text(workers: int) -> str:
    """Return in words which part of the run the timeline shows."""
    nodes = "all nodes" if workers <= TIMELINE_NODES else f"the first {TIMELINE_NODES} of {workers} nodes"
    return f"the first {TIMELINE_BARS} micro-batches of {nodes} (trace.json has more)"


def spans(timeline: Timeline, micro_batches: int) -> list[Span]:
    """Return spans of the first micro-batches of the first nodes; ``micro_batches`` is M, per mini-batch.

    Cycle 0 is the first word that any node takes.
    """
    node_spans = stage_spans(timeline, micro_batches, nodes=TIMELINE_NODES, max_micro_batches=TIMELINE_BARS)
    origin = min((span.start for span in node_spans), default=0)
    return [
        Span(s.node, s.stage, s.mini_batch, s.micro_batch, s.start - origin, s.end - origin) for s in node_spans
    ]


def stage_spans(
    timeline: Timeline, micro_batches: int, *, nodes: int, max_micro_batches: int | None = None
) -> list[Span]:
    """Return spans of the first ``nodes`` nodes, in cycles of the run.

    ``max_micro_batches``: limit per node; None for all.
    """
    stages = []
    for node in range(nodes):
        for stage, (first_event, last_event, delay) in _STAGES.items():
            begin, end = (
                _cycles(timeline, node, name, delay, max_micro_batches) for name in (first_event, last_event)
            )
            for index, (first, last) in enumerate(zip(begin, end, strict=False)):
                mini_batch, micro_batch = divmod(index, micro_batches)
                stages.append(Span(node, stage, mini_batch, micro_batch, first, last + 1))
    return stages


def _cycles(timeline: Timeline, node: int, name: str, delay: int, max_events: int | None) -> list[int]:
    """Return the cycles of a node's first ``max_events`` events ``name``, minus their ``delay`` in cycles."""
    mask = (timeline.node == node) & (timeline.event == timeline.names.index(name))
    return [int(cycle) - delay for cycle in timeline.cycle[mask][:max_events]]


def _stalls(result: TrainResult) -> list[dict[str, int]]:
    """Return each node's engine cycles by cause."""
    causes = {_name(cause, result): counter for cause, (counter, _) in _CAUSES.items()}
    nodes = []
    for worker, counters in zip(_workers(result), result.run.counters, strict=False):
        parts = {cause: counters[counter] for cause, counter in causes.items()}
        if result.layout and result.layout.is_sparse:
            parts[_ITEM] += len(result.epochs) * result.layout.wordless_items(worker)
        engine_cycles = counters["cycles"] * result.training.node.engines
        nodes.append(parts | {_OTHER: max(engine_cycles - sum(parts.values()), 0)})
    return nodes


def _name(cause: str, result: TrainResult) -> str:
    """Return a cause of a cycle; of sparse samples, an engine also takes items without a word."""
    return _ITEM if cause == _WORD and result.training.node.sparse else cause


def _workers(result: TrainResult) -> Sequence[int]:
    """Return the workers of the nodes here."""
    return result.training.network.here or range(result.training.workers)


def _facts(result: TrainResult) -> Tables:
    """Return rows about the data, the supported λ, the nodes and the measured round trip, by heading."""
    shape, network = result.shape, result.training.network
    adaptive = f"follows the round trips, up to {network.ceiling_ns:,.0f} ns"
    return {
        "Run": [("samples × columns", f"{shape.samples:,} × {result.columns:,}")],
        "Model": [("l2, rounded", f"{result.l2:.4g}")],
        "Hardware": [
            ("features per word", str(result.training.node.lanes)),
            *([("samples", result.layout_text)] * bool(result.layout_text)),
            ("words a micro-batch C·s", f"{shape.words_per_micro_batch:,}"),
            ("Verilog, SHA-256", f"{result.verilog_sha256[:12]}…"),
        ],
        "Network": [
            *([("timeout", adaptive)] if network.adaptive else []),
            ("round trip", _round_trip(result)),
        ],
    }


def _round_trip(result: TrainResult) -> str:
    """Return the longest smoothed round trip of all nodes, with its deviation, in cycles."""
    counters = max(result.run.counters, key=lambda node: node["round_trip"])
    return f"{counters['round_trip']:,} ± {counters['round_trip_deviation']:,} cycles"


def _counters(result: TrainResult) -> dict[str, list[list[str]]]:
    raw, nodes = result.run.raw, result.run.counters
    node_rows = [["counter", *(f"node {index}" for index in range(len(nodes)))]]
    node_rows += [[name, *(f"{node[name]:,}" for node in nodes)] for name in nodes[0]]
    tables = {"Nodes": node_rows}
    if raw.links:  # empty on boards: their links are not observed
        link_rows = [["link", "direction", *raw.links[0]["up"]]]
        link_rows += [
            [f"node {node}", direction, *(f"{value:,}" for value in counts.values())]
            for node, link in enumerate(raw.links)
            for direction, counts in link.items()
        ]
        tables["Links"] = link_rows
    if raw.switches:
        return tables | _tree_counters(raw.switches, raw.trunks)
    jobs = {f"job {job}: {name}": value for job, counts in raw.jobs.items() for name, value in counts.items()}
    switch_rows = [["counter", "value"]]
    switch_rows += [[name, f"{value:,}"] for name, value in (raw.switch | jobs).items()]
    return tables | {"Switch": switch_rows}


def _tree_counters(
    switches: Mapping[str, Mapping[str, int]], trunks: Mapping[str, Mapping[str, int]]
) -> dict[str, list[list[str]]]:
    """Return the counters of a tree's switches, a column each, and of the links between them, a row each."""
    counters, frames = next(iter(switches.values())), next(iter(trunks.values()))
    rows = [["counter", *switches]]
    rows += [[name, *(f"{each[name]:,}" for each in switches.values())] for name in counters]
    trunk_rows = [["link to the parent", "direction", *frames]]
    trunk_rows += [
        [*name.split(), *(f"{value:,}" for value in counts.values())] for name, counts in trunks.items()
    ]
    return {"Switches": rows, "Links between switches": trunk_rows}


def _epochs(result: TrainResult) -> list[list[str]]:
    measure = result.measure
    rows = [["epoch", "loss", "float64's", measure.name, "float64's", "cycles"]]
    exact = zip(result.float64_loss, result.float64_fit, strict=True)
    for number, (epoch, (loss, fit)) in enumerate(zip(result.epochs, exact, strict=True), start=1):
        fits = [measure.text(value) for value in (epoch.fit, fit)]
        losses = [measure.loss_text(value, 6) for value in (epoch.loss, loss)]
        rows.append([str(number), *losses, *fits, f"{epoch.cycles:,}"])
    return rows
