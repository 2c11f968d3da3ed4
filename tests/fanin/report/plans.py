"""Plans by construction: a chain of layers with residual connections, cut into parts for devices."""

from xml.etree import ElementTree

RATE, NETWORK, CLOCK = 50e9, 40e9, 100e6
KINDS = ("conv", "online_norm", "bias", "relu6")


def _device(name, **changes):
    ram = [{"kind": "m20k", "from_bits": 0, "shapes": [[512, 40]], "blocks": 2713}]
    device = {
        "name": name,
        "family": "arria10",
        "dsp": 1500,
        "luts": 400_000,
        "ram_bits": 35_000_000,
        "ram": ram,
    }
    rates = {"dram_bits_per_second": RATE, "network_bits_per_second": NETWORK, "clock_hz": CLOCK}
    return device | rates | {"connections": 6} | changes


def _layer(index, kind, device):
    trained = kind in ("conv", "dense", "bias")
    return {
        "name": f"{kind}{index}",
        "kind": kind,
        "device": device,
        "inputs": [[8, 8, 16]],
        "output": [8, 8, 16],
        "gradient": True,
        "parameter_words": 16 * index if trained else 0,
        "saved_words": 1024,
        "parallelism": {"pic": 1, "poc": 4, "ph": 1, "pi": 2, "po": 1},
        "cycles": 1000 + index,
        "dsp": 3 + index % 7,
        "luts": 100 + index,
        "ram_bits": 20_000 * (1 + index % 5),
        "ram_blocks": 1 + index % 5,
        "ram_blocks_by_kind": {"m20k": 1 + index % 5},
        "dram_read": 32_768,
        "dram_write": 32_768,
        "parameters": "chip",
        "delay_frames": 0.25,
    }


def _edges(layers):
    """A chain with a residual connection around every eight layers, and labels for the loss."""
    pairs = [(i, i + 1, False) for i in range(len(layers) - 3)]
    pairs += [(i, i + 9, False) for i in range(4, len(layers) - 13, 8)]
    pairs += [(len(layers) - 2, len(layers) - 3, True), (len(layers) - 3, len(layers) - 1, False)]
    return [
        {"from": layers[a]["name"], "to": layers[b]["name"], "bits": 32_768 * (1 + a % 9), "label": label}
        for a, b, label in pairs
    ]


def _connect(edges, layers, throughput):
    """Number the cut edges; their connections."""
    device = {layer["name"]: layer["device"] for layer in layers}
    found, hops = [], dict.fromkeys(device, 0)
    for edge in edges:
        ends = [{"device": device[edge[end]], "layer": edge[end]} for end in ("from", "to")]
        cut = ends[0]["device"] != ends[1]["device"]
        hops[edge["to"]] = max(hops[edge["to"]], hops[edge["from"]] + cut)
        edge["connection"] = len(found) if cut else None
        if cut:
            facts = {
                "bits": edge["bits"],
                "bits_per_second": edge["bits"] * throughput,
                "priority": len(found) % 6,
            }
            found.append({"id": len(found), "from": ends[0], "to": ends[1], **facts, "hops": hops[edge["to"]]})
    return {"connections": found}


def _utilisation(devices, layers, connections, throughput):
    used = {}
    for device in devices:
        mine = [layer for layer in layers if layer["device"] == device["name"]]
        cut = [c["bits"] for c in connections if device["name"] in (c["from"]["device"], c["to"]["device"])]
        total = {key: sum(layer[key] for layer in mine) for key in ("dsp", "luts", "ram_bits", "ram_blocks")}
        used[device["name"]] = {
            "dsp": total["dsp"] / device["dsp"],
            "luts": total["luts"] / device["luts"],
            "ram_bits": total["ram_bits"] / device["ram_bits"] if device["ram_bits"] else None,
            "ram_blocks": total["ram_blocks"] / 2713 if device["ram"][0]["blocks"] else None,
            "dram_read": throughput * sum(layer["dram_read"] for layer in mine) / RATE,
            "dram_write": throughput * sum(layer["dram_write"] for layer in mine) / RATE,
            "network": throughput * sum(cut) / NETWORK,
            "connections": len(cut) / 6,
        }
    return used


def make_plan(count=4, size=60, order=None, status="gap", **changes):
    """``size`` layers in as many parts as ``order`` names devices (by number), the ends on the host's."""
    order = order or [*range(count), 0]
    devices = [_device(f"fpga{n}", **changes) for n in range(count)]
    names = ["input", *(KINDS[i % 4] for i in range(size - 4)), "soft_cross_loss", "input", "output"]
    layers = [_layer(i, kind, f"fpga{order[i * len(order) // size]}") for i, kind in enumerate(names)]
    for layer in (layers[0], *layers[-3:]):
        layer["device"] = "fpga0"
    edges, throughput = _edges(layers), 3000.0
    connections = _connect(edges, layers, throughput)
    plan = {
        "fanin": "0.1.0",
        "model": "example",
        "split": 1,
        "batch": 256,
        "cluster": {"name": f"arria10x{count}", "host": "fpga0", "devices": devices},
        "throughput": throughput,
        "bound": 1.0314 * throughput,
        "gap": 0.0314,
        "flow_throughput": throughput,
        "throughput_with_update": 2871.0,
        "drain_seconds": 0.001,
        "update_seconds": 0.002,
        "limit": {"device": f"fpga{count - 1}", "resource": "dram_read"},
        "utilisation": _utilisation(devices, layers, connections["connections"], throughput),
        "solver": {"status": status, "seconds": 12.25, "effort": 3, "tries": 17, "seed": 0, "workers": 2},
        "layers": layers,
        "edges": edges,
    }
    return plan, connections


def make_sweep():
    """MP4 first, to see that the chart sorts."""
    return [
        {
            "devices": n,
            "mp": mp,
            "throughput": 40.0 * min(n, 5 + mp),
            "bound": 44.0 * min(n, 5 + mp),
            "gap": 0.1,
        }
        for mp in (4, 1, 2)
        for n in (9, 3, 6)
    ]


def elements(svg, name, css=""):
    found = [e for e in ElementTree.fromstring(svg).iter() if e.tag == name]
    return [e for e in found if set(css.split()) <= set(e.get("class", "").split())]


def titles(elements):
    return [e.find("title").text for e in elements]


def numbers(element, *names):
    return [float(element.get(name)) for name in names]
