"""Writes the pages that are derived from declarations: ``python docs/generate.py``. A test compares them."""

from __future__ import annotations

from pathlib import Path

from fanin import wire
from fanin.config import PRESETS
from fanin.hdl.glm.node_registers import node_registers

PACKET = """# The aggregation packet

Generated from `fanin/wire.py` by `docs/generate.py`. Network byte order, most significant bit first. A frame is
Ethernet without preamble and FCS, padded with zeros to {minimum} bytes: {l2} bytes with {values} values in raw
Ethernet, {udp} bytes in UDP over IPv4, port {port}.
"""

REGISTERS = """# Registers of a node

Generated from `hdl/glm/node_registers.py` by `docs/generate.py`, for the `u280` preset; other presets differ in
the number of sample ports alone. 32-bit words on AXI4-Lite.

"""


def packet_page() -> str:
    """docs/packet.md."""
    page = PACKET.format(
        minimum=wire.MIN_FRAME_BYTES,
        l2=wire.frame_length(wire.Encap.L2),
        udp=wire.frame_length(wire.Encap.UDP),
        values=wire.DEFAULT_VALUES,
        port=wire.UDP_PORT,
    )
    for title, fields in (
        ("Aggregation header", wire.AGGREGATION),
        ("Ethernet", wire.ETHERNET),
        ("IPv4, in front of UDP", wire.IPV4),
        ("UDP", wire.UDP),
    ):
        rows = "\n".join(f"| {field.name} | {field.bits} | {field.meaning} |" for field in fields)
        page += f"\n## {title}\n\n| field | bits | meaning |\n|---|---|---|\n{rows}\n"
    return page + f"\nThe aggregation header is followed by the values, {wire.VALUE_BITS} bits each, signed.\n"


def registers_page() -> str:
    """docs/registers.md."""
    return REGISTERS + node_registers(PRESETS["u280"]).markdown().rstrip() + "\n"


PAGES = {"packet.md": packet_page, "registers.md": registers_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(__file__).with_name(name).write_text(page())
