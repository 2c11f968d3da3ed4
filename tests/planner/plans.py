"""A small plan on three devices, made by hand: what lies where, and how it is built.

The rest follows, and is written out here as the planner has to write it; costs are those of ``hdl.layers``.
"""

import json
from copy import deepcopy
from dataclasses import asdict, replace
from fractions import Fraction

from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.layers.family import RamKind, family
from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.layer import Parallelism, Shape, Storage
from fanin.cnn.layers.links import graph_contexts
from fanin.cnn.layers.logic import device_luts
from fanin.planner.check.plan import check_plan

PLAN, CONNECTIONS = "plan.json", "connections.json"
GONE = object()  # in the place of a value: the field is not there
BATCH = 64
M20K = {"kind": "m20k", "from_bits": 0, "shapes": [[512, 40], [1024, 20], [2048, 10]]}
BRAM = {"kind": "bram18", "from_bits": 0, "shapes": [[512, 36], [1024, 18]], "blocks": 3400}
URAM = {"kind": "uram", "from_bits": 147456, "shapes": [[4096, 72]], "blocks": 900}


def _device(family, ram_bits, *ram):
    rates = {
        "dram_bytes": 1 << 20,
        "dram_bits_per_second": 50 * 10**9,
        "network_bits_per_second": 40 * 10**9,
        "clock_hz": 92_160_000,
    }
    return {
        "family": family,
        "dsp": 1500,
        "luts": 300_000,
        "ram_bits": ram_bits,
        "ram": list(ram),
        **rates,
        "connections": 8,
    }


def _window(kernel, stride, side):
    return {"kernel": [kernel, kernel], "stride": [stride, stride], "padding": 4 * [side]}


_DECAYS = {"forward_decay": 0.999, "backward_decay": 0.99, "epsilon": 1e-5}

# name: kind, device, sources, what the kind has, parallelism, where parameters lie
_LAYERS = {
    "image": ("input", "fpga0", [], {"shape": [8, 8, 4]}, {"po": 4}, "chip"),
    "labels": ("input", "fpga0", [], {"shape": [1, 1, 10]}, {"po": 2}, "chip"),
    "conv1": (
        *("conv", "fpga0", ["image"], {"output_channels": 16, "groups": 1, **_window(3, 1, 1)}),
        *({"pic": 2, "poc": 4, "ph": 4, "pi": 2, "po": 4}, "chip"),
    ),
    "norm1": ("online_norm", "fpga0", ["conv1"], _DECAYS, {"pi": 4, "po": 4}, "chip"),
    "relu1": ("relu", "fpga0", ["norm1"], {"masked": False}, {"pi": 4, "po": 4}, "chip"),
    "dwconv1": (
        *("dwconv", "fpga1", ["relu1"], {"output_channels": 16, "groups": 16, **_window(3, 1, 1)}),
        *({"poc": 4, "ph": 2, "pi": 4, "po": 4}, "chip"),
    ),
    "bias1": ("bias", "fpga1", ["dwconv1"], {}, {"pi": 4, "po": 4}, "chip"),
    "im2col1": ("im2col", "fpga1", ["relu1"], _window(3, 1, 1), {"pi": 8, "po": 36}, "chip"),
    "conv2": (
        *("conv", "fpga1", ["im2col1"], {"output_channels": 16, "groups": 2, **_window(1, 1, 0)}),
        *({"pic": 4, "poc": 4, "ph": 4, "pi": 36, "po": 4}, "dram"),
    ),
    "add1": ("add", "fpga2", ["bias1", "conv2"], {}, {"pi": 4, "po": 4}, "chip"),
    "relu2": ("relu6", "fpga2", ["add1"], {"masked": True}, {"pi": 4, "po": 4}, "chip"),
    "pool1": ("avg_pool", "fpga2", ["relu2"], _window(2, 2, 0), {"pi": 4, "po": 4}, "chip"),
    "dense1": (
        *("dense", "fpga2", ["pool1"], {"output_channels": 10, "groups": 1, **_window(1, 1, 0)}),
        *({"pic": 4, "poc": 2, "pi": 2, "po": 1}, "chip"),
    ),
    "mean1": ("global_avg_pool", "fpga2", ["pool1"], {}, {"pi": 2, "po": 1}, "chip"),
    "loss1": ("soft_cross_loss", "fpga0", ["dense1", "labels"], {}, {"pi": 1, "po": 1}, "chip"),
    "classes": ("output", "fpga0", ["loss1"], {}, {"pi": 1, "po": 1}, "chip"),
    "features": ("output", "fpga0", ["mean1"], {}, {"pi": 1, "po": 1}, "chip"),
}
_HAS = ("output_channels", "groups", "kernel", "stride", "padding", "masked", *_DECAYS)


def description(throughput=None):
    """What ``build`` makes a plan of, to be changed at will; ``throughput``, if not what the devices allow."""
    fields = ("kind", "device", "sources", "has", "parallelism", "parameters")
    return deepcopy(
        {
            "host": "fpga0",
            "throughput": throughput,
            "priorities": {},  # of connections; else the lowest that is free
            "devices": {
                "fpga0": _device("arria10", 35_000_000, {**M20K, "blocks": None}),
                "fpga1": _device("ultrascale", None, BRAM, URAM),
                "fpga2": _device("arria10", 35_000_000, {**M20K, "blocks": 2713}),
                "fpga3": _device("ecp5", 1_000_000, {**M20K, "kind": "ebr", "blocks": 190}),
            },
            "layers": {name: dict(zip(fields, values, strict=True)) for name, values in _LAYERS.items()},
        }
    )


def description_of(model, rng):
    """A model of the planner's, all on one device that is large enough, each layer built in some way."""
    plan = description()
    plan["devices"] = {"fpga0": {**plan["devices"]["fpga0"], "dsp": 10**9, "luts": 10**9, "ram_bits": 10**12}}
    plan["devices"]["fpga0"]["dram_bytes"] = 1 << 40
    plan["layers"] = {}
    for node in model.nodes:
        layer = node.layer
        has = {key: list(v) if isinstance(v, tuple) else v for key, v in vars(layer).items() if key in _HAS}
        if layer.kind == "input":
            has = {"shape": [layer.output.h, layer.output.w, layer.output.c]}
        plan["layers"][node.name] = {
            "kind": layer.kind,
            "device": "fpga0",
            "sources": [model.nodes[source].name for source in node.sources],
            "has": has,
            "parallelism": asdict(rng.choice(list(layer.parallelisms()))),
            "parameters": rng.choice(layer.storages).value,
        }
    return plan


def write(documents, directory):
    """The files of a plan."""
    for name, document in documents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2))


def build(plan):
    """File name: JSON, of a description. It may break rules of placement, but every figure is right."""
    devices, layers = plan["devices"], _layers(plan)
    entries = [entry for _, entry in layers.values()]
    place = {entry["name"]: entry["device"] for entry in entries}
    edges, connections = _edges(plan, layers, place)
    loads = {name: _load(name, device, entries, edges, place) for name, device in devices.items()}
    limits = _periods(devices, loads, entries)
    slowest = max(limits, key=lambda key: limits[key])
    throughput = float(plan["throughput"] or 1 / limits[slowest])
    stored = _stored(plan, layers, place)
    for connection in connections:
        connection["bits_per_second"] = connection["bits"] * throughput
    document = {
        "fanin": "0.1.0",
        "model": "by_hand",
        "split": 1,
        "batch": BATCH,
        "cluster": {
            "name": "three",
            "host": plan["host"],
            "devices": [{"name": name, **device} for name, device in devices.items()],
        },
        "throughput": throughput,
        "bound": throughput * 1.25,
        "gap": 0.25,
        "flow_throughput": throughput,
        "throughput_with_update": BATCH / ((BATCH + 2) / throughput + 1e-4),
        "drain_seconds": 2 / throughput,
        "update_seconds": 2e-4,
        "limit": dict(zip(("device", "resource", "layer"), slowest, strict=False)),
        "utilisation": {
            name: _shares(devices[name], load, throughput, stored[name]) for name, load in loads.items()
        },
        "solver": {"status": "gap", "seconds": 1.0},
        "layers": entries,
        "edges": edges,
    }
    files = {"plan.json": document, "connections.json": {"connections": connections}}
    for name in {place[entry["name"]]: None for entry in entries}:
        if name in devices:
            files[f"devices/{name}.json"] = _device_file(name, document, connections)
    return files


def _family(device):
    kinds = tuple(RamKind(r["kind"], r["from_bits"], tuple(map(tuple, r["shapes"]))) for r in device["ram"])
    return replace(family(device["family"]), ram=kinds)


def _components(plan):
    made = {}
    for name, given in plan["layers"].items():
        sources = [made[source] for source in given["sources"]]
        has = {key: tuple(value) if isinstance(value, list) else value for key, value in given["has"].items()}
        if "shape" in has:
            has["shape"] = Shape(*has["shape"])
        made[name] = layer_kinds()[given["kind"]](
            inputs=tuple(source.output for source in sources), gradient=any(s.trains for s in sources), **has
        )
    return made


def _layers(plan):
    """Component and entry of every layer."""
    made, components = {}, _components(plan)
    numbers = {name: number for number, name in enumerate(plan["layers"])}
    sources = [[numbers[source] for source in given["sources"]] for given in plan["layers"].values()]
    links = graph_contexts(list(components.values()), sources)
    for (name, given), linked in zip(plan["layers"].items(), links, strict=True):
        component = components[name]
        device = plan["devices"].get(given["device"], plan["devices"]["fpga0"])
        parallelism = Parallelism(**given["parallelism"])
        cost = linked.cost(component, parallelism, Storage(given["parameters"]), _family(device))
        kinds = [ram["kind"] for ram in device["ram"]]
        made[name] = (
            component,
            {
                "name": name,
                "kind": given["kind"],
                "device": given["device"],
                "inputs": [[s.h, s.w, s.c] for s in component.inputs],
                "output": [component.output.h, component.output.w, component.output.c],
                **{key: value for key, value in given["has"].items() if key != "shape"},
                "gradient": component.gradient,
                "parameter_words": component.parameters,
                "saved_words": component.saved_words,
                "parallelism": asdict(parallelism),
                "cycles": cost.cycles,
                "dsp": cost.dsp,
                "luts": cost.luts,
                "ram_bits": cost.ram_bits,
                "ram_blocks": sum(cost.ram_blocks),
                "ram_blocks_by_kind": dict(zip(kinds, cost.ram_blocks, strict=True)),
                "dram_read": cost.dram_read,
                "dram_write": cost.dram_write,
                "parameters": given["parameters"],
                "delay_frames": float(component.delay),
            },
        )
    return made


def _edges(plan, layers, place):
    """Edges and connections."""
    hops = {}
    edges, connections = [], []
    taken = {name: set() for name in plan["devices"]}
    for name, given in plan["layers"].items():
        for port, source in enumerate(given["sources"]):
            ends_at = place[source], place[name]
            label = given["kind"] == "soft_cross_loss" and port == 1
            cut = len(set(ends_at)) > 1
            if port == 0:
                hops[name] = hops.get(source, 0) + cut
            shape = layers[source][0].output
            beats = -(-shape.w * shape.c // 16)  # of a row
            bits = 8 * shape.h * (64 * beats + 88 * -(-beats // 22))
            number = len(connections) if cut else None
            edges.append({"from": source, "to": name, "bits": bits, "label": label, "connection": number})
            if not cut:
                continue
            free = next(n for n in range(99) if all(n not in taken[end] for end in ends_at))
            priority = plan["priorities"].get(number, free)
            for end in ends_at:
                taken[end].add(priority)
            connections.append(
                {
                    "id": number,
                    "from": {"device": ends_at[0], "layer": source},
                    "to": {"device": ends_at[1], "layer": name},
                    "bits": bits,
                    "priority": priority,
                    "hops": hops[name],
                }
            )
    return edges, connections


def _load(name, device, entries, edges, place):
    held = [entry for entry in entries if entry["device"] == name]
    cut = [e["bits"] for e in edges if (place[e["from"]] == name) != (place[e["to"]] == name)]
    node = device_luts(family(device["family"]), len(cut)) if held else 0
    return {
        **{key: sum(entry[key] for entry in held) for key in ("dsp", "ram_bits", "dram_read", "dram_write")},
        "luts": node + sum(entry["luts"] for entry in held),
        "blocks": [entry["ram_blocks_by_kind"] for entry in held],
        "network": sum(cut),
        "connections": len(cut),
    }


def _stored(plan, layers, place):
    """Bytes in DRAM by device, each thing in whole beats: state, rings, a batch's frames from and for the host.

    Without rings where a layer is built as it cannot be.
    """
    numbers = {name: number for number, name in enumerate(plan["layers"])}
    stages = [
        Stage(
            name,
            layers[name][0],
            Parallelism(**given["parallelism"]),
            tuple(numbers[source] for source in given["sources"]),
            Storage(given["parameters"]),
        )
        for name, given in plan["layers"].items()
    ]
    try:
        network, devices = Network("by_hand", tuple(stages)), plan["devices"]
        used = [devices[name] for name in place.values() if name in devices]
        rates = {name: device["network_bits_per_second"] for name, device in devices.items()}
        wiring = Wiring(max((device["clock_hz"] for device in used), default=1), rates)
        rings = Flow(network, links=wiring.links(network, [place[stage.name] for stage in stages])).rings
    except IndexError:
        rings = {}
    stored = dict.fromkeys([*plan["devices"], *place.values()], 0)
    for number, stage in enumerate(stages):
        layer = stage.layer
        frames = BATCH * (stage.layer.kind in ("input", "output"))
        words = [layer.parameters] * 2 if stage.storage is Storage.DRAM else [layer.state_words]
        words += [layer.saved_words] * rings.get(number, 0) + [layer.output.words] * frames
        stored[place[stage.name]] += sum(64 * -(-count // 16) for count in words)
    return stored


def _rates(device):
    return {
        "dram_read": device["dram_bits_per_second"],
        "dram_write": device["dram_bits_per_second"],
        "network": device["network_bits_per_second"],
    }


def _periods(devices, loads, entries):
    periods = {}
    for name, device in devices.items():
        for key, rate in _rates(device).items():
            periods[name, key] = Fraction(loads[name][key], rate)
    for entry in entries:
        clock = devices.get(entry["device"], devices["fpga0"])["clock_hz"]
        periods[entry["device"], "cycles", entry["name"]] = Fraction(entry["cycles"], clock)
    return periods


def _shares(device, load, throughput, stored):
    blocks = [
        sum(by_kind.get(ram["kind"], 0) for by_kind in load["blocks"]) / ram["blocks"]
        for ram in device["ram"]
        if ram["blocks"] is not None
    ]
    return {
        "dsp": load["dsp"] / device["dsp"] if device["dsp"] else 0,
        "luts": None if device["luts"] is None else load["luts"] / device["luts"],
        "ram_bits": None if device["ram_bits"] is None else load["ram_bits"] / device["ram_bits"],
        "ram_blocks": max(blocks, default=None),
        "dram_bytes": None if device["dram_bytes"] is None else stored / device["dram_bytes"],
        "connections": load["connections"] / device["connections"],
        **{key: throughput * load[key] / rate for key, rate in _rates(device).items()},
    }


def _device_file(name, document, connections):
    place = {entry["name"]: entry["device"] for entry in document["layers"]}
    device = next(d for d in document["cluster"]["devices"] if d["name"] == name)
    entry = {"clock_hz": device["clock_hz"], "throughput": document["throughput"]}
    return {
        "device": name,
        "host": name == document["cluster"]["host"],
        **entry,
        "layers": [
            {"name": e["name"], "kind": e["kind"], "specification": _specification(e, **entry)}
            for e in document["layers"]
            if e["device"] == name
        ],
        "connections": [
            {"from": e["from"], "to": e["to"]}
            for e in document["edges"]
            if place[e["from"]] == place[e["to"]] == name
        ],
        "network": [
            {
                "id": c["id"],
                "direction": direction,
                "layer": c[own]["layer"],
                "peer": c[other]["device"],
                "priority": c["priority"],
            }
            for c in connections
            for direction, own, other in (("out", "from", "to"), ("in", "to", "from"))
            if c[own]["device"] == name
        ],
    }


def _specification(entry, clock_hz, throughput):
    p = entry["parallelism"]
    made = {
        "parallel_io": [p["pi"], p["po"]],
        "output_shape": entry["output"],
        "induced_delay_frames": entry["delay_frames"],
        "target_throughput": throughput,
        "actual_throughput": max(throughput, clock_hz / entry["cycles"]),
        **({"input_shape": entry["inputs"][0]} if entry["inputs"] else {}),
    }
    if "kernel" in entry:
        made |= {"kernel_shape": entry["kernel"], "padding": entry["padding"], "stride": entry["stride"]}
    if entry["kind"] in ("conv", "dense"):
        made["parallel_input_channel"] = p["pic"]
    if entry["kind"] in ("conv", "dwconv", "dense"):
        made |= {"output_channels": entry["output_channels"], "parallel_output_channel": p["poc"]}
        made["parallel_horizontal"] = p["ph"]
    if entry["parameter_words"]:
        made["parameters"] = entry["parameters"]
    return made


def step_into(value, step):
    """What the step leads to; of things with names, also by name."""
    if isinstance(value, list) and isinstance(step, str):
        return next(item for item in value if item["name"] == step)
    return value[step]


def change(document, path, value):
    """Set what is at the path, or take it away. Returns the document."""
    inner = document
    for step in path[:-1]:
        inner = step_into(inner, step)
    last = path[-1]
    if isinstance(inner, list) and isinstance(last, str):
        last = inner.index(step_into(inner, last))
    if value is GONE:
        del inner[last]
    else:
        inner[last] = value
    return document


def complaints(documents, directory):
    """Of the checker, about these files."""
    write(documents, directory)
    return check_plan(directory)


def steps(text):
    """A path, written with slashes."""
    return tuple(int(step) if step.isdigit() else step for step in text.split("/"))
