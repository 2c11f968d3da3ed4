"""``fanin cluster export``: the trained network for others: ONNX, NumPy, PyTorch."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.base.errors import InputError
from fanin.runs.output import add_json

SUFFIXES = (".onnx", ".npz", ".pt")


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "export",
        help="write the trained network as ONNX, .npz or .pt",
        description="Write the network of a run's last checkpoint: an ONNX model that classifies images, "
        "a NumPy archive, or PyTorch's state dictionary, by FILE's suffix.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the folder of fanin cluster run")
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="FILE", required=True, help="FILE.onnx, FILE.npz or FILE.pt"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    if args.output.suffix not in SUFFIXES:
        raise InputError(f"{args.output}: ends with none of {', '.join(SUFFIXES)}")
    from fanin.cnn.run.export import execute

    return execute(args.folder, args.output, as_json=args.json)
