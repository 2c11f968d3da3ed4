"""Run of ``fanin ring train``: trains, compares, writes the run's folder and prints the summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import CheckFailed
from fanin.report.failure import failure_page
from fanin.ring.page.page import ring_page
from fanin.ring.run.backend import Outputs, Result
from fanin.ring.run.diagnosis import diagnose
from fanin.ring.run.metrics import Metrics, failure_of, metrics_of
from fanin.ring.run.options import Platform, RingOptions
from fanin.ring.run.resume import save_state
from fanin.ring.run.setup import Setup, lacking, resolve, setup_of
from fanin.ring.run.summary import summary
from fanin.runs.call import Call
from fanin.runs.diagnosis import record_of
from fanin.runs.file_options import request_of
from fanin.runs.live import LiveFile, RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.option_tables import option_tables
from fanin.runs.output import (
    DISSECTOR_FILE,
    LINK_LOG,
    PCAP_FILE,
    REPORT_FILE,
    RING_RUN,
    STATE_FILE,
    TRACE_FILE,
    check_capture,
    check_directory,
    json_text,
    keep_capture,
)
from fanin.runs.provenance.document import run_directory
from fanin.runs.unfinished import STOP_EXCEPTIONS, cause_of, raise_stop
from fanin.runs.wave import waveform
from fanin.sim.dissector import link_dissector
from fanin.sim.learning.replica import State
from fanin.sim.link_log import read_link_log

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.waves import Waveform


def execute(options: RingOptions, call: Call, say: Callable[[str], None] = print) -> Result | None:
    """Train, write the run's folder, and ``say`` its summary. Return the result.

    The folder of a failed run has the cause, and the state after the last whole epoch unless the last weights
    differ from the golden model's. Raises InputError for options that do not fit, CheckFailed if the run cannot
    finish or its bits differ.
    """
    output = options.output
    check_directory(output, RING_RUN)
    if options.pcap:
        check_capture(options.pcap, output, RING_RUN)
    options, earlier = resolve(options, call)
    outside = {PCAP_FILE: options.pcap} if options.pcap else {}
    live = LiveFile(output, "ring train", title=str(options.resume or options.data), unit="steps")
    directory = run_directory(output, RING_RUN, request_of(call, options), outside=outside, is_locked=True)
    with waveform(options, rtl=options.on is Platform.RTL) as wave:
        with sole_writer(output), live, RunStatus(live) as status, directory as folder:
            status.stage("reading the samples")
            metrics, result, stop = _fill(folder, setup_of(options, earlier), call, wave, status)
        if call.as_json:
            say(json_text(metrics))
        elif not metrics["error"]:
            say(summary(metrics, output))
        if metrics["error"]:
            message = f"{metrics['error']} (fanin doctor {output} says more)"
            raise_stop(stop or CheckFailed(), message)
        return result


def _fill(
    folder: Path, setup: Setup, call: Call, wave: Waveform | None, status: RunStatus
) -> tuple[Metrics, Result | None, BaseException | None]:
    """Train and write the run's files. Return the metrics, the result, and the failure that stopped the run.

    Raises CheckFailed if the golden model itself cannot be trained with these options.
    """
    status.stage("training in NumPy, to compare with")
    # From the first epoch on, so the state of a resumed run is checked, too.
    references = setup.backend.references(setup.data)
    pcap = setup.options.pcap
    capture = folder / PCAP_FILE if pcap else None
    reporter = _StepReporter(setup, status, [epoch.loss for epoch in references.codec])
    state: State | None
    result: Result | None = None
    stop: BaseException | None = None
    link_log = folder / LINK_LOG
    try:
        outputs = Outputs(capture, link_log, wave)
        result = setup.backend.run(setup.data, setup.state, outputs, reporter)
    except (CheckFailed, *STOP_EXCEPTIONS) as failure:
        stop = failure
        metrics = failure_of(setup, cause_of(stop), reporter.finished)
        state = _last_epoch(setup, reporter.finished)
        diagnosis = diagnose(record_of(metrics), setup.options.output, has_state=state is not None)
        page = failure_page("Training over a ring", metrics, diagnosis.lines, diagnosis.advice(call.argv))
        (folder / REPORT_FILE).write_text(page)
    else:
        metrics = metrics_of(setup, result, references)
        # Weights that differ from the golden model's are never resumed: the run's end would differ, too.
        state = result.state if metrics["bit_exact"] else None
        values = setup.options.as_json() | setup.configuration
        tables = option_tables(RingOptions, values, lacking(setup.options))
        (folder / REPORT_FILE).write_text(ring_page(metrics, result.times, tables))
    (folder / TRACE_FILE).write_text(setup.backend.trace(setup.state, result, read_link_log(link_log)))
    link_log.unlink(missing_ok=True)
    if pcap:
        keep_capture(capture, pcap)
        (folder / DISSECTOR_FILE).write_text(link_dissector())
    if state:
        save_state(folder / STATE_FILE, state)
    (folder / RING_RUN.mark).write_text(json.dumps(metrics, indent=2) + "\n")
    return metrics, result, stop


class _StepReporter:
    """Callback that reports the steps that all nodes have finished; ``finished`` is their number.

    ``losses``: of the golden model after each epoch of the whole training; the nodes' weights are the same.
    """

    def __init__(self, setup: Setup, status: RunStatus, losses: Sequence[float]):
        self.finished = 0
        self._setup, self._status, self._losses, self._reported_epochs = setup, status, losses, 0
        status.expect(setup.steps)
        status.stage("building the simulator")

    def __call__(self, steps: int) -> None:
        self.finished = steps
        setup, status = self._setup, self._status
        epochs = setup.backend.training.epochs
        finished_epochs = (setup.state.step + steps) // setup.data.steps
        for number in range(self._reported_epochs, min(finished_epochs, len(self._losses))):
            status.losses("golden model", number + 1, self._losses[number])
            self._reported_epochs = number + 1
        epoch = min(finished_epochs + 1, epochs)
        text = f"epoch {epoch}/{epochs}: {steps:,} of {setup.steps:,} steps"
        status.advance(steps, text, epoch=f"{epoch}/{epochs}")


def _last_epoch(setup: Setup, steps: int) -> State | None:
    """Return the state after the last whole epoch of a run that made ``steps`` steps; None without such an
    epoch.

    The state is the golden model's: every sum that a node used was compared with it.
    """
    epochs = (setup.state.step + steps) // setup.data.steps
    if not epochs:
        return None
    return setup.backend.golden(setup.data, epochs, setup.state)
