"""Benchmark of the embedded switch on Linux interfaces: packets a second over veth pairs (``fanin p4 serve``).

If BMv2 is installed, it is measured with the same program, job and packets. With ``--attack``, the embedded
switch is measured without and with hostile controllers.
"""

from __future__ import annotations

import argparse
import selectors
import sys
import time
from collections.abc import Iterator

from fanin.base.errors import CheckFailed, InputError
from fanin.evaluation.bench import serve_attack
from fanin.evaluation.bench.result import Result
from fanin.evaluation.bench.served import SLOTS, VALUES, WORKERS, aggregate, cpu_seconds, serve_switch
from fanin.host.ethernet import Interface
from fanin.job import SWITCH
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import default_deployment
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import check_switch
from fanin.wire.aggregation import Kind

ROUNDS = 150  # rounds of every slot: 76,800 packets with ACKs
MIN_RATE = 20_000.0  # packets per s of the switch's CPU time
_IN_FLIGHT = 16  # slots in use at once
_ANSWER_SECONDS = 30.0  # timeout of an answer


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield input packets per s of time, and per s of the switch's CPU time."""
    if args.attack:
        yield from serve_attack.measure()
        return
    with serve_switch() as switch:
        wall_rate, cpu_rate = _rates(switch.hosts, switch.process.pid)
    yield Result("serve over veth, v1model, l2", wall_rate, "packets/s", note="sender on the other core")
    yield Result("serve over veth, one core", cpu_rate, "packets/s", MIN_RATE, at_least=True)
    yield from bmv2_figures()


def bmv2_figures() -> Iterator[Result]:
    """Yield BMv2's figures; if it is not installed, print the reason on stderr."""
    try:
        check_switch(SwitchKind.BMV2)
    except InputError as error:
        print(f"BMv2 is not measured: {error}", file=sys.stderr)
        return
    wall_rate, cpu_rate = _bmv2_rates()
    yield Result("BMv2 over veth, the same packets", wall_rate, "packets/s", note="its threads on all cores")
    yield Result("BMv2 over veth, one core", cpu_rate, "packets/s")


def _rates(hosts: list[Interface], pid: int) -> tuple[float, float]:
    """Return packets per s of time, and per s of the switch's CPU time."""
    cpu_start, start = cpu_seconds(pid), time.perf_counter()
    packets = _send_rounds(hosts)
    seconds, cpu_time = time.perf_counter() - start, cpu_seconds(pid) - cpu_start
    return packets / seconds, packets / cpu_time


def _bmv2_rates() -> tuple[float, float]:
    """Return packets per s of time, and per s of BMv2's CPU time."""
    from fanin.sim.switch.bmv2.frames import VethFrames
    from fanin.sim.switch.bmv2.switch import bmv2_switch

    config = ProgramConfig(workers=WORKERS, slots=SLOTS, values=VALUES)
    with bmv2_switch(config, endpoint=SWITCH, ports=range(WORKERS), veth=True) as switch:
        for job in default_deployment(config).jobs:
            switch.add_job(job)
        frames = switch.pipeline.frames
        assert isinstance(frames, VethFrames)
        return _rates([frames.ends[port] for port in range(WORKERS)], switch.pipeline.bmv2.pid)


def _send_rounds(hosts: list[Interface]) -> int:
    """Send all rounds of all workers, within the capacity of the queues; return the number of packets."""
    selector = selectors.DefaultSelector()
    for host in hosts:
        selector.register(host, selectors.EVENT_READ, host)
    sent = 0
    for round_number in range(1, ROUNDS + 1):
        for first_slot in range(0, SLOTS, _IN_FLIGHT):
            for kind in (Kind.AGG, Kind.ACK):
                for slot in range(first_slot, first_slot + _IN_FLIGHT):
                    for worker, host in enumerate(hosts):
                        host.send(aggregate(worker, slot, round_number, kind))
                        sent += 1
                _await(selector, _IN_FLIGHT * len(hosts))
    selector.close()
    return sent


def _await(selector: selectors.BaseSelector, count: int) -> None:
    """Wait for ``count`` answers. Raises CheckFailed after ``_ANSWER_SECONDS``."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while count:
        for key, _ in selector.select(0.1):
            count -= len(key.data.receive())
        if time.monotonic() > deadline:
            raise CheckFailed(f"{count} answers are missing")
