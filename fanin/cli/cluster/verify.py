"""``fanin cluster verify``: each layer's RTL against the golden model, layer by layer."""

from __future__ import annotations

import argparse

from fanin.cli.cache import add_no_cache
from fanin.cli.options import add_options
from fanin.cnn.run.options import VerifyOptions
from fanin.runs.call import Call
from fanin.runs.output import add_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "verify",
        help="compare the RTL of each layer with the golden model",
        description="Run the RTL of each layer alone on its streams of the golden model: a batch forward and "
        "back, and an update. Compare every word, and the cycles of a frame with the plan. The same command "
        "continues a stopped verification. Exit status 1 when a word differs, or cycles by more than 1 %.",
    )
    add_options(parser, VerifyOptions)
    add_json(parser)
    add_no_cache(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the layers, and write the folder. Raises CheckFailed if a layer is not as the golden model."""
    from fanin.cnn.run.verify import execute  # --help must not wait for Dask to load

    execute(VerifyOptions.of(args), Call.of(args))
    return 0
