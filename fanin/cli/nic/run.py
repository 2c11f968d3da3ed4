"""``fanin nic run``: an INCEPTIONN NIC between two Linux interfaces."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.cli.codec.options import MODES, add_bound, parse_bound
from fanin.cli.output import add_json, print_json, table
from fanin.cli.p4.rates import Rates, lost_frames
from fanin.cli.serving import (
    add_seconds,
    check_seconds,
    forward,
    opened_interfaces,
    say,
    stopped_by_signals,
    warn,
)
from fanin.codec import Inceptionn, Mode
from fanin.errors import InputError, ToolFailed
from fanin.sim.network import SLOWDOWN
from fanin.sim.nic.pace import MAX_SLOWDOWN

if TYPE_CHECKING:
    from fanin.sim.nic.served import Served


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    default = Inceptionn()
    part = parts.add_parser(
        "run",
        help="an INCEPTIONN NIC between two interfaces",
        description="Carry frames between a host and a wire through INCEPTIONN's NIC, until it is interrupted: "
        "what sockets of ToS 0x28 send is compressed on the wire, everything else passes. "
        "Opening interfaces needs CAP_NET_RAW; nothing of them is changed.",
    )
    part.add_argument("--host", required=True, metavar="INTERFACE", help="where the host's frames come from")
    part.add_argument("--wire", required=True, metavar="INTERFACE", help="where they leave")
    part.add_argument("--model", action="store_true", help="the NumPy twin in place of the RTL")
    add_bound(part, help=f"error bound (default: 2^-{default.bound})")
    part.add_argument("--mode", choices=MODES, default=default.mode.name.lower(), help="INCEPTIONN's")
    part.add_argument(
        "--slowdown",
        type=float,
        default=SLOWDOWN,
        metavar="N",
        help="a second of the RTL's time takes N seconds at least",
    )
    add_seconds(part)
    add_json(part)
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve. Raises InputError for a wrong option or interface, before any frame is taken."""
    check_seconds(args)
    if not 1 <= args.slowdown <= MAX_SLOWDOWN:
        raise InputError(f"--slowdown {args.slowdown:g}: must be 1 to {MAX_SLOWDOWN:g}")
    if args.host == args.wire:
        raise InputError(f"--wire {args.wire}: must be another interface than --host")
    served = (_serve_model if args.model else _serve_rtl)(args, _codec(args))
    if args.json:
        print_json(asdict(served))
    else:
        print(_summary(served))
    return 0


def _codec(args: argparse.Namespace) -> Inceptionn:
    bound = Inceptionn().bound if args.bound is None else parse_bound(args.bound)
    return Inceptionn(bound=bound, mode=Mode[args.mode.upper()])


def _say_started(args: argparse.Namespace, codec: Inceptionn) -> None:
    say(f"NIC in {'NumPy' if args.model else 'RTL'}, {codec}: host {args.host}, wire {args.wire}")


def _serve_model(args: argparse.Namespace, codec: Inceptionn) -> Served:
    from fanin.hdl.codec.nic.registers import COUNTERS
    from fanin.sim.nic.ports import HOST, WIRE, InceptionnPorts
    from fanin.sim.nic.served import Served
    from fanin.sim.switch.service.forwarding import Forwarding

    names = {HOST: args.host, WIRE: args.wire}
    ports = InceptionnPorts(codec)
    with contextlib.ExitStack() as opened:
        forwarding = Forwarding(ports, opened_interfaces(opened, names), say=warn)
        opened.callback(forwarding.close)
        rates = Rates(forwarding, names, live=sys.stderr.isatty())
        _say_started(args, codec)
        forward(forwarding, rates, args.seconds)
    names_of = [f"{way}_{name}" for way in ("tx", "rx") for name in COUNTERS]
    return Served(
        {name: ports.nic.counters[name] for name in names_of},
        ports.alignment.unaligned,
        sum(lost_frames(counters) for counters in forwarding.counters.values()),
        rates.seconds,
        None,
    )


def _serve_rtl(args: argparse.Namespace, codec: Inceptionn) -> Served:
    from fanin.sim.cosim.simulator import SimulationFailed
    from fanin.sim.nic.cosim import InceptionnNicCosim
    from fanin.sim.nic.outside import check_interfaces
    from fanin.sim.nic.stopping import Stop

    check_interfaces([args.host, args.wire])
    nic = InceptionnNicCosim()
    began = None

    def progress(_: object) -> None:
        nonlocal began
        if began is None:
            began = time.monotonic()
            _say_started(args, codec)
        if args.seconds is not None and time.monotonic() >= began + args.seconds:
            stop.ask()

    with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
        stop = Stop(Path(folder) / "stop")
        try:
            with stopped_by_signals(stop.ask):
                return nic.serve(
                    codec, host=args.host, wire=args.wire, slowdown=args.slowdown, stop=stop, progress=progress
                )
        except SimulationFailed as error:
            check_interfaces([args.host, args.wire])  # one that has gone is the cause
            raise ToolFailed(str(error)) from error


def _summary(served: Served) -> str:
    """What the NIC did with frames, each way."""
    rows = [["", "compressed", "raw", "passed", "dropped", "bytes in", "bytes out"]]
    for way, name in (("tx", "host to wire"), ("rx", "wire to host")):
        kinds = ("coded", "raw", "bypassed", "dropped", "bytes_in", "bytes_out")
        rows.append([name, *(f"{served.counters[f'{way}_{kind}']:,}" for kind in kinds)])
    text = table(rows, right=range(1, len(rows[0])))
    if served.unaligned:
        text += f"\n  begin inside a value, so not compressed: {served.unaligned:,} segments"
    if served.lost:
        text += f"\n  lost, for lack of room in a queue: {served.lost:,} frames"
    if served.simulated_seconds:
        text += (
            f"\n  {served.simulated_seconds * 1e3:,.3f} ms of the NIC's time in {served.seconds:.1f} s: "
            f"1 : {served.seconds / served.simulated_seconds:,.0f}"
        )
    return text
