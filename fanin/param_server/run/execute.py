"""Run of ``fanin ps train``: trains, writes the run's folder and prints the summary."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.param_server.page.beside import table as beside_table
from fanin.param_server.page.page import param_server_page, stop_lines
from fanin.param_server.page.trace import param_server_trace
from fanin.param_server.run.beside import runs_beside
from fanin.param_server.run.diagnosis import diagnose
from fanin.param_server.run.options import ParamServerOptions
from fanin.param_server.run.setup import Setup, backend_of, batches_per_epoch, lacking, learner_of, setup_of
from fanin.report.failure import failure_page
from fanin.report.unit import Unit
from fanin.runs.call import Call
from fanin.runs.diagnosis import record_of
from fanin.runs.file_options import request_of
from fanin.runs.live import LiveFile, RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.option_tables import option_tables
from fanin.runs.output import (
    LINK_LOG,
    PARAM_SERVER_RUN,
    PCAP_FILE,
    REPORT_FILE,
    TRACE_FILE,
    WEIGHTS_FILE,
    check_capture,
    check_directory,
    finite,
    json_text,
    keep_capture,
    table,
)
from fanin.runs.provenance.document import run_directory
from fanin.runs.ranks import MeetingTimes
from fanin.runs.unfinished import RESUMABLE, STOP_EXCEPTIONS, cause_of, raise_stop
from fanin.runs.wave import waveform
from fanin.sim.learning.learner import Training
from fanin.sim.learning.workloads import Workload
from fanin.sim.link_log import read_link_log
from fanin.sim.param_server.breakdown import server_seconds, waiting_beside_work, worker_seconds
from fanin.sim.param_server.training import Epoch, Outcome

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.run import RunResult
    from fanin.sim.cosim.waves import Waveform

SHOWN_EPOCHS = 20
UNANSWERED = "a write that was not answered"
LOSS = "the servers' model"
STEPS = 500  # updates of the progress line per run

Metrics = dict[str, Any]


def execute(options: ParamServerOptions, call: Call, say: Callable[[str], None] = print) -> list[Outcome]:
    """Train, write the run's folder, and ``say`` its summary. Return the outcome, then those of ``--beside``.

    Raises CheckFailed if gradients were lost or repeated, or w diverged; InputError for options that do not
    fit.
    """
    output = options.output
    check_directory(output, PARAM_SERVER_RUN)
    if options.pcap:
        check_capture(options.pcap, output, PARAM_SERVER_RUN)
    with waveform(options, rtl=options.on == "rtl") as wave:
        return _run(options, call, say, output, wave)


def _run(
    options: ParamServerOptions,
    call: Call,
    say: Callable[[str], None],
    output: Path,
    wave: Waveform | None,
) -> list[Outcome]:
    """Train, write the run's folder and print the summary; return all outcomes. Raises as ``execute``."""
    setups = [setup_of(run_options, call) for run_options in (options, *runs_beside(options))]
    setup = setups[0]
    outside = {PCAP_FILE: options.pcap} if options.pcap else {}
    meetings = MeetingTimes()
    live = LiveFile(output, "ps train", title=setup.options.data, unit="gradients")
    request = request_of(call, options)
    directory = run_directory(output, PARAM_SERVER_RUN, request, outside=outside, is_locked=True)
    with sole_writer(output), live, directory as folder, RunStatus(live) as status:
        status.stage("reading the samples")
        outputs = {"pcap": folder / PCAP_FILE if options.pcap else None, "link_log": folder / LINK_LOG}
        learner = _learner(setup, status)
        tracked_runs = _tracked_runs(setups, options.beside or (), learner.workload, status)
        outcomes, stop = _train_all(tracked_runs, learner, status, finished=meetings.add, wave=wave, **outputs)
        metrics = _metrics(tracked_runs, outcomes, stop)
        if outcomes:
            tables = option_tables(ParamServerOptions, setup.options.as_json(), lacking(setup.options))
            page = param_server_page(metrics, outcomes, tables)
            np.save(folder / WEIGHTS_FILE, outcomes[0].w)
        else:
            diagnosis = diagnose(record_of(metrics))
            page = failure_page(
                "Training with a parameter server", metrics, diagnosis.lines, diagnosis.advice(call.argv)
            )
        if options.pcap:
            keep_capture(folder / PCAP_FILE, options.pcap)
        log = read_link_log(folder / LINK_LOG)
        sizes = {"workers": setup.job.workers, "servers": setup.job.servers}
        trace = param_server_trace(outcomes[0] if outcomes else None, log, **sizes)
        (folder / TRACE_FILE).write_text(trace)
        (folder / LINK_LOG).unlink(missing_ok=True)
        (folder / PARAM_SERVER_RUN.mark).write_text(json.dumps(metrics, indent=2) + "\n")
        (folder / REPORT_FILE).write_text(page)
    if call.as_json:
        say(json_text(metrics))
    elif not stop:
        say(summary(metrics, output, meetings.facts()))
    if stop:
        cause = tracked_runs[len(outcomes)].name + cause_of(stop)
        raise_stop(stop, f"{cause} (fanin doctor {output} says more)")
    if metrics["error"]:
        raise CheckFailed(metrics["error"])
    return outcomes


def _train_all(
    tracked_runs: Sequence[_TrackedRun],
    learner: Training,
    status: RunStatus,
    *,
    finished: Callable[[RunResult], None],
    **outputs: Any,
) -> tuple[list[Outcome], BaseException | None]:
    """Train all runs; return the outcomes of the finished ones, and the failure that stopped the next run.

    ``learner`` is that of the first run, which alone has ``outputs``.
    """
    outcomes: list[Outcome] = []
    try:
        outcomes.append(tracked_runs[0].train(learner, finished=finished, **outputs))
        for tracked in tracked_runs[1:]:
            outcomes.append(tracked.train(_learner(tracked.setup, status), finished=finished))
    except (CheckFailed, *STOP_EXCEPTIONS) as failure:
        return outcomes, failure
    return outcomes, None


def _tracked_runs(
    setups: Sequence[Setup], entries: Sequence[str], workload: Workload, status: RunStatus
) -> list[_TrackedRun]:
    """Return all runs in order: the first one and those of ``--beside``, which train the same workload.

    Raises InputError for a run with impossible sizes, before any run begins.
    """
    tracked_runs: list[_TrackedRun] = []
    for setup, entry in zip(setups, ("", *entries), strict=True):
        batches = batches_per_epoch(setup, workload)
        previous = sum(tracked.total for tracked in tracked_runs)
        tracked_runs.append(_TrackedRun(setup, entry, status, batches, previous_gradients=previous))
    status.expect(sum(tracked.total for tracked in tracked_runs))
    return tracked_runs


def _learner(setup: Setup, status: RunStatus) -> Training:
    """Return the learner, with w* if requested."""
    learner = learner_of(setup)
    if learner.convergence:
        status.stage("looking for w*, which --no-optimum leaves out")
        _ = learner.workload.optimum  # cached; otherwise the end of the first epoch would compute it
    return learner


class _TrackedRun:
    """A run with its progress: gradients ``applied`` of all workers, and simulated ``seconds``.

    - ``entry``: the run's entry in ``--beside``; empty for the first run.
    - ``batches``: mini-batches per worker and epoch.
    - ``previous_gradients``: gradients of the runs before this one.
    """

    def __init__(self, setup: Setup, entry: str, status: RunStatus, batches: int, *, previous_gradients: int):
        self.setup = setup
        #: Prefix of the run's messages.
        self.name = f"--beside {entry}: " if entry else ""
        self.applied, self.seconds = 0, 0.0
        self._status, self._previous_gradients, self._last_step = status, previous_gradients, -1
        self._series = f"{LOSS}, {entry}" if entry else LOSS
        self._reported_epochs = 0  # epochs whose loss has been reported
        #: Gradients per worker, and of all workers.
        self.gradients_each = setup.job.epochs * batches
        self.total = self.gradients_each * setup.job.workers

    def train(self, learner: Training, **outputs: Any) -> Outcome:
        """Run; ``outputs`` are those of ``backend_of``. Raises CheckFailed if the run cannot finish."""
        backend = backend_of(self.setup, **outputs)
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging model is reported at the end
            return backend(self.setup.job, learner, progress=self._progress)

    def _progress(self, applied: int, seconds: float, finished: Sequence[Epoch]) -> None:
        self.applied, self.seconds = applied, seconds
        total, epochs = self.total, self.setup.job.epochs
        if (step := STEPS * applied // total) > self._last_step:
            self._last_step = step
            epoch = min(epochs * applied // total + 1, epochs)
            simulated = {"simulated": Unit.of(seconds)(seconds)} if math.isfinite(seconds) else {}
            time = "".join(f", {time} simulated" for time in simulated.values())
            text = f"{self.name}epoch {epoch}/{epochs}: {applied:,} of {total:,} gradients{time}"
            for finished_epoch in finished[self._reported_epochs :]:
                if finished_epoch.measures:
                    self._status.losses(self._series, finished_epoch.number, finished_epoch.measures.loss)
            self._reported_epochs = len(finished)
            self._status.advance(
                self._previous_gradients + applied, text, epoch=f"{epoch}/{epochs}", **simulated
            )


def _metrics(
    tracked_runs: Sequence[_TrackedRun], outcomes: Sequence[Outcome], stop: BaseException | None
) -> Metrics:
    """Return the first run as JSON, with the runs beside it inside; ``error`` names the failed run.

    ``outcomes``: of the finished runs. ``stop``: the failure that stopped the next run, if any.
    """
    runs = [
        metrics_of(tracked.setup, outcome) for tracked, outcome in zip(tracked_runs, outcomes, strict=False)
    ]
    if stop:
        runs.append(failure_of(tracked_runs[len(outcomes)], cause_of(stop)))
    errors = [
        tracked.name + run["error"] for tracked, run in zip(tracked_runs, runs, strict=False) if run["error"]
    ]
    if outcomes:
        runs[0] |= {"error": errors[-1 if stop else 0] if errors else None, "beside": runs[1:]}
    if stop and cause_of(stop) in RESUMABLE:
        runs[0]["error"] = cause_of(stop)  # the exact text marks a run that was stopped from outside
    return runs[0]


def failure_of(tracked: _TrackedRun, error: str) -> Metrics:
    """Return run.json of an unfinished run."""
    metrics = {
        "error": error,
        "on": tracked.setup.options.on,
        "simulated_seconds": tracked.seconds,
        "gradients_applied": tracked.applied,
        "gradients_each": tracked.gradients_each,
        "configuration": tracked.setup.configuration,
    }
    return finite(metrics)


def metrics_of(setup: Setup, outcome: Outcome) -> Metrics:
    """Return run.json of a finished run; values that are not finite become null."""
    epochs = [
        {
            "epoch": epoch.number,
            "simulated_seconds": epoch.seconds,
            **(asdict(epoch.measures) if epoch.measures else {}),
        }
        for epoch in outcome.epochs
    ]
    last, tally, staleness = epochs[-1], outcome.tally, outcome.staleness
    metrics = {
        "error": _error(outcome),
        "on": setup.options.on,
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        "simulated_seconds": outcome.seconds,
        "gradients_pushed": tally.pushed,
        "gradients_applied": tally.applied,
        "gradients_lost": tally.lost,
        "gradients_repeated": tally.repeated,
        "staleness": {
            "mean": outcome.mean_staleness,
            "max": max(staleness, default=0),
            "histogram": {str(updates): staleness[updates] for updates in sorted(staleness)},
        },
        "worker_seconds": worker_seconds(outcome.spans, setup.job.workers),
        "server_seconds": server_seconds(outcome.server_spans, setup.job.servers, outcome.seconds),
        "waiting_beside_work": waiting_beside_work(outcome.spans, outcome.server_spans),
        "stopped": list(outcome.stopped),
        "gradients_each": outcome.gradients_each,
        "workers": _worker_metrics(setup, outcome),
        "unused_stops": sorted(setup.job.stops.keys() - set(outcome.stopped)),
        "rereads": outcome.rereads,
        "epochs": epochs,
        "configuration": setup.configuration,
    }
    return finite(metrics)


def _worker_metrics(setup: Setup, outcome: Outcome) -> list[Metrics]:
    """Return each worker's progress, and the cause if it stopped."""
    stops = {worker: f"--stop {worker}:{seconds:g}" for worker, seconds in setup.job.stops.items()}
    return [
        {
            "pushed": pushed,
            "applied": list(applied),
            "stopped_by": stops.get(worker, UNANSWERED) if worker in outcome.stopped else None,
        }
        for worker, (pushed, applied) in enumerate(zip(outcome.pushed, outcome.applied, strict=True))
    ]


def _error(outcome: Outcome) -> str | None:
    """Return the defect of the run; None if it has none."""
    lost, repeated = outcome.tally.lost, outcome.tally.repeated
    if lost or repeated:
        return f"{lost:,} gradients were lost, {repeated:,} applied again"
    if not np.isfinite(outcome.w).all():
        return "the model diverged: it has values that are not finite; choose a smaller --lr"
    return None


def summary(metrics: Metrics, output: Path, rank_facts: list[list[str]]) -> str:
    """Return the summary of a run; ``rank_facts``: rows about the ranks' meetings."""
    options, staleness = metrics["configuration"], metrics["staleness"]
    unit = Unit.of(metrics["simulated_seconds"])
    platform = {"rtl": "in RTL", "model": "on the event model"}[metrics["on"]]
    counts = [
        f"{metrics[f'gradients_{count}']:,} {count}" for count in ("pushed", "applied", "lost", "repeated")
    ]
    if metrics["stopped"]:
        counts[0] += " by those that continued"
    facts = [
        ["test accuracy", f"{100 * metrics['accuracy']:.1f} %"],
        ["gradients", ", ".join(counts) + (f", in {options['servers']} parts each" * (options["servers"] > 1))],
        ["staleness", f"{staleness['mean']:.1f} updates by others on average, at most {staleness['max']}"],
        ["simulated", f"{unit(metrics['simulated_seconds'])}, {platform}"],
        *rank_facts,
        ["report", str(output / REPORT_FILE)],
    ]
    servers = f"{options['servers']} server{'s' * (options['servers'] != 1)}"
    workers = f"{options['workers']} worker{'s' * (options['workers'] != 1)}"
    sizes = f"{workers}, {servers}, K = {options['slots']}, batches of {options['batch']}"
    title = f"{options['model']} on {options['data']}, {options['algorithm']}: {sizes}"
    lines = [f"  {line}" for line in stop_lines(metrics)]
    notes = [*lines, ""] if lines else []
    comparison = ["", table(beside_table([metrics, *metrics["beside"]]))] if metrics["beside"] else []
    return "\n".join([title, "", _epochs(metrics["epochs"], unit), "", *notes, table(facts), *comparison])


def _epochs(epochs: list[Metrics], unit: Unit) -> str:
    """Return the table of epochs; of many epochs, evenly spaced ones and the last."""
    rows = [["epoch", "loss", "accuracy", "simulated"]]
    step = -(-len(epochs) // SHOWN_EPOCHS)
    for epoch in epochs:
        if epoch["epoch"] % step == 0 or epoch is epochs[-1]:
            loss = "not finite" if epoch["loss"] is None else f"{epoch['loss']:.4f}"
            accuracy = f"{100 * epoch['accuracy']:.1f} %"
            rows.append([str(epoch["epoch"]), loss, accuracy, unit(epoch["simulated_seconds"])])
    return table(rows, right=range(4))
