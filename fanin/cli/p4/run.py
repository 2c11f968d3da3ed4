"""``fanin p4 run``: capture files through a program."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import CheckFailed, InputError
from fanin.base.interrupts import deferred_interrupts
from fanin.base.limits import is_number
from fanin.base.scratch import output_file
from fanin.cli.p4.jobs import switch_with_jobs
from fanin.cli.p4.source import add_source, load_program, warn_of_clones
from fanin.cli.p4.step import Stepper
from fanin.runs.output import add_json, check_writable, print_json
from fanin.runs.progress import progress_bar

if TYPE_CHECKING:
    from fanin.cli.p4.replay import Arrival, Comparison, Recording, Timed
    from fanin.p4.deployment import Deployment
    from fanin.sim.switch.embedded import Switch
    from fanin.sim.switch.embedded.trace import Tracer

PORTS = 511  # of a switch that no job describes; 511 is BMv2's drop port


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    part = parts.add_parser(
        "run",
        help="send capture files through a program",
        description="Execute PROGRAM.p4 in the embedded switch. Frames enter from capture files in the order "
        "of their times, and leave to DIR/PORT.pcap. With --recorded, the frames of the jobs' members enter, "
        "and the output is compared with the recorded output: exit status 1 when it differs.",
    )
    part.add_argument("program", type=Path, metavar="PROGRAM.p4")
    tables = part.add_mutually_exclusive_group()
    tables.add_argument("--job", type=Path, metavar="job.json", help="job.json of fanin p4 emit")
    tables.add_argument("--entries", type=Path, metavar="FILE.json", help="entries and groups of any program")
    source = part.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--in",
        dest="inputs",
        nargs="+",
        action="extend",
        metavar="PORT=FILE",
        help="pcap or pcapng file for a port",
    )
    source.add_argument(
        "--recorded", type=Path, metavar="FILE", help="a capture at the switch, of both ways; needs --job"
    )
    part.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the ports' captures; required with --in"
    )
    add_source(part)
    part.add_argument(
        "--trace",
        action="store_true",
        help="print what happens to each packet: headers, tables, registers, ports; a summary at the end",
    )
    part.add_argument("--step", action="store_true", help="as --trace, and stop after each packet")
    add_json(part)
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay frames. Raises InputError for a wrong program, job or capture, CheckFailed if answers differ."""
    from fanin.cli.p4.replay import Recording
    from fanin.p4.deployment import load_deployment

    if args.recorded and not args.job:
        raise InputError("--recorded needs --job, which names the nodes of the capture")
    if args.inputs and not args.out:
        raise InputError("--in needs --out for the answers")
    deployment = load_deployment(args.job) if args.job else None
    recording = Recording.split(args.recorded, deployment) if args.recorded and deployment else None
    frames = recording.received if recording else _inputs(args.inputs)
    if args.out:
        check_writable(args.out / "0.pcap")
    program = load_program(args)
    if args.json and args.step:
        raise InputError("--json and --step would both write to stdout")
    show = partial(print, file=sys.stderr) if args.json else print
    tracer = _tracer(deployment, show) if args.trace or args.step else None
    stepper = Stepper() if args.step else None
    try:
        if deployment:
            switch = switch_with_jobs(
                program, deployment, args.job, create=lambda ports: program.switch(ports, tracer)
            )
        else:
            switch = program.switch(range(PORTS), tracer)
        if args.entries:
            from fanin.cli.p4.entries import install_entries

            install_entries(switch, args.entries)
        elif not deployment and any(not table.constant for table in program.tables.values()):
            _warn(
                "no entries are installed, so tables run their default actions: --job or --entries gives some"
            )
        processed, answers = _process(switch, frames, stepper, traced=tracer is not None)
    except ValueError as error:
        raise InputError(str(error)) from error
    warn_of_clones(switch)
    if args.out:
        _write(args.out, answers)
    comparison = _compare(recording, answers, args.recorded) if recording else None
    if args.json:
        ports = {str(port): len(frames) for port, frames in sorted(answers.items())}
        print_json({"frames_in": processed, "frames_out": ports, "recorded": comparison and vars(comparison)})
    else:
        print(f"{processed} frames in, {sum(map(len, answers.values()))} out at {len(answers)} ports")
    for line in tracer.summary() if tracer else ():
        show(line)
    if recording and comparison:
        count = sum(map(len, recording.sent.values()))
        if not args.json:
            print(f"{count} recorded answers: {comparison.equal} equal, {comparison.differ} differ")
        if comparison.differ:
            raise CheckFailed(
                f"{args.recorded}: {comparison.differ} answers differ; the first is {comparison.first}"
            )
    return 0


def _tracer(deployment: Deployment | None, show: Callable[[str], None]) -> Tracer:
    """Return the printer of traces; it names the fields of the emitted program's registers."""
    from fanin.p4.aggregation import register_fields
    from fanin.sim.switch.embedded.trace import Tracer

    program = deployment.program if deployment else None
    return Tracer(show, register_fields(program) if program else None)


def _process(
    switch: Switch, frames: Sequence[Arrival], stepper: Stepper | None, *, traced: bool
) -> tuple[int, dict[int, list[Timed]]]:
    """Return the number of processed frames, and the output frames by port with the time of their input."""
    answers: dict[int, list[Timed]] = {}
    processed = 0
    for time, port, frame in frames if traced else progress_bar(frames, unit=" frames"):
        seconds, nanoseconds = divmod(time - frames[0][0], 10**9)
        for to, data in switch.process(port, frame, f"{seconds}.{nanoseconds:09d} s" if traced else ""):
            answers.setdefault(to, []).append((time, data))
        processed += 1
        if stepper and not stepper.wants_next(switch):
            break
    return processed, answers


def _compare(recording: Recording, answers: dict[int, list[Timed]], path: Path) -> Comparison:
    """Compare the answers with the recorded ones, and warn about frames that belong to no member."""
    if recording.unrelated:
        _warn(
            f"{path}: {recording.unrelated} frames are neither from a member of a job "
            "nor from the switch to one"
        )
    return recording.compare(answers)


def _warn(message: str) -> None:
    print(f"fanin: warning: {message}", file=sys.stderr)


def _inputs(texts: Sequence[str]) -> list[Arrival]:
    """Return the frames of all files, sorted by time and port; equal ones keep their order."""
    from fanin.sim.capture import read_capture

    frames = []
    for text in texts:
        port, path = _input(text)
        frames += [(time, port, frame) for time, frame in read_capture(path)]
    return sorted(frames, key=lambda item: item[:2])


def _input(text: str) -> tuple[int, Path]:
    port, sign, path = text.partition("=")
    if not sign or not is_number(port):
        raise InputError(f"--in {text}: must be PORT=FILE")
    return int(port), Path(path)


def _write(folder: Path, answers: dict[int, list[tuple[int, bytes]]]) -> None:
    """Write a capture per port; all are complete before the first one replaces an earlier file."""
    from fanin.sim.pcap import PcapWriter

    with contextlib.ExitStack() as stack:
        for port, frames in sorted(answers.items()):
            file = stack.enter_context(output_file(folder / f"{port}.pcap"))
            writer = PcapWriter(file)
            for time, frame in frames:
                writer.write(frame, time * 1000)
            file.flush()  # a full disk is found here
        with deferred_interrupts():
            stack.close()
