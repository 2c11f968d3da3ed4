"""``fanin nic show``: kind and counters of a running node."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fanin.base.errors import ToolFailed
from fanin.rdma.facts import Ending
from fanin.runs.output import add_json, print_json, table


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    part = parts.add_parser(
        "show",
        help="show settings and counters of a node of one-sided writes",
        description="Ask a node that `fanin nic run --kind rdma --control SOCKET` runs.",
    )
    part.add_argument("control", type=Path, metavar="SOCKET", help="the node's control socket")
    add_json(part)
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Query the node and print the answer. Raises InputError if no node serves the socket."""
    from fanin.host.nic import RdmaNic

    with RdmaNic(args.control) as nic:
        info = nic.info() | {"counters": nic.counters()}
    if args.json:
        print_json(info)
        return 0
    try:
        rows = _rows(info)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # a field is absent, or of another type
        raise ToolFailed(f"{args.control}: its answer to info is not that of fanin nic run") from error
    print(table([[" ".join(text.split()) for text in row] for row in rows]))
    return 0


def _rows(info: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the table of a node's settings and counters."""
    return [
        ["node", f"{info['node']}, {info['queue_pairs']} queue pairs from {info['first_queue_pair']:#x} on"],
        ["addresses", f"{info['ip']}, {info['mac']}"],
        ["memory", f"{info['memory']}, {info['bytes']:,} bytes"],
        *(
            [
                f"pair {pair['pair']}",
                f"with {pair['peer']:#x} at {pair['ip']}, path MTU {pair['mtu']}{_failure_note(pair)}",
            ]
            for pair in info["connected"]
        ),
        *([f"pair {pair['pair']}", f"waits for ARP from {pair['ip']}"] for pair in info["waiting"]),
        *(
            [f"region {region['rkey']:#x}", f"{region['length']:,} bytes from {region['base']:#x}"]
            for region in info["regions"]
        ),
        *([name, f"{count:,}"] for name, count in info["counters"].items() if count),
    ]


def _failure_note(pair: dict[str, Any]) -> str:
    if not pair["failed"]:
        return ""
    from fanin.host.causes import explain_name  # of all nodes, whose registers take time to declare

    explanation = explain_name(Ending, str(pair["failed"]).upper())
    return f"; failed with {explanation or pair['failed']}"
