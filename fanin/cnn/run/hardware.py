"""Measurements of a run's hardware for run.json: cycles, traffic and FIFO levels of a job; link counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.cnn.driver import StreamCounters, timed_batch
from fanin.cnn.facts import Network
from fanin.cnn.memory import BEAT_BYTES
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.run.contents import predicted_json
from fanin.cnn.run.rtl import BITS_PER_GBIT, Rtl
from fanin.hdl.layers.registers import Direction, Fifo, StageFifo
from fanin.hdl.net.link.job import LinkFailure
from fanin.planner.plan.network import PlannedNetwork
from fanin.sim.cnn.batch_times import drain_and_update, timeline_of
from fanin.sim.cnn.epochs import DeviceCounters
from fanin.wire.ethernet import AROUND_FRAME

RESULT_BATCHES = 3  # batches whose results' cycles are in ``results``
UNITS = {Fifo.FORWARD: "transfers", Fifo.BACKWARD: "transfers", Fifo.RING: "frames", Fifo.SAVE: "beats"}

Metrics = dict[str, Any]


def hardware_of(planned: PlannedNetwork, machine: Rtl) -> Metrics | None:
    """Return ``hardware`` of the last training job, measured and planned; None before the first job.

    - ``cycles_per_frame``: mean cycles between frames of the timed batch, at the slowest stream of any layer.
    - ``frames_per_second``: rate of frames that follows from ``cycles_per_frame``.
    - ``of_planned``: ratio of ``frames_per_second`` to the plan's throughput.
    - ``frames_per_second_with_updates``: rate over the whole job, with the time between batches.
    - ``drain_and_update_cycles``: from the timed batch's last image in until its last parameter is updated.
    - ``dram_gbps``, ``link_gbps``: simulated rates of all devices.
    - ``devices``: traffic of each device's memory and link, and the plan's rates.
    - ``ways``: busy, starved and blocked shares of each stream that leaves a layer.
    - ``results``: cycles in which the results of the first batches were in memory, from the first result.
    - ``timeline``: see :func:`timeline_of`.
    - ``fifos``: largest fill of each FIFO, and its size.
    """
    result = machine.trained
    if result is None or result.job is None:
        return None
    frames = len(result.result_cycles)
    cycles = max(counters.busy + counters.starved + counters.blocked for counters in result.streams)
    timed = timed_batch(result.job)
    period = _period(result.streams, len(timed))
    drains, updated = drain_and_update(planned.network, result.streams)
    return {
        "frames": frames,
        "cycles": cycles,
        "cycles_per_frame": period,
        "frames_per_second": planned.clock / period if period else None,
        "of_planned": planned.clock / period / float(planned.throughput) if period else None,
        "frames_per_second_with_updates": frames / cycles * planned.clock,
        "drain_and_update_cycles": updated - drains,
        "predicted": predicted_json(planned, result.job.batch),
        "dram_gbps": machine.memory_gbps or planned.clock * 8 * BEAT_BYTES / BITS_PER_GBIT,
        "link_gbps": machine.link.gbps if planned.placement.connections else None,
        "devices": [
            _device(name, counters, cycles, frames, planned.clock)
            | _rates(planned, name)
            | _traffic(link, cycles / planned.clock)
            for name, counters, link in zip(
                planned.placement.names, result.devices, machine.traffic, strict=True
            )
        ],
        "ways": _ways(planned, machine, cycles, frames),
        "results": [
            int(cycle - result.result_cycles[0])
            for cycle in result.result_cycles[: RESULT_BATCHES * result.job.batch]
        ],
        "timeline": {"frames": len(timed), **timeline_of(planned.network, result.streams)},
        "fifos": [
            {
                "name": _fifo_name(planned.network, fifo),
                "kind": fifo.kind.name.lower(),
                "unit": UNITS[fifo.kind],
                "fill": result.fifos[fifo],
                "size": size,
            }
            for fifo, size in machine.cosim.fifos.items()
            if size
        ],
    }


def _device(name: str, counters: DeviceCounters, cycles: int, frames: int, clock: int) -> Metrics:
    """Return the memory traffic of a device: bytes per frame, Gbit/s, and share of the port's cycles."""
    gbps = 8 * BEAT_BYTES * clock / cycles / BITS_PER_GBIT  # of one beat
    read_beats, written_beats = (counters.counters[name] for name in ("read_beats", "written_beats"))
    return {
        "name": name,
        "read_bytes_per_frame": read_beats * BEAT_BYTES / frames,
        "written_bytes_per_frame": written_beats * BEAT_BYTES / frames,
        "read_gbps": read_beats * gbps,
        "written_gbps": written_beats * gbps,
        "read_share": read_beats / cycles,
        "write_share": written_beats / cycles,
    }


def _rates(planned: PlannedNetwork, name: str) -> Metrics:
    """Return the memory and network rates that the plan gives for a device, in Gbit/s."""
    rates = planned.rates[name]
    return {"dram_gbps": rates.dram / BITS_PER_GBIT, "network_gbps": rates.network / BITS_PER_GBIT}


def _traffic(link: Mapping[str, Mapping[str, int]], seconds: float) -> Metrics:
    """Return a link's rate each way in Gbit/s, over all frames and with the Ethernet overhead of each."""
    return {
        name: 8 * (direction["bytes"] + AROUND_FRAME * direction["frames"]) / seconds / BITS_PER_GBIT
        for name, direction in (("sent_gbps", link["up"]), ("received_gbps", link["down"]))
    }


def connections_of(placement: PlacedNetwork, machine: Rtl) -> list[Metrics]:
    """Return ``connections`` of run.json: link counters of both ends of each connection, summed over all jobs.

    ``failure``: name of the LinkFailure of the connection; None if it did not fail.
    """
    names = [stage.name for stage in placement.network.stages]
    return [
        {
            "from": names[connection.source],
            "to": names[connection.consumer.stage],
            "number": connection.number,
            "ends": [
                {"device": device}
                | links[connection.number]
                | {"failure": _failure(links[connection.number]["failure"])}
                for device, links in zip(placement.names, machine.links, strict=True)
                if connection.number in links
            ],
        }
        for connection in placement.connections
    ]


def _failure(value: int) -> str | None:
    return LinkFailure(value).name if value else None


def _period(streams: Sequence[StreamCounters], frames: int) -> float | None:
    """Return the cycles between consecutive frames of a batch, for the slowest stream; None for a single frame.

    The latency of a link varies from frame to frame. Frames of streams downstream of a link may therefore seem
    to arrive faster than any layer produces them.
    """
    spans = (counters.last - counters.first for counters in streams)
    return max(spans) / (frames - 1) if frames > 1 else None


def _fifo_name(network: Network, fifo: StageFifo) -> str:
    """Return a description of a FIFO by the names of its layers."""
    stages = network.stages
    name = stages[fifo.stage].name
    match fifo.kind:
        case Fifo.FORWARD:
            return f"{stages[stages[fifo.stage].sources[fifo.port]].name} to {name}"
        case Fifo.BACKWARD:
            return f"{name} back to {stages[stages[fifo.stage].sources[fifo.port]].name}"
        case Fifo.RING:
            return f"saved by {name}"
        case _:
            return f"{name} to memory"


def _ways(planned: PlannedNetwork, machine: Rtl, cycles: int, frames: int) -> list[Metrics]:
    """Return, for each stream, busy cycles per frame, and busy, starved and blocked shares of the job."""
    assert machine.trained is not None
    names = [stage.name for stage in planned.network.stages]
    return [
        {
            "layer": names[counters.stream.stage],
            "way": "backward" if counters.stream.direction is Direction.BACKWARD else "forward",
            "port": counters.stream.port,
            "planned": planned.cycles[counters.stream.stage],
            "busy": counters.busy / frames,
            "busy_share": counters.busy / cycles,
            "starved_share": counters.starved / cycles,
            "blocked_share": counters.blocked / cycles,
        }
        for counters in machine.trained.streams
    ]
