"""``fanin watch``: local page that shows a run's progress, and its report after the end."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError

MAX_PORT = 65_535


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "watch",
        help="show a run in the browser while it runs",
        description="Serve a page that shows how far the run that writes DIR is: loss, throughput, time left. "
        "When the run has ended, the page becomes its report. This machine alone can open it, until Ctrl-C.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the run")
    parser.add_argument(
        "--port", type=int, metavar="N", help="port on 127.0.0.1; by default a free one, which is printed"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C. Raises InputError if the port is not available, or DIR is a file."""
    from fanin.cli.watch.server import WatchServer
    from fanin.cli.watch.state import WatchedRun

    if args.port is not None and not 1 <= args.port <= MAX_PORT:
        raise InputError(f"--port must be in 1…{MAX_PORT}, not {args.port}")
    if args.folder.exists() and not args.folder.is_dir():
        raise InputError(f"{args.folder}: is a file; DIR is the folder of a run")
    watched_run = WatchedRun(args.folder)
    with WatchServer(watched_run, args.port or 0) as server:
        note = "" if args.folder.exists() else ", which does not exist yet"
        print(f"{server.url} shows {args.folder}{note}; Ctrl-C ends this", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
