"""Sizes and prediction of a build for ``build.json``, and memory maps for ``memory/NAME.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fanin.cnn.memory import MemoryMap, Region
from fanin.cnn.parts import Part, PlacedNetwork
from fanin.planner.plan.network import PlannedNetwork

Json = dict[str, Any]

JOB_REGIONS = ("images", "labels", "results")  # regions that have a place for each frame of a job


def sizes_json(planned: PlannedNetwork) -> Json:
    """Return ``sizes`` of build.json: transfers of FIFOs, frames of rings, frames of connections' buffers."""
    stages, sizes = planned.network.stages, planned.sizes

    def edge_json(edge: tuple[int, int]) -> Json:
        index, port = edge
        return {"from": stages[stages[index].sources[port]].name, "to": stages[index].name}

    fifos = sorted({*sizes.skews, *sizes.gradient_skews})
    return {
        "fifos": [
            edge_json(edge) | {"forward": sizes.skews.get(edge), "backward": sizes.gradient_skews.get(edge)}
            for edge in fifos
        ],
        "rings": [{"layer": stages[index].name, "frames": frames} for index, frames in sizes.rings.items()],
        "connections": [
            edge_json(edge) | {"frames": link.frames.in_flight} for edge, link in sizes.links.items()
        ],
    }


def predicted_json(planned: PlannedNetwork, batch: int) -> Json:
    """Return ``predicted`` of build.json: the flow model's prediction. ``batch``: frames between two updates.

    - ``cycles_per_frame``, ``frames_per_second``: steady rate; None for one or two frames.
    - ``latency_cycles``: from a job's start to its first result.
    - ``drain_cycles``: from a batch's last image in until its last gradient is in the velocities.
    - ``update_cycles``: from the end of the drain until the last parameter is updated.
    - ``exposed_cycles``: time of a batch beyond the periods of its frames.
    - ``frames_per_second_with_updates``: rate with ``exposed_cycles`` after every batch.

    A batch of more than ``MAX_FULL_BATCH`` frames is executed in part. ``drain_cycles`` is then too low if the
    first layers are faster than the slowest one, since images run further ahead.
    """
    prediction = planned.prediction(batch)
    return {
        "cycles_per_frame": prediction.period or None,  # undefined for one or two frames
        "frames_per_second": planned.clock / prediction.period if prediction.period else None,
        "latency_cycles": float(prediction.results[0]),
        "drain_cycles": prediction.drain,
        "update_cycles": prediction.update,
        "exposed_cycles": prediction.exposed,
        "batch": batch,
        "frames_per_second_with_updates": planned.clock * prediction.frames_per_cycle(batch),
    }


def write_memory(folder: Path, placement: PlacedNetwork) -> None:
    """Write each device's memory map to DEVICE.json."""
    folder.mkdir(parents=True)
    for part in placement.parts:
        text = json.dumps(memory_json(part), indent=2, ensure_ascii=False)
        (folder / f"{part.device}.json").write_text(text + "\n")


def memory_json(part: Part) -> Json:
    """Return a device's memory map: fixed regions from byte 0, then a job's images, labels and results."""
    memory_map = MemoryMap(part.network, frames=1, rings=part.rings)
    fixed = [region for region in memory_map.regions if region.name not in JOB_REGIONS]
    return {
        "device": part.device,
        "bytes": fixed[-1].end,
        "regions": [_region(part, region) for region in fixed],
        "of_job": [
            {"name": region.name, "bytes_per_frame": region.size}
            for region in memory_map.regions
            if region.name in JOB_REGIONS
        ],
    }


def _region(part: Part, region: Region) -> Json:
    """Return a region as JSON, with its layer's name if it belongs to a stage."""
    kind, _, stage = region.name.partition(" ")
    layer = {"layer": part.network.stages[int(stage)].name} if stage else {}
    return {"name": kind} | layer | {"address": region.address, "bytes": region.size}
