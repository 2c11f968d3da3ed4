"""Diagnosis of a folder by the command that wrote it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from fanin.base.errors import CheckFailed, InputError
from fanin.base.records import open_record
from fanin.doctor.finding import Finding, argv_of, param_server_finding, ring_finding, train_finding
from fanin.doctor.life import Life, life_of
from fanin.runs.output import (
    CLASSES_FOLDER,
    CLUSTER_RUN,
    PARAM_SERVER_RUN,
    PLAN,
    RING_RUN,
    RUN,
    STATE_FILE,
    SWEEP,
    Kind,
    class_folders,
    is_kind,
    print_json,
)
from fanin.runs.unfinished import UNENDED

KINDS = (RUN, PARAM_SERVER_RUN, RING_RUN, CLUSTER_RUN, PLAN, SWEEP)


def diagnose(folder: Path, *, as_json: bool) -> int:
    """Print the diagnosis; return 0. Raises CheckFailed for a failed run, InputError for another folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    life = life_of(folder)
    if life and not life.has_written(folder):
        finding = Finding(life.error, {"error": life.error}, [])  # run.json is of an earlier run, if present
    else:
        kind = _kind(folder)
        if kind in (PLAN, SWEEP):
            from fanin.cnn.plan.execute import verify  # needs the planner's libraries

            return verify(folder, as_json)
        finding = _lived(_finding(folder, kind, unended=life is not None), life)
    own = life is None or life.has_written(folder)  # otherwise the folder's files are of an earlier run
    argv = argv_of(folder) if own else None
    command = life.command if life else (argv or [""])[0]
    advice = None if life and life.running else finding.advice(argv, keeps_states=command == "train")
    if as_json:
        print_json({**finding.facts, "process": asdict(life) if life else None, "advice": advice})
    else:
        lines = [*(life.lines() if life else ()), *finding.lines, *([advice] if advice else ())]
        print("".join(f"{line}\n" for line in lines), end="")
    if finding.error:
        raise CheckFailed(finding.error)
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


def _finding(folder: Path, kind: Kind, *, unended: bool) -> Finding:
    """Return the finding of a run by its files; ``unended``: it runs or was killed. Raises InputError."""
    if kind is CLUSTER_RUN:
        from fanin.doctor.cluster import cluster_finding  # needs the planner's libraries

        return cluster_finding(folder)
    record = open_record(folder / kind.mark)
    if kind is PARAM_SERVER_RUN:
        return param_server_finding(record)
    if kind is RING_RUN:
        return ring_finding(record, folder, state=(folder / STATE_FILE).exists())
    if not unended and (parts := class_folders(folder)):
        raise InputError(f"{folder}: has a run for each class: name {', '.join(map(str, parts))}")
    return train_finding(record, folder.parents[1] if folder.parent.name == CLASSES_FOLDER else folder)


def _lived(finding: Finding, life: Life | None) -> Finding:
    """Add the state of the process: none has an error while it runs; a killed one is reported as gone."""
    if life is None or (not life.running and finding.error not in (None, UNENDED)):
        return finding
    error = life.error
    facts = finding.facts | {"error": error}
    return replace(finding, error=error, facts=facts)
