"""Conversion of a routed netlist to fast Verilog: expressions, registers, memories, and cells of ``cells.v``.

yosys' models do not fit the cells of nextpnr's netlist. This module therefore converts nextpnr's cells itself:

- Parameters ``…MUX`` invert an input or make it constant.
- A flip-flop may take its data from ``M``.
- A carry leaves by ``FCO``.
- DDR cells are ``IOLOGIC``.
- An unconnected input is 1, as in the device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files

from fanin.base.errors import InputError
from fanin.sim.boards.lut import lut_expression
from fanin.sim.boards.netlist import Bit, Cell, Netlist
from fanin.sim.boards.pins import verilog_name

_ZERO, _ONE = "1'b0", "1'b1"
_WRITE_MODES = {"NORMAL": 0, "WRITETHROUGH": 1, "READBEFOREWRITE": 2}
_NOT_MODELLED = "{name}: a {kind} with {what} has no model in simulation"


def cells_verilog() -> str:
    """Return the models of cells that are modules."""
    return (files("fanin.sim.boards") / "cells.v").read_text()


@dataclass(frozen=True)
class _Clocking:
    """Common controls of the registers of one block."""

    clock: str
    falling: bool
    reset: str
    enable: str
    asynchronous: bool


@dataclass
class _Writer:
    """Parts of the Verilog so far.

    - ``assigns``, ``instances``: lines.
    - ``registers``: output, data and reset value of each register, by its controls.
    - ``rams``: initial contents, data and output of each bit, by the ports of its memory.
    """

    netlist: Netlist
    assigns: list[str] = field(default_factory=list)
    instances: list[str] = field(default_factory=list)
    registers: dict[_Clocking, list[tuple[str, str, str]]] = field(default_factory=lambda: defaultdict(list))
    rams: dict[tuple[str, ...], list[tuple[int, str, str]]] = field(default_factory=lambda: defaultdict(list))

    def name(self, bit: Bit) -> str:
        """Return a bit in Verilog; a don't-care bit is 0."""
        if isinstance(bit, str):
            return _ONE if bit == "1" else _ZERO
        return f"n{bit}"

    def pin(self, cell: Cell, pin: str, unconnected: str = _ONE) -> str:
        """Return a cell's input, after the inversion or constant that a parameter sets."""
        bit, mux = cell.bit(pin), cell.text(f"{pin}MUX", pin)
        if mux in ("0", "1"):
            return f"1'b{mux}"
        value = unconnected if bit is None else self.name(bit)
        if mux != "INV":
            return value
        return {_ZERO: _ONE, _ONE: _ZERO}.get(value, f"~{value}")

    def output(self, cell: Cell, pin: str) -> str | None:
        """Return the name of the net at an output; None if it is not connected."""
        bit = cell.bit(pin)
        return None if bit is None else self.name(bit)

    def assign(self, target: str | None, value: str) -> None:
        if target is not None:
            self.assigns.append(f"assign {target} = {value};")


def _comb(writer: _Writer, cell: Cell) -> None:
    """Add a lookup table, half of a carry cell (CCU2), or a bit of distributed RAM.

    Output ``OFX`` is the slice's multiplexer: of two tables, or of two such multiplexers if ``FXA`` or ``FXB``
    is connected.
    """
    mode = cell.text("MODE", "LOGIC")
    if mode == "RAMW_BLOCK":
        return
    if mode == "DPRAM":
        _ram(writer, cell)
        return
    table, inputs = cell.number("INITVAL") & 0xFFFF, [writer.pin(cell, pin) for pin in "ABCD"]
    value = lut_expression(table, inputs)
    if mode == "CCU2":
        carry, injected = writer.pin(cell, "FCI"), cell.text("CCU2_INJECT1", "NO") == "YES"
        generate = _ZERO if injected else lut_expression(table & 15, inputs[:2])
        propagate = f"p{cell.bit('FCO')}" if cell.bit("FCO") is not None else None
        if propagate:  # the carry needs the sum's function
            writer.assigns.append(f"wire {propagate} = {value};")
            writer.assign(writer.output(cell, "FCO"), f"{propagate} ? {carry} : {generate}")
            value = propagate
        writer.assign(writer.output(cell, "F"), value if injected else f"{value} ^ {carry}")
    elif mode == "LOGIC":
        writer.assign(writer.output(cell, "F"), value)
    else:
        raise InputError(_NOT_MODELLED.format(name=cell.name, kind=cell.kind, what=f"mode {mode}"))
    if (output := writer.output(cell, "OFX")) is not None:
        has_wide_inputs = cell.bit("FXA") is not None or cell.bit("FXB") is not None
        one_pin, zero_pin = ("FXB", "FXA") if has_wide_inputs else ("F1", "F")
        zero_value = writer.pin(cell, zero_pin) if has_wide_inputs or cell.bit("F") is not None else value
        writer.assign(output, f"{writer.pin(cell, 'M')} ? {writer.pin(cell, one_pin)} : {zero_value}")


def _ram(writer: _Writer, cell: Cell) -> None:
    """Add a bit of distributed RAM; bits with equal write and read ports become one memory.

    Contents are ordered as a table in which D is the most significant input; D corresponds to the write port's
    WAD0.
    """
    output = writer.output(cell, "F")
    if output is None:
        return
    falling = cell.text("WCKMUX", "WCK") == "INV"
    clock = writer.name(cell.pins["WCK"][0]) if cell.bit("WCK") is not None else _ZERO
    enable = writer.pin(cell, "WRE")
    write = [writer.pin(cell, f"WAD{index}") for index in (0, 2, 1, 3)]
    read = [writer.pin(cell, pin) for pin in "DCBA"]
    key = ("negedge" if falling else "posedge", clock, enable, ", ".join(write), ", ".join(read))
    writer.rams[key].append((cell.number("INITVAL"), writer.pin(cell, "WD"), output))


def _ramw(writer: _Writer, cell: Cell) -> None:
    """Add the wires from a slice's inputs to its distributed RAM's write port."""
    inputs = ("C1", "A1", "D1", "B1", "D0", "B0", "C0", "A0")
    outputs = ("WDO0", "WDO1", "WDO2", "WDO3", "WADO0", "WADO1", "WADO2", "WADO3")
    for source, target in zip(inputs, outputs, strict=True):
        writer.assign(writer.output(cell, target), writer.pin(cell, source))


def _flip_flop(writer: _Writer, cell: Cell) -> None:
    output = writer.output(cell, "Q")
    if output is None:
        return
    if cell.text("LSRMODE", "LSR") != "LSR":
        raise InputError(_NOT_MODELLED.format(name=cell.name, kind=cell.kind, what="a preload"))
    data = writer.pin(cell, "M" if cell.text("SD", "0") == "0" else "DI")
    value = _ONE if cell.text("REGSET") == "SET" else _ZERO
    clocking = _clocking(writer, cell, "CLK", cell.text("SRMODE") == "ASYNC")
    writer.registers[clocking].append((output, data, value))


def _clocking(writer: _Writer, cell: Cell, clock: str, asynchronous: bool) -> _Clocking:
    bit = cell.bit(clock)
    if bit is None:
        raise InputError(f"{cell.name}: a {cell.kind} without a clock")
    falling = cell.text("CLKMUX", "CLK") == "INV"
    return _Clocking(
        writer.name(bit), falling, writer.pin(cell, "LSR", _ZERO), writer.pin(cell, "CE"), asynchronous
    )


def _io_logic(writer: _Writer, cell: Cell) -> None:
    """Add a pad's registers: a DDR pair, or a register each for input, output and direction."""
    mode = cell.text("MODE", "NONE")
    if mode == "IDDRX1_ODDRX1":
        clock, reset = writer.pin(cell, "CLK"), writer.pin(cell, "LSR", _ZERO)
        received = [writer.output(cell, pin) or "" for pin in ("RXDATA0", "RXDATA1")]
        if any(received):
            # DI comes from a delay line, PADDI directly from the pad.
            data = writer.pin(cell, "DI" if cell.bit("DI") is not None else "PADDI")
            ports = f".D({data}), .SCLK({clock}), .RST({reset}), .Q0({received[0]}), .Q1({received[1]})"
            writer.instances.append(f"IDDRX1F i{len(writer.instances)}({ports});")
        if (sent := writer.output(cell, "IOLDO")) is not None:
            data = f".D0({writer.pin(cell, 'TXDATA0')}), .D1({writer.pin(cell, 'TXDATA1')})"
            writer.instances.append(
                f"ODDRX1F i{len(writer.instances)}({data}, .SCLK({clock}), .RST({reset}), .Q({sent}));"
            )
    elif mode == "IREG_OREG":
        _io_register(writer, cell, "INFF", "PADDI", "FF", "I")
        _io_register(writer, cell, "IOLDO", "TXDATA0", "OUTREG", "O")
    elif mode != "NONE":
        raise InputError(_NOT_MODELLED.format(name=cell.name, kind=cell.kind, what=f"mode {mode}"))
    _io_register(writer, cell, "IOLTO", "TSDATA0", "TSREG", "O")


def _io_register(writer: _Writer, cell: Cell, output: str, data: str, group: str, side: str) -> None:
    """Add one register of a pad.

    ``group`` is the prefix of its parameters; ``side`` (I or O) selects its controls.
    """
    target = writer.output(cell, output)
    if target is None:
        return
    clock = writer.pin(cell, "CLK")
    reset = writer.pin(cell, "LSR", _ZERO) if cell.text(f"LSR{side}MUX") == "LSRMUX" else _ZERO
    enable = writer.pin(cell, "CE") if cell.text(f"CE{side}MUX") == "CEMUX" else _ONE
    falling = cell.text(f"CLK{side}MUX", "CLK") == "INV"
    value = _ONE if cell.text(f"{group}.REGSET") == "SET" else _ZERO
    clocking = _Clocking(clock, falling, reset, enable, cell.text("SRMODE", "ASYNC") == "ASYNC")
    writer.registers[clocking].append((target, writer.pin(cell, data), value))


def _bus(writer: _Writer, cell: Cell, name: str, width: int) -> str:
    return "{" + ", ".join(writer.pin(cell, f"{name}{index}") for index in reversed(range(width))) + "}"


def _outputs(writer: _Writer, cell: Cell, name: str, width: int) -> str:
    """Return outputs as a concatenation; unconnected ones get new nets."""
    nets = []
    for index in reversed(range(width)):
        output = writer.output(cell, f"{name}{index}")
        if output is None:
            output = f"u{len(writer.assigns)}"
            writer.assigns.append(f"wire {output};")
        nets.append(output)
    return "{" + ", ".join(nets) + "}"


def _block_ram(writer: _Writer, cell: Cell) -> None:
    selected = {port: _bus(writer, cell, f"CS{port}", 3) for port in "AB"}
    for port, bits in selected.items():
        code = cell.text(f"CSDECODE_{port}", "0b000").removeprefix("0b")
        if bits != "{" + ", ".join(f"1'b{digit}" for digit in code) + "}":
            raise InputError(_NOT_MODELLED.format(name=cell.name, kind=cell.kind, what=f"a chip select {bits}"))
    parameters = {"ASYNCHRONOUS": int(cell.text("RESETMODE", "SYNC") == "ASYNC")}
    connections = []
    for port in "AB":
        parameters[f"WIDTH_{port}"] = cell.number(f"DATA_WIDTH_{port}", 18)
        parameters[f"REGISTER_{port}"] = int(cell.text(f"REGMODE_{port}", "NOREG") == "OUTREG")
        mode = cell.text(f"WRITEMODE_{port}", "NORMAL")
        if mode not in _WRITE_MODES:
            feature = f"the write mode {mode!r}"
            raise InputError(_NOT_MODELLED.format(name=cell.name, kind=cell.kind, what=feature))
        parameters[f"MODE_{port}"] = _WRITE_MODES[mode]
        for pin in ("CLK", "CE", "OCE", "WE", "RST"):
            connections.append(f".{pin}{port}({writer.pin(cell, pin + port)})")
        connections.append(f".AD{port}({_bus(writer, cell, f'AD{port}', 14)})")
        connections.append(f".DI{port}({_bus(writer, cell, f'DI{port}', 18)})")
        connections.append(f".DO{port}({_outputs(writer, cell, f'DO{port}', 18)})")
    contents = _contents(cell)
    settings = [f".{key}({value})" for key, value in parameters.items()]
    if contents:
        settings.append(f".INIT(18432'h{contents:x})")
    writer.instances.append(
        f"fanin_dp16kd #({', '.join(settings)}) i{len(writer.instances)}({', '.join(connections)});"
    )


def _contents(cell: Cell) -> int:
    """Return the initial words; a parameter has 16 words, each in 20 bits."""
    result = 0
    for row in range(64):
        values = cell.number(f"INITVAL_{row:02X}")
        for index in range(16):
            result |= (values >> 20 * index & (1 << 18) - 1) << 18 * (16 * row + index)
    return result


def _multiplier(writer: _Writer, cell: Cell) -> None:
    stages = ("INPUTA", "INPUTB", "INPUTC", "PIPELINE", "OUTPUT")
    registered = [stage for stage in stages if cell.text(f"REG_{stage}_CLK", "NONE") != "NONE"]
    shifted = [pin for pin in ("SOURCEA", "SOURCEB") if writer.pin(cell, pin, _ZERO) != _ZERO]
    if registered or shifted:
        feature = f"registers or shifted inputs ({', '.join(registered + shifted)})"
        raise InputError(_NOT_MODELLED.format(name=cell.name, kind=cell.kind, what=feature))
    factors = f".A({_bus(writer, cell, 'A', 18)}), .B({_bus(writer, cell, 'B', 18)})"
    signs = f".SIGNEDA({writer.pin(cell, 'SIGNEDA')}), .SIGNEDB({writer.pin(cell, 'SIGNEDB')})"
    product = _outputs(writer, cell, "P", 36)
    writer.instances.append(f"fanin_mult18x18d i{len(writer.instances)}({factors}, {signs}, .P({product}));")


_KINDS: dict[str, Callable[[_Writer, Cell], None]] = {
    "TRELLIS_COMB": _comb,
    "TRELLIS_RAMW": _ramw,
    "TRELLIS_FF": _flip_flop,
    "IOLOGIC": _io_logic,
    "SIOLOGIC": _io_logic,
    "DP16KD": _block_ram,
    "MULT18X18D": _multiplier,
}


def routed_verilog(netlist: Netlist) -> str:
    """Return the Verilog of a netlist of nextpnr-ecp5 with open pins (``open_pins``), with all its modules.

    Raises InputError for a cell, or a mode of one, without a model.
    """
    netlist.settle_constants()
    writer = _Writer(netlist)
    unknown = sorted({cell.kind for cell in netlist.cells.values()} - _KINDS.keys())
    if unknown:
        raise InputError(f"{netlist.module}: no model in simulation of: {', '.join(unknown)}")
    for cell in netlist.cells.values():
        _KINDS[cell.kind](writer, cell)
    return cells_verilog() + "\n" + "\n".join(_module(writer)) + "\n"


def _module(writer: _Writer) -> Iterator[str]:
    ports = writer.netlist.ports
    yield f"module {verilog_name(writer.netlist.module)}("
    yield ",\n".join(f"  {port.direction} [{len(port.bits) - 1}:0] {name}" for name, port in ports.items())
    yield ");"
    registers = {output for block in writer.registers.values() for output, _, _ in block}
    nets = {f"n{bit}" for cell in writer.netlist.cells.values() for bits in cell.pins.values() for bit in bits}
    nets |= {f"n{bit}" for port in ports.values() for bit in port.bits}
    nets -= registers | {"n0", "n1", "nx"}
    yield from (f"wire {net};" for net in sorted(nets))
    yield from (f"reg {register};" for register in sorted(registers))
    for name, port in ports.items():
        for index, bit in enumerate(port.bits):
            if port.direction == "output":
                yield f"assign {name}[{index}] = {writer.name(bit)};"
            elif isinstance(bit, int):
                yield f"assign {writer.name(bit)} = {name}[{index}];"
    yield from writer.assigns
    yield from writer.instances
    for number, (key, bits) in enumerate(writer.rams.items()):
        yield from _memory(number, key, bits)
    for clocking, block in writer.registers.items():
        yield from _register_block(clocking, block)
    yield "endmodule"


def _memory(number: int, key: tuple[str, ...], bits: list[tuple[int, str, str]]) -> Iterator[str]:
    edge, clock, enable, write, read = key
    last, name = len(bits) - 1, f"ram{number}"
    yield f"reg [{last}:0] {name} [0:15];"
    yield "initial begin"
    for address in range(16):
        word = sum((table >> address & 1) << position for position, (table, _, _) in enumerate(bits))
        yield f"  {name}[{address}] = {last + 1}'d{word};"
    yield "end"
    data = ", ".join(value for _, value, _ in reversed(bits))
    yield f"always @({edge} {clock}) if ({enable}) {name}[{{{write}}}] <= {{{data}}};"
    yield f"assign {{{', '.join(output for _, _, output in reversed(bits))}}} = {name}[{{{read}}}];"


def _register_block(clocking: _Clocking, block: list[tuple[str, str, str]]) -> Iterator[str]:
    yield "initial begin"
    yield from (f"  {output} = {value};" for output, _, value in block)
    yield "end"
    edge = f"{'negedge' if clocking.falling else 'posedge'} {clocking.clock}"
    asynchronous = clocking.asynchronous and clocking.reset != _ZERO
    yield f"always @({edge}{f' or posedge {clocking.reset}' if asynchronous else ''}) begin"
    if clocking.reset != _ZERO:
        yield f"  if ({clocking.reset}) begin"
        yield from (f"    {output} <= {value};" for output, _, value in block)
        yield "  end else"
    yield f"  if ({clocking.enable}) begin" if clocking.enable != _ONE else "  begin"
    yield from (f"    {output} <= {data};" for output, data, _ in block)
    yield "  end"
    yield "end"
