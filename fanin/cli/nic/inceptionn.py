"""``fanin nic run --kind inceptionn``: an INCEPTIONN NIC between two Linux interfaces."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from fanin.base.errors import InputError
from fanin.cli.nic.rtl import ratio, serve_rtl
from fanin.cli.p4.rates import Rates, lost_frames
from fanin.cli.serving import forward, open_interfaces, say, warn
from fanin.codec.facts import Inceptionn, Mode
from fanin.codec.run.options import parse_bound
from fanin.runs.output import print_json, table

if TYPE_CHECKING:
    from fanin.sim.nic.served import NicResult

OPTIONS = ("host", "wire", "bound", "mode")


def add_options(group: argparse._ArgumentGroup) -> None:
    """Declare the options that only this kind has."""
    group.add_argument("--host", metavar="INTERFACE", help="interface to the host")
    group.add_argument("--wire", metavar="INTERFACE", help="interface to the wire")


def run(args: argparse.Namespace) -> None:
    """Run the node. Raises InputError for a wrong option or interface, before any frame is taken."""
    for name in ("host", "wire"):
        if getattr(args, name) is None:
            raise InputError(f"--{name}: --kind inceptionn needs an interface for it")
    if args.host == args.wire:
        raise InputError(f"--wire {args.wire}: must be another interface than --host")
    result = (_serve_model if args.model else _serve_rtl)(args, _codec(args))
    if args.json:
        print_json(asdict(result))
    else:
        print(_summary(result))


def _codec(args: argparse.Namespace) -> Inceptionn:
    default = Inceptionn()
    bound = default.bound if args.bound is None else parse_bound(args.bound)
    return Inceptionn(bound=bound, mode=default.mode if args.mode is None else Mode[args.mode.upper()])


def _start_message(args: argparse.Namespace, codec: Inceptionn) -> str:
    return f"NIC in {'NumPy' if args.model else 'RTL'}, {codec}: host {args.host}, wire {args.wire}"


def _serve_model(args: argparse.Namespace, codec: Inceptionn) -> NicResult:
    from fanin.hdl.codec.nic.registers import COUNTERS
    from fanin.sim.nic.ports import HOST, WIRE, InceptionnPorts
    from fanin.sim.nic.served import NicResult
    from fanin.sim.switch.service.forwarding import Forwarding

    names = {HOST: args.host, WIRE: args.wire}
    ports = InceptionnPorts(codec)
    with contextlib.ExitStack() as stack:
        forwarding = Forwarding(ports, open_interfaces(stack, names), report=warn)
        stack.callback(forwarding.close)
        rates = Rates(forwarding, names, is_live=sys.stderr.isatty())
        say(_start_message(args, codec))
        forward(forwarding, rates, args.seconds)
    counter_names = [f"{direction}_{name}" for direction in ("tx", "rx") for name in COUNTERS]
    return NicResult(
        {name: ports.nic.counters[name] for name in counter_names},
        ports.alignment.unaligned,
        sum(lost_frames(counters) for counters in forwarding.counters.values()),
        rates.seconds,
        None,
    )


def _serve_rtl(args: argparse.Namespace, codec: Inceptionn) -> NicResult:
    from fanin.sim.nic.cosim import InceptionnNicCosim
    from fanin.sim.nic.outside import check_interfaces

    interfaces = [args.host, args.wire]
    check_interfaces(interfaces)
    nic = InceptionnNicCosim()
    serve = functools.partial(nic.serve, codec, host=args.host, wire=args.wire, slowdown=args.slowdown)
    return serve_rtl(
        args,
        interfaces,
        _start_message(args, codec),
        lambda stop, progress: serve(stop=stop, progress=progress),
    )


def _summary(result: NicResult) -> str:
    """Return the counts of frames in each direction, as a table."""
    rows = [["", "compressed", "raw", "passed", "dropped", "bytes in", "bytes out"]]
    for direction, name in (("tx", "host to wire"), ("rx", "wire to host")):
        kinds = ("coded", "raw", "bypassed", "dropped", "bytes_in", "bytes_out")
        rows.append([name, *(f"{result.counters[f'{direction}_{kind}']:,}" for kind in kinds)])
    text = table(rows, right=range(1, len(rows[0])))
    if result.unaligned:
        text += f"\n  begin inside a value, so not compressed: {result.unaligned:,} segments"
    if result.lost:
        text += f"\n  lost, for lack of room in a queue: {result.lost:,} frames"
    return text + ratio(result.seconds, result.simulated_seconds)
