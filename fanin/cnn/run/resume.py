"""The command ``fanin cluster resume``: train a run to its end from its last checkpoint, on any build."""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePosixPath

from fanin.base.errors import InputError
from fanin.base.plain import folder_below
from fanin.base.printable import print_note
from fanin.base.records import open_record
from fanin.base.scratch import as_input_error, scratch_prefix
from fanin.cnn.run.build import PLAN_FOLDER, Build, open_build, planned_build, write_build
from fanin.cnn.run.checkpoint import Checkpoint
from fanin.cnn.run.execute import RunRecorder, finish, live_file, write_metrics
from fanin.cnn.run.folder import BUILDS, Run, UsedBuild, open_run
from fanin.cnn.run.machine import RTL
from fanin.cnn.run.setup import Earlier, Setup, reload_images
from fanin.runs.file_options import Request
from fanin.runs.live import RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import list_files
from fanin.runs.output import CLUSTER_BUILD, CLUSTER_RUN, PLAN, is_kind, open_kind, print_json
from fanin.runs.provenance.document import note_resumption
from fanin.runs.ranks import refuse_ranks
from fanin.runs.unfinished import UNFINISHED
from fanin.sim.learning.images import ImageSet


def execute(args: argparse.Namespace) -> int:
    """Run the command. Return 0, also for a finished run. Raises the errors of ``fanin cluster run``."""
    folder: Path = args.folder
    open_kind(folder, CLUSTER_RUN, "fanin cluster run")  # raises InputError before another folder is locked
    with sole_writer(folder):
        run = open_run(folder)
        if run.on != RTL:
            refuse_ranks(args, "a run of the golden model")
        data = reload_images(run)
        run.check_states(len(data.train))
        name, state, damage_error = run.newest_intact()
        if run.error is None and damage_error is None:
            if args.plan is not None:
                raise InputError(f"--plan {args.plan}: {folder} has ended; nothing is left to train")
            return _report_finished(folder, args.json)
        if damage_error:
            _warn(f"{damage_error}; resuming from {folder / name}")
        if state.binary64 and not importlib.util.find_spec("torch"):
            _warn("PyTorch is not installed: resuming without the network in binary64")
        setup = _setup(run, data, name, state, args.plan)
        with live_file(folder, "resume", data.name) as live:
            with RunStatus(live) as status:
                recorder = RunRecorder(folder, setup, status)
                if setup.builds[-1].folder not in {used_build.folder for used_build in run.builds}:
                    _write_build(folder, setup.builds[-1].folder, setup.build, args.plan)
                write_metrics(folder, recorder.metrics(UNFINISHED))
                # The counters of the connections restart at 0.
                note_resumption(folder, Request.parsed(args), ignored=["connections"])
                error = recorder.train()
            finish(recorder, error, args.json)
            return 0


def _warn(text: str) -> None:
    print_note(f"fanin: warning: {text}")


def _report_finished(folder: Path, as_json: bool) -> int:
    if as_json:
        print_json(open_record(folder / CLUSTER_RUN.mark).value)
    else:
        print(f"{folder}: has come to its end")
    return 0


def _setup(run: Run, data: ImageSet, name: str, state: Checkpoint, other: Path | None) -> Setup:
    """Return the setup of a resumed run.

    ``name``, ``state``: checkpoint from which to resume.
    ``other``: folder of another plan or build; None for the run's last build.
    """
    measured_epochs = run.epochs[: state.info.epoch]
    # The run may have stopped before it measured the last epoch.
    if len(measured_epochs) < state.info.epoch - 1:
        mark = run.folder / CLUSTER_RUN.mark
        raise InputError(f"{mark}: epochs: has {len(measured_epochs)} before {name}")
    used_build = replace(run.builds[-1], since=name) if other is None else _new_build(run, name, other)
    is_same = used_build.folder == run.builds[-1].folder
    return Setup(
        builds=_builds(run, used_build),
        data=data,
        training=run.training,
        initial=state,
        on=run.on,
        earlier=Earlier(
            run.states[: run.states.index(name) + 1], measured_epochs, run.hardware if is_same else None
        ),
        conditions=run.conditions,
    )


def _builds(run: Run, new_build: UsedBuild) -> tuple[UsedBuild, ...]:
    """Return the builds that the run used up to ``new_build.since``, then the new build if it differs."""
    earlier = tuple(build for build in run.builds if build.since < new_build.since) or run.builds[:1]
    return earlier if earlier[-1].folder == new_build.folder else (*earlier, new_build)


def _new_build(run: Run, name: str, place: Path) -> UsedBuild:
    """Return the build of a plan's or build's folder ``place``, used from checkpoint ``name`` on.

    Raises InputError for another model.
    """
    if is_kind(place, CLUSTER_BUILD):
        build = open_build(place)
    elif is_kind(place, PLAN):
        last = run.builds[-1].build
        build = planned_build(place, last.arithmetic, last.wires)
    else:
        raise InputError(f"{place}: holds no {PLAN.mark} of fanin plan and no {CLUSTER_BUILD.mark}")
    network = build.planned.network
    if network.model_digest != run.network.model_digest:
        model = network.name if network.name != run.network.name else "another model of that name"
        raise InputError(f"{place}: is a plan of {model}, not of {run.network.name}")
    folders = {used.folder for used in run.builds}
    paths = (f"{BUILDS}/{n}" for n in count(2))
    free_folder = next(path for path in paths if path not in folders and not os.path.lexists(run.folder / path))
    return UsedBuild(
        next((used.folder for used in run.builds if used.build == build), free_folder), name, build
    )


def _write_build(run: Path, name: str, build: Build, source: Path) -> None:
    """Write a build to the run's folder atomically. ``source``: folder of a plan or a build."""
    with as_input_error(run), tempfile.TemporaryDirectory(dir=run, prefix=scratch_prefix()) as scratch:
        build_folder = Path(scratch) / "build"
        write_build(build_folder, build, source / PLAN_FOLDER if is_kind(source, CLUSTER_BUILD) else source)
        files = (file.relative_to(build_folder) for file in build_folder.rglob("*") if file.is_file())
        list_files(run, [f"{name}/{file.as_posix()}" for file in files])
        *parents, last = PurePosixPath(name).parts
        with folder_below(run, *parents, create=True) as place:
            os.rename(build_folder, last, dst_dir_fd=place)
