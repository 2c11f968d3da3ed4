"""``fanin nic show``: kind and counters of a running node."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

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
    """Ask and tell. Raises InputError where no node serves the socket."""
    from fanin.host.nic import RdmaNic

    with RdmaNic(args.control) as nic:
        found = nic.info() | {"counters": nic.counters()}
    if args.json:
        print_json(found)
        return 0
    rows = [
        ["node", f"{found['node']}, {found['queue_pairs']} queue pairs from {found['first_queue_pair']:#x} on"],
        ["addresses", f"{found['ip']}, {found['mac']}"],
        ["memory", f"{found['memory']}, {found['bytes']:,} bytes"],
        *(
            [
                f"pair {pair['pair']}",
                f"with {pair['peer']:#x} at {pair['ip']}, path MTU {pair['mtu']}{_failed(pair)}",
            ]
            for pair in found["connected"]
        ),
        *([f"pair {pair['pair']}", f"waits for ARP from {pair['ip']}"] for pair in found["waiting"]),
        *(
            [f"region {region['rkey']:#x}", f"{region['length']:,} bytes from {region['base']:#x}"]
            for region in found["regions"]
        ),
        *([name, f"{count:,}"] for name, count in found["counters"].items() if count),
    ]
    print(table(rows))
    return 0


def _failed(pair: dict[str, Any]) -> str:
    if not pair["failed"]:
        return ""
    from fanin.host.causes import explain_name  # of all nodes, whose registers take time to declare

    known = explain_name(Ending, str(pair["failed"]).upper())
    return f"; failed with {known or pair['failed']}"
