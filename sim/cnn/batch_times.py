"""Times of layers in the batch whose times nodes record (``fanin.cnn.driver.timed_batch``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fanin.cnn.driver import StreamCounters
from fanin.cnn.facts import Network
from fanin.hdl.layers.registers import Direction, StageStream


def drain_and_update(network: Network, streams: Sequence[StreamCounters]) -> tuple[int, int]:
    """Return the cycles in which the timed batch's last image had entered, and its last update ended."""
    images = next(
        counters for counters in streams if counters.stream == StageStream(network.images, Direction.FORWARD)
    )
    return images.last, max(counters.updated for counters in streams)


def timeline_of(network: Network, streams: Sequence[StreamCounters]) -> dict[str, Any]:
    """Return the timeline of the timed batch: ``start``, a cycle of the job, and a row for each layer.

    Times of a row are cycles after ``start``:

    - ``forward`` and ``backward``: cycles in which the first and the last frame had left the layer in full.
    - ``update``: cycles in which the last gradient had reached the layer, and its parameters were updated.
    """
    times: dict[tuple[int, Direction], tuple[int, int]] = {}
    updated = {}
    for counters in streams:
        key = counters.stream.stage, counters.stream.direction
        first, last = times.get(key, (counters.first, counters.last))
        times[key] = min(first, counters.first), max(last, counters.last)
        if counters.stream.direction is Direction.FORWARD and counters.updated:
            updated[counters.stream.stage] = counters.updated
    start = times[network.consumers[network.images][0].stage, Direction.FORWARD][0]
    rows = []
    for index, stage in enumerate(network.stages):
        if (
            not stage.sources or (index, Direction.FORWARD) not in times
        ):  # input from memory or output to memory
            continue
        update = None
        if index in updated:
            last_gradient = max(
                times[consumer.stage, Direction.BACKWARD][1] for consumer in network.consumers[index]
            )
            update = last_gradient, updated[index]
        spans = {way.name.lower(): times.get((index, way)) for way in Direction} | {"update": update}
        rows.append(
            {"layer": stage.name}
            | {name: span and [cycle - start for cycle in span] for name, span in spans.items()}
        )
    return {"start": start, "layers": rows}
