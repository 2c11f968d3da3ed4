"""The embedded switch on Linux interfaces: packets a second over veth pairs, through ``fanin p4 serve``.

Beside it, where it is installed, BMv2: the same program, job and packets. With ``--attack``, the embedded
switch without and with hostile controllers.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fanin.cli.bench.result import Result
from fanin.errors import CheckFailed, InputError, ToolFailed
from fanin.host.ethernet import Interface, open_interface
from fanin.host.lab import Lab
from fanin.job import SWITCH, worker_endpoint
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import default_deployment
from fanin.tools import program
from fanin.wire.aggregation import AggPacket, Encap, Kind, encode

WORKERS, SLOTS, VALUES = 4, 64, 8
ROUNDS = 150  # of every slot: 76,800 packets with ACKs
MIN_RATE = 20_000.0
_IN_FLIGHT = 16  # slots
_PATIENCE = 30.0  # seconds for one answer
_START = _EMIT = 120.0  # seconds; other programs may have the cores


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield packets in per second of time, and of the switch's CPU time."""
    if args.attack:
        from fanin.cli.bench.serve_attack import attacked

        yield from attacked()
        return
    with serving() as served:
        by_clock, by_core = _rates(served.hosts, served.process.pid)
    yield Result("serve over veth, v1model, l2", by_clock, "packets/s", note="sender on the other core")
    yield Result("serve over veth, one core", by_core, "packets/s", MIN_RATE, at_least=True)
    yield from beside()


def beside() -> Iterator[Result]:
    """Yield BMv2's figures, or say why there are none."""
    try:
        by_clock, by_core = _bmv2_rates()
    except InputError as error:
        print(f"BMv2 is not measured: {error}", file=sys.stderr)
        return
    yield Result("BMv2 over veth, the same packets", by_clock, "packets/s", note="its threads on all cores")
    yield Result("BMv2 over veth, one core", by_core, "packets/s")


def _rates(hosts: list[Interface], pid: int) -> tuple[float, float]:
    """Packets a second of time, and of the switch's CPU time."""
    before, began = cpu_seconds(pid), time.perf_counter()
    packets = _all_reduced(hosts)
    seconds, busy = time.perf_counter() - began, cpu_seconds(pid) - before
    return packets / seconds, packets / busy


def _bmv2_rates() -> tuple[float, float]:
    """The same of BMv2. Raises InputError where it or p4c is not installed."""
    from fanin.sim.switch.bmv2.process import host_end
    from fanin.sim.switch.bmv2.switch import bmv2_switch

    config = ProgramConfig(workers=WORKERS, slots=SLOTS, values=VALUES)
    with (
        bmv2_switch(config, endpoint=SWITCH, ports=range(WORKERS), veth=True) as switch,
        contextlib.ExitStack() as opened,
    ):
        for job in default_deployment(config).jobs:
            switch.add_job(job)
        process = switch.pipeline.bmv2
        names = [host_end(port) for port in range(WORKERS)]
        hosts = process.inside(lambda: [opened.enter_context(open_interface(name)) for name in names])
        return _rates(hosts, process.pid)


@dataclass
class Served:
    """A switch that ``fanin p4 serve`` runs.

    ``lab``: the network; the switch and all interfaces are in its namespace ``switch``
    ``process``: the forwarding process
    ``hosts``: the other end of each port's veth pair, by port
    ``outcome``: the object that the command prints; empty until it has ended
    """

    lab: Lab
    process: subprocess.Popen[str]
    hosts: list[Interface]
    outcome: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def serving() -> Iterator[Served]:
    """Serve the aggregation program with its job until the context ends.

    Raises CheckFailed at the end if the switch has lost a frame, InputError where there may be no namespaces.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fanin-serve-") as name,
        Lab(["switch"]) as lab,
        contextlib.ExitStack() as opened,
    ):
        for port in range(WORKERS):
            lab.wire("switch", f"port{port}", "switch", f"host{port}")
        process = opened.enter_context(_started(lab, Path(name)))
        names = [f"host{port}" for port in range(WORKERS)]
        hosts = lab.opened("switch", lambda: [opened.enter_context(open_interface(n)) for n in names])
        served = Served(lab, process, hosts)
        yield served
        process.terminate()
        served.outcome = json.loads(process.communicate(timeout=_START)[0])
        counters = served.outcome["ports"].values()
        lost = sum(c["refused"] + c["overrun"] + c["lost"] + c["unsent"] for c in counters)
        if lost:
            raise CheckFailed(f"the switch lost {lost} packets")


@contextlib.contextmanager
def _started(lab: Lab, folder: Path) -> Iterator[subprocess.Popen[str]]:
    fanin = program("fanin", "pip install fanin")
    emit = [fanin, "p4", "emit", "--workers", str(WORKERS), "--slots", str(SLOTS), "--values", str(VALUES)]
    lab.run("switch", [*emit, "-o", str(folder)], limit=_EMIT)
    ports = itertools.chain.from_iterable(("--port", f"{n}=port{n}") for n in range(WORKERS))
    program_and_job = [str(folder / "aggregation.p4"), "--job", str(folder / "job.json")]
    command = [fanin, "p4", "serve", *program_and_job, *ports, "--json"]
    pipe = subprocess.PIPE
    with lab.start("switch", command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stderr is not None
            late = threading.Timer(_START, process.kill)  # the lines below are empty then
            late.start()
            started = "P4Runtime" in process.stderr.readline() + process.stderr.readline()
            late.cancel()
            if not started:
                raise ToolFailed(f"fanin p4 serve did not start in {_START:g} s")
            yield process
        finally:
            process.kill()


def aggregate(worker: int, slot: int, number: int, kind: Kind = Kind.AGG) -> bytes:
    """Return a worker's frame of one slot and round."""
    values = tuple(range(number, number + VALUES)) if kind is Kind.AGG else (0,) * VALUES
    packet = AggPacket(kind, 1, slot, number, 1 << worker, values)
    return encode(packet, encap=Encap.L2, source=worker_endpoint(worker), destination=SWITCH)


def _all_reduced(hosts: list[Interface]) -> int:
    """Packets sent: all workers' of all rounds, so many slots in flight that no queue fills."""
    selector = selectors.DefaultSelector()
    for host in hosts:
        selector.register(host, selectors.EVENT_READ, host)
    sent = 0
    for number in range(1, ROUNDS + 1):
        for begin in range(0, SLOTS, _IN_FLIGHT):
            for kind in (Kind.AGG, Kind.ACK):
                for slot in range(begin, begin + _IN_FLIGHT):
                    for worker, host in enumerate(hosts):
                        host.send(aggregate(worker, slot, number, kind))
                        sent += 1
                _await(selector, _IN_FLIGHT * len(hosts))
    selector.close()
    return sent


def _await(selector: selectors.BaseSelector, wanted: int) -> None:
    """Until every host has all its answers."""
    end = time.monotonic() + _PATIENCE
    while wanted:
        for key, _ in selector.select(0.1):
            wanted -= len(key.data.receive())
        if time.monotonic() > end:
            raise CheckFailed(f"{wanted} answers are missing")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
