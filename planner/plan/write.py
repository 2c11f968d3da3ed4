"""Writer of a plan's files: plan.json, connections.json, and one file for the builder of each device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fanin import __version__
from fanin.base.scratch import write_file
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.layer import Shape
from fanin.cnn.layers.window import Window
from fanin.planner.cluster import Device
from fanin.planner.model.graph import Edge, Node
from fanin.planner.plan.digest import CONNECTIONS_FILE, DEVICES, DIGEST, PLAN_FILE, plan_digest
from fanin.planner.plan.plan import Plan, bottleneck
from fanin.planner.search.instance import Load
from fanin.planner.search.priorities import cut_edges


def plan_documents(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the content of each JSON file of a plan, by path."""
    values: dict[str, Any] = {PLAN_FILE: plan_json(plan), CONNECTIONS_FILE: connections_json(plan)}
    for number, device in enumerate(plan.instance.cluster.devices):
        if number in plan.placement.devices:
            values[f"{DEVICES}/{device.name}.json"] = device_json(plan, number)
    values[PLAN_FILE][DIGEST] = plan_digest(values)
    return values


def write_documents(folder: Path, documents: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the files of a plan to a folder."""
    for name, content in documents.items():
        write_file(folder / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the contents of plan.json. docs/systems/planner.md, "Files", describes the keys."""
    cluster = plan.instance.cluster
    return {
        "fanin": __version__,
        "model": plan.model.name,
        "split": plan.split,
        "batch": plan.batch,
        "cluster": {
            "name": cluster.name,
            "host": cluster.devices[cluster.host].name,
            "devices": [_device(device) for device in cluster.devices],
        },
        "throughput": float(plan.throughput),
        "bound": float(plan.bound),
        "gap": plan.gap,
        "flow_throughput": plan.flow_throughput,
        "throughput_with_update": plan.throughput_with_update,
        "drain_seconds": plan.drain,
        "update_seconds": plan.update,
        "limit": bottleneck(plan),
        "utilisation": {
            device.name: _utilisation(plan, device, load, stored)
            for device, load, stored in zip(cluster.devices, plan.loads, plan.stored, strict=True)
        },
        "solver": {"status": "optimal" if plan.optimal else "gap", **dict(plan.statistics)},
        "layers": [_layer(plan, number, node) for number, node in enumerate(plan.model.nodes)],
        "edges": [_edge(plan, number, edge) for number, edge in enumerate(plan.model.edges)],
    }


def _device(device: Device) -> dict[str, Any]:
    part = device.part
    counts = part.ram_blocks or [None] * len(part.family.ram)
    return {
        "name": device.name,
        "family": part.family.name,
        "dsp": part.dsp,
        "luts": part.luts,
        "ram_bits": part.ram_bits,
        "ram": [
            {
                "kind": ram.name,
                "from_bits": ram.from_bits,
                "shapes": [list(s) for s in ram.shapes],
                "blocks": count,
            }
            for ram, count in zip(part.family.ram, counts, strict=True)
        ],
        "dram_bytes": part.dram_bytes,
        "dram_bits_per_second": part.dram,
        "network_bits_per_second": part.network,
        "clock_hz": part.clock,
        "connections": part.connections,
    }


def _utilisation(plan: Plan, device: Device, load: Load, stored: int) -> dict[str, float | None]:
    part, rate = device.part, float(plan.throughput)
    blocks = None
    if part.ram_blocks is not None:
        counts = zip(load.ram_blocks, part.ram_blocks, strict=True)
        blocks = max((_share(used, available) for used, available in counts), default=None)
    return {
        "dsp": _share(load.dsp, part.dsp),
        "luts": None if part.luts is None else _share(load.luts, part.luts),
        "ram_bits": None if part.ram_bits is None else _share(load.ram_bits, part.ram_bits),
        "ram_blocks": blocks,
        "dram_bytes": None if part.dram_bytes is None else _share(stored, part.dram_bytes),
        "dram_read": _share(load.dram_read * rate, part.dram),
        "dram_write": _share(load.dram_write * rate, part.dram),
        "network": _share(load.network * rate, part.network),
        "connections": _share(load.connections, part.connections),
    }


def _share(used: float, available: int) -> float:
    return used / available if available else 0.0


def _sizes(shape: Shape) -> list[int]:
    return [shape.h, shape.w, shape.c]


def _layer(plan: Plan, number: int, node: Node) -> dict[str, Any]:
    layer, device = node.layer, plan.instance.cluster.devices[plan.placement.devices[number]]
    choice = plan.placement.choices[number]
    p, cost = choice.parallelism, choice.cost
    entry: dict[str, Any] = {
        "name": node.name,
        "kind": layer.kind,
        "device": device.name,
        "inputs": [_sizes(shape) for shape in layer.inputs],
        "output": _sizes(layer.output),
    }
    for field in layer.plan_fields:
        value = getattr(layer, field)
        entry[field] = list(value) if isinstance(value, tuple) else value
    names = [ram.name for ram in device.part.family.ram]
    return entry | {
        "gradient": layer.gradient,
        "parameter_words": layer.parameters,
        "saved_words": layer.saved_words,
        "parallelism": {name: value for name, value in asdict(p).items() if name != "frames" or value > 1},
        "cycles": cost.cycles,
        "dsp": cost.dsp,
        "luts": cost.luts,
        "ram_bits": cost.ram_bits,
        "ram_blocks": sum(cost.ram_blocks),
        "ram_blocks_by_kind": dict(zip(names, cost.ram_blocks, strict=True)),
        "dram_read": cost.dram_read,
        "dram_write": cost.dram_write,
        "parameters": str(choice.storage),
        "delay_frames": float(layer.delay),
    }


def _edge(plan: Plan, number: int, edge: Edge) -> dict[str, Any]:
    cut = cut_edges(plan.instance, plan.placement)
    return {
        "from": plan.model.nodes[edge.source].name,
        "to": plan.model.nodes[edge.target].name,
        "bits": edge.bits,
        "label": edge.label,
        "connection": cut.index(number) if number in cut else None,
    }


def connections_json(plan: Plan) -> dict[str, Any]:
    """Return the contents of connections.json."""
    hops = _hops(plan)
    return {
        "connections": [
            {
                "id": number,
                "from": _end(plan, edge.source),
                "to": _end(plan, edge.target),
                "bits": edge.bits,
                "bits_per_second": float(edge.bits * plan.throughput),
                "priority": plan.priorities[index],
                "hops": hops[edge.target],
            }
            for number, index in enumerate(cut_edges(plan.instance, plan.placement))
            for edge in (plan.model.edges[index],)
        ]
    }


def _end(plan: Plan, node: int) -> dict[str, str]:
    return {
        "device": plan.instance.cluster.devices[plan.placement.devices[node]].name,
        "layer": plan.model.nodes[node].name,
    }


def _hops(plan: Plan) -> Mapping[int, int]:
    """Return the number of cut edges from the input to each node, by the node's index.

    Edges are in the order of their targets, so the hops of a source are known. All paths to a node have the
    same number of hops (``fanin.planner.check``), so each may set it. Edges of labels do not count.
    """
    devices, hops = plan.placement.devices, dict.fromkeys(range(len(plan.model.nodes)), 0)
    for edge in plan.model.edges:
        if not edge.label:
            hops[edge.target] = hops[edge.source] + (devices[edge.source] != devices[edge.target])
    return hops


def device_json(plan: Plan, device: int) -> dict[str, Any]:
    """Return the description of a device for its builder: layers by NADA's table I, and connections."""
    cluster, devices = plan.instance.cluster, plan.placement.devices
    names = [node.name for node in plan.model.nodes]
    inner = [e for e in plan.model.edges if devices[e.source] == devices[e.target] == device]
    network = []
    for number, index in enumerate(cut_edges(plan.instance, plan.placement)):
        edge = plan.model.edges[index]
        for direction, end, peer in (("out", edge.source, edge.target), ("in", edge.target, edge.source)):
            if devices[end] == device:
                network.append(
                    {
                        "id": number,
                        "direction": direction,
                        "layer": names[end],
                        "peer": cluster.devices[devices[peer]].name,
                        "priority": plan.priorities[index],
                    }
                )
    return {
        "device": cluster.devices[device].name,
        "host": device == cluster.host,
        "clock_hz": cluster.devices[device].part.clock,
        "throughput": float(plan.throughput),
        "layers": [
            {"name": node.name, "kind": node.layer.kind, "specification": specification(plan, number)}
            for number, node in enumerate(plan.model.nodes)
            if devices[number] == device
        ],
        "connections": [{"from": names[edge.source], "to": names[edge.target]} for edge in inner],
        "network": network,
    }


def specification(plan: Plan, number: int) -> dict[str, Any]:
    """Return a layer in the terms of NADA's table I."""
    layer, choice = plan.model.nodes[number].layer, plan.placement.choices[number]
    clock = plan.instance.cluster.devices[plan.placement.devices[number]].part.clock
    p = choice.parallelism
    entries: dict[str, Any] = {}
    if isinstance(layer, Conv):
        entries["output_channels"] = layer.output_channels
    if isinstance(layer, Window):
        entries |= {
            "kernel_shape": list(layer.kernel),
            "padding": list(layer.padding),
            "stride": list(layer.stride),
        }
    if isinstance(layer, Conv):
        entries |= {
            "parallel_input_channel": p.pic,
            "parallel_output_channel": p.poc,
            "parallel_horizontal": p.ph,
        }
    entries["parallel_io"] = [p.pi, p.po]
    if layer.inputs:
        entries["input_shape"] = _sizes(layer.inputs[0])
    return entries | {
        "output_shape": _sizes(layer.output),
        "induced_delay_frames": float(layer.delay),
        "target_throughput": float(plan.throughput),
        "actual_throughput": clock / choice.cost.cycles,
        "parameters": str(choice.storage),
    }
