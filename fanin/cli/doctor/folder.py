"""What the doctor says of a folder, by the command that wrote it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fanin.cli.doctor import first_packet, gradients
from fanin.cli.output import PARAM_SERVER_RUN, PLAN, RUN, SWEEP, Kind, print_json, table
from fanin.cli.plan.execute import verify
from fanin.errors import CheckFailed, InputError
from fanin.records import open_record


def diagnose(folder: Path, *, as_json: bool) -> int:
    """Say it, and return 0. Raises CheckFailed where the run has failed, InputError where it is no run."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    for kind, command in COMMANDS.items():
        if (folder / kind.mark).is_file():
            return command(folder, as_json)
    marks = ", ".join(kind.mark for kind in COMMANDS)
    raise InputError(f"{folder}: no run of fanin train, ps train or plan: it holds none of {marks}")


def _train(folder: Path, as_json: bool) -> int:
    run = open_record(folder / RUN.mark)
    nodes = first_packet.diagnose(run)
    error = run.text("error") if "error" in run.value else None
    if as_json:
        print_json({"error": error, "nodes": [asdict(node) for node in nodes]})
    else:
        print("\n".join(map(str, nodes)))
    if error:
        raise CheckFailed(error)
    return 0


def _param_server(folder: Path, as_json: bool) -> int:
    found = gradients.diagnose(open_record(folder / PARAM_SERVER_RUN.mark))
    if as_json:
        print_json(asdict(found))
    else:
        print(table(found.rows(), indent=""))
    if found.error:
        raise CheckFailed(found.error)
    return 0


#: What is known by its mark, and who says what became of it.
COMMANDS: dict[Kind, Callable[[Path, bool], int]] = {
    RUN: _train,
    PARAM_SERVER_RUN: _param_server,
    PLAN: verify,
    SWEEP: verify,
}
