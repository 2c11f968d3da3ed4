"""The command ``fanin cluster run``: train, compare with the golden model, write the run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fanin.base.errors import CheckFailed
from fanin.base.scratch import write_file
from fanin.cnn.page.page import cnn_page
from fanin.cnn.run.checkpoint import Checkpoint, save_checkpoint
from fanin.cnn.run.conditions import check_conditions
from fanin.cnn.run.diagnosis import diagnose
from fanin.cnn.run.folder import BUILD, state_file
from fanin.cnn.run.loop import Loop
from fanin.cnn.run.machine import RTL
from fanin.cnn.run.metrics import Metrics, metrics_of
from fanin.cnn.run.models import machines_of
from fanin.cnn.run.options import FRAMES, ClusterOptions
from fanin.cnn.run.setup import Setup, setup_of, training_of
from fanin.cnn.run.summary import summary
from fanin.report.failure import failure_page
from fanin.runs.call import Call
from fanin.runs.diagnosis import argv_of, options_in
from fanin.runs.file_options import request_of
from fanin.runs.live import LiveFile, RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import list_files
from fanin.runs.option_tables import option_tables
from fanin.runs.output import CLUSTER_RUN, REPORT_FILE, TRACE_FILE, check_directory, json_text
from fanin.runs.provenance.document import renew_results, run_directory
from fanin.runs.ranks import refuse_ranks
from fanin.runs.unfinished import STOP_EXCEPTIONS, UNFINISHED, cause_of, raise_stop
from fanin.runs.wave import waveform

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.cnn.run.rtl import Rtl

LOSS = "mean of the epoch's frames"  # each frame's loss is measured when it is trained on


def execute(options: ClusterOptions, call: Call, say: Callable[[str], None] = print) -> Checkpoint | None:
    """Train, write the run's folder, and print a summary with ``say``. Return the last checkpoint.

    Raises CheckFailed if training fails or a bit differs, InputError for invalid options.

    The folder of a failed or interrupted run has the cause in run.json, and all checkpoints until then.
    """
    output = options.output
    check_directory(output, CLUSTER_RUN)
    training_of(options)  # errors in options come before the plan and the images are read
    check_conditions(options)
    if options.on != RTL:
        refuse_ranks(call, f"--on {options.on}")
    live = live_file(output, "run", options.data)
    with sole_writer(output), live, waveform(options, rtl=options.on == RTL) as wave:
        with RunStatus(live) as status:
            with run_directory(output, CLUSTER_RUN, request_of(call, options), is_locked=True) as folder:
                status.stage("building")
                setup = setup_of(options, folder / BUILD)
                setup = replace(setup, conditions=replace(setup.conditions, wave=wave))
                recorder = RunRecorder(output, setup, status)
                write_metrics(folder, recorder.metrics(UNFINISHED))
            list_files(output, CLUSTER_RUN.files)
            error = recorder.train()
        finish(recorder, error, call.as_json, say)
        return recorder.state


def live_file(folder: Path, part: str, data: str) -> LiveFile:
    """Return the live file of a ``fanin cluster`` command that trains on ``data``."""
    return LiveFile(folder, f"cluster {part}", title=data, unit="frames")


class RunRecorder:
    """Training run that writes each checkpoint, then ``run.json``, to its folder.

    A killed run therefore loses only the work after its last checkpoint.

    ``states``: file names of all checkpoints of the run.
    """

    def __init__(self, folder: Path, setup: Setup, status: RunStatus):
        self.folder, self.setup = folder, setup
        self.states = list(setup.earlier.states)
        self.state: Checkpoint | None = None  #: last checkpoint that this process has written
        self._status = status
        status.expect(setup.training.epochs * len(setup.data.train))
        status.stage("building the simulator")
        self._loop = Loop(setup, machines_of(setup), self._write_checkpoint, self._progress)
        for epoch in setup.earlier.epochs:
            status.losses(LOSS, epoch["epoch"], epoch[setup.on]["loss"])

    def metrics(self, error: str | None) -> Metrics:
        """Return the current contents of ``run.json``. ``error``: cause of an unfinished run."""
        return metrics_of(self.setup, self._loop, self.states, error)

    def train(self) -> BaseException | None:
        """Train to the end. Return the exception that stopped the run, or None."""
        try:
            self._loop.run()
        except (CheckFailed, *STOP_EXCEPTIONS) as error:
            return error
        return None

    def trace(self) -> str | None:
        """Return the timeline of this process's jobs on RTL; None without RTL."""
        machine = self._loop.machines.get(RTL)
        if machine is None:
            return None
        resumption = {"goes_on_from": self.setup.earlier.states[-1]} if self.setup.earlier.states else {}
        return cast("Rtl", machine).trace.text(**resumption)

    def meetings(self) -> list[list[str]]:
        """Return rows of the summary on the meetings of RTL's ranks; empty without RTL."""
        machine = self._loop.machines.get(RTL)
        return cast("Rtl", machine).meetings.facts() if machine else []

    @property
    def last(self) -> str:
        """Clause for messages that names the path of the last checkpoint."""
        return f"the last state is {self.folder / self.states[-1]}" if self.states else "it has no state"

    def _write_checkpoint(self, state: Checkpoint) -> None:
        name = state_file(state.info.place)
        list_files(self.folder, [name])
        save_checkpoint(self.folder / name, self.setup.network, state)
        self.states.append(name)
        self.state = state
        write_metrics(self.folder, self.metrics(UNFINISHED))
        tally = state.info.tallies.get(self.setup.on)
        if tally and tally.frames:
            epochs = state.info.place.trained(len(self.setup.data.train)) / len(self.setup.data.train)
            self._status.losses(LOSS, epochs, tally.loss / tally.frames)

    def _progress(self, frames: int) -> None:
        epochs = self.setup.training.epochs
        epoch = min(frames // len(self.setup.data.train) + 1, epochs)
        self._status.advance(
            frames, f"epoch {epoch}/{epochs}: {frames:,} frames trained", epoch=f"{epoch}/{epochs}"
        )


def finish(
    recorder: RunRecorder, error: BaseException | None, as_json: bool, say: Callable[[str], None] = print
) -> None:
    """Write report, timeline and run.json of a run, and print its summary with ``say``.

    A finished run's run.json is written last: with it, ``fanin cluster resume`` writes nothing more.

    ``error``: exception that has stopped the run, which is raised again; None for a finished run.
    """
    metrics = recorder.metrics(cause_of(error) if error else None)
    if error:
        write_metrics(recorder.folder, metrics)  # the page of a failure is made from it
    write_file(
        recorder.folder / REPORT_FILE,
        _page(recorder.folder, metrics) if metrics["epochs"] else _failure_page(recorder.folder, metrics),
    )
    if trace := recorder.trace():
        write_file(recorder.folder / TRACE_FILE, trace)
    if not error:
        write_metrics(recorder.folder, metrics)
    renew_results(recorder.folder, CLUSTER_RUN)
    if as_json:
        say(json_text(metrics))
    elif not error:
        say(summary(metrics, recorder.folder, recorder.meetings()))
    if error:
        raise_stop(error, f"{metrics['error']}; {recorder.last}")


def _page(folder: Path, metrics: Metrics) -> str:
    """Return the page of a run; a resumed run's options are those that its folder records."""
    lacking = () if metrics["connections"] else (FRAMES,)
    return cnn_page(metrics, option_tables(ClusterOptions, options_in(folder), lacking))


def _failure_page(folder: Path, metrics: Metrics) -> str:
    diagnosis = diagnose(folder, writing=True)
    return failure_page("A network on a cluster", metrics, diagnosis.lines, diagnosis.advice(argv_of(folder)))


def write_metrics(folder: Path, metrics: Metrics) -> None:
    """Write ``run.json`` atomically."""
    write_file(folder / CLUSTER_RUN.mark, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")
