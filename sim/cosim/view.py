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
DIRECTIONS = ("tx", "rx")


@dataclass(frozen=True)
class FrameFormat:
    """Header of a node's frames, for extra signals in a waveform.

    - ``fields``: all fields of the header, in order.
    - ``offset``: first byte of the header in a frame.
    - ``shown_fields``: names of the fields in the waveform.
    - ``kinds``: names of the values of a field, by the field's name.
    """

    fields: Sequence[Field]
    offset: int
    shown_fields: Sequence[str]
    kinds: Mapping[str, type[IntEnum]] = field(default_factory=dict)

    def places(self) -> list[dict[str, Any]]:
        """Return each field's width, lowest bit and names of values, for the template."""
        low, places = 8 * byte_length(self.fields), {}
        for frame_field in self.fields:
            low -= frame_field.bits
            names = {kind.name: kind.value for kind in self.kinds.get(frame_field.name, ())}
            places[frame_field.name] = {
                "name": frame_field.name,
                "bits": frame_field.bits,
                "low": low,
                "names": names,
            }
        return [places[name] for name in self.shown_fields]


def signals(ports: NodePorts, frames: FrameFormat | None) -> dict[str, int]:
    """Return the signals of a view by name, with their widths."""
    fields = frames.places() if frames and ports.mac_width else []
    return {"cycle": 64} | {
        f"{direction}_{frame_field['name']}": frame_field["bits"]
        for direction in DIRECTIONS
        for frame_field in fields
    }


def with_view(block: Block, ports: NodePorts, frames: FrameFormat | None) -> Block:
    """Return a node's block with its view as the instance ``INSTANCE`` of the node's module."""
    directions = DIRECTIONS if ports.mac_width and frames else ()
    module = template("view.sv.j2").render(
        module=block.module,
        width=ports.mac_width,
        directions=directions,
        fields=frames.places() if frames else [],
        bytes=frames.offset + byte_length(frames.fields) if frames else 0,
    )
    pins = [".clk(clk)"] + [
        f".{direction}_{pin}(mac_{direction}_t{pin})"
        for direction in directions
        for pin in ("data", "last", "valid", "ready")
    ]
    instance = f"  {block.module}_view {INSTANCE} ({', '.join(pins)});\nendmodule\n"
    begin = block.verilog.index(f"module {block.module}(")
    end = block.verilog.index("endmodule\n", begin)
    text = block.verilog[:end] + instance + block.verilog[end + len("endmodule\n") :]
    return replace(block, verilog=f"{text}\n{module}")
