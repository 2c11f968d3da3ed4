"""Builds a simulated top of nodes and runs it in a process of its own, under cocotb; or on several ranks."""

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
from fanin.sim.cosim.blocks import cut
from fanin.sim.cosim.build import build
from fanin.sim.cosim.ports import NodePorts
from fanin.sim.cosim.process import SimulationFailed, execute
from fanin.sim.cosim.run import Progress, RunRequest, RunResult
from fanin.sim.cosim.templates import template
from fanin.sim.cosim.view import FrameFormat, with_view
from fanin.sim.cosim.waves import ShownNode
from fanin.sim.cosim.window import scope_of

_MAX_BYTES = 1024  # a cycle: more than any port has
_EMPTY_LIBRARY = "!<arch>\n"


def _text(name: str) -> str:
    return (files("fanin.sim.cosim") / name).read_text()


def _hold(node: int, name: str, valid: str, ready: str, payload: list[str]) -> str:
    """A protocol monitor on a stream of a node."""
    bits = ", ".join(f"n{node}_{signal}" for signal in payload)
    label = f"hold_{node}_{valid}"
    return (
        f'  fanin_hold #(.NODE({node}), .NAME("{name}"), .WIDTH($bits({{{bits}}}))) {label} (\n'
        f"    .clk(clk), .rst(rst), .valid(n{node}_{valid}), .ready(n{node}_{ready}), .payload({{{bits}}})\n"
        "  );"
    )


@dataclass(frozen=True)
class Sources:
    """What is Verilated: ``top``, and each of ``models`` on its own; texts by file name.

    ``verilog`` is the text of each group's node, as ``emit_verilog`` writes it.
    """

    nodes: list[dict[str, object]]
    parts: dict[str, str]
    models: dict[str, dict[str, str]]
    verilog: list[str]

    @property
    def top(self) -> dict[str, str]:
        """Of a top with all nodes."""
        return self.share(range(len(self.nodes)))

    def share(self, nodes: range) -> dict[str, str]:
        """Of a top with these nodes; it does not tell their numbers."""
        own = self.nodes[nodes.start : nodes.stop]
        return {**self.parts, "top.sv": template("top.sv.j2").render(nodes=own, hold=_hold)}


@dataclass(frozen=True)
class Group:
    """Nodes of one kind: ``count`` copies of a component.

    ``apart`` names, by class, components inside that occur several times: they are Verilated apart, once.
    ``arith`` says what arrays of binary32 operators are simulated as, ``frames`` how waveforms show frames.
    """

    component: wiring.Component
    count: int = 1
    apart: Collection[str] = ()
    arith: Arith = Arith.RTL
    frames: FrameFormat | None = None


def _modules(groups: Sequence[Group]) -> list[str]:
    """What the module of each group is called: as its class, with a number where that is taken."""
    names: list[str] = []
    for group in groups:
        name = snake_case(type(group.component).__name__)
        same = sum(other == name or other.startswith(f"{name}_kind") for other in names)
        names.append(f"{name}_kind{same + 1}" if same else name)
    return names


def simulation_sources(groups: Sequence[Group], *, waves: bool = False) -> Sources:
    """The sources of a top with the nodes of all groups, one after the other.

    What may occur several times is translated and compiled once: each kind of node, if there are several nodes,
    and the components that are apart. Their outputs must be registers (see block.sv.j2). With ``waves``, models
    can write waveforms, and a node that is alone is apart, too, so that it is called as it is beside others.
    """
    apart = waves or sum(group.count for group in groups) > 1
    models: dict[str, dict[str, str]] = {}
    parts: dict[str, str] = {}  # of the top
    nodes: list[dict[str, object]] = []
    texts: list[str] = []
    arrays: list[Array] = []
    for group, name in zip(groups, _modules(groups), strict=True):
        texts.append(kept_verilog(group.component, name=name))
        text, found = with_arrays(texts[-1], group.arith)
        arrays += found
        *blocks, whole = cut(text, name, group.apart)
        nodes += [{"ports": NodePorts.of(group.component), "module": whole.module}] * group.count
        if waves:
            whole = with_view(whole, NodePorts.of(group.component), group.frames)
        if apart:
            blocks.append(whole)
        else:
            parts["node.v"] = whole.verilog
        stubs: dict[str, str] = {}
        for block in blocks:  # one that is apart in two kinds is the same in both
            models[block.module] = {f"{block.module}.v": block.named if waves else block.verilog, **stubs}
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
    """In the places of liblz4 and zlib, for Verilator's FST writer (see lz4.h)."""
    headers = {name: _text(name) for name in ("lz4.h", "zlib.h", "wave_compress.h")}
    return headers | dict.fromkeys(("liblz4.a", "libz.a"), _EMPTY_LIBRARY)


class Simulator:
    """A built simulation of groups of nodes, numbered through all groups; each ``run`` is a new process.

    Where there are several ranks (``ranks.py``), each has some of the nodes, and a process of its own;
    ``together`` nodes in a row are in one rank. ``verilog`` is the text of each group's node that is built, as
    ``emit_verilog`` writes it. Raises ValueError for nodes that the top cannot drive, and without any;
    InputError for a missing tool, and for more ranks than nodes. With ``waves``, which is another build,
    requests may ask for a waveform.
    """

    def __init__(self, groups: Sequence[Group], *, together: int = 1, waves: bool = False, quiet: bool = False):
        self._groups = [group for group in groups if group.count]
        self._kinds = [kind for kind, group in enumerate(self._groups) for _ in range(group.count)]
        self.ports = [NodePorts.of(self._groups[kind].component) for kind in self._kinds]
        if not self.ports:
            raise ValueError("groups must have a node at least")
        self._ranks = ranks.joined()
        if self._ranks and waves:
            raise InputError("--wave: a waveform is of a run in one process, not of one on several ranks")
        sources = simulation_sources(self._groups, waves=waves)
        self.verilog = sources.verilog
        # The text stands for what a cycle of it takes.
        sizes = [len(self.verilog[kind]) for kind in self._kinds]
        self._shares = ranks.spread(sizes, self._ranks.size if self._ranks else 1, together)
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
        """Carry out a request; ``progress`` is called a few times a second, and when a phase has ended.

        ``keep`` is called after each ``kept`` phase, with the phases since its last call, and what was counted
        until then. No phase of a run on several ranks may be kept.
        Raises SimulationFailed; nothing is left running, not on KeyboardInterrupt either. InputError for what
        several ranks cannot do.
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

    def shown(self, node: int) -> ShownNode:
        """A node as a waveform shows it."""
        kind = self._kinds[node]
        group, module = self._groups[kind], _modules(self._groups)[kind]
        return ShownNode(scope_of(node), self.ports[node], module, self.verilog[kind], group.frames)

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
        """What its model does not have: writes, wider ports, time that is skipped."""
        ports = [bus for own in self.ports for bus in own.memories]
        if any(bus.writes for bus in ports):
            raise ValueError("hbm must be None for nodes that write their memories")
        if widest := max((bus.data_bits for bus in ports if bus.data_bits > PORT_BITS), default=0):
            raise ValueError(f"hbm must be None for memory ports of more than {PORT_BITS} bits, here {widest}")
        if request.hosts:
            raise ValueError("hbm must be None with live hosts, which have time skipped")
