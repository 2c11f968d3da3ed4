"""Members of a job in ``fanin p4 check`` and ``fanin p4 allreduce``: ``--workers`` or ``--racks``."""

from __future__ import annotations

import argparse

from fanin.base.errors import InputError
from fanin.tree import Shape, parse_shape

PUBLISHED = "published"  #: ``--protocol`` of P4SGD's algorithms 2 and 3, for one switch


def add_members(parser: argparse.ArgumentParser, *, workers: int) -> argparse._MutuallyExclusiveGroup:
    """Declare the options; return their group. ``workers``: the default number."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--workers", type=int, default=workers, metavar="W", help="members of the job at one switch"
    )
    group.add_argument(
        "--racks", metavar="GxM", help="a tree of switches: 2x4 has two switches of four workers; 2x2x4, 1+2"
    )
    return group


def shape_of(args: argparse.Namespace) -> Shape:
    """Return the shape of the tree, or the number of workers of one switch. Raises InputError."""
    if args.racks is None:
        return int(args.workers)
    try:
        shape = parse_shape(args.racks)
    except ValueError as error:
        raise InputError(f"--racks: {error}") from error
    check_protocol(args, "--racks")
    return shape


def check_protocol(args: argparse.Namespace, tree: str) -> None:
    """Raise InputError for a protocol without trees. ``tree``: the option that asks for one."""
    if args.protocol == PUBLISHED:
        raise InputError(
            f"{tree}: the published protocol has one switch; --protocol p4sgd and switchml have trees"
        )
