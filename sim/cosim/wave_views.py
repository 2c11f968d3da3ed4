"""Save files for waveform viewers GTKWave and Surfer: which signals are shown at first."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcd.gtkw import GTKWSave

from fanin.sim.cosim import view
from fanin.sim.cosim.waves import WaveNode

_PACKETS = ("tvalid", "tready", "tlast", "tdata", "tkeep", "tuser")
_REGISTERS = "registers"  # instance in a node's module with the register file
_PORT = re.compile(r"^  (?:input|output) (?:signed )?(?:\[(\d+):0\] )?(\w+);", re.MULTILINE)
_WINDOW = 4  # 2^(zoom) picoseconds take 200 pixels, and 800 pixels are shown
_BUS = "__"  # separates a bus from its signal in a port's name


@dataclass(frozen=True)
class Signal:
    """A signal by its full name."""

    name: str
    width: int

    @property
    def ranged(self) -> str:
        """GTKWave's name, which includes the range of a vector."""
        return f"{self.name}[{self.width - 1}:0]" if self.width > 1 else self.name


@dataclass(frozen=True)
class SignalGroup:
    """A group of signals."""

    title: str
    signals: tuple[Signal, ...]
    closed: bool = False


def signal_groups(node: WaveNode, depth: int) -> list[SignalGroup]:
    """Return the groups shown for a node with ``depth`` levels: frames, streams, buses, events, registers."""
    ports, frames, module_scope = node.ports, node.frames, f"{node.scope}.{node.module}"

    def group_of(title: str, names: Iterable[str], closed: bool = False) -> SignalGroup:
        group_signals = tuple(Signal(f"{node.scope}.{name}", widths[name]) for name in names if name in widths)
        return SignalGroup(title, group_signals, closed)

    widths = {port.name: port.width for port in ports.all}
    fields = view.signals(ports, frames).items()
    groups = [
        SignalGroup(
            "frames", tuple(Signal(f"{module_scope}.{view.INSTANCE}.{name}", bits) for name, bits in fields)
        )
    ]
    sides = [side for side, width in (("mac", ports.mac_width), ("host", ports.host_width)) if width]
    streams = [f"{side}_{direction}" for side in sides for direction in view.DIRECTIONS]
    groups += [group_of(stream, (f"{stream}_{signal}" for signal in _PACKETS)) for stream in streams]
    for bus in (*ports.memories, ports.host):
        names = [name for name in widths if name.removeprefix(f"{bus.name}_") in bus.signals]
        groups.append(group_of(bus.name, names, closed=True))
    groups.append(group_of("events", (port.name for port in ports.events)))
    if depth > 1:
        groups.append(SignalGroup(_REGISTERS, tuple(_registers(node)), closed=True))
    return [group for group in groups if group.signals]


def _registers(node: WaveNode) -> list[Signal]:
    """Return the ports of the node's register file except its buses: register fields and counters' pulses."""
    instance = rf"^module {node.module}\(.*?^  (\w+) {_REGISTERS} \("
    module = re.search(instance, node.verilog, re.MULTILINE | re.DOTALL)
    if module is None:
        return []
    begin = node.verilog.index(f"module {module[1]}(")
    ports = _PORT.findall(node.verilog[begin : node.verilog.index("endmodule", begin)])
    scope = f"{node.scope}.{node.module}.{_REGISTERS}"
    return [
        Signal(f"{scope}.{name}", int(last or 0) + 1)
        for last, name in ports
        if _BUS not in name and name not in ("clk", "rst")
    ]


def gtkwave(nodes: Sequence[WaveNode], *, depth: int, wave: Path, save: Path, span: int) -> str:
    """Return a GTKWave save file, stored at ``save``, for the waveform at ``wave`` of ``span`` picoseconds."""
    text = io.StringIO()
    file = GTKWSave(text)
    file.dumpfile(str(wave))
    file.savefile(str(save))
    file.zoom_markers(-math.log2(max(span, 1) / _WINDOW))
    for node in nodes:
        file.treeopen(node.scope)
    for node in nodes:
        with file.group(node.scope):
            file.trace(f"{node.scope}.clk")
            for group in signal_groups(node, depth):
                with file.group(group.title, closed=group.closed):
                    for signal in group.signals:
                        file.trace(signal.ranged)
    return text.getvalue()


def surfer(nodes: Sequence[WaveNode], *, depth: int) -> str:
    """Return Surfer commands, to run after the waveform is loaded; groups closed in GTKWave are left out."""
    lines = []
    for node in nodes:
        lines.append(f"variable_add {node.scope}.clk")
        for group in signal_groups(node, depth):
            if not group.closed:
                lines.append(f"divider_add {node.scope} {group.title}")
                lines += [f"variable_add {signal.name}" for signal in group.signals]
    return "\n".join([*lines, "zoom_fit"]) + "\n"
