"""The command ``fanin cluster check``: train the golden model from each checkpoint of a run to the next."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from fanin.base.errors import CheckFailed, InputError
from fanin.cnn.run.folder import open_run
from fanin.cnn.run.loop import compare_states, sentence
from fanin.cnn.run.machine import NotFinite, quiet
from fanin.cnn.run.models import Golden
from fanin.cnn.run.setup import images_again
from fanin.runs.output import print_json
from fanin.runs.progress import StatusLine


def verify(folder: Path, as_json: bool) -> int:
    """Print a line for every checkpoint that the golden model does not reproduce. Return 1 if there is one."""
    run = open_run(folder)
    data = images_again(run)
    frames = len(data.train)
    run.check_states(frames)
    if len(run.states) < 2:
        cause = f": {run.error}" if run.error else ""
        raise InputError(f"{folder}: has one state; a check needs two{cause}")
    complaints: list[str] = []
    with StatusLine() as status:
        ways = list(zip(pairwise(run.states), run.training.stretches(frames), strict=False))
        for (before, name), stretch in ways:
            status.show(f"{name}, {len(ways)} states")
            network = run.used_for(name).build.planned.network
            machine, found = Golden(network), run.state(name)
            machine.load(run.state(before).states)
            chosen = run.training.order(stretch.epoch, frames)[stretch.first : stretch.end]
            try:
                machine.train(data.train.images[chosen], data.train.digits[chosen], stretch.job, quiet)
                compare_states(name, network, found.states, machine.dump())
            except NotFinite as error:
                complaints.append(f"{name}: {sentence(error, stretch)}")
            except CheckFailed as error:
                complaints.append(str(error))
    if as_json:
        print_json({"states": len(ways), "complaints": complaints, "error": run.error})
    else:
        for line in complaints:
            print(line)
        verdict = "not all are" if complaints else "every bit is"
        states = "1 state" if len(ways) == 1 else f"{len(ways)} states"
        print(f"{folder}: {states}, {verdict} the golden model's")
        if run.error:
            print(f"{folder}: not a whole run: {run.error}")
    return int(bool(complaints))
