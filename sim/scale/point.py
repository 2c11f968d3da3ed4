"""Timed all-reduce of the smallest ring nodes: ``python -m fanin.sim.scale.point NODES VALUES RUNS RANKS``.

Rank 0 prints the fields of a :class:`RunMeasurement` as one line of JSON.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np

from fanin.base.tools import python_module
from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.sim.cosim import ranks
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange
from fanin.sim.cosim.meeting import Centre, Channel, Report
from fanin.sim.cosim.spawn import Processes, is_started
from fanin.sim.cosim.state import Decision, State
from fanin.sim.cosim.watch import Watch
from fanin.sim.network import Network
from fanin.sim.ring.cosim import RingCosim
from fanin.sim.switch.forward import Forwarder

CONFIG = RingConfig(lanes=8, frame_words=32, slice_frames=8, buffer_frames=16, replay_frames=16)


@dataclass(frozen=True)
class RunMeasurement:
    """Time and amount of work of a simulated run."""

    seconds: float  # on this machine
    cycles: int
    frames: int
    meetings: int  # 0 with one rank


def measure(nodes: int, values: int, runs: int) -> RunMeasurement:
    """Return the fastest of ``runs`` all-reduces of ``values`` values by ``nodes`` nodes."""
    cosim = RingCosim(CONFIG, nodes=nodes, quiet=True)
    vectors = [[np.zeros(values, np.float32)] for _ in range(nodes)]
    results = [cosim.all_reduce(vectors).raw for _ in range(runs)]
    fastest = min(results, key=lambda run: run.seconds)
    return RunMeasurement(fastest.seconds, fastest.cycles, sum(fastest.frames.values()), fastest.meetings)


def rank_cost(ranks: int = 32, meetings: int = 200) -> float:
    """Return the seconds that one more rank adds to a meeting at rank 0: report and answer, without frames."""
    return (_meeting_seconds(ranks + 1, meetings) - _meeting_seconds(2, meetings)) / (ranks - 1)


def _meeting_seconds(size: int, meetings: int) -> float:
    """Return the seconds of a meeting of ``size`` ranks whose reports have already arrived."""
    socket_pairs = [socket.socketpair() for _ in range(size - 1)]
    channels, members = (
        [Channel(end.detach(), rank) for rank, end in enumerate(side, 1)]
        for side in zip(*socket_pairs, strict=True)
    )
    network = Network(switch=Forwarder.of([1]), ports=1, link=LinkConfig())
    exchange = Exchange(network, Clock(4000), Watch(1))
    centre = Centre(exchange, [range(1)] * size, channels, lambda facts: Decision())
    report = Report([], [], State(busy=True, last_end=0, holds_frames=False, progress=0))
    durations: list[float] = []
    for _ in range(meetings):
        for member in members:
            member.send(report)
        start = time.perf_counter()
        centre.meet(0, report)
        durations.append(time.perf_counter() - start)
        for member in members:
            member.receive()
    for channel in (*channels, *members):
        channel.close()
    return statistics.median(durations)


def main(nodes: str, values: str, runs: str, count: str) -> int:
    """Measure on ``count`` ranks, print the result at rank 0, and return the exit status."""
    if int(count) > 1 and not is_started():
        processes = Processes(python_module("fanin.sim.scale.point", *sys.argv[1:]), int(count))
        try:
            return processes.wait()
        finally:
            processes.end()
    if int(count) > 1 and not ranks.join():
        return 0
    try:
        print(json.dumps(asdict(measure(int(nodes), int(values), int(runs)))))
    finally:
        if channel := ranks.joined():
            channel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
