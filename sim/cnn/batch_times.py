"""Times of layers in the batch that nodes time (``fanin.cnn.driver.timed_batch``), in cycles of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fanin.cnn.driver import StreamCounters
from fanin.cnn.facts import Network
from fanin.hdl.layers.registers import StageStream, Way


def drain_and_update(network: Network, streams: Sequence[StreamCounters]) -> tuple[int, int]:
    """Return two cycles of the timed batch: its last image had entered; its last parameter was updated."""
    images = next(one for one in streams if one.stream == StageStream(network.images, Way.FORWARD))
    return images.last, max(one.updated for one in streams)


def timeline_of(network: Network, streams: Sequence[StreamCounters]) -> dict[str, Any]:
    """Return the timeline of the timed batch: ``start``, a cycle of the job, and a row for each layer.

    Times of a row are cycles after ``start``:

    - ``forward`` and ``backward``: the first and the last frame had left the layer in full.
    - ``update``: the last gradient had reached the layer; its parameters were updated.
    """
    times: dict[tuple[int, Way], tuple[int, int]] = {}
    updated = {}
    for one in streams:
        place = one.stream.stage, one.stream.way
        first, last = times.get(place, (one.first, one.last))
        times[place] = min(first, one.first), max(last, one.last)
        if one.stream.way is Way.FORWARD and one.updated:
            updated[one.stream.stage] = one.updated
    start = times[network.consumers[network.images][0].stage, Way.FORWARD][0]
    rows = []
    for index, stage in enumerate(network.stages):
        if not stage.sources or (index, Way.FORWARD) not in times:  # input from memory or output to memory
            continue
        update = None
        if index in updated:
            came = max(times[consumer.stage, Way.BACKWARD][1] for consumer in network.consumers[index])
            update = came, updated[index]
        spans = {way.name.lower(): times.get((index, way)) for way in Way} | {"update": update}
        rows.append(
            {"layer": stage.name} | {name: span and [at - start for at in span] for name, span in spans.items()}
        )
    return {"start": start, "layers": rows}
