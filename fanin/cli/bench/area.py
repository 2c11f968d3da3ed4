"""Area and logic depth of the GLM node, mapped by yosys to UltraScale+ (synth_xilinx -family xcup)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fanin.cli.bench.result import Result

HELP = "LUTs, flip-flops and logic depth of one engine and a u280 node"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark: none of its own."""


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured."""
    raise NotImplementedError
