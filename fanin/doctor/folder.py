"""Diagnosis of a folder by the command that wrote it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from fanin.base.errors import CheckFailed, InputError
from fanin.base.records import open_record
from fanin.doctor.life import RunProcess, process_of
from fanin.glm.run import diagnosis as training
from fanin.param_server.run import diagnosis as param_server
from fanin.ring.run import diagnosis as ring
from fanin.runs.diagnosis import Diagnosis, argv_of
from fanin.runs.output import (
    CLASSES_FOLDER,
    CLUSTER_RUN,
    PARAM_SERVER_RUN,
    PLAN,
    PROVENANCE_FILE,
    RING_RUN,
    RUN,
    STATE_FILE,
    SWEEP,
    Kind,
    class_folders,
    is_kind,
    print_json,
)
from fanin.runs.unfinished import UNFINISHED

KINDS = (RUN, PARAM_SERVER_RUN, RING_RUN, CLUSTER_RUN, PLAN, SWEEP)


def print_diagnosis(folder: Path, *, as_json: bool) -> int:
    """Print the diagnosis; return 0. Raises CheckFailed for a failed run, InputError for another folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    process = process_of(folder)
    is_current = process is None or process.has_written(folder)
    if process and not is_current:  # the folder's files are of an earlier run
        diagnosis = Diagnosis(process.error, {"error": process.error}, [])
    else:
        kind = _kind(folder)
        if kind in (PLAN, SWEEP):
            from fanin.cnn.plan.execute import verify  # needs the planner's libraries

            return verify(folder, as_json)
        diagnosis = _with_process(_diagnose(folder, kind, is_unfinished=process is not None), process)
    argv = argv_of(folder) if is_current else None
    command = process.command if process else (argv or [""])[0]
    suggest_checkpoint = command == "train" and not (is_current and _keeps_states(folder))
    advice = None
    if not (process and process.running):
        advice = diagnosis.advice(argv, suggest_checkpoint=suggest_checkpoint)
    if as_json:
        print_json({**diagnosis.facts, "process": asdict(process) if process else None, "advice": advice})
    else:
        lines = [*(process.lines() if process else ()), *diagnosis.lines, *([advice] if advice else ())]
        print("".join(f"{line}\n" for line in lines), end="")
    if diagnosis.error:
        raise CheckFailed(diagnosis.error)
    return 0


def _kind(folder: Path) -> Kind:
    """Return the kind of a folder by its mark. Raises InputError for a folder without one."""
    marked = [kind for kind in KINDS if (folder / kind.mark).is_file()]
    if not marked:
        marks = ", ".join(dict.fromkeys(kind.mark for kind in KINDS))
        raise InputError(
            f"{folder}: no run of fanin train, ps train, ring train, plan or cluster run: "
            f"it holds none of {marks}"
        )
    return next((kind for kind in marked if is_kind(folder, kind)), marked[0])  # errors refer to this kind


def _diagnose(folder: Path, kind: Kind, *, is_unfinished: bool) -> Diagnosis:
    """Diagnose a run by its files; ``is_unfinished``: it runs or was killed. Raises InputError."""
    if kind is CLUSTER_RUN:
        from fanin.cnn.run import diagnosis as cluster  # needs the planner's libraries

        return cluster.diagnose(folder)
    record = open_record(folder / kind.mark)
    if kind is PARAM_SERVER_RUN:
        return param_server.diagnose(record)
    if kind is RING_RUN:
        return ring.diagnose(record, folder, has_state=(folder / STATE_FILE).exists())
    if not is_unfinished and (classes := class_folders(folder)):
        raise InputError(f"{folder}: has a run for each class: name {', '.join(map(str, classes))}")
    return training.diagnose(record, folder.parents[1] if folder.parent.name == CLASSES_FOLDER else folder)


def _keeps_states(folder: Path) -> bool:
    """Whether the command that wrote the folder had an option ``--checkpoint``."""
    try:
        options = open_record(folder / PROVENANCE_FILE).record("options")
    except InputError:
        return False
    return options.value.get("checkpoint") is not None


def _with_process(diagnosis: Diagnosis, process: RunProcess | None) -> Diagnosis:
    """Add the process's state: a run has no error while its process lives, and has ended if it was killed."""
    if process is None or (not process.running and diagnosis.error not in (None, UNFINISHED)):
        return diagnosis
    error = process.error
    facts = diagnosis.facts | {"error": error}
    return replace(diagnosis, error=error, facts=facts)
