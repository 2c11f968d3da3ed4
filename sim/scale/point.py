"""Timed all-reduce of the smallest ring nodes: ``python -m fanin.sim.scale.point NODES VALUES RUNS RANKS``.

Rank 0 prints the fields of a :class:`Measured` as one line of JSON.
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
from fanin.ring.facts import RingConfig
from fanin.sim.cosim import ranks
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange
from fanin.sim.cosim.meeting import Centre, Channel, Report
from fanin.sim.cosim.spawn import Processes, is_started
from fanin.sim.cosim.state import State, Verdict
from fanin.sim.cosim.watch import Watch
from fanin.sim.network import LinkConfig, Network
from fanin.sim.ring.cosim import RingCosim
from fanin.sim.switch.forward import Forwarder

CONFIG = RingConfig(lanes=8, frame_words=32, slice_frames=8, buffer_frames=16, replay_frames=16)


@dataclass(frozen=True)
class Measured:
    """A run's time and amount of work."""

    seconds: float
    cycles: int
    frames: int
    meetings: int  # 0 with one rank


def measure(nodes: int, values: int, runs: int) -> Measured:
    """Return the fastest of ``runs`` runs."""
    cosim = RingCosim(CONFIG, nodes=nodes, quiet=True)
    vectors = [[np.zeros(values, np.float32)] for _ in range(nodes)]
    found = [cosim.all_reduce(vectors).raw for _ in range(runs)]
    best = min(found, key=lambda run: run.seconds)
    return Measured(best.seconds, best.cycles, sum(best.frames.values()), best.meetings)


def rank_cost(ranks: int = 32, meetings: int = 200) -> float:
    """Return the seconds that one more rank adds to a meeting at rank 0: report and answer, without frames."""
    return (_meeting(ranks + 1, meetings) - _meeting(2, meetings)) / (ranks - 1)


def _meeting(size: int, meetings: int) -> float:
    """Return the seconds of a meeting of ``size`` ranks whose reports have already arrived."""
    ends = [socket.socketpair() for _ in range(size - 1)]
    channels, members = (
        [Channel(end.detach(), rank) for rank, end in enumerate(side, 1)] for side in zip(*ends, strict=True)
    )
    network = Network(switch=Forwarder.of([1]), ports=1, link=LinkConfig())
    exchange = Exchange(network, Clock(4000), Watch(1))
    centre = Centre(exchange, [range(1)] * size, channels, lambda facts: Verdict())
    report = Report([], [], State(busy=True, ended=0, holds_frames=False, progress=0))
    spent: list[float] = []
    for _ in range(meetings):
        for member in members:
            member.send(report)
        began = time.perf_counter()
        centre.meet(0, report)
        spent.append(time.perf_counter() - began)
        for member in members:
            member.receive()
    for channel in (*channels, *members):
        channel.close()
    return statistics.median(spent)


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
        if joined := ranks.joined():
            joined.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
