"""``fanin p4 tree``: the jobs of all switches of an aggregation tree, from one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.scratch import write_file
from fanin.runs.lock import sole_writer
from fanin.runs.output import (
    FABRIC,
    add_json,
    check_directory,
    json_text,
    output_directory,
    print_json,
    table,
)


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    tree = parts.add_parser(
        "tree",
        help="check a fabric's file; write the job of each switch",
        description="Check a file that describes the switches of an aggregation tree, and write a job.json for "
        "each switch, for fanin p4 emit --job.",
    )
    tree.add_argument("file", type=Path, metavar="TREE.toml", help="switches, members and links of the fabric")
    tree.add_argument("-o", dest="output", type=Path, metavar="DIR", help="output folder, with SWITCH.json")
    tree.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="jobs of all workers with slots of their own, one per start or restart of a training",
    )
    add_json(tree)
    tree.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the file, write the jobs, print the tree. Raises InputError that names the switch and the cause."""
    from fanin.p4.deployment import deployment_json
    from fanin.p4.tree import deployments, load_tree

    tree = load_tree(args.file)
    try:
        jobs = deployments(tree, args.jobs)
    except ValueError as error:
        raise InputError(f"--jobs {args.jobs}: {error}") from error
    members, paths = tree.members, []
    if args.output:
        texts = {f"{name}.json": deployment_json(each) for name, each in jobs.items()}
        check_directory(args.output, FABRIC)
        with sole_writer(args.output), output_directory(args.output, FABRIC) as folder:
            for name, text in texts.items():
                write_file(folder / name, text)
            write_file(folder / FABRIC.mark, json_text({"switches": members}) + "\n")
        paths = [args.output / name for name in texts]
    if args.json:
        print_json({"switches": members, "files": [*map(str, paths)]})
        return 0
    rows = [["switch", "port to parent", "members"]]
    for each in tree.switches:
        uplink = each.part.uplink
        rows.append([each.name, str(uplink.port) if uplink else "root", ", ".join(members[each.name])])
    print(table(rows))
    print("\n".join(map(str, paths)), end="\n" if paths else "")
    return 0
