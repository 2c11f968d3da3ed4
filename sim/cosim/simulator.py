"""Simulator of nodes under cocotb: builds the top and runs it in its own process, or on several ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from amaranth.lib import wiring

from fanin.base.errors import InputError
from fanin.hbm import PORT_BITS
from fanin.hdl.emission import kept_verilog
from fanin.hdl.emit import snake_case
from fanin.sim.cosim import ranks
from fanin.sim.cosim.arrays import Arith, Array, arrays_source, with_arrays
from fanin.sim.cosim.blocks import split_blocks
from fanin.sim.cosim.build import build
from fanin.sim.cosim.ports import NodePorts
from fanin.sim.cosim.process import SimulationFailed, execute
from fanin.sim.cosim.run import Progress, RunRequest, RunResult
from fanin.sim.cosim.templates import template
from fanin.sim.cosim.view import FrameFormat, with_view
from fanin.sim.cosim.waves import WaveNode
from fanin.sim.cosim.window import scope_of

_MAX_BYTES = 1024  # greatest rate in bytes per cycle, above that of any port
_EMPTY_LIBRARY = "!<arch>\n"


def _text(name: str) -> str:
    return (files("fanin.sim.cosim") / name).read_text()


def _hold(node: int, name: str, valid: str, ready: str, payload: list[str]) -> str:
    """Return an instance of a protocol monitor on a stream of a node."""
    bits = ", ".join(f"n{node}_{signal}" for signal in payload)
    label = f"hold_{node}_{valid}"
    return (
        f'  fanin_hold #(.NODE({node}), .NAME("{name}"), .WIDTH($bits({{{bits}}}))) {label} (\n'
        f"    .clk(clk), .rst(rst), .valid(n{node}_{valid}), .ready(n{node}_{ready}), .payload({{{bits}}})\n"
        "  );"
    )


@dataclass(frozen=True)
class Sources:
    """Sources for Verilator, as texts by file name.

    - ``nodes``: template variables of each node in the top.
    - ``parts``: files of the top, without ``top.sv``.
    - ``models``: files of each separately Verilated model, by module.
    - ``verilog``: emitted text of each group's node.
    """

    nodes: list[dict[str, object]]
    parts: dict[str, str]
    models: dict[str, dict[str, str]]
    verilog: list[str]

    @property
    def top(self) -> dict[str, str]:
        """Sources of a top with all nodes."""
        return self.share(range(len(self.nodes)))

    def share(self, nodes: range) -> dict[str, str]:
        """Return the sources of a top with the given nodes; the text does not contain their numbers."""
        share = self.nodes[nodes.start : nodes.stop]
        return {**self.parts, "top.sv": template("top.sv.j2").render(nodes=share, hold=_hold)}


@dataclass(frozen=True)
class Group:
    """Nodes of one kind: ``count`` copies of a component.

    - ``separate``: class names of inner components that occur several times and are Verilated once, separately.
    - ``arith``: implementation of arrays of binary32 operators.
    - ``frames``: format of frames in waveforms.
    """

    component: wiring.Component
    count: int = 1
    separate: Collection[str] = ()
    arith: Arith = Arith.RTL
    frames: FrameFormat | None = None


def _modules(groups: Sequence[Group]) -> list[str]:
    """Return the module name of each group: its class's, with a number if that is already used."""
    names: list[str] = []
    for group in groups:
        name = snake_case(type(group.component).__name__)
        namesakes = sum(other == name or other.startswith(f"{name}_kind") for other in names)
        names.append(f"{name}_kind{namesakes + 1}" if namesakes else name)
    return names


def simulation_sources(groups: Sequence[Group], *, waves: bool = False) -> Sources:
    """Return the sources of a top with the nodes of all groups, in order.

    Repeated parts are translated and compiled once: each kind of node, if there are several nodes, and
    components in ``Group.separate``. Their outputs must be registers (see block.sv.j2). With ``waves``, models
    can write waveforms, and a single node is also separate, so that its scope has the same name as among
    several.
    """
    separate = waves or sum(group.count for group in groups) > 1
    models: dict[str, dict[str, str]] = {}
    parts: dict[str, str] = {}  # sources of the top
    nodes: list[dict[str, object]] = []
    texts: list[str] = []
    arrays: list[Array] = []
    for group, name in zip(groups, _modules(groups), strict=True):
        texts.append(kept_verilog(group.component, name=name))
        text, group_arrays = with_arrays(texts[-1], group.arith)
        arrays += group_arrays
        *blocks, node_block = split_blocks(text, name, group.separate)
        nodes += [{"ports": NodePorts.of(group.component), "module": node_block.module}] * group.count
        if waves:
            node_block = with_view(node_block, NodePorts.of(group.component), group.frames)
        if separate:
            blocks.append(node_block)
        else:
            parts["node.v"] = node_block.verilog
        stubs: dict[str, str] = {}
        for block in blocks:  # a block that occurs in two kinds is the same in both
            models[block.module] = {
                f"{block.module}.v": block.verilog_for_waves if waves else block.verilog,
                **stubs,
            }
            stubs[f"{block.module}.sv"] = block.stub(waves=waves)
            parts[f"{block.module}.cpp"] = block.source(waves=waves)
        parts |= stubs
    if arrays:
        parts["arrays.cpp"] = arrays_source(arrays)
    fixed = {name: _text(name) for name in ("top.vlt", "parts.sv", "dpi.cpp", "hbm.cpp")}
    if waves:
        models = {name: {**sources, **_compression()} for name, sources in models.items()}
        fixed |= {name: _text(name) for name in ("wave.cpp", "wave.h")} | _compression()
    return Sources(nodes=nodes, parts={**fixed, **parts}, models=models, verilog=texts)


def _compression() -> dict[str, str]:
    """Return replacements of liblz4 and zlib for Verilator's FST writer (see lz4.h)."""
    headers = {name: _text(name) for name in ("lz4.h", "zlib.h", "wave_compress.h")}
    return headers | dict.fromkeys(("liblz4.a", "libz.a"), _EMPTY_LIBRARY)


class Simulator:
    """A built simulation of groups of nodes, numbered through all groups; each ``run`` is a new process.

    With several ranks (``ranks.py``), each rank has some of the nodes and its own process.

    - ``nodes_per_host``: number of consecutive nodes that stay in one rank.
    - ``waves``: make another build, whose requests may ask for a waveform.
    - ``verilog``: emitted text of each group's node.

    Raises ValueError for nodes that the top cannot drive, and without nodes. Raises InputError for a missing
    tool, and for more ranks than nodes.
    """

    def __init__(
        self, groups: Sequence[Group], *, nodes_per_host: int = 1, waves: bool = False, quiet: bool = False
    ):
        self._groups = [group for group in groups if group.count]
        self._kinds = [kind for kind, group in enumerate(self._groups) for _ in range(group.count)]
        self.ports = [NodePorts.of(self._groups[kind].component) for kind in self._kinds]
        if not self.ports:
            raise ValueError("groups must have a node at least")
        self._ranks = ranks.joined()
        if self._ranks and waves:
            raise InputError("--wave: needs a run in one process, not on several ranks")
        sources = simulation_sources(self._groups, waves=waves)
        self.verilog = sources.verilog
        # A node's cost per cycle is estimated by the length of its text.
        sizes = [len(self.verilog[kind]) for kind in self._kinds]
        self._shares = ranks.spread(sizes, self._ranks.size if self._ranks else 1, nodes_per_host)
        tops = [sources.share(nodes) for nodes in self._shares]
        self.directory = build(tops[0], models=sources.models, waves=waves, quiet=quiet)
        if self._ranks:
            self._build = self._ranks.build(tops, sources.models, quiet=quiet)

    def run(
        self,
        request: RunRequest,
        *,
        progress: Callable[[Progress], None] | None = None,
        keep: Callable[[RunResult], None] | None = None,
    ) -> RunResult:
        """Carry out a request.

        - ``progress``: called a few times a second, and when a phase has ended.
        - ``keep``: called after each ``kept`` phase, with the phases since its last call and the counters so
          far. No phase of a run on several ranks may be kept.

        Raises SimulationFailed, and InputError for requests that several ranks cannot carry out. No process is
        left running, even on KeyboardInterrupt.
        """
        self._check(request)
        writable = tuple(tuple(memory.writes for memory in ports.memories) for ports in self.ports)
        host_ports = tuple(ports.host_width > 0 for ports in self.ports)
        request = replace(request, writable=writable, host_ports=host_ports, shares=self._shares)
        if self._ranks:
            result = self._ranks.run(self._build, self.directory, request, progress)
        else:
            result = execute(self.directory, request, progress=progress, keep=keep)
        if result.error:
            raise SimulationFailed(result.error, result)
        return result

    def wave_node(self, node: int) -> WaveNode:
        """Return a node's description for waveforms."""
        kind = self._kinds[node]
        group, module = self._groups[kind], _modules(self._groups)[kind]
        return WaveNode(scope_of(node), self.ports[node], module, self.verilog[kind], group.frames)

    def _check(self, request: RunRequest) -> None:
        for name, count in ("nodes", request.nodes), ("memories", len(request.memories)):
            if count != len(self.ports):
                raise ValueError(f"{name} must be {len(self.ports)}, as built, not {count}")
        if self._ranks and any(phase.kept for phase in request.phases):
            raise ValueError("kept must be False for all phases of a run on several ranks")
        if request.hosts and not request.memory_latency < request.quiet_cycles < request.watchdog:
            raise ValueError(
                f"quiet_cycles must be more than memory_latency, {request.memory_latency}, and less than "
                f"watchdog, {request.watchdog}, not {request.quiet_cycles!r}"
            )
        if request.memory_repeats > 1 and any(bus.writes for ports in self.ports for bus in ports.memories):
            raise ValueError("memory_repeats must be 1 for nodes that write their memories")
        if request.hbm:
            self._check_hbm(request)
        for name in ("mac_bytes_per_cycle", "memory_bytes_per_cycle"):
            if not 0 <= (rate := getattr(request, name)) <= _MAX_BYTES:
                raise ValueError(f"{name} must be 0 to {_MAX_BYTES}, not {rate!r}")
        for node, (paths, ports) in enumerate(zip(request.memories, self.ports, strict=True)):
            if len(paths) != len(ports.memories):
                raise ValueError(
                    f"node {node} must have a file for each of its {len(ports.memories)} memory ports, "
                    f"not {len(paths)}"
                )

    def _check_hbm(self, request: RunRequest) -> None:
        """Reject requests outside the HBM model: writes, wider ports, skipped time."""
        ports = [bus for node_ports in self.ports for bus in node_ports.memories]
        if any(bus.writes for bus in ports):
            raise ValueError("hbm must be None for nodes that write their memories")
        if widest := max((bus.data_bits for bus in ports if bus.data_bits > PORT_BITS), default=0):
            raise ValueError(f"hbm must be None for memory ports of more than {PORT_BITS} bits, here {widest}")
        if request.hosts:
            raise ValueError("hbm must be None with live hosts, which have time skipped")
