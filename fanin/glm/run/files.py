"""Files that ``fanin train`` writes into a run's folder; each is written whole or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fanin.base.scratch import write_file
from fanin.glm.golden.model import GlmModel
from fanin.glm.page.page import train_page
from fanin.glm.page.trace import train_trace
from fanin.glm.run.diagnosis import diagnose
from fanin.glm.run.options import GlmOptions
from fanin.glm.run.setup import lacking
from fanin.glm.run.state import training_of
from fanin.p4.companions import dissector
from fanin.p4.deployment import Deployment, deployment_json
from fanin.p4.emit import program_text
from fanin.p4.tree import deployments
from fanin.report.failure import failure_page
from fanin.runs.call import Call
from fanin.runs.diagnosis import record_of
from fanin.runs.option_tables import option_tables
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
from fanin.runs.unfinished import UNFINISHED, cause_of
from fanin.sim.capture import read_capture
from fanin.sim.cosim.process import result_of
from fanin.sim.cosim.run import RunResult
from fanin.sim.glm.cosim import deployment_of, tree_at
from fanin.sim.glm.course import Course
from fanin.sim.glm.result import TrainResult, observations, options_json
from fanin.sim.glm.train import Trainer
from fanin.tree import Tree

NO_RECOVERY: Mapping[str, Any] = {}  #: fields about states and restarts of a run that has none

#: Fields of run.json that also count events before a stop, so that they differ if the run is repeated whole.
COUNT_FIELDS = (
    *("counters", "links", "switch", "jobs", "switches", "trunks", "first_packet"),
    *("packets", "retransmissions", "duplicates"),
    *("frames_rejected", "clamps", "cycles", "utilization", "allreduce_ns", "epochs", "restarts", "job"),
)


def write_result(
    folder: Path, result: TrainResult, options: GlmOptions, recovery: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the results of a finished run, except its model. Return run.json, which is written last.

    A run.json without an error says that the folder is whole: such a run is never resumed.

    - ``options``: options of the run.
    - ``recovery``: fields of run.json about states and restarts; empty for a run that cannot be resumed.
    """
    values = options.as_json() | training_of(result.training)
    tables = option_tables(GlmOptions, values, lacking(options))
    write_file(folder / REPORT_FILE, train_page(result, tables))
    if (folder / PCAP_FILE).exists():
        network = result.training.network
        below = [] if network.ports else _tree_names(PCAP_FILE, network.tree)
        frames = [read_capture(folder / name) for name in (PCAP_FILE, *below)]
        write_file(folder / TRACE_FILE, train_trace(result, frames))
    return write_json(folder, {**result.as_json(), **recovery})


def write_unfinished(folder: Path, trainer: Trainer, recovery: Mapping[str, Any] = NO_RECOVERY) -> None:
    """Write run.json of an unfinished run. ``recovery``: as in :func:`write_result`."""
    write_json(folder, {**_observed(trainer, UNFINISHED, RunResult()), **recovery})


def write_failure(
    folder: Path,
    trainer: Trainer,
    failure: BaseException,
    call: Call,
    output: Path,
    *,
    recovery: Mapping[str, Any] = NO_RECOVERY,
    suggest_checkpoint: bool,
) -> dict[str, Any]:
    """Write the results known of a run that was stopped early. Return run.json.

    - ``folder``: the folder to write; for a run in one piece, a temporary one.
    - ``output``: the folder's path in messages.
    - ``recovery``: as in :func:`write_result`.
    - ``suggest_checkpoint``: True if the run does not use ``--checkpoint``.
    """
    observed = _observed(trainer, cause_of(failure), result_of(failure) or RunResult())
    diagnosis = diagnose(record_of({**observed, **recovery}), output)
    advice = diagnosis.advice(call.argv, suggest_checkpoint=suggest_checkpoint)
    title = f"Training on {trainer.training.data}"
    write_file(folder / REPORT_FILE, failure_page(title, observed, diagnosis.lines, advice))
    return write_json(folder, {**observed, **recovery})


def _observed(trainer: Trainer, error: str, result: RunResult) -> dict[str, Any]:
    """Return the fields of run.json of a run without its results."""
    return {
        "error": error,
        "options": options_json(trainer.training),
        **observations(trainer.partial(result)),
    }


def write_model(folder: Path, model: GlmModel) -> None:
    """Write the model file."""
    content = io.BytesIO()
    model.save(content)
    write_file(folder / MODEL_FILE, content.getvalue())


def write_switch(folder: Path, trainer: Trainer, course: Course) -> None:
    """Write the switch's program and its job, for ``fanin p4 run --recorded``; of a tree a job per switch."""
    whole, tree = _deployment(trainer, course), _tree(trainer, course)
    program = whole.program
    assert program is not None  # a run's deployment has the nodes' program
    write_file(folder / PROGRAM_FILE, program_text(program))
    write_file(folder / SWITCH_DISSECTOR_FILE, dissector(program))
    parts = [*deployments(tree, program=program).values()] if tree else [whole]
    for name, part in zip([JOB_FILE, *_tree_names(JOB_FILE, tree)], parts, strict=True):
        write_file(folder / name, deployment_json(part))


def tree_files(trainer: Trainer, course: Course) -> list[str]:
    """Return the names of the files of switches below the root; empty for a single switch."""
    tree = _tree(trainer, course)
    return [name for file in (PCAP_FILE, JOB_FILE) for name in _tree_names(file, tree)]


def _deployment(trainer: Trainer, course: Course) -> Deployment:
    """Return program and job of the run's switch; of a tree, the job is that of all workers."""
    return deployment_of(trainer.nodes.program(trainer.training.network), course)


def _tree(trainer: Trainer, course: Course) -> Tree | None:
    """Return the tree with the job of ``course``; None for a single switch."""
    return tree_at(trainer.training.network, _deployment(trainer, course).jobs[0])


def _tree_names(file: str, tree: Tree | None) -> list[str]:
    """Return the names of a file of each switch below the root, such as ``frames-switch-0.pcap``."""
    below = tree.switches[1:] if tree else ()
    return [Path(file).with_stem(f"{Path(file).stem}-{each.name}").name for each in below]


def write_json(folder: Path, value: dict[str, Any]) -> dict[str, Any]:
    """Write ``run.json``. Return its content."""
    write_file(folder / RUN_FILE, json.dumps(value, indent=2) + "\n")
    return value
