"""What the nodes did with their time in the last job of a run: run.json's ``hardware``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.cnn.driver import StreamCounters, timed_batch
from fanin.cnn.facts import Network
from fanin.cnn.memory import BEAT_BYTES
from fanin.cnn.parts import Placement
from fanin.cnn.run.contents import predicted_json
from fanin.cnn.run.rtl import BITS_PER_GBIT, Rtl
from fanin.hdl.layers.registers import Fifo, StageFifo, Way
from fanin.hdl.net.link.job import LinkFailure
from fanin.planner.plan.network import PlannedNetwork
from fanin.sim.cnn.batch_times import drain_and_update, timeline_of
from fanin.sim.cnn.epochs import DeviceCounters
from fanin.wire.ethernet import AROUND_FRAME

SHOWN_BATCHES = 3  # of the results
UNITS = {Fifo.FORWARD: "transfers", Fifo.BACKWARD: "transfers", Fifo.RING: "frames", Fifo.SAVE: "beats"}

Metrics = dict[str, Any]


def hardware_of(planned: PlannedNetwork, machine: Rtl) -> Metrics | None:
    """Cycles of each layer's ways, beside those planned; None before a job."""
    result = machine.trained
    if result is None or result.job is None:
        return None
    frames = len(result.written)
    cycles = max(one.busy + one.starved + one.blocked for one in result.streams)
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
        "results": [int(at - result.written[0]) for at in result.written[: SHOWN_BATCHES * result.job.batch]],
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


def _device(name: str, found: DeviceCounters, cycles: int, frames: int, clock: int) -> Metrics:
    """How a device used its memory."""
    gbps = 8 * BEAT_BYTES * clock / cycles / BITS_PER_GBIT  # of one beat
    read, written = (found.counters[name] for name in ("read_beats", "written_beats"))
    return {
        "name": name,
        "read_bytes_per_frame": read * BEAT_BYTES / frames,
        "written_bytes_per_frame": written * BEAT_BYTES / frames,
        "read_gbps": read * gbps,
        "written_gbps": written * gbps,
        "read_share": read / cycles,
        "write_share": written / cycles,
    }


def _rates(planned: PlannedNetwork, name: str) -> Metrics:
    """What the plan says of a device."""
    rates = planned.rates[name]
    return {"dram_gbps": rates.dram / BITS_PER_GBIT, "network_gbps": rates.network / BITS_PER_GBIT}


def _traffic(link: Mapping[str, Mapping[str, int]], seconds: float) -> Metrics:
    """What a device's link carried of frames, whatever they are and with all around them."""
    return {
        name: 8 * (way["bytes"] + AROUND_FRAME * way["frames"]) / seconds / BITS_PER_GBIT
        for name, way in (("sent_gbps", link["up"]), ("received_gbps", link["down"]))
    }


def connections_of(placement: Placement, machine: Rtl) -> list[Metrics]:
    """What went over the network in all jobs: frames that each end of a connection sent, and what came to it.

    ``failure``: why it has failed; null while it has not.
    """
    names = [stage.name for stage in placement.network.stages]
    return [
        {
            "from": names[one.source],
            "to": names[one.consumer.stage],
            "number": one.number,
            "ends": [
                {"device": device} | links[one.number] | {"failure": _failure(links[one.number]["failure"])}
                for device, links in zip(placement.names, machine.links, strict=True)
                if one.number in links
            ],
        }
        for one in placement.connections
    ]


def _failure(value: int) -> str | None:
    return LinkFailure(value).name if value else None


def _period(streams: Sequence[StreamCounters], frames: int) -> float | None:
    """Cycles from one finished frame of a batch to the next, of the stream where they come slowest.

    A link takes some cycles more or less for the one or the other frame: so of streams behind it, frames may
    seem to come faster than any layer gives them.
    """
    spans = (one.last - one.first for one in streams)
    return max(spans) / (frames - 1) if frames > 1 else None


def _fifo_name(network: Network, fifo: StageFifo) -> str:
    """Which FIFO it is, in words."""
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
