"""Removal of the cells between a netlist's logic and the board: pads, clock buffers, delay lines, PLLs.

A simulator without delays cannot model these cells.

- A pad or a buffer becomes a wire.
- The time of a delay line is reported separately; the driver or sampler of the pin applies it.
- A PLL's outputs become ports. The generator of clocks drives them with the period and phase that the PLL's
  parameters give.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from fanin.base.errors import InputError
from fanin.sim.boards.netlist import Bit, Cell, Netlist, Port

DELAY_STEP_PS = 25  # nominal step of DELAYG and DELAYF (Lattice FPGA-TN-02035, "Delay")
_OUTPUTS = ("CLKOP", "CLKOS", "CLKOS2", "CLKOS3")
_PHASE_STEPS = 8  # steps of FPHASE per period of the VCO
_MAX_DIVIDER = 128  # of a PLL
_MAX_DELAY_STEPS = 127  # of a delay line


@dataclass(frozen=True)
class PllClock:
    """A port that is a PLL's output. Its period and its ``delay`` are in periods of ``source``."""

    port: str
    source: str
    ratio: Fraction
    delay: Fraction


@dataclass
class Pins:
    """Result of ``open_pins``: the PLLs' clocks, their ``LOCK`` ports, and the delays of pins, in ps."""

    clocks: list[PllClock] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)
    delays: dict[str, int] = field(default_factory=dict)


def verilog_name(name: str) -> str:
    """Return a name valid in Verilog, which Verilator does not change, without Amaranth's suffix of pins."""
    return re.sub(r"\W|_+", "_", name.removesuffix("__io"))


def open_pins(netlist: Netlist) -> Pins:
    """Remove pads, clock buffers, delay lines and PLLs from a netlist, in place.

    Ports get plain names. An input pad becomes its port, an output drives its port. A bidirectional pin ``x``
    becomes the ports ``x_i``, ``x_o`` and ``x_t`` (1: not driven). Raises InputError for unsupported cells.
    """
    pins = Pins()
    _rename(netlist)
    _open_pads(netlist)
    delays = _open_buffers(netlist)
    _open_plls(netlist, pins)
    for port_name, port in netlist.ports.items():
        port_delays = {delays.get(bit, 0) for bit in port.bits if isinstance(bit, int)}
        if len(port_delays) > 1:
            raise InputError(f"{port_name}: the bits of a port have one delay, not {sorted(port_delays)}")
        if port_delays and (delay := port_delays.pop()):
            pins.delays[port_name] = delay
    return pins


def _rename(netlist: Netlist) -> None:
    ports = {verilog_name(name): port for name, port in netlist.ports.items()}
    if len(ports) != len(netlist.ports):
        raise InputError(f"{netlist.module}: two ports would have the same name: {', '.join(netlist.ports)}")
    netlist.ports = ports


def _open_pads(netlist: Netlist) -> None:
    wires: dict[int, Bit] = {}
    driven: dict[int, Bit] = {}  # drivers of ports' bits: no aliases, since two bits may have one driver
    bidirectional: list[Cell] = []
    for cell in _remove_cells(netlist, "TRELLIS_IO"):
        pad, direction = cell.bit("B"), cell.text("DIR", "INPUT")
        if not isinstance(pad, int):
            raise InputError(f"{cell.name}: a pad must be at a pin of the board, B")
        if direction == "INPUT":
            wires.update({bit: pad for bit in cell.pins.get("O", []) if isinstance(bit, int)})
        elif direction == "OUTPUT":
            driven[pad] = _output_driver(cell)
        else:
            bidirectional.append(cell)
    for port in netlist.ports.values():
        if port.direction == "output":
            port.bits = [driven.get(bit, bit) if isinstance(bit, int) else bit for bit in port.bits]
    _split_bidirectional(netlist, bidirectional)
    netlist.replace(wires)


def _output_driver(cell: Cell) -> Bit:
    """Return the bit that an output pad drives: the logic's, or that of the register or DDR cell beside it."""
    register_bit = cell.bit("IOLDO")
    logic_bit = cell.bit("I")
    driver = (
        register_bit
        if register_bit is not None and cell.text("DATAMUX_ODDR", cell.text("DATAMUX_OREG"))
        else logic_bit
    )
    return "0" if driver is None else driver


def _split_bidirectional(netlist: Netlist, cells: list[Cell]) -> None:
    by_pad = {cell.bit("B"): cell for cell in cells}
    for name in [name for name, port in netlist.ports.items() if port.direction == "inout"]:
        pads = netlist.ports.pop(name).bits
        pad_cells = [by_pad.get(bit) for bit in pads]
        if None in pad_cells:
            raise InputError(f"{name}: a pin for both directions without a pad")
        connected_cells = [cell for cell in pad_cells if cell is not None]
        wires = {
            c.bit("O"): pad for c, pad in zip(connected_cells, pads, strict=True) if isinstance(c.bit("O"), int)
        }
        netlist.ports[f"{name}_i"] = Port("input", pads)
        netlist.ports[f"{name}_o"] = Port("output", [_output_driver(cell) for cell in connected_cells])
        netlist.ports[f"{name}_t"] = Port("output", [_enable_driver(cell) for cell in connected_cells])
        netlist.replace({bit: pad for bit, pad in wires.items() if isinstance(bit, int)})


def _enable_driver(cell: Cell) -> Bit:
    register_bit = cell.bit("IOLTO")
    logic_bit = cell.bit("T")
    driver = register_bit if register_bit is not None and cell.text("TRIMUX_TSREG") else logic_bit
    return "0" if driver is None else driver


def _open_buffers(netlist: Netlist) -> dict[int, int]:
    """Remove clock buffers and delay lines.

    Return delays in ps by remaining net: after an input pin, or before an output pin.
    """
    wires: dict[int, Bit] = {}
    delays: dict[int, int] = {}

    def bypass(cell: Cell, source: str, target: str, steps: int) -> None:
        bit = cell.bit(source)
        if steps > _MAX_DELAY_STEPS:
            raise InputError(f"{cell.name}: a delay line has at most {_MAX_DELAY_STEPS} steps, not {steps}")
        for output_bit in cell.pins.get(target, []):
            if isinstance(output_bit, int):
                wires[output_bit] = "0" if bit is None else bit
                if steps:
                    delays[output_bit] = steps * DELAY_STEP_PS

    for cell in _remove_cells(netlist, "DCCA"):
        if cell.bit("CE") not in (None, "1"):
            raise InputError(f"{cell.name}: a clock that is switched has no model")
        bypass(cell, "CLKI", "CLKO", 0)
    for kind in ("DELAYG", "DELAYF"):
        for cell in _remove_cells(netlist, kind):
            bypass(cell, "A", "Z", cell.number("DEL_VALUE"))
    for cell in netlist.cells.values():
        if cell.kind in ("IOLOGIC", "SIOLOGIC"):
            output = cell.text("DELAY.OUTDEL") == "ENABLED"
            steps = cell.number("DELAY.DEL_VALUE")
            bypass(cell, "PADDI", "INDD", 0 if output else steps)
            bypass(cell, "IOLDOI", "IOLDOD", steps if output else 0)
    inputs = {bit for port in netlist.ports.values() if port.direction == "input" for bit in port.bits}
    delays_of_nets: dict[int, int] = {}
    for output_bit, delay in delays.items():
        source = wires[output_bit]
        if isinstance(source, int):
            delays_of_nets[source] = delay
            if source not in inputs and not _reaches_port(netlist, output_bit):
                raise InputError(
                    f"{_net_name(netlist, output_bit)}: a delay line that is at no pin has no model"
                )
    netlist.replace(wires)
    return delays_of_nets


def _reaches_port(netlist: Netlist, bit: int) -> bool:
    return any(bit in port.bits for port in netlist.ports.values() if port.direction == "output")


def _net_name(netlist: Netlist, bit: int) -> str:
    return netlist.names.get(bit, [f"net {bit}"])[0]


def _open_plls(netlist: Netlist, pins: Pins) -> None:
    plls = list(_remove_cells(netlist, "EHXPLLL"))
    for cell in plls:
        for pin in (*_OUTPUTS, "LOCK"):
            if bits := cell.pins.get(pin):
                port = f"{verilog_name(cell.name)}_{pin.lower()}"
                netlist.ports[port] = Port("input", bits)
                if pin == "LOCK":
                    pins.locks.append(port)
    sources = {
        bit: name for name, port in netlist.ports.items() if port.direction == "input" for bit in port.bits
    }
    for cell in plls:
        reference = cell.bit("CLKI")
        if reference not in sources:
            raise InputError(f"{cell.name}: its reference is neither a pin nor another PLL's output")
        pins.clocks += _clocks(cell, sources[reference])


def _clocks(cell: Cell, source: str) -> Iterator[PllClock]:
    """Yield the outputs in use, in phase with the reference if CPHASE is DIV - 1, as Lattice sets it."""
    feedback = re.sub("^INT_", "CLK", cell.text("FEEDBK_PATH", "CLKOP"))
    if feedback not in _OUTPUTS:
        raise InputError(f"{cell.name}: a PLL with the feedback {cell.text('FEEDBK_PATH')} has no model")
    if cell.text("DPHASE_SOURCE", "DISABLED") != "DISABLED":
        raise InputError(f"{cell.name}: a PLL whose phase is moved has no model")
    divider = {output: cell.number(f"{output}_DIV", 8) for output in _OUTPUTS}
    input_divider, feedback_divider = cell.number("CLKI_DIV", 1), cell.number("CLKFB_DIV", 1)
    if not all(1 <= each <= _MAX_DIVIDER for each in (input_divider, feedback_divider, *divider.values())):
        raise InputError(f"{cell.name}: a PLL's dividers must be in 1…{_MAX_DIVIDER}")
    reference = Fraction(input_divider, feedback_divider)  # the feedback clock's period
    vco = reference / divider[feedback]

    def edge(output: str) -> Fraction:
        cycles = cell.number(f"{output}_CPHASE") - (divider[output] - 1)
        return (cycles + Fraction(cell.number(f"{output}_FPHASE"), _PHASE_STEPS)) * vco

    for output in _OUTPUTS:
        if cell.pins.get(output):
            ratio = vco * divider[output]
            delay = (edge(output) - edge(feedback)) % ratio
            yield PllClock(f"{verilog_name(cell.name)}_{output.lower()}", source, ratio, delay)


def _remove_cells(netlist: Netlist, kind: str) -> Iterator[Cell]:
    """Yield the cells of a kind, and remove them."""
    for name in [name for name, cell in netlist.cells.items() if cell.kind == kind]:
        yield netlist.cells.pop(name)
