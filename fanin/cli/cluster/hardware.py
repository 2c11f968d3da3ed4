"""What the node did with its time in the last job of a run: run.json's ``hardware``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fanin.cli.cluster.rtl import Rtl
from fanin.cnn_memory import BEAT_BYTES
from fanin.hdl.layers.registers import Way
from fanin.planner.plan.network import PlannedNetwork

SHOWN_BATCHES = 3  # of the timeline

Metrics = dict[str, Any]


def hardware_of(planned: PlannedNetwork, machine: Rtl, batch: int) -> Metrics | None:
    """Cycles of each layer's ways, beside those planned; None before a job."""
    result = machine.trained
    if result is None:
        return None
    frames = len(result.written)
    cycles = max(one.busy + one.starved + one.blocked for one in result.streams)
    period = _period(result.written, batch)
    return {
        "frames": frames,
        "cycles": cycles,
        "cycles_per_frame": period,
        "frames_per_second": planned.clock / period if period else None,
        "of_planned": planned.clock / period / float(planned.throughput) if period else None,
        "frames_per_second_with_updates": frames / cycles * planned.clock,
        "read_bytes_per_frame": result.counters["read_beats"] * BEAT_BYTES / frames,
        "written_bytes_per_frame": result.counters["written_beats"] * BEAT_BYTES / frames,
        "read_share": result.counters["read_beats"] / cycles,
        "write_share": result.counters["written_beats"] / cycles,
        "ways": _ways(planned, machine, cycles, frames),
        "timeline": [int(at - result.written[0]) for at in result.written[: SHOWN_BATCHES * batch]],
        **_sizes(planned, machine),
    }


def _period(written: Sequence[int], batch: int) -> float | None:
    """Cycles from frame to frame: the mean of a batch's second half, the median of that over batches.

    The first frames come faster, as they have waited inside while layers updated themselves.
    """
    halves = [written[first + batch // 2 : first + batch] for first in range(0, len(written), batch)]
    apart = [(half[-1] - half[0]) / (len(half) - 1) for half in halves if len(half) > 1]
    return float(np.median(apart)) if apart else None


def _ways(planned: PlannedNetwork, machine: Rtl, cycles: int, frames: int) -> list[Metrics]:
    """Of every stream that leaves a layer; cycles a frame, and shares of the job's."""
    assert machine.trained is not None
    names = [stage.name for stage in planned.network.stages]
    return [
        {
            "layer": names[one.stream.stage],
            "way": "backward" if one.stream.way is Way.BACKWARD else "forward",
            "port": one.stream.port,
            "planned": planned.cycles[one.stream.stage],
            "busy": one.busy / frames,
            "busy_share": one.busy / cycles,
            "starved_share": one.starved / cycles,
            "blocked_share": one.blocked / cycles,
        }
        for one in machine.trained.streams
    ]


def _sizes(planned: PlannedNetwork, machine: Rtl) -> Metrics:
    """FIFOs in front of joins, in transfers, and rings of saved maps, in frames."""
    stages, node = planned.network.stages, machine.node
    fifos = [
        {
            "from": stages[stages[stage].sources[port]].name,
            "to": stages[stage].name,
            "way": way,
            "transfers": transfers,
        }
        for way, sizes in (("forward", node.skews), ("backward", node.gradient_skews))
        for (stage, port), transfers in sorted(sizes.items())
        if transfers
    ]
    return {"fifos": fifos, "rings": {stages[i].name: frames for i, frames in sorted(node.rings.items())}}
