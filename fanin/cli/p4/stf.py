"""``fanin p4 stf``: p4c's packet tests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fanin.base.errors import CheckFailed, InputError
from fanin.base.plain import read_named
from fanin.cli.p4.source import add_source, load_program, warn_of_clones
from fanin.runs.output import add_json, print_json

EXIT_REFUSED = 3


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    stf = parts.add_parser(
        "stf",
        help="run one of p4c's packet tests",
        description="Run a test in p4c's packet-test format (STF). Exit status 0 when all packets are as "
        "expected, 1 when one is not, 3 when the program or the test needs an unsupported feature. "
        "Only ports that the test names exist: frames to others are lost and not compared.",
    )
    stf.add_argument("program", type=Path, metavar="PROGRAM.p4")
    stf.add_argument("test", type=Path, metavar="TEST.stf")
    add_source(stf)
    add_json(stf)
    stf.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the test. Raises CheckFailed when a packet is not as expected."""
    from fanin.sim.switch.embedded import Refused
    from fanin.sim.switch.embedded.stf import MAX_BYTES, StfTest

    try:
        text = read_named(args.test, MAX_BYTES).decode()
    except OSError as error:
        raise InputError(f"{args.test}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{args.test}: no text: byte {error.start} is no UTF-8") from error
    try:
        test = StfTest(load_program(args), text, str(args.test))
        complaints = test.run()
    except Refused as error:
        return _report_refusal(str(error))
    if args.json:
        print_json({"test": str(args.test), "complaints": complaints})
    else:
        for line in complaints or [f"{args.test}: as expected"]:
            print(line)
    warn_of_clones(test.switch)
    if complaints:
        verb = "is" if len(complaints) == 1 else "are"
        raise CheckFailed(f"{args.test}: {len(complaints)} of its expectations {verb} not met")
    return 0


def _report_refusal(message: str) -> int:
    print(f"fanin: refused: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_REFUSED
