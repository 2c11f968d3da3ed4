"""``fanin p4 tree``: the jobs of all switches of an aggregation tree, from one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.base.scratch import write_file
from fanin.runs.output import add_json, check_writable, print_json, table


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    tree = parts.add_parser(
        "tree",
        help="check a fabric's file; write the job of each switch",
        description="Check a file that describes the switches of an aggregation tree, and write a job.json for "
        "each switch, for fanin p4 emit --job.",
    )
    tree.add_argument("file", type=Path, metavar="TREE.toml", help="switches, members and links of the fabric")
    tree.add_argument("-o", dest="output", type=Path, metavar="DIR", help="existing folder for SWITCH.json")
    add_json(tree)
    tree.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the file, write the jobs, print the tree. Raises InputError that names the switch and the cause."""
    from fanin.p4.deployment import deployment_json
    from fanin.p4.tree import deployments, load_tree

    parts = load_tree(args.file)
    paths = []
    if args.output:
        texts = {f"{name}.json": deployment_json(each) for name, each in deployments(parts).items()}
        paths = [args.output / name for name in texts]
        for path in paths:
            check_writable(path)
        for path, text in zip(paths, texts.values(), strict=True):
            write_file(path, text)
    if args.json:
        switches = {part.name: list(part.members) for part in parts}
        print_json({"switches": switches, "files": [*map(str, paths)]})
        return 0
    rows = [["switch", "port to parent", "members: workers by number, switches by name"]]
    for part in parts:
        uplink = part.part.uplink
        rows.append([part.name, str(uplink.port) if uplink else "root", ", ".join(map(str, part.members))])
    print(table(rows))
    print("\n".join(map(str, paths)), end="\n" if paths else "")
    return 0
