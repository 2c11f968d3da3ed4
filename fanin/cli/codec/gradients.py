"""``fanin codec gradients``: real gradients to try the codecs on."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.limits import MAX_SEED
from fanin.base.scratch import write_files
from fanin.runs.output import add_json, check_writable, print_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    gradients = parts.add_parser(
        "gradients",
        help="gradients of a trained network, as files",
        description="Train INCEPTIONN's handwritten-digit network with four workers (a minute). Write a "
        "worker's gradients of the beginning, the middle and the end, a file of values each.",
    )
    gradients.add_argument("-o", dest="output", metavar="DIR", type=Path, default="runs", help="output folder")
    gradients.add_argument("--seed", type=int, default=0, metavar="S", help="seed of split, weights and order")
    add_json(gradients)
    gradients.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, and write the files."""
    if not 0 <= args.seed <= MAX_SEED:
        raise InputError(f"--seed {args.seed}: must be 0 to {MAX_SEED}")
    from fanin.runs.progress import StatusLine
    from fanin.sim.codec.gradients import STAGES, gradients

    paths = {stage: args.output / f"gradient-{stage}.f32" for stage in STAGES}
    for path in paths.values():
        check_writable(path)
    with StatusLine() as line:
        line.show("training …")
        vectors = gradients(tuple(STAGES), args.seed)
    contents = {path.name: vectors[stage].astype("<f4").tobytes() for stage, path in paths.items()}
    write_files(args.output, contents)
    if not args.json:
        for stage, path in paths.items():
            print(f"{path}: {len(vectors[stage]):,} values")
    if args.json:
        files = [{"file": str(path), "values": len(vectors[stage])} for stage, path in paths.items()]
        print_json({"seed": args.seed, "files": files})
    return 0
