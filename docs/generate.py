"""Write the pages that derive from declarations: ``python docs/generate.py [PAGE…]``. A test compares them."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fanin.cnn.layers.layer import Parallelism
from fanin.evaluation.bench import plan_layers
from fanin.glm.facts import PRESETS
from fanin.hdl.boards.board import BOARDS, Board, Flow
from fanin.hdl.boards.registers import board_registers
from fanin.hdl.boards.report import RESOURCES
from fanin.hdl.glm.node_registers import node_registers
from fanin.hdl.layers.registers import cluster_registers
from fanin.hdl.param_server.registers import param_server_registers
from fanin.hdl.rdma.registers import rdma_registers
from fanin.hdl.ring.registers import ring_nic_registers, ring_registers
from fanin.p4.aggregation import ProgramConfig, Target, controls
from fanin.p4.emit import program_text
from fanin.planner.plan.plan import Plan
from fanin.planner.search.choices import Choice
from fanin.rdma.facts import RdmaConfig
from fanin.ring.facts import RingConfig
from fanin.wire import aggregation as wire
from fanin.wire import connection, ethernet, ring
from fanin.wire import rdma as roce
from fanin.wire.fields import Field

PACKET = """# The aggregation packet

Generated from `fanin/wire/aggregation.py` by `docs/generate.py`. Network byte order, most significant bit
first. A frame is
Ethernet without preamble and FCS, padded with zeros to {minimum} bytes: {l2} bytes with {values} values in raw
Ethernet, {udp} bytes in UDP over IPv4, port {port}.
"""

BEHIND_HEADERS = """
The aggregation header is followed by the values, {bits} bits each, signed; the ring's header, which follows an
Ethernet header, by the payload of [the ring's frames](../systems/ring.md#frames); a connection's by words of
[a connection](../systems/link.md#a-connection).
"""

RDMA_PACKET = """# The packets of one-sided writes

Generated from `fanin/wire/rdma.py` by `docs/generate.py`. Network byte order, most significant bit first,
behind
Ethernet, IPv4 and UDP ([their fields](aggregation-packet.md#ethernet)), to port {port}. How they are used:
[one-sided
writes](../systems/rdma.md).

| opcode | packet | headers behind the BTH | bytes around the payload |
|---|---|---|---|
{opcodes}
"""

SHARDS = """# Last passes of the tests

Generated from `tests/shards.json`, which `make shards` writes, by `docs/generate.py`. A shard is a part of
`make test-all`; all take the same time ([Tests](tests.md)). A shard that is not listed has not passed yet.
"""

REGISTERS = """# Registers of a node

Generated from `hdl/glm/node_registers.py` by `docs/generate.py`, for the `u280` preset with `l2` and
`vanilla`. **Offsets depend on the node**: without `l2` there is no register `decay`, and with fewer engines
there are fewer `sample_address`, so all later registers move. `fanin verilog glm-node … --registers c` writes
the map of a node beside its Verilog. The order of writes for a run:
[Programming](../systems/glm.md#programming). 32-bit words on AXI4-Lite.

"""

RING_REGISTERS = """# Registers of a ring node

Generated from `hdl/ring/registers.py` by `docs/generate.py`; the map is the same for every configuration.
32-bit words on AXI4-Lite. Order of writes: [Programming](../systems/ring.md#programming),
`fanin/ring/driver.py`.

"""

RING_NIC_REGISTERS = """# Registers of a smart NIC

Generated from `hdl/ring/registers.py` by `docs/generate.py`; the map is the same for every configuration: that
of [a ring node](ring-registers.md), with the host's share and counters. 32-bit words on AXI4-Lite. How a host
uses them: [the smart NIC](../systems/smart-nic.md), `fanin/ring/driver.py`.

"""

RDMA_REGISTERS = """# Registers of a node of one-sided writes

Generated from `hdl/rdma/registers.py` by `docs/generate.py`, for 16 queue pairs and VLAN tags. 32-bit words on
AXI4-Lite. How a host uses them: [one-sided writes](../systems/rdma.md#registers), `fanin/rdma/driver.py`.

"""

PARAM_SERVER_REGISTERS = """# Registers of a parameter server's node

Generated from `hdl/param_server/registers.py` by `docs/generate.py`, for 16 queue pairs. 32-bit words on
AXI4-Lite. How a host uses them: [the parameter server](../systems/param-server-hardware.md#registers),
`fanin/param_server/driver.py`.

"""

CLUSTER_REGISTERS = """# Registers of a cluster node

Generated from `hdl/layers/registers.py` by `docs/generate.py`; the map is the same for every network. 32-bit
words on AXI4-Lite. How a host uses them: [CNN training](../systems/cluster.md#the-node), `fanin/cnn/driver.py`.

"""

BOARD_REGISTERS = """# Registers of a board

Generated from `hdl/boards/registers.py` by `docs/generate.py`; the map is the same for every board. 32-bit
words on the board's bus, from 0x0100_0000 on. How a host reaches them: [boards](../systems/boards.md#control),
`fanin/host/board.py`.

"""

SWITCH_TABLES = """# Registers and tables of the switch program

Generated from `p4/aggregation.py` by `docs/generate.py`: p4sgd, 4 workers, 32,768 slots, 8 values, UDP. See
[the switch program](../systems/switch-program.md). Of `Sum` there is one for each value.

"""


LISTING1 = """# Listing 1 on four Arria 10s

Generated by `docs/generate.py`: the plan of `fanin plan listing1 arria10x4`, {throughput:,.2f} frames/s,
{proof}. See [the planner](../systems/planner.md).

{devices}

## Beside NADA's table I

φ is `conv1`, ψ is `conv5`. Once at the paper's throughput, 3,906.25 frames/s (the fewest DSPs that reach
it), once in the plan.

{table}

- **Throughput**: the paper's plan stops where φ at 12 multiply–adds a cycle does; its rules leave most of
  6,000 DSPs idle   there and do not say why. Ours goes on until `conv3` and `conv6` would take more than
  one device's DSPs.
- **Parallelism**: both columns of the paper have pic·poc·ph = 8, but their cycles need 12. Ours say what
  they do: φ with   12, ψ with 16, as 12 divides none of its dimensions.
- **Padding**: "same" puts the odd pixel below and right, as the paper does for ψ; for φ it pads one row and
  one column more   than the output needs.
- **Parallel I/O**: one word is enough at 3,906 frames/s. The plan's φ takes a whole pixel a cycle.
- **Induced delay**: rows of the first window, one row computed, one handed on; the paper's formula is not
  given.
- **DSPs**: one per multiplier and way and two for the update. ψ agrees at 12 multipliers; the paper's φ has
  6 more than   two ways of 12 and the update.
- **RAM**: every memory of the component and its queues to DRAM. Ours are 66 and 101 % of the paper's estimates
  (φ is the first layer and has two ways); what was built took 47 and 13 % more than those.
- **Placement**: the paper puts ψ on FPGA 0, with inputs and outputs; ours does with the fewest devices,
  then the least   traffic, whatever is first in order.
"""

_LEDS = {
    0: "No LED of this board shows anything.",
    1: "The LED is lit while there is a link and no fault.",
    4: "The first LED is the link, the second a frame, the third a run, the fourth a fault.",
}

BOARDS_REACHED = """# What boards reached

Generated from `bitstreams/*/report.json` by `docs/generate.py`; `make bitstreams BOARD=…` writes these. Placed
and routed, and simulated as a netlist; not yet run on a board. See [boards](../boards.md).

{table}
"""

BITSTREAM = """# {title}

Generated from `hdl/boards/board.py` by `docs/generate.py`.

{facts}

```
make bitstreams BOARD={name}
{flash}fanin board ping 10.0.0.1
```

The node has the addresses of worker 0; `fanin board renumber` makes the build of worker N, in seconds. {leds}
`report.json` is of the last build:
[what boards reached](../../docs/reference/boards-reached.md). Not yet run on a board.
"""

Said = Callable[[Any, Choice, int], str]
TABLE1: list[tuple[str, tuple[str, str], Said]] = [
    ("output channels", ("16", "64"), lambda layer, c, f: str(layer.output_channels)),
    ("kernel", ("5×5", "3×3"), lambda layer, c, f: "×".join(map(str, layer.kernel))),
    ("padding", ("2, 2, 2, 2", "0, 0, 1, 1"), lambda layer, c, f: ", ".join(map(str, layer.padding))),
    ("stride", ("2, 2", "2, 2"), lambda layer, c, f: ", ".join(map(str, layer.stride))),
    ("pic, poc, ph", ("1, 4, 2", "2, 2, 2"), lambda layer, c, f: _three(c.parallelism)),
    ("pi, po", ("1, 1", "1, 1"), lambda layer, c, f: f"{c.parallelism.pi}, {c.parallelism.po}"),
    ("input", ("32×32×3", "8×8×32"), lambda layer, c, f: str(layer.input)),
    ("output", ("16×16×16", "4×4×64"), lambda layer, c, f: str(layer.output)),
    ("induced delay, frames", ("0.23", "0.91"), lambda layer, c, f: f"{float(layer.delay):.2f}"),
    ("cycles", ("25,600", "24,576"), lambda layer, c, f: f"{c.cost.cycles:,}"),
    ("throughput", ("3906.25", "4069.01"), lambda layer, c, f: f"{f / c.cost.cycles:.2f}"),
    ("DSPs", ("32", "38"), lambda layer, c, f: str(c.cost.dsp)),
    ("RAM, Kb", ("272.9", "1446.6"), lambda layer, c, f: f"{c.cost.ram_bits / 1e3:.1f}"),
    ("RAM blocks", ("–", "–"), lambda layer, c, f: str(c.cost.ram_blocks[0])),
]


def _three(p: Parallelism) -> str:
    return f"{p.pic}, {p.poc}, {p.ph}"


def packet_page() -> str:
    """docs/reference/aggregation-packet.md."""
    page = PACKET.format(
        minimum=ethernet.MIN_FRAME_BYTES,
        l2=wire.frame_length(wire.Encap.L2),
        udp=wire.frame_length(wire.Encap.UDP),
        values=wire.DEFAULT_VALUES,
        port=ethernet.UDP_PORT,
    )
    headers = {
        "Aggregation header": wire.AGGREGATION,
        "Ethernet": ethernet.ETHERNET,
        "IPv4, in front of UDP": ethernet.IPV4,
        "UDP": ethernet.UDP,
        "Ring header": ring.RING,
        "Connection header": connection.CONNECTION,
    }
    return page + _header_tables(headers) + BEHIND_HEADERS.format(bits=wire.VALUE_BITS)


def rdma_packet_page() -> str:
    """docs/reference/rdma-packet.md."""
    names = {roce.RETH: "RETH", roce.IMMEDIATE: "immediate data", roce.AETH: "AETH"}
    rows = []
    for opcode in roce.Opcode:
        headers = [name for fields, name in names.items() if fields in roce.extensions(opcode)]
        size = roce.header_bytes(opcode) + roce.ICRC_BYTES
        packet = opcode.name.lower().replace("_", " ")
        rows.append(f"| {opcode:#04x} | {packet} | {', '.join(headers) or '–'} | {size} |")
    page = RDMA_PACKET.format(port=roce.ROCE_PORT, opcodes="\n".join(rows))
    headers = {"BTH": roce.BTH, "RETH": roce.RETH, "Immediate data": roce.IMMEDIATE, "AETH": roce.AETH}
    return page + _header_tables(headers)


def _header_tables(headers: dict[str, tuple[Field, ...]]) -> str:
    text = ""
    for title, fields in headers.items():
        rows = "\n".join(f"| {field.name} | {field.bits} | {field.meaning} |" for field in fields)
        text += f"\n## {title}\n\n| field | bits | meaning |\n|---|---|---|\n{rows}\n"
    return text


def registers_page() -> str:
    """docs/reference/glm-registers.md."""
    config = replace(PRESETS["u280"], l2=True, vanilla=True)
    return REGISTERS + node_registers(config).markdown().rstrip() + "\n"


def ring_registers_page() -> str:
    """docs/reference/ring-registers.md."""
    return RING_REGISTERS + ring_registers(RingConfig()).markdown().rstrip() + "\n"


def ring_nic_registers_page() -> str:
    """docs/reference/ring-nic-registers.md."""
    return RING_NIC_REGISTERS + ring_nic_registers(RingConfig()).markdown().rstrip() + "\n"


def cluster_registers_page() -> str:
    """docs/reference/cluster-registers.md."""
    return CLUSTER_REGISTERS + cluster_registers().markdown().rstrip() + "\n"


def rdma_registers_page() -> str:
    """docs/reference/rdma-registers.md."""
    return RDMA_REGISTERS + rdma_registers(RdmaConfig(vlan=True)).markdown().rstrip() + "\n"


def param_server_registers_page() -> str:
    """docs/reference/param-server-registers.md."""
    return PARAM_SERVER_REGISTERS + param_server_registers(RdmaConfig()).markdown().rstrip() + "\n"


def board_registers_page() -> str:
    """docs/reference/board-registers.md."""
    return BOARD_REGISTERS + board_registers().markdown().rstrip() + "\n"


def switch_tables_page() -> str:
    """docs/reference/switch-tables.md."""
    config = ProgramConfig(target=Target.TNA, encap=wire.Encap.UDP)
    registers = ["| register | words of 32 bits | why |", "|---|---|---|"]
    tables = ["| table | keys | actions | entries | why |", "|---|---|---|---|---|"]
    for control in controls(config):
        for register in control.registers:
            name, words = f"{control.name}.{register.name}", ", ".join(register.words)
            registers.append(f"| `{name}` | {words} | {register.comment} |")
        for table in control.tables:
            keys = ", ".join(key.name for key in table.keys)
            actions = ", ".join(action.name for action in table.actions)
            entries = f"{len(table.entries)} constant" if table.entries else str(table.size)
            name = f"{control.name}.{table.name}"
            tables.append(f"| `{name}` | {keys} | {actions} | {entries} | {table.comment} |")
    text = "\n".join([*registers, "", *tables])
    return SWITCH_TABLES + text.replace("seen | bitmap", r"seen \| bitmap") + "\n"


def listing1_page() -> str:
    """docs/reference/planner-listing1.md: the plan of NADA's demo, and its convolutions beside table I."""
    from fanin.planner.cluster import load_cluster
    from fanin.planner.model.load import load_model
    from fanin.planner.plan.plan import make_plan
    from fanin.planner.search.instance import Instance
    from fanin.planner.search.limits import Limits

    instance = Instance(load_model(plan_layers.MODEL), load_cluster(plan_layers.CLUSTER))
    plan = make_plan(instance, Limits(workers=1))
    devices = [["device", "layers", "DSPs", "RAM, Mb", "connections"]]
    for number, (device, load) in enumerate(zip(instance.cluster.devices, plan.loads, strict=True)):
        names = [n.name for n, d in zip(plan.model.nodes, plan.placement.devices, strict=True) if d == number]
        row = [device.name, ", ".join(names) or "none", str(load.dsp), f"{load.ram_bits / 1e6:.2f}"]
        devices.append([*row, str(load.connections)])
    return LISTING1.format(
        throughput=float(plan.throughput),
        proof="optimal" if plan.optimal else f"gap {100 * plan.gap:.2f} %",
        devices=_markdown(devices),
        table=_markdown(_table1(plan)),
    )


def _table1(plan: Plan) -> list[list[str]]:
    """Rows of table I: the paper's φ and ψ, ours at the paper's throughput, ours in the plan."""
    part = plan.instance.cluster.devices[0].part
    columns = []
    for name in plan_layers.LAYERS.values():
        node = plan.model.by_name[name]
        layer = plan.model.nodes[node].layer
        columns += [(layer, plan_layers.at_target(layer, part)), (layer, plan.placement.choices[node])]
    rows = [["", "φ, paper", "φ at 3,906", "φ in the plan", "ψ, paper", "ψ at 3,906", "ψ in the plan"]]
    for title, (phi, psi), said in TABLE1:
        ours = [said(layer, choice, part.clock) for layer, choice in columns]
        rows.append([title, phi, *ours[:2], psi, *ours[2:]])
    return rows


def boards_reached_page() -> str:
    """docs/reference/boards-reached.md."""
    rows = [["board", "node", "clocks, MHz reached of asked", *RESOURCES.values(), "minutes", "seed", "tools"]]
    for path in sorted(BITSTREAMS.glob("*/report.json")):
        report = json.loads(path.read_text())
        clocks = [
            f"{name} {clock['reached_mhz']:.1f} of {clock['asked_mhz']:g}"
            for name, clock in report["clocks"].items()
        ]
        used = [f"{used['used']:,} of {used['of']:,}" for used in report["used"].values()]
        minutes = f"{sum(report['seconds'].values()) / 60:.0f}"
        tools = f"yosys {report['tools']['yosys']}, {report['tools']['nextpnr']}"
        preset = report["preset"]
        node = f"{preset}, {PRESETS[preset].lanes} lanes" if preset in PRESETS else preset or report["node"]
        rows.append([report["board"], node, ", ".join(clocks), *used, minutes, str(report["seed"]), tools])
    return BOARDS_REACHED.format(table=_markdown(rows))


def _bitstream_page(board: Board) -> Callable[[], str]:
    """bitstreams/BOARD/README.md."""
    flash = f"fanin board flash build/boards/{board.name}\n" if board.loader else ""
    facts = [
        ["", ""],
        ["device", f"{board.device}"],
        ["node", board.preset],
        ["core's clock", f"{board.core_mhz:g} MHz at most"],
        ["RGMII port", str(board.phy.port)],
        ["received data delayed in the FPGA", f"{board.phy.rx_delay_ns:g} ns"],
        ["transmit clock delayed in the FPGA", f"{board.phy.tx_delay_ns:g} ns"],
    ]
    return lambda: BITSTREAM.format(
        name=board.name, title=board.title, facts=_markdown(facts), flash=flash, leds=_LEDS[board.leds]
    )


def shards_page() -> str:
    """Commit and date at which each shard of the tests passed last."""
    record = json.loads((ROOT / "tests/shards.json").read_text())
    rows = [["shard", "commit", "date (UTC)", "result"]]
    rows += [[number, entry["commit"], entry["date"], entry["tests"]] for number, entry in record.items()]
    return SHARDS + "\n" + _markdown(rows)


def _markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _beside(name: str) -> dict[str, Any]:
    """Definitions of a file beside this one."""
    return runpy.run_path(str(Path(__file__).with_name(name)))


def _program(target: Target) -> Callable[[], str]:
    return lambda: program_text(ProgramConfig(target=target, encap=wire.Encap.UDP))


FOLDER = Path(__file__).parent / "reference"
ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
COCOTB = "<!-- Copied from examples/cocotb/README.md by docs/generate.py. -->\n\n"
BITSTREAMS = Path(__file__).parent.parent / "bitstreams"

PAGES: dict[str, Callable[[], str]] = {
    "cocotb.md": lambda: COCOTB + (EXAMPLES / "cocotb/README.md").read_text(),
    "nodes.md": lambda: _beside("nodes.py")["nodes_page"](),
    **_beside("integration.py")["pages"](),
    "../../fanin/__init__.pyi": lambda: _beside("stub.py")["stub_text"](),
    "aggregation-packet.md": packet_page,
    "rdma-packet.md": rdma_packet_page,
    "glm-registers.md": registers_page,
    "ring-registers.md": ring_registers_page,
    "ring-nic-registers.md": ring_nic_registers_page,
    "rdma-registers.md": rdma_registers_page,
    "param-server-registers.md": param_server_registers_page,
    "cluster-registers.md": cluster_registers_page,
    "board-registers.md": board_registers_page,
    "switch-tables.md": switch_tables_page,
    "planner-listing1.md": listing1_page,
    "boards-reached.md": boards_reached_page,
    "cluster-file.md": lambda: _beside("cluster_file.py")["cluster_file_page"](_markdown),
    "causes.md": lambda: _beside("causes.py")["causes_page"](_markdown),
    **_beside("commands.py")["pages"](_markdown),
    "shards.md": shards_page,
    **{
        f"../../bitstreams/{board.name}/README.md": _bitstream_page(board)
        for board in BOARDS.values()
        if board.flow is Flow.OPEN
    },
    **{f"p4/aggregation-{target}.p4": _program(target) for target in Target},
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page())
