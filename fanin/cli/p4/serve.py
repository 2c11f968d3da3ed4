"""``fanin p4 serve``: run a P4 program as a software switch between Linux interfaces.

Controllers use P4Runtime.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import InputError
from fanin.base.limits import is_number
from fanin.base.scratch import output_file
from fanin.cli.p4.jobs import switch_with_jobs
from fanin.cli.p4.rates import OTHER_COUNTERS, Rates, totals
from fanin.cli.p4.source import add_source, load_program, warn_of_clones
from fanin.cli.serving import add_seconds, check_seconds, forward, open_interfaces, say, warn
from fanin.runs.output import add_json, check_writable, print_json

if TYPE_CHECKING:
    from fanin.sim.switch.embedded import Program, Refused, Switch
    from fanin.sim.switch.service.forwarding import Forwarding
    from fanin.sim.switch.service.server import P4RuntimeServer

GRPC = "127.0.0.1:9559"  # P4Runtime's port
MAX_PORT = 511  # BMv2's drop port; frames use the ports below it


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    part = parts.add_parser(
        "serve",
        help="run a program between Linux interfaces, with P4Runtime",
        description="Execute PROGRAM.p4 in the embedded switch, between Linux interfaces (veth, TAP, "
        "physical), until it is interrupted. Controllers speak P4Runtime with it, as with BMv2. "
        "Opening interfaces needs CAP_NET_RAW; nothing of them is changed.",
    )
    part.add_argument("program", type=Path, metavar="PROGRAM.p4")
    part.add_argument(
        "--port",
        dest="ports",
        action="append",
        required=True,
        metavar="N=INTERFACE",
        help="interface of a port; repeatable",
    )
    tables = part.add_mutually_exclusive_group()
    tables.add_argument("--job", type=Path, metavar="job.json", help="job.json of fanin p4 emit")
    tables.add_argument("--entries", type=Path, metavar="FILE.json", help="entries and groups of any program")
    part.add_argument(
        "--grpc", default=GRPC, metavar="HOST:PORT", help="address of the P4Runtime server, or none"
    )
    part.add_argument("--device", type=int, default=0, metavar="N", help="P4Runtime's device id")
    part.add_argument(
        "--cpu-port", type=int, metavar="N", help="the port whose frames are packets of the controller"
    )
    part.add_argument("--p4info", type=Path, metavar="FILE", help="write P4Info here, as text")
    add_source(part)
    part.add_argument(
        "--permissive",
        action="store_true",
        help="define undefined reads as BMv2 does: a field of an invalid header keeps its value",
    )
    add_seconds(part)
    add_json(part)
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the switch. Raises InputError for a wrong program, port, address or job before it takes a frame."""
    from fanin.sim.switch.service.forwarding import Forwarding

    check_seconds(args)
    names = _ports(args.ports, args.cpu_port)
    try:
        program = load_program(args, permissive=args.permissive)
        switch = _switch(program, args, names)
    except ValueError as error:
        raise InputError(str(error)) from error
    if args.p4info:
        check_writable(args.p4info)
        _write_p4info(program, args.p4info)
    with contextlib.ExitStack() as stack:
        interfaces = open_interfaces(stack, names)
        forwarding = Forwarding(switch, interfaces, cpu=args.cpu_port, report=warn)
        if not args.permissive:
            forwarding.remedy = _remedy
        stack.callback(forwarding.close)
        server = None
        if args.grpc != "none":
            server = _server(program, forwarding, args)
            stack.callback(server.close)
        rates = Rates(forwarding, names, is_live=sys.stderr.isatty())
        say(f"{program.name} on {', '.join(f'{n}={name}' for n, name in names.items())}")
        if server is not None:
            say(f"P4Runtime at {args.grpc.rpartition(':')[0]}:{server.port}, device {args.device}")
        forward(forwarding, rates, args.seconds)
    if args.json:
        counters = {str(port): asdict(port_counters) for port, port_counters in forwarding.counters.items()}
        other_counts = {name: getattr(forwarding, name) for name in OTHER_COUNTERS}
        clones = forwarding.switch.lost_clones.total()
        control = {
            "control_seconds": forwarding.control_seconds,
            "longest_control_seconds": forwarding.longest_visit,
        }
        print_json(
            {"seconds": rates.seconds, "ports": counters, **other_counts, "lost_clones": clones, **control}
        )
    else:
        print(totals(forwarding, names))
    warn_of_clones(forwarding.switch)
    return 0


def _ports(texts: list[str], cpu: int | None) -> dict[int, str]:
    """Parse ``--port`` and check ``--cpu-port``; return the interfaces by port. Raises InputError."""
    result: dict[int, str] = {}
    for text in texts:
        number, sign, name = text.partition("=")
        if not sign or not is_number(number) or not name:
            raise InputError(f"--port {text}: must be N=INTERFACE")
        if int(number) >= MAX_PORT:
            raise InputError(f"--port {text}: ports are 0 to {MAX_PORT - 1}")
        if int(number) in result or name in result.values():
            raise InputError(f"--port {text}: the port or the interface was named before")
        result[int(number)] = name
    if cpu is not None and (cpu in result or not 0 <= cpu < MAX_PORT):
        raise InputError(f"--cpu-port {cpu}: must be a port of its own, 0 to {MAX_PORT - 1}")
    return result


def _switch(program: Program, args: argparse.Namespace, names: dict[int, str]) -> Switch:
    """Return the switch with the jobs or entries of the options, if any."""
    if args.job:
        from fanin.p4.deployment import load_deployment

        deployment = load_deployment(args.job)
        unserved = sorted({port.number for port in deployment.ports} - set(names))
        if unserved:
            warn(f"{args.job}: no --port for {', '.join(map(str, unserved))}: frames to it are lost")
        return switch_with_jobs(program, deployment, args.job, create=partial(_empty_switch, program))
    switch = _empty_switch(program)
    if args.entries:
        from fanin.cli.p4.entries import install_entries

        install_entries(switch, args.entries)
    return switch


def _empty_switch(program: Program, ports: Iterable[int] = ()) -> Switch:
    """Return a switch without entries, with all ports that an interface may have, and ``ports``.

    Its clock starts at 0. It warns of each place at which a permissive program uses an uninitialized value.
    """
    start = time.monotonic_ns()
    return program.switch(
        {*range(MAX_PORT), *ports},
        clock=lambda: (time.monotonic_ns() - start) // 1000,
        unset=_warn_of_unset,
    )


def _warn_of_unset(place: object) -> None:
    warn(f"{place}: a value that P4 leaves undefined is taken as BMv2 has it")


def _remedy(error: Refused) -> str:
    """Return the remedy for a refused frame, as the end of its warning; empty if there is none."""
    from fanin.sim.switch.embedded import UndefinedRefused

    return " (--permissive takes it as BMv2 has it)" if isinstance(error, UndefinedRefused) else ""


def _server(program: Program, forwarding: Forwarding, args: argparse.Namespace) -> P4RuntimeServer:
    from fanin.sim.switch.service.requests import P4RuntimeService
    from fanin.sim.switch.service.server import P4RuntimeServer

    service = P4RuntimeService(program, forwarding, lambda: _empty_switch(program), args.device)
    return P4RuntimeServer(service, args.grpc)


def _write_p4info(program: Program, path: Path) -> None:
    from google.protobuf import text_format

    from fanin.sim.switch.service.p4info import p4info

    with output_file(path) as file:
        file.write(text_format.MessageToString(p4info(program)).encode())
