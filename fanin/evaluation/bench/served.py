"""Switch of ``fanin p4 serve`` in its own network namespace, with an aggregation job, for measurements."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fanin.base.errors import CheckFailed, ToolFailed
from fanin.base.tools import program
from fanin.host.ethernet import Interface, open_interface
from fanin.host.lab import Lab
from fanin.job import SWITCH, worker_endpoint
from fanin.wire.aggregation import AggPacket, Encap, Kind, encode

WORKERS, SLOTS, VALUES = 4, 64, 8
_START_SECONDS = _EMIT_SECONDS = 120.0  # timeouts; other programs may occupy the cores


@dataclass
class ServedSwitch:
    """Running switch of ``fanin p4 serve``.

    - ``lab``: the network, whose namespace ``switch`` has the switch and all interfaces.
    - ``process``: the forwarding process.
    - ``hosts``: host end of each port's veth pair, by port.
    - ``report``: object that the command prints; empty until its end.
    """

    lab: Lab
    process: subprocess.Popen[str]
    hosts: list[Interface]
    report: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def serve_switch() -> Iterator[ServedSwitch]:
    """Serve the aggregation program with its job until the context ends.

    Raises CheckFailed at the end if the switch has lost a frame, InputError where there may be no namespaces.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fanin-serve-") as name,
        Lab(["switch"]) as lab,
        contextlib.ExitStack() as stack,
    ):
        for port in range(WORKERS):
            lab.wire("switch", f"port{port}", "switch", f"host{port}")
        process = stack.enter_context(_start_switch(lab, Path(name)))
        names = [f"host{port}" for port in range(WORKERS)]
        hosts = lab.opened("switch", lambda: [stack.enter_context(open_interface(n)) for n in names])
        switch = ServedSwitch(lab, process, hosts)
        yield switch
        process.terminate()
        switch.report = json.loads(process.communicate(timeout=_START_SECONDS)[0])
        counters = switch.report["ports"].values()
        lost = sum(c["refused"] + c["overrun"] + c["lost"] + c["unsent"] for c in counters)
        if lost:
            raise CheckFailed(f"the switch lost {lost} packets")


@contextlib.contextmanager
def _start_switch(lab: Lab, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Emit program and job into ``folder``, start the switch, and yield its process. Raises ToolFailed."""
    fanin = program("fanin", "pip install fanin")
    emit = [fanin, "p4", "emit", "--workers", str(WORKERS), "--slots", str(SLOTS), "--values", str(VALUES)]
    lab.run("switch", [*emit, "-o", str(folder)], limit=_EMIT_SECONDS)
    ports = itertools.chain.from_iterable(("--port", f"{n}=port{n}") for n in range(WORKERS))
    program_and_job = [str(folder / "aggregation.p4"), "--job", str(folder / "job.json")]
    command = [fanin, "p4", "serve", *program_and_job, *ports, "--json"]
    pipe = subprocess.PIPE
    with lab.start("switch", command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stderr is not None
            watchdog = threading.Timer(_START_SECONDS, process.kill)  # the lines below are empty then
            watchdog.start()
            has_started = "P4Runtime" in process.stderr.readline() + process.stderr.readline()
            watchdog.cancel()
            if not has_started:
                raise ToolFailed(f"fanin p4 serve did not start in {_START_SECONDS:g} s")
            yield process
        finally:
            process.kill()


def aggregate(worker: int, slot: int, round_number: int, kind: Kind = Kind.AGG) -> bytes:
    """Return a worker's frame of a slot and a round; an ACK has zeros as values."""
    values = tuple(range(round_number, round_number + VALUES)) if kind is Kind.AGG else (0,) * VALUES
    packet = AggPacket(kind, 1, slot, round_number, 1 << worker, values)
    return encode(packet, encap=Encap.L2, source=worker_endpoint(worker), destination=SWITCH)


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process, in s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
