"""The command ``fanin cluster check``: train the golden model from each checkpoint of a run to the next."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from fanin.base.errors import CheckFailed, InputError
from fanin.cnn.run.folder import open_run
from fanin.cnn.run.loop import compare_states, describe
from fanin.cnn.run.machine import NotFinite, ignore_progress
from fanin.cnn.run.models import Golden
from fanin.cnn.run.setup import reload_images
from fanin.runs.output import print_json
from fanin.runs.progress import StatusLine


def check(folder: Path, as_json: bool) -> int:
    """Print a line for every checkpoint that the golden model does not reproduce. Return 1 if any, else 0."""
    run = open_run(folder)
    data = reload_images(run)
    frames = len(data.train)
    run.check_states(frames)
    if len(run.states) < 2:
        cause = f": {run.error}" if run.error else ""
        raise InputError(f"{folder}: has one state; a check needs two{cause}")
    differences: list[str] = []
    with StatusLine() as status:
        transitions = list(zip(pairwise(run.states), run.training.stretches(frames), strict=False))
        for (previous, name), stretch in transitions:
            status.show(f"{name}, {len(transitions)} states")
            network = run.build_for(name).build.planned.network
            machine, checkpoint = Golden(network), run.state(name)
            machine.load(run.state(previous).states)
            frame_indices = run.training.order(stretch.epoch, frames)[stretch.first : stretch.end]
            try:
                machine.train(
                    data.train.images[frame_indices],
                    data.train.digits[frame_indices],
                    stretch.job,
                    ignore_progress,
                )
                compare_states(name, network, checkpoint.states, machine.dump())
            except NotFinite as error:
                differences.append(f"{name}: {describe(error, stretch)}")
            except CheckFailed as error:
                differences.append(str(error))
    if as_json:
        print_json({"states": len(transitions), "complaints": differences, "error": run.error})
    else:
        for line in differences:
            print(line)
        outcome = "not all are" if differences else "every bit is"
        states = "1 state" if len(transitions) == 1 else f"{len(transitions)} states"
        print(f"{folder}: {states}, {outcome} the golden model's")
        if run.error:
            print(f"{folder}: not a whole run: {run.error}")
    return int(bool(differences))
