"""``fanin p4 emit``: the switch program, its jobs, and accompanying files."""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.records import read_object
from fanin.job import SLOTS
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.runs.file_options import FileOptions, Request
from fanin.runs.lock import sole_writer
from fanin.runs.output import P4_PROGRAM, PROVENANCE_FILE, add_json, print_json
from fanin.runs.provenance.document import Origin
from fanin.wire.aggregation import Encap, Protocol

_COMMAND = ["p4", "emit"]


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    emit = parts.add_parser(
        "emit",
        help="write the switch program with its job, dissector and tests",
        description="Write the aggregation program as P4_16, job.json, a Wireshark dissector and PTF tests. "
        "For Tofino write a script for its driver, too. Compile the program where p4c is installed.",
    )
    for name, kind, meaning in (
        ("target", Target, "BMv2 or Tofino"),
        ("protocol", Protocol, "event that frees a slot"),
        ("encap", Encap, "udp: also accepts raw Ethernet"),
    ):
        choices = [choice.value for choice in kind]
        emit.add_argument(f"--{name}", choices=choices, default=getattr(ProgramConfig, name), help=meaning)
    for name, metavar, meaning in (
        ("workers", "W", "most members of a job; 1…32"),
        ("slots", "N", f"a power of two, up to {SLOTS}"),
        ("values", "V", "values of a packet; 1…32"),
    ):
        default = getattr(ProgramConfig, name)
        emit.add_argument(f"--{name}", type=int, default=default, metavar=metavar, help=meaning)
    emit.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="jobs of all workers that share the slots, one per start or restart of a training",
    )
    emit.add_argument("--job", type=Path, metavar="FILE", help="job.json to take, instead of one job with all")
    emit.add_argument("-o", dest="output", type=Path, required=True, metavar="DIR", help="output folder")
    add_json(emit)
    emit.set_defaults(run=run, files=FileOptions(inputs=("job",)))


def run(args: argparse.Namespace) -> int:
    """Write the files; print their names."""
    from fanin.api.emit import emit_p4, write_program
    from fanin.p4.compiler import compile_program

    names = ("target", "protocol", "workers", "slots", "values", "encap", "jobs", "job")
    program = emit_p4(**{name: getattr(args, name) for name in names})
    origin = Origin(Request.parsed(args))
    with sole_writer(args.output):
        _check_provenance(args.output / PROVENANCE_FILE)
        with tempfile.TemporaryDirectory(prefix="fanin-") as scratch:  # the record has SHA-256s of files
            program.write(scratch)
            kind = replace(P4_PROGRAM, results=tuple(program.files))
            provenance = origin.text(Path(scratch), kind, verilog={})
        write_program(program, args.output, args.job, provenance)
        paths = [args.output / name for name in program.files]
        paths += compile_program(program.config, args.output)
    if args.json:
        print_json({"program": vars(program.config), "files": [*map(str, paths)]})
    else:
        print("\n".join(map(str, paths)))
    return 0


def _check_provenance(path: Path) -> None:
    """Raise InputError for a ``provenance.json`` of another command, whose results could not be made again."""
    if os.path.lexists(path):
        argv = (read_object(path) or {}).get("argv")
        if not isinstance(argv, list) or argv[:2] != _COMMAND:
            raise InputError(f"{path}: is not of fanin p4 emit; choose another -o")
