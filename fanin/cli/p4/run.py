"""``fanin p4 run``: capture files through a program."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.cli.output import check_writable
from fanin.errors import InputError

if TYPE_CHECKING:
    from fanin.p4.control import Match, MulticastGroup, TableEntry
    from fanin.sim.switch.embedded import Program, Switch

PORTS = 511  # of a switch that no job describes; 511 is BMv2's drop port


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    part = parts.add_parser(
        "run",
        help="send capture files through a program",
        description="Execute PROGRAM.p4 in the embedded switch: frames go in from capture files in the "
        "order of their times, and come out in DIR/PORT.pcap, one for each port that got a frame.",
    )
    part.add_argument("program", type=Path, metavar="PROGRAM.p4")
    tables = part.add_mutually_exclusive_group()
    tables.add_argument(
        "--job", type=Path, metavar="job.json", help="what fanin p4 emit writes beside the program"
    )
    tables.add_argument("--entries", type=Path, metavar="FILE.json", help="entries and groups of any program")
    part.add_argument(
        "--in",
        dest="inputs",
        nargs="+",
        action="extend",
        required=True,
        metavar="PORT=FILE",
        help="pcap or pcapng",
    )
    part.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the port's captures go")
    part.add_argument(
        "-I", dest="include", type=Path, action="append", default=[], metavar="DIR", help="for #include"
    )
    part.add_argument(
        "--trace", action="store_true", help="print parser states, table hits and register changes"
    )
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay. Raises InputError for a wrong program, job or capture."""
    from tqdm import tqdm

    from fanin.sim.capture import read_capture
    from fanin.sim.switch.embedded import load

    frames = []
    for text in args.inputs:
        port, path = _input(text)
        frames += [(time, port, frame) for time, frame in read_capture(path)]
    frames.sort(key=lambda item: item[:2])  # by time, then by port; stable, as each file has them
    check_writable(args.out / "0.pcap")
    program = load(args.program, include_dirs=args.include)
    trace = print if args.trace else None
    try:
        switch = _with_job(program, args.job, trace) if args.job else program.switch(range(PORTS), trace)
        if args.entries:
            install(switch, *read_entries(args.entries))
        out: dict[int, list[tuple[int, bytes]]] = {}
        for time, port, frame in tqdm(frames, unit=" frames", disable=args.trace or not sys.stderr.isatty()):
            for to, data in switch.process(port, frame):
                out.setdefault(to, []).append((time, data))
    except ValueError as error:
        raise InputError(str(error)) from error
    _write(args.out, out)
    print(f"{len(frames)} frames in, {sum(map(len, out.values()))} out at {len(out)} ports")
    return 0


def install(switch: Switch, entries: list[TableEntry], groups: list[MulticastGroup]) -> None:
    """What a control plane does first. Raises ValueError for what the program does not have."""
    for group in groups:
        switch.set_multicast_group(group)
    for entry in entries:
        switch.insert(entry)


def read_entries(path: Path) -> tuple[list[TableEntry], list[MulticastGroup]]:
    """Entries and groups from a JSON list. Raises InputError that names the item which is wrong."""
    from fanin.p4.control import MulticastGroup, Replica, TableEntry

    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from error
    if not isinstance(items, list):
        raise InputError(f"{path}: must be a list of entries and groups")
    entries, groups = [], []
    for number, item in enumerate(items):
        try:
            if "replicas" in item:
                groups.append(MulticastGroup(item["id"], tuple(Replica(**r) for r in item["replicas"])))
            else:
                match = {name: _match(given) for name, given in item.pop("match", {}).items()}
                entries.append(TableEntry(match=match, **item))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(f"{path}: item {number}: {error}") from error
    return entries, groups


def _match(given: dict[str, int]) -> Match:
    from fanin.p4.control import Exact, Lpm, Range, Ternary

    for kind in (Exact, Ternary, Lpm, Range):
        if set(given) == set(kind.__dataclass_fields__):
            return kind(**given)
    raise ValueError(f"{given} is no match: value, value and mask, value and length, or low and high")


def _input(text: str) -> tuple[int, Path]:
    port, sign, path = text.partition("=")
    if not sign or not port.isdecimal():
        raise InputError(f"--in {text}: must be PORT=FILE")
    return int(port), Path(path)


def _with_job(program: Program, path: Path, trace: Any) -> Switch:
    """The emitted program with the jobs of its job.json. Raises InputError, ValueError."""
    from fanin.p4.aggregation import register_words
    from fanin.p4.deployment import load_deployment
    from fanin.sim.switch.emitted import EmbeddedPipeline
    from fanin.sim.switch.program import ProgramSwitch

    deployment = load_deployment(path)
    config = deployment.program
    if config is None:
        raise InputError(f'{path}: "program" is missing: fanin p4 emit --job {path} adds it')
    if set(program.registers) != set(register_words(config)):
        raise InputError(f"{path}: is for another program than {program.name}: fanin p4 emit writes both")
    ports = [port.number for port in deployment.ports]
    switch = program.switch(ports, trace)
    pipeline = EmbeddedPipeline(config, switch)
    control = ProgramSwitch(config=config, pipeline=pipeline, endpoint=deployment.switch, ports=ports)
    for job in deployment.jobs:
        control.add_job(job)
    return switch


def _write(folder: Path, out: dict[int, list[tuple[int, bytes]]]) -> None:
    """A capture for each port, each whole or not at all."""
    from fanin.sim.pcap import PcapWriter

    folder.mkdir(parents=True, exist_ok=True)
    for port, frames in sorted(out.items()):
        scratch = folder / f".fanin-{port}.pcap"
        try:
            with PcapWriter(scratch) as writer:
                for time, frame in frames:
                    writer.write(frame, time * 1000)
            scratch.replace(folder / f"{port}.pcap")
        finally:
            scratch.unlink(missing_ok=True)
