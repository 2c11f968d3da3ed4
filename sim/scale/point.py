"""One all-reduce of the least ring nodes, timed: ``python -m fanin.sim.scale.point NODES VALUES RUNS``.

Alone or under mpiexec. Rank 0 prints a line of JSON, a :class:`Measured`'s fields.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

import numpy as np

from fanin.ring import RingConfig
from fanin.sim.cosim import ranks
from fanin.sim.ring.cosim import RingCosim

CONFIG = RingConfig(lanes=8, frame_words=32, slice_frames=8, buffer_frames=16, replay_frames=16)


@dataclass(frozen=True)
class Measured:
    """A run: its time, and what it had to do in it."""

    seconds: float
    cycles: int
    frames: int
    meetings: int  # of several ranks


def measure(nodes: int, values: int, runs: int) -> Measured:
    """The quickest of some runs."""
    cosim = RingCosim(CONFIG, nodes=nodes, quiet=True)
    vectors = [[np.zeros(values, np.float32)] for _ in range(nodes)]
    found = [cosim.all_reduce(vectors).raw for _ in range(runs)]
    best = min(found, key=lambda run: run.seconds)
    return Measured(best.seconds, best.cycles, sum(best.frames.values()), best.meetings)


def main(nodes: str, values: str, runs: str) -> None:
    """Measure at rank 0, and print it."""
    if not ranks.join():
        return
    try:
        print(json.dumps(asdict(measure(int(nodes), int(values), int(runs)))))
    finally:
        if joined := ranks.joined():
            joined.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
