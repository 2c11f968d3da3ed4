"""``fanin p4 emit``: the switch program, its jobs, and what goes with it."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from fanin.cli.output import write_file
from fanin.errors import InputError
from fanin.job import SLOTS
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.wire.aggregation import Encap, Protocol


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    emit = parts.add_parser(
        "emit",
        help="write the switch program and what goes with it",
        description="Write the aggregation program as P4_16, job.json, a Wireshark dissector and PTF tests; "
        "for Tofino a script for its driver; and, where p4c is installed, the compiled program.",
    )
    for name, kind, meaning in (
        ("target", Target, "BMv2 or Tofino"),
        ("protocol", Protocol, "what frees a slot"),
        ("encap", Encap, "udp: raw Ethernet as well"),
    ):
        choices = [choice.value for choice in kind]
        emit.add_argument(f"--{name}", choices=choices, default=getattr(ProgramConfig, name), help=meaning)
    for name, metavar, meaning in (
        ("workers", "W", "members of a job at most; 1…32"),
        ("slots", "N", f"a power of two, up to {SLOTS}"),
        ("values", "V", "of a packet; 1…32"),
    ):
        default = getattr(ProgramConfig, name)
        emit.add_argument(f"--{name}", type=int, default=default, metavar=metavar, help=meaning)
    emit.add_argument("--job", type=Path, metavar="FILE", help="job.json to take, instead of one job with all")
    emit.add_argument("-o", dest="output", type=Path, required=True, metavar="DIR", help="where to write")
    emit.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the files; print their names."""
    from fanin.p4 import companions
    from fanin.p4.compiler import compile_program
    from fanin.p4.deployment import default_deployment, deployment_json, load_deployment
    from fanin.p4.emit import program_text

    try:
        config = ProgramConfig(
            target=Target(args.target),
            protocol=Protocol(args.protocol),
            workers=args.workers,
            slots=args.slots,
            values=args.values,
            encap=Encap(args.encap),
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    deployment = load_deployment(args.job) if args.job else default_deployment(config)
    try:
        deployment = dataclasses.replace(deployment, program=config)
    except ValueError as error:
        raise InputError(f"{args.job}: {error}") from error
    files = {
        "aggregation.p4": program_text(config),
        "job.json": deployment_json(deployment),
        "aggregation.lua": companions.dissector(config),
        "ptf/aggregation_test.py": companions.ptf_tests(config),
    }
    if config.target is Target.TNA:
        files["aggregation_bfrt.py"] = companions.bfruntime_script(config, deployment)
    _keep_edited(args.output / "job.json", files["job.json"], args.job)
    for name, text in files.items():
        write_file(args.output / name, text)
        print(args.output / name)
    for path in compile_program(config, args.output):
        print(path)
    return 0


def _keep_edited(path: Path, text: str, taken: Path | None) -> None:
    """Raise InputError rather than write over a job.json that is somebody's own and was not taken."""
    if path.exists() and path.read_bytes() != text.encode() and not (taken and taken.samefile(path)):
        raise InputError(f"{path}: exists and differs; --job {path} takes it, or remove it")
