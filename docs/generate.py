"""Writes the pages that are derived from declarations: ``python docs/generate.py``. A test compares them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fanin import wire
from fanin.config import PRESETS
from fanin.hdl.glm.node_registers import node_registers
from fanin.p4.emit import program_text
from fanin.p4.program import ProgramConfig, Target, controls

PACKET = """# The aggregation packet

Generated from `fanin/wire.py` by `docs/generate.py`. Network byte order, most significant bit first. A frame is
Ethernet without preamble and FCS, padded with zeros to {minimum} bytes: {l2} bytes with {values} values in raw
Ethernet, {udp} bytes in UDP over IPv4, port {port}.
"""

REGISTERS = """# Registers of a node

Generated from `hdl/glm/node_registers.py` by `docs/generate.py`, for the `u280` preset; other presets differ in
the number of sample ports alone. 32-bit words on AXI4-Lite.

"""

SWITCH_TABLES = """# Registers and tables of the switch program

Generated from `p4/program.py` by `docs/generate.py`: p4sgd, 4 workers, 32,768 slots, 8 values, UDP. See
[the switch program](switch-program.md). Of `Sum` there is one for each value.

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


def switch_tables_page() -> str:
    """docs/switch-tables.md."""
    config = ProgramConfig(target=Target.TNA, encap=wire.Encap.UDP)
    registers = ["| register | words of 32 bits | why |", "|---|---|---|"]
    tables = ["| table | keys | actions | entries | why |", "|---|---|---|---|---|"]
    for control in controls(config):
        for register in control.registers:
            name, words = f"{control.name}.{register.name}", ", ".join(register.words)
            registers.append(f"| `{name}` | {words} | {register.why} |")
        for table in control.tables:
            keys = ", ".join(key.name for key in table.keys)
            actions = ", ".join(action.name for action in table.actions)
            entries = f"{len(table.entries)} constant" if table.entries else str(table.size)
            name = f"{control.name}.{table.name}"
            tables.append(f"| `{name}` | {keys} | {actions} | {entries} | {table.why} |")
    text = "\n".join([*registers, "", *tables])
    return SWITCH_TABLES + text.replace("seen | bitmap", r"seen \| bitmap") + "\n"


def _program(target: Target) -> Callable[[], str]:
    return lambda: program_text(ProgramConfig(target=target, encap=wire.Encap.UDP))


PAGES: dict[str, Callable[[], str]] = {
    "packet.md": packet_page,
    "registers.md": registers_page,
    "switch-tables.md": switch_tables_page,
    **{f"p4/aggregation-{target}.p4": _program(target) for target in Target},
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        path = Path(__file__).parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(page())
