"""Cycles, latency, utilisation and scaling of GLM training, beside P4SGD's public RTL."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fanin.cli.bench.result import Result

HELP = "cycles, latency, utilisation and scaling of GLM training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark: the paper's figures."""


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured."""
    raise NotImplementedError
