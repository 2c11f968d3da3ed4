"""The page of nodes, from the catalogue: ports, parameters, what lies beside each; for ``generate.py``."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Shape
from amaranth.lib import stream, wiring

from fanin.glm.facts import PRESETS
from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.catalog import CATALOG, Entry, module_of

PAGE = """# Nodes

Generated from `hdl/catalog.py` by `docs/generate.py`: what a hardware engineer takes into a design of their
own. Each is one Verilog module with one clock; [a package](../packages.md) brings registers, constraints,
IP-XACT and a FuseSoC core along. They need the install of [the first page](../start.md) (`make demo`, then
`. .venv/bin/activate`). A node without sizes for a preset says which it has.

```
fanin verilog NAME --package DIR               # the parameters below are the default preset's
fanin verilog NAME --preset tiny --set KEY=VALUE
fanin verilog NAME --name MODULE               # for a design with two variants of NAME
fanin verilog --list                           # these and all parts, for a preset
```

[All components](#all-components) lists the parts of these nodes, which `fanin verilog` emits, too.

The names of all modules begin with the top module's. At the top level, names are joined by one underscore:
`memory_araddr`, `mac_tx_tdata`. Packet streams are AXI4-Stream. Areas and clocks:
[what boards reached](boards-reached.md), `fanin bench area`, `fanin bench fmax`.
"""


COMPONENTS = """
## All components

Each NAME of `fanin verilog`, with the parameters that `--set` overrides and their values in the preset `demo`.
`fanin verilog NAME --registers c` writes the map of a component with registers. For another component it ends
with exit status 2 and a line that names those with registers.

| component | purpose | parameters | registers |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Node:
    """Facts of a node that the catalogue lacks: pages, driver, testbench."""

    contract: str
    registers: str
    driver: str
    testbench: str = ""
    litex: str = ""
    note: str = ""
    integration: str = ""


NODES = {
    "glm-node": Node(
        "../systems/glm.md", "glm-registers.md", "fanin/glm/driver.py", "glm", "--preset tiny",
        integration="nodes/glm-node.md",
    ),
    "ring-node": Node(
        "../systems/ring.md", "ring-registers.md", "fanin/ring/driver.py", "ring", "--set lanes=2",
        integration="nodes/ring-node.md",
    ),
    "ring-nic": Node(
        "../systems/smart-nic.md", "ring-nic-registers.md", "fanin/ring/driver.py",
        note="The host's own frames go in at `host_tx` and out at `host_rx`",
    ),
    "inceptionn-nic": Node(
        "../systems/inceptionn-nic.md", "", "fanin/inceptionn/driver.py", "inceptionn",
        integration="nodes/inceptionn-nic.md",
    ),
    "rdma-nic": Node(
        "../systems/rdma.md", "rdma-registers.md", "fanin/rdma/driver.py", "rdma",
        integration="nodes/rdma-nic.md",
    ),
    "param-server": Node(
        "../systems/param-server-hardware.md", "param-server-registers.md", "fanin/param_server/driver.py",
        integration="nodes/param-server.md",
    ),
    "cluster-node": Node(
        "../systems/cluster.md", "cluster-registers.md", "fanin/cnn/driver.py", "cluster",
        integration="nodes/cluster-node.md",
        note="A network of `fanin cluster build` has one MAC stream for each device beside it",
    ),
}  # fmt: skip


def nodes_page() -> str:
    """The whole page."""
    return PAGE + "".join(_section(name, node) for name, node in NODES.items()) + _components()


def _components() -> str:
    """Return the section of all components of the catalogue."""
    rows = "".join(
        f"| `{name}` | {entry.summary} | {_parameters(entry)} | {'yes' if entry.registers else 'no'} |\n"
        for name, entry in CATALOG.items()
    )
    return COMPONENTS + rows


def _parameters(entry: Entry) -> str:
    """Return the parameters of a component with the values of the preset ``demo``."""
    return ", ".join(f"`{key}={value}`" for key, value in entry.parameters(PRESETS["demo"]).items())


def _section(name: str, node: Node) -> str:
    entry = CATALOG[name]
    config = PRESETS["demo"]
    component = entry.build(config, {})
    summary = f"{entry.summary} {node.note}." if node.note else entry.summary
    lines = [f"\n## {name}\n", f"{summary} The module is `{module_of(name)}`.", ""]
    lines += ["| port | what | width |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in ports_of(component)]
    lines += ["", f"Parameters: {_parameters(entry)}.", "", ""]
    if node.integration:
        lines[-1] = f"[In your top level, with a testbench]({node.integration}). "
    lines[-1] += f"[How it works]({node.contract})"
    if node.registers:
        lines[-1] += f", [its registers]({node.registers})"
    lines[-1] += f", its driver `{node.driver}`"
    if node.testbench:
        lines[-1] += f", [a testbench to copy](cocotb.md) `examples/cocotb/{node.testbench}`"
    lines[-1] += "."
    if node.litex:
        lines += ["", "Into LiteX's SoC ([more](../packages.md#in-litex)):", "", "```"]
        package = name.replace("-", "_")
        lines.append(f"fanin verilog {name} {node.litex} --package {package}")
        lines += [f"python examples/litex_soc.py {package} -o build/litex/{package}", "```"]
    return "\n".join(lines) + "\n"


def ports_of(component: wiring.Component) -> list[list[str]]:
    """Return rows of a table of a component's ports: names, bus, width."""
    rows = [["`clk`, `rst`", "clock; synchronous reset, high", "1"]]
    for name, member in component.signature.members.items():
        if member.is_port:
            way = "output" if member.flow is wiring.Out else "input"
            rows.append([f"`{name}`", f"{way}, of no bus", str(_bits(member))])
            continue
        count = member.dimensions[0] if member.dimensions else 1
        shown = f"`{name}_*`" if not member.dimensions else f"`{name}0_*` … `{name}{count - 1}_*`"
        rows.append([shown, *_bus(member.signature, member.flow)])
    return rows


def _bus(signature: wiring.Signature, flow: wiring.Flow) -> list[str]:
    members = signature.members
    if isinstance(signature, AXI4LiteSignature) or ("awprot" in members and "awid" not in members):
        return ["AXI4-Lite, slave: registers", "32"]
    if "arid" in members or "awid" in members:
        ways = " and ".join(way for key, way in (("arid", "reads"), ("awid", "writes")) if key in members)
        width = _bits(members["rdata" if "arid" in members else "wdata"])
        address = _bits(members["araddr" if "arid" in members else "awaddr"])
        return [f"AXI4, master: {ways}; addresses of {address} bits", str(width)]
    if isinstance(signature, stream.Signature) or "payload" in members:
        way = "out" if flow is wiring.Out else "in"
        shape = members["payload"].shape
        fields = getattr(shape, "members", {})
        if {"data", "last"} <= set(fields):
            return [f"AXI4-Stream, {way}: frames", str(fields["data"])]
        return [f"stream, {way}", str(_bits(members["payload"]))]
    return ["signals", "-"]


def _bits(member: wiring.Member) -> int:
    return Shape.cast(member.shape).width
