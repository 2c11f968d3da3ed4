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
from fanin.base.scratch import reported, scratch_prefix
from fanin.cnn.run.build import PLAN_FOLDER, Build, open_build, planned_build, write_build
from fanin.cnn.run.checkpoint import Checkpoint
from fanin.cnn.run.execute import Kept, end, live_file, write_metrics
from fanin.cnn.run.folder import BUILDS, Run, Used, open_run
from fanin.cnn.run.machine import RTL
from fanin.cnn.run.setup import Earlier, Setup, images_again
from fanin.runs.live import RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import list_files
from fanin.runs.output import CLUSTER_BUILD, CLUSTER_RUN, PLAN, is_kind, open_kind, print_json
from fanin.runs.provenance.document import note_resumption
from fanin.runs.ranks import refuse_ranks
from fanin.runs.unfinished import UNENDED
from fanin.sim.learning.images import ImageSet


def execute(args: argparse.Namespace) -> int:
    """Run the command. Return 0, also for a finished run. Raises the errors of ``fanin cluster run``."""
    folder: Path = args.folder
    open_kind(folder, CLUSTER_RUN, "fanin cluster run")  # locks no folder that is not a run
    with sole_writer(folder):
        run = open_run(folder)
        if run.on != RTL:
            refuse_ranks(args, "a run of the golden model")
        data = images_again(run)
        run.check_states(len(data.train))
        name, state, damage = run.last_whole()
        if run.error is None and damage is None:
            if args.plan is not None:
                raise InputError(f"--plan {args.plan}: {folder} has ended; nothing is left to train")
            return _tell_ended(folder, args.json)
        if damage:
            _warn(f"{damage}; goes on from {folder / name}")
        if state.binary64 and not importlib.util.find_spec("torch"):
            _warn("PyTorch is not installed: goes on without the network in binary64")
        setup = _setup(run, data, name, state, args.plan)
        with live_file(folder, "resume", data.name) as live:
            with RunStatus(live) as status:
                kept = Kept(folder, setup, status)
                if setup.builds[-1].folder not in {used.folder for used in run.builds}:
                    _write_build(folder, setup.builds[-1].folder, setup.build, args.plan)
                write_metrics(folder, kept.metrics(UNENDED))
                note_resumption(folder, args, apart=["connections"])  # whose counters restart here
                stop = kept.train()
            end(kept, stop, args.json)
            return 0


def _warn(text: str) -> None:
    print_note(f"fanin: warning: {text}")


def _tell_ended(folder: Path, as_json: bool) -> int:
    if as_json:
        print_json(open_record(folder / CLUSTER_RUN.mark).value)
    else:
        print(f"{folder}: has come to its end")
    return 0


def _setup(run: Run, data: ImageSet, name: str, state: Checkpoint, other: Path | None) -> Setup:
    """Return the setup of the rest of a run after a checkpoint, on its last build or on another."""
    measured = run.epochs[: state.about.epoch]
    if len(measured) < state.about.epoch - 1:  # the last one may have been stopped before it was measured
        mark = run.folder / CLUSTER_RUN.mark
        raise InputError(f"{mark}: epochs: has {len(measured)} before {name}")
    used = replace(run.builds[-1], since=name) if other is None else _other(run, name, other)
    same = used.folder == run.builds[-1].folder
    return Setup(
        builds=_builds(run, used),
        data=data,
        training=run.training,
        initial=state,
        on=run.on,
        earlier=Earlier(run.states[: run.states.index(name) + 1], measured, run.hardware if same else None),
        conditions=run.conditions,
    )


def _builds(run: Run, used: Used) -> tuple[Used, ...]:
    """Return the builds of the run up to the checkpoint, then the build from there on if it differs."""
    before = tuple(one for one in run.builds if one.since < used.since) or run.builds[:1]
    return before if before[-1].folder == used.folder else (*before, used)


def _other(run: Run, name: str, place: Path) -> Used:
    """Return the build of a plan's or build's folder, with its folder in the run.

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
    taken = {used.folder for used in run.builds}
    names = (f"{BUILDS}/{n}" for n in count(2))
    free = next(each for each in names if each not in taken and not os.path.lexists(run.folder / each))
    return Used(next((used.folder for used in run.builds if used.build == build), free), name, build)


def _write_build(run: Path, name: str, build: Build, source: Path) -> None:
    """Write a build to the run's folder atomically. ``source``: folder of a plan or a build."""
    with reported(run), tempfile.TemporaryDirectory(dir=run, prefix=scratch_prefix()) as scratch:
        made = Path(scratch) / "build"
        write_build(made, build, source / PLAN_FOLDER if is_kind(source, CLUSTER_BUILD) else source)
        files = (file.relative_to(made) for file in made.rglob("*") if file.is_file())
        list_files(run, [f"{name}/{file.as_posix()}" for file in files])
        *parents, last = PurePosixPath(name).parts
        with folder_below(run, *parents, make=True) as place:
            os.rename(made, last, dst_dir_fd=place)
