"""Extra signals of a node in a waveform: the cycle, and the header fields of its frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from fanin.sim.cosim.blocks import Block
from fanin.sim.cosim.ports import NodePorts
from fanin.sim.cosim.templates import template
from fanin.wire.fields import Field, byte_length

INSTANCE = "view"  # name of the instance in a node's own module
WAYS = ("tx", "rx")


@dataclass(frozen=True)
class FrameFormat:
    """Fields of a node's frames in a waveform: ``shown``, of a header that begins at byte ``at``.

    ``kinds`` names the values of a field.
    """

    fields: Sequence[Field]
    at: int
    shown: Sequence[str]
    kinds: Mapping[str, type[IntEnum]] = field(default_factory=dict)

    def places(self) -> list[dict[str, Any]]:
        """Return each field's width, lowest bit and names of values, for the template."""
        low, found = 8 * byte_length(self.fields), {}
        for each in self.fields:
            low -= each.bits
            names = {kind.name: kind.value for kind in self.kinds.get(each.name, ())}
            found[each.name] = {"name": each.name, "bits": each.bits, "low": low, "names": names}
        return [found[name] for name in self.shown]


def signals(ports: NodePorts, frames: FrameFormat | None) -> dict[str, int]:
    """Return the signals of a view by name, with their widths."""
    fields = frames.places() if frames and ports.mac_width else []
    return {"cycle": 64} | {f"{way}_{each['name']}": each["bits"] for way in WAYS for each in fields}


def with_view(block: Block, ports: NodePorts, frames: FrameFormat | None) -> Block:
    """Return a node's block with its view as the instance ``INSTANCE`` of the node's module."""
    ways = WAYS if ports.mac_width and frames else ()
    module = template("view.sv.j2").render(
        module=block.module,
        width=ports.mac_width,
        ways=ways,
        fields=frames.places() if frames else [],
        bytes=frames.at + byte_length(frames.fields) if frames else 0,
    )
    pins = [".clk(clk)"] + [
        f".{way}_{pin}(mac_{way}_t{pin})" for way in ways for pin in ("data", "last", "valid", "ready")
    ]
    instance = f"  {block.module}_view {INSTANCE} ({', '.join(pins)});\nendmodule\n"
    begin = block.verilog.index(f"module {block.module}(")
    end = block.verilog.index("endmodule\n", begin)
    text = block.verilog[:end] + instance + block.verilog[end + len("endmodule\n") :]
    return replace(block, verilog=f"{text}\n{module}")
