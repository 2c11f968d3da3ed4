"""Intel Arria 10 GX FPGA development kit: its pins, and the generation of its cores by Quartus.

Device, pins of clock, reset and DDR3, and the memory's parameters are facts that Analog Devices' HDL library
(``projects/common/a10gx``) publishes for this kit. No public source has the pins of its QSFP: users must set
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from amaranth.build import Attrs, Clock, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import AlteraPlatform

from fanin.hdl.boards.vendor.templates import render

MEMORY_ADDRESS_BITS = 28  # bits of a byte address: 12 rows, 10 columns and 3 banks, each of 8 bytes
REGISTERS_AT = 1 << MEMORY_ADDRESS_BITS  # address of the registers for the host, after the memory
QSFP_LANES = 4
QSFP_MHZ = 644.53125
_DEVICE = ("10AX115S2", "F45", "I1", "SG")

_LVDS = Attrs(IO_STANDARD="LVDS")
_ADDRESS = "M32 L32 N34 M35 L34 K34 M33 L33 J33 J32 H31 J31"
_SPARE_ADDRESS = "H34 H33 G32"  # address pins of larger modules
_DQ = (
    "B28 A28 A27 B27 D27 E27 D26 D28 G25 H25 G26 H26 G28 F27 K27 F28 D31 E31 B31 C31 A30 E30 B30 D29 "
    "K30 H30 G30 K31 H29 K29 J29 F29 AC31 AB31 W31 Y31 AD31 AD32 AD33 AA30 AE31 AE32 AE30 AF30 "
    "AG33 AG32 AH33 AH31 U31 W33 W32 V31 Y34 W35 W34 V34 AH35 AJ34 AJ33 AH34 AD35 AE34 AC33 AD34"
)
_DQS = ("B26 H28 C30 L30 Y32 AJ32 AA34 AF33", "C26 J27 C29 L29 AA32 AJ31 AA33 AF34")
_DM = "E26 G27 A29 F30 AB32 AG31 Y35 AC34"

#: DDR3's pins by their names at Intel's memory controller: places and directions.
MEMORY_PINS = {
    "ck": ("R30", "o"),
    "ck_n": ("R31", "o"),
    "a": (_ADDRESS, "o"),
    "ba": ("F33 G35 H35", "o"),
    "cke": ("U33", "o"),
    "cs_n": ("R34", "o"),
    "odt": ("N33", "o"),
    "reset_n": ("T35", "o"),
    "we_n": ("T34", "o"),
    "ras_n": ("F32", "o"),
    "cas_n": ("G33", "o"),
    "dqs": (_DQS[0], "io"),
    "dqs_n": (_DQS[1], "io"),
    "dq": (_DQ, "io"),
    "dm": (_DM, "o"),
}

#: Cores that Intel's generator makes: component and parameters, by the core's name here.
CORES = {
    "fanin_eth40": (
        "alt_eth_ultra",
        {"SPEED_CONFIG": "40 GbE", "SYNOPT_AVALON": "1", "PHY_REFCLK": "1", "SYNOPT_PAUSE_TYPE": "0"},
    ),
    "fanin_atx": (
        "altera_xcvr_atx_pll_a10",
        {
            "set_output_clock_frequency": "5156.25",
            "set_auto_reference_clock_frequency": f"{QSFP_MHZ}",
            "enable_mcgb": "1",
            "enable_hfreq_clk": "1",
        },
    ),
}


class Arria10GxPlatform(AlteraPlatform):
    """Platform with clock, reset and the DDR3 module; the QSFP's ports have no places."""

    device, package, speed, suffix = _DEVICE
    default_clk = "clk100"
    resources: ClassVar = [
        Resource("clk100", 0, Pins("AR36", dir="i"), Clock(100e6), _LVDS),
        Resource("rst", 0, PinsN("BD27", dir="i"), Attrs(IO_STANDARD="1.8 V")),
        Resource("ddr3_clk", 0, Pins("F34", dir="i"), _LVDS),  # constrained by the memory's core
        Resource("ddr3_rzq", 0, Pins("J34", dir="i")),
        Resource("ddr3_spare", 0, Pins(_SPARE_ADDRESS, dir="o"), Attrs(IO_STANDARD="1.5 V")),
        Resource(
            "ddr3",
            0,
            *(Subsignal(name, Pins(pins, dir=direction)) for name, (pins, direction) in MEMORY_PINS.items()),
        ),
    ]
    connectors: ClassVar[list[Any]] = []

    @property
    def required_tools(self) -> list[str]:
        """Tools of Quartus Prime Standard, with its generators of cores."""
        return [*super().required_tools, "qsys-script", "qsys-generate", "ip-generate"]

    @property
    def command_templates(self) -> list[str]:
        """Command lines of the build; the cores come first."""
        return [
            '{{invoke_tool("qsys-script")}} --script=system.tcl',
            '{{invoke_tool("qsys-generate")}} fanin_system.qsys --synthesis=VERILOG '
            "--output-directory=fanin_system",
            *(self._generate(name, *core) for name, core in CORES.items()),
            *super().command_templates,
        ]

    @staticmethod
    def _generate(name: str, component: str, parameters: dict[str, str]) -> str:
        options = [
            f"--component-name={component}",
            *(f'"--component-param={key}={value}"' for key, value in parameters.items()),
            '"--system-info=DEVICE_FAMILY=Arria 10"',
            f"--system-info=DEVICE={''.join(_DEVICE)}",
            "--file-set=QUARTUS_SYNTH",
            "--language=VERILOG",
            f"--output-directory={name}",
            f"--output-name={name}",
            f"--report-file=qip:{name}/{name}.qip",
        ]
        return '{{invoke_tool("ip-generate")}} ' + " ".join(options)

    def iter_port_constraints_bits(self) -> Iterator[tuple[str, str, Any]]:
        """Yield the constraints of ports that have a place."""
        for name, port, _ in self._design.ports:
            for bit, meta in enumerate(port.metadata):
                if meta is not None:
                    yield f"{name}[{bit}]" if len(port) > 1 else name, meta.name, meta.attrs

    def toolchain_prepare(self, fragment: Any, name: str, **kwargs: Any) -> Any:
        """Prepare the project: files of the cores, and constraints of unrelated clocks."""
        facts = {
            "device": "".join(_DEVICE),
            "memory_address_bits": MEMORY_ADDRESS_BITS,
            "registers_at": REGISTERS_AT,
            "lanes": QSFP_LANES,
            "qsfp_mhz": QSFP_MHZ,
        }
        self.add_file("system.tcl", render("arria10_gx_system.tcl.j2", **facts))
        self.add_file("qsfp_pins.tcl", render("arria10_gx_qsfp_pins.tcl.j2", **facts))
        overrides = {
            "add_settings": render("arria10_gx.qsf.j2", cores=list(CORES)),
            "add_constraints": render("arria10_gx.sdc.j2", **facts),
        }
        return super().toolchain_prepare(fragment, name, **overrides, **kwargs)
