"""Clocked parts of a netlist, before or after placement: their inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fanin.sim.boards.netlist import Bit, Cell, Netlist

_AUTOMATIC = re.compile(r"^\$|\.\$|_(TRELLIS_\w+|LUT4|CCU2C|PFUMX|L6MUX21|DP16KD|MULT18X18D|I?O?DDRX1F)_")


_NO_PIN = "$^"  # pattern that no pin matches


@dataclass(frozen=True)
class Register:
    """A clocked part of a cell: a flip-flop, a port of a block RAM, or the contents of a distributed RAM.

    - ``clock``: net of its clock.
    - ``inputs``: pairs of pin and bit that the part stores or obeys at a clock edge.
    - ``outputs``: nets that the part drives.
    - ``reads``: inputs that reach the outputs within the cycle, as the read address of distributed RAM.
    """

    cell: Cell
    clock: int
    inputs: tuple[tuple[str, Bit], ...]
    outputs: tuple[int, ...]
    reads: tuple[Bit, ...] = ()


def registers(netlist: Netlist) -> Iterator[Register]:
    """Yield all registers. A part whose clock is constant or not connected is left out."""
    for cell in netlist.cells.values():
        if cell.kind in _KINDS:
            yield from _KINDS[cell.kind](cell)


def _part(cell: Cell, clock: str, inputs: str, outputs: str, reads: str = _NO_PIN) -> Iterator[Register]:
    """Yield the part whose inputs and outputs match patterns."""
    net = cell.bit(clock)
    if not isinstance(net, int):
        return
    input_bits = [(pin, bit) for pin, bit in cell.inputs() if re.fullmatch(inputs, pin)]
    output_bits = [bit for pin in cell.outputs if re.fullmatch(outputs, pin) for bit in cell.pins[pin]]
    read_bits = [bit for pin, bit in cell.inputs() if re.fullmatch(reads, pin)]
    yield Register(
        cell,
        net,
        tuple(input_bits),
        tuple(bit for bit in output_bits if isinstance(bit, int)),
        tuple(read_bits),
    )


def _flip_flop(cell: Cell) -> Iterator[Register]:
    data = "M" if cell.text("SD", "1") == "0" else "DI"
    yield from _part(cell, "CLK", f"{data}|CE|LSR", "Q")


def _block_ram(cell: Cell) -> Iterator[Register]:
    """Yield a part per port. With 36 bits, A writes by both data inputs, and B reads by both outputs."""
    a_writes = ".*" if cell.number("DATA_WIDTH_A", 18) == 36 else "A"
    b_writes = _NO_PIN if a_writes == ".*" else "B"
    b_reads = ".*" if cell.number("DATA_WIDTH_B", 18) == 36 else "B"
    a_reads = _NO_PIN if b_reads == ".*" else "A"
    control = r"AD{0}\d+|O?CE{0}|WE{0}|RST{0}|CS{0}\d"
    data_a = rf"DI{'[AB]' if a_writes == '.*' else 'A'}\d+"
    data_b = rf"DI{b_writes}\d+"
    yield from _part(cell, "CLKA", f"{control.format('A')}|{data_a}", rf"DO{a_reads}\d+")
    yield from _part(
        cell, "CLKB", f"{control.format('B')}|{data_b}", rf"DO{'[AB]' if b_reads == '.*' else 'B'}\d+"
    )


def _comb(cell: Cell) -> Iterator[Register]:
    if cell.text("MODE") == "DPRAM":
        yield from _part(cell, "WCK", r"WD|WAD\d|WRE", "F", "[ABCD]")


_KINDS: dict[str, Callable[[Cell], Iterator[Register]]] = {
    "TRELLIS_FF": _flip_flop,
    "TRELLIS_DPR16X4": lambda cell: _part(cell, "WCK", "DI|WAD|WRE", "DO", "RAD"),
    "TRELLIS_COMB": _comb,
    "DP16KD": _block_ram,
    "IDDRX1F": lambda cell: _part(cell, "SCLK", "D|RST", "Q[01]"),
    "ODDRX1F": lambda cell: _part(cell, "SCLK", "D[01]|RST", "Q"),
    "IOLOGIC": lambda cell: _part(cell, "CLK", r"TXDATA\d|TSDATA\d|CE|LSR", r"RXDATA\d|INFF"),
    "SIOLOGIC": lambda cell: _part(cell, "CLK", r"TXDATA\d|TSDATA\d|CE|LSR", r"RXDATA\d|INFF"),
}


def register_names(netlist: Netlist, register: Register) -> list[str]:
    """Return a register's names in the source, shortest first; the cell's name if its outputs have none."""
    names = {name for bit in register.outputs for name in netlist.names.get(bit, [])}
    source_names = sorted(
        (name for name in names if not _AUTOMATIC.search(name)), key=lambda name: (len(name), name)
    )
    return (
        [*source_names, register.cell.name]
        if register.cell.kind != "TRELLIS_FF" or not source_names
        else source_names
    )
