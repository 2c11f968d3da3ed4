"""What the doctor says of a folder, by the command that wrote it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fanin.cli.doctor import first_packet, gradients, ring
from fanin.cli.output import (
    CLASSES_FOLDER,
    CLUSTER_RUN,
    PARAM_SERVER_RUN,
    PLAN,
    RING_RUN,
    RUN,
    STATE_FILE,
    SWEEP,
    Kind,
    is_kind,
    print_json,
    table,
)
from fanin.cli.states import STATES
from fanin.cli.writer import writer_of
from fanin.errors import CheckFailed, InputError
from fanin.records import Record, open_record


def diagnose(folder: Path, *, as_json: bool) -> int:
    """Say it, and return 0. Raises CheckFailed where the run has failed, InputError where it is no run."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    marked = [kind for kind in COMMANDS if (folder / kind.mark).is_file()]
    if not marked:
        marks = ", ".join(dict.fromkeys(kind.mark for kind in COMMANDS))
        raise InputError(
            f"{folder}: no run of fanin train, ps train, ring train, plan or cluster run: "
            f"it holds none of {marks}"
        )
    chosen = next(
        (kind for kind in marked if is_kind(folder, kind)), marked[0]
    )  # which says what is wrong with it
    return COMMANDS[chosen](folder, as_json)


def _train(folder: Path, as_json: bool) -> int:
    run = open_record(folder / RUN.mark)
    if (folder / CLASSES_FOLDER).is_dir():
        parts = sorted((folder / CLASSES_FOLDER).iterdir(), key=lambda part: int(part.name))
        raise InputError(f"{folder}: has a run for each class: name {', '.join(map(str, parts))}")
    nodes = first_packet.diagnose(run)
    error = run.text("error") if "error" in run.value else None
    under_way = error is not None and writer_of(folder) is not None
    if under_way:
        error = None
    if as_json:
        print_json({"error": error, "nodes": [asdict(node) for node in nodes]})
    elif nodes:
        print("\n".join(map(str, nodes)))
    if not as_json:
        _tell_survival(folder, run, error, under_way=under_way)
    if error:
        raise CheckFailed(error)
    return 0


def _tell_survival(folder: Path, run: Record, error: str | None, *, under_way: bool) -> None:
    """Say whether a process trains a run of ``fanin train``, and how it continues where it has stopped."""
    states = run.texts("checkpoints") if "checkpoints" in run.value else ()
    if under_way:
        print("a process is training it")
    elif error and states:
        epoch = int(states[-1].removeprefix(f"{STATES}/epoch").partition("-")[0])
        print(f"{shlex.join(['fanin', 'train', '--resume', str(folder)])} continues after epoch {epoch}")


def _param_server(folder: Path, as_json: bool) -> int:
    found = gradients.diagnose(open_record(folder / PARAM_SERVER_RUN.mark))
    if as_json:
        print_json(asdict(found))
    elif found.workers:
        print(table(found.rows(), indent=""))
    if found.error:
        raise CheckFailed(found.error)
    return 0


def _ring(folder: Path, as_json: bool) -> int:
    found = ring.diagnose(open_record(folder / RING_RUN.mark))
    if as_json:
        print_json(asdict(found))
    else:
        print(f"all nodes have made {found.steps:,} of {found.steps_asked:,} steps")
        if found.nodes:
            print(table(found.rows(), indent=""))
        if found.error and (folder / STATE_FILE).exists():
            print(f"fanin ring train --resume {folder} goes on behind the last whole epoch")
    if found.error:
        raise CheckFailed(found.error)
    return 0


def _cluster(folder: Path, as_json: bool) -> int:
    from fanin.cli.doctor import cluster  # needs the planner's libraries

    found = cluster.diagnose(folder)
    if as_json:
        print_json(asdict(found))
    else:
        print(table(found.rows(), indent=""))
        if found.under_way:
            print("a process is training it")
        if found.command:
            print(f"{found.command} goes on from there")
    if found.error:
        raise CheckFailed(found.error)
    return 0


def _plan(folder: Path, as_json: bool) -> int:
    from fanin.cli.plan.execute import verify  # needs the planner's libraries

    return verify(folder, as_json)


#: What is known by its mark, and who says what became of it.
COMMANDS: dict[Kind, Callable[[Path, bool], int]] = {
    RUN: _train,
    PARAM_SERVER_RUN: _param_server,
    RING_RUN: _ring,
    CLUSTER_RUN: _cluster,
    PLAN: _plan,
    SWEEP: _plan,
}
