"""Files that ``fanin train`` writes into a run's folder; each is written whole or not at all."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from fanin.base.scratch import write_file
from fanin.doctor.finding import record_of, train_finding
from fanin.glm.golden.model import GlmModel
from fanin.glm.page.page import render
from fanin.glm.page.run import report_of
from fanin.glm.page.trace import train_trace
from fanin.glm.run.restarts import Attempts
from fanin.p4.companions import dissector
from fanin.p4.deployment import deployment_json
from fanin.p4.emit import program_text
from fanin.report.failure import failure_page
from fanin.runs.call import Call
from fanin.runs.output import (
    JOB_FILE,
    MODEL_FILE,
    PCAP_FILE,
    PROGRAM_FILE,
    REPORT_FILE,
    RUN_FILE,
    SWITCH_DISSECTOR_FILE,
    TRACE_FILE,
)
from fanin.runs.unfinished import UNENDED, cause_of
from fanin.sim.capture import read_capture
from fanin.sim.cosim.process import result_of
from fanin.sim.cosim.run import RunResult
from fanin.sim.glm.cosim import deployment_of
from fanin.sim.glm.course import Course
from fanin.sim.glm.result import TrainResult, observations, options_json
from fanin.sim.glm.train import Trainer

#: Fields of run.json that also count what happened before a stop; none is a result of the training.
COUNTED = (
    *("counters", "links", "switch", "jobs", "first_packet", "packets", "retransmissions", "duplicates"),
    *("frames_rejected", "clamps", "cycles", "utilization", "allreduce_ns", "epochs", "restarts", "job"),
)


def write_result(folder: Path, result: TrainResult, attempts: Attempts) -> None:
    """Write the results of a finished run, except its model."""
    write_file(folder / REPORT_FILE, render(report_of(result)))
    if (folder / PCAP_FILE).exists():
        write_file(folder / TRACE_FILE, train_trace(result, read_capture(folder / PCAP_FILE)))
    write_json(folder, result.as_json() | _survived(attempts))


def write_unended(folder: Path, trainer: Trainer, attempts: Attempts | None = None) -> None:
    """Write run.json of an unfinished run, with its states."""
    document = {"error": UNENDED, "options": options_json(trainer.options)}
    write_json(folder, document | observations(trainer.partial(RunResult())) | _survived(attempts))


def write_failure(
    folder: Path,
    trainer: Trainer,
    stop: BaseException,
    call: Call,
    output: Path,
    attempts: Attempts | None = None,
) -> None:
    """Write the results known of a run that was stopped early. ``output``: the folder's path for users."""
    document = {"error": cause_of(stop), "options": options_json(trainer.options)}
    document |= observations(trainer.partial(result_of(stop) or RunResult()))
    finding = train_finding(record_of(document | _survived(attempts)), output)
    title = f"Training on {trainer.options.data}"
    write_file(
        folder / REPORT_FILE,
        failure_page(title, document, finding.lines, finding.advice(call.argv, keeps_states=True)),
    )
    write_json(folder, document | _survived(attempts))


def _survived(attempts: Attempts | None) -> dict[str, Any]:
    """Return states and restarts of a run whose folder is written during the run."""
    if attempts is None or not attempts.survival.lasting:
        return {}
    survival = attempts.survival
    job = {"job": survival.job} if survival.joined else {}
    return {"checkpoints": attempts.states(), "restarts": survival.restarts, **job}


def write_model(folder: Path, model: GlmModel) -> None:
    """Write the model file."""
    content = io.BytesIO()
    model.save(content)
    write_file(folder / MODEL_FILE, content.getvalue())


def write_switch(folder: Path, trainer: Trainer, course: Course) -> None:
    """Write the switch's program and its job, for ``fanin p4 run --recorded``."""
    deployment = deployment_of(trainer.nodes.program(trainer.options.network), course)
    assert deployment.program is not None
    write_file(folder / PROGRAM_FILE, program_text(deployment.program))
    write_file(folder / SWITCH_DISSECTOR_FILE, dissector(deployment.program))
    write_file(folder / JOB_FILE, deployment_json(deployment))


def write_json(folder: Path, value: dict[str, Any]) -> None:
    """Write ``run.json``."""
    write_file(folder / RUN_FILE, json.dumps(value, indent=2) + "\n")
