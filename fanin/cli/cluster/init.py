"""``fanin cluster init``: a model's first parameters, as a checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.limits import MAX_SEED
from fanin.runs.output import add_json, print_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "init",
        help="write a model's first parameters",
        description="Write a model's first parameters as a checkpoint: drawn (Kaiming), or those of a file.",
    )
    parser.add_argument("model", metavar="MODEL", help="digits_cnn, another shipped model, a .py or .onnx file")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of drawn parameters (default: 0)")
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="an .npz of fanin cluster export, or a checkpoint",
    )
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", required=True, help="the checkpoint")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the checkpoint."""
    from fanin.cnn.golden.network import initial_state
    from fanin.cnn.run.checkpoint import Checkpoint, CheckpointInfo, save_checkpoint
    from fanin.cnn.run.initial import load_initial_states
    from fanin.planner.model.load import load_model
    from fanin.planner.plan.network import unplanned

    seed = args.seed
    if args.source is not None and seed is not None:
        raise InputError("--seed and --from: parameters are drawn, or taken from a file")
    if args.source is None:
        seed = 0 if seed is None else seed
        if not 0 <= seed <= MAX_SEED:
            raise InputError(f"--seed must be in 0…{MAX_SEED:,}, not {seed:,}")
    network = unplanned(load_model(args.model))
    states = (
        tuple(initial_state(network, seed))
        if args.source is None
        else load_initial_states(args.source, network)
    )
    description = CheckpointInfo(network.name, network.model_digest, seed=seed)
    save_checkpoint(args.output, network, Checkpoint(description, states))
    origin = f"seed {seed}" if args.source is None else str(args.source)
    parameters = sum(stage.layer.parameters for stage in network.stages)
    if args.json:
        source = None if args.source is None else str(args.source)
        facts = {"output": str(args.output), "model": network.name, "parameters": parameters}
        print_json(facts | {"seed": seed, "source": source})
    else:
        print(f"{args.output}: {parameters:,} parameters of {network.name}, {origin}")
    return 0
