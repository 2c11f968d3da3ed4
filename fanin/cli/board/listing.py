"""``fanin board list``: the boards, their presets and their bitstream tools."""

from __future__ import annotations

import argparse

from fanin.runs.output import add_json, print_json, table


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser("list", help="list the boards", description="The boards that fanin knows.")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a table with a row per board."""
    from fanin.hdl.boards.board import BOARDS, Flow

    tools = {Flow.OPEN: "yosys, nextpnr", Flow.VENDOR: "the vendor's; fanin writes the project"}
    rows = [
        {
            "board": board.name,
            "title": board.title,
            "device": board.device,
            "preset": board.preset,
            "core_mhz": board.core_mhz,
            "tools": tools[board.flow],
        }
        for board in BOARDS.values()
    ]
    if args.json:
        print_json({"boards": rows})
    else:
        print(
            table(
                [
                    ["board", "", "device", "preset", "core MHz", "tools"],
                    *([*map(str, row.values())] for row in rows),
                ]
            )
        )
    return 0
