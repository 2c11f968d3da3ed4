"""Check of clock domain crossings: each path between registers of two clocks must go through a synchroniser.

The synchronisers are those of ``amaranth.lib``. They are recognised by their structure and, where yosys keeps
them, by the names that Amaranth gives.

- ``FFSynchronizer``: a flip-flop ``stage0`` takes its data from one register without logic between. Its output
  goes only to flip-flops of its own clock, also without logic.
- ``AsyncFFSynchronizer``, the base of ``ResetSynchronizer``: a chain of flip-flops with a constant at its
  beginning, all set or reset asynchronously by one register.
- ``AsyncFIFO``: a memory ``storage`` with the synchronisers ``produce_cdc`` and ``consume_cdc``, read into
  registers of the clock of the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fanin.base.errors import CheckFailed
from fanin.sim.boards.netlist import Bit, Cell, Netlist, read_netlist
from fanin.sim.boards.registers import Register, register_names, registers

_STAGE = re.compile(r"(?:(?P<unit>.+)\.)?stage(?P<number>\d+)(?:\[\d+\])?")
_STORAGE = re.compile(r"(?P<fifo>.+)\.storage\b.*")
_PASSES = {"DCCA": "CLKI", "DELAYG": "A", "DELAYF": "A"}  # cells that act as a wire, with their input
_DATA = ("DI", "M")  # data pins of a flip-flop
_MAX_SHOWN = 10  # most faults in an error


@dataclass(frozen=True)
class Crossing:
    """Paths from registers of one clock to a register's pin of another clock.

    - ``sources``: names of the registers from which the paths start.
    - ``synchroniser``: kind of the synchroniser on the paths; empty if none was recognised.
    - ``fault``: reason why the crossing is unsafe; empty if it is safe.
    """

    sources: tuple[str, ...]
    source_clock: str
    target: str
    pin: str
    target_clock: str
    synchroniser: str
    fault: str = ""

    def __str__(self) -> str:
        sources = ", ".join(self.sources[:3]) + (", …" if len(self.sources) > 3 else "")
        return (
            f"{sources} ({self.source_clock}) to {self.target} {self.pin} ({self.target_clock}): {self.fault}"
        )


@dataclass(frozen=True)
class CrossingReport:
    """Result of ``find_crossings``: the clocks of the netlist, and every crossing between them."""

    clocks: tuple[str, ...]
    crossings: tuple[Crossing, ...]

    @property
    def faults(self) -> tuple[Crossing, ...]:
        """Crossings without a safe synchroniser."""
        return tuple(crossing for crossing in self.crossings if crossing.fault)

    def summary(self, limit: int) -> str:
        """Return the number of faults, and the first ``limit`` of them, one per line."""
        count = len(self.faults)
        lines = [f"{count} unsafe clock domain crossings:", *(f"  {fault}" for fault in self.faults[:limit])]
        return "\n".join(lines + [f"  and {count - limit} more"] * (count > limit))


class UnsafeCrossings(CheckFailed):
    """A netlist has unsafe crossings: the first are in the message, all are in ``report``."""

    def __init__(self, path: Path, report: CrossingReport):
        super().__init__(f"{path}: {report.summary(_MAX_SHOWN)}")
        self.report = report


def check_crossings(path: Path) -> CrossingReport:
    """Check a netlist of yosys or nextpnr. Raises UnsafeCrossings, and InputError for a bad file."""
    report = find_crossings(read_netlist(path))
    if report.faults:
        raise UnsafeCrossings(path, report)
    return report


def find_crossings(netlist: Netlist) -> CrossingReport:
    """Return every crossing of a netlist, with its fault if it has one."""
    netlist.settle_constants()
    search = _Search(netlist)
    crossings = [crossing for register in search.registers for crossing in search.crossings_into(register)]
    return CrossingReport(tuple(sorted(set(search.clock_names.values()))), tuple(crossings))


class _Search:
    """Search of a netlist for the registers from which paths lead to a net.

    - ``by_output``: registers by the nets that they drive.
    - ``users``: inputs that read a net, as (cell, pin).
    - ``of_cell``: registers by the name of their cell; a block RAM has one per port.
    - ``synchronised``: clocks of synchronisers by name (``_synchronised_units``).
    """

    def __init__(self, netlist: Netlist):
        self.netlist = netlist
        self.drivers = netlist.drivers()
        self.registers = list(registers(netlist))
        self.by_output = {bit: register for register in self.registers for bit in register.outputs}
        self.ports = {bit: name for name, port in netlist.ports.items() for bit in port.bits}
        self.clock_names = {register.clock: self.root(register.clock) for register in self.registers}
        self.users: dict[int, list[tuple[Cell, str]]] = defaultdict(list)
        for cell in netlist.cells.values():
            for pin, bit in cell.inputs():
                if isinstance(bit, int):
                    self.users[bit].append((cell, pin))
        self.of_cell: dict[str, list[Register]] = defaultdict(list)
        for register in self.registers:
            self.of_cell[register.cell.name].append(register)
        self.synchronised = self._synchronised_units()
        self._source_clocks: dict[int, frozenset[str]] = {}

    def clock(self, register: Register) -> str:
        return self.clock_names[register.clock]

    def root(self, bit: Bit) -> str:
        """Return the source of a clock: a port, a PLL's output, or another driver."""
        while isinstance(bit, int) and bit in self.drivers:
            cell, pin = self.drivers[bit]
            source = cell.bit("B") if cell.kind == "TRELLIS_IO" else cell.bit(_PASSES.get(cell.kind, ""))
            if source is None:
                return f"{cell.name}.{pin}"
            if cell.kind == "TRELLIS_IO":
                return self.ports.get(source, cell.name)
            bit = source
        return self.ports.get(bit, str(bit))

    def _predecessors(self, bit: int) -> Sequence[Bit]:
        """Return the nets that a net depends on in the same cycle: through logic, or a read address."""
        if (register := self.by_output.get(bit)) is not None:
            return register.reads
        if bit not in self.drivers:
            return ()
        cell, _ = self.drivers[bit]
        return () if cell.kind in ("TRELLIS_IO", "EHXPLLL") else [source for _, source in cell.inputs()]

    def _driving_clock(self, bit: int) -> str | None:
        """Return the clock of the register that drives a net; a PLL's lock counts as a separate clock."""
        if (register := self.by_output.get(bit)) is not None:
            return self.clock(register)
        if bit in self.drivers and self.drivers[bit][0].kind == "EHXPLLL":
            return f"{self.drivers[bit][0].name}.{self.drivers[bit][1]}"
        return None

    def source_clocks(self, bit: Bit) -> frozenset[str]:
        """Return the clocks of all registers from which paths lead to a net.

        The search is depth first: a net is resolved after its predecessors. A loop of logic is cut at a net
        that is already open.
        """
        stack = [bit] if isinstance(bit, int) else []
        open_nets: set[int] = set()
        while stack:
            net = stack[-1]
            if net in self._source_clocks:
                stack.pop()
                continue
            predecessors = [source for source in self._predecessors(net) if isinstance(source, int)]
            unresolved = [n for n in predecessors if n not in self._source_clocks and n not in open_nets]
            open_nets.add(net)
            if unresolved:
                stack += unresolved
                continue
            clock = self._driving_clock(net)
            clocks = frozenset() if clock is None else frozenset({clock})
            self._source_clocks[net] = clocks.union(
                *(self._source_clocks.get(other, frozenset()) for other in predecessors)
            )
            stack.pop()
        return self._source_clocks[bit] if isinstance(bit, int) else frozenset()

    def sources(self, bit: Bit, clock: str) -> Iterator[int]:
        """Yield the outputs of a clock's registers from which paths lead to a net."""
        visited, stack = set(), [bit]
        while stack:
            net = stack.pop()
            if not isinstance(net, int) or net in visited or clock not in self.source_clocks(net):
                continue
            visited.add(net)
            if self._driving_clock(net) == clock:
                yield net
            stack += self._predecessors(net)

    def crossings_into(self, register: Register) -> Iterator[Crossing]:
        own_clock = self.clock(register)
        for pin, bit in register.inputs:
            for clock in sorted(self.source_clocks(bit) - {own_clock}):
                yield self._judge(register, pin, bit, clock)
        if register.cell.kind == "DP16KD":
            yield from self._within_memory(register)

    def _judge(self, register: Register, pin: str, bit: Bit, clock: str) -> Crossing:
        sources = sorted(self.sources(bit, clock))
        names = tuple(dict.fromkeys(self._name_of(net) for net in sources))
        synchroniser, fault = self._synchroniser(register, pin, bit, clock, sources)
        target = register_names(self.netlist, register)[0]
        return Crossing(names, clock, target, pin, self.clock(register), synchroniser, fault)

    def _synchroniser(
        self, register: Register, pin: str, bit: Bit, clock: str, sources: list[int]
    ) -> tuple[str, str]:
        """Return the synchroniser of a crossing, and its fault or an empty text."""
        memories = [self.by_output[net] for net in sources if net in self.by_output and self._is_memory(net)]
        if memories:
            return "AsyncFIFO", self._memory_fault(register, memories, clock, len(memories) == len(sources))
        if pin == "LSR":
            return self._reset_synchroniser(register, sources)
        if register.cell.kind != "TRELLIS_FF" or not self._is_first_stage(register):
            return "", "no synchroniser"
        if pin == "CE":
            return "", "another clock enables it"
        if bit not in sources:
            return "FFSynchronizer", "logic in front of an FFSynchronizer"
        return "FFSynchronizer", self._second_stage_fault(register)

    def _is_first_stage(self, register: Register) -> bool:
        """Return whether a flip-flop is a first stage, by its name: yosys has no other name to prefer."""
        names = register_names(self.netlist, register)
        return any((match := _STAGE.fullmatch(name)) and match["number"] == "0" for name in names)

    def _second_stage_fault(self, register: Register) -> str:
        """Return the fault after the first stage: only flip-flops of its clock may read it, without logic."""
        (output,) = register.outputs
        for cell, pin in self.users[output]:
            if pin not in _DATA or not self._same_clock(cell, register):
                return "the first stage of an FFSynchronizer is used by more than the second"
        return "" if self.users[output] else "an FFSynchronizer of one stage"

    def _same_clock(self, cell: Cell, register: Register) -> bool:
        return any(self.clock(other) == self.clock(register) for other in self.of_cell.get(cell.name, []))

    def _reset_synchroniser(self, register: Register, sources: list[int]) -> tuple[str, str]:
        """Return synchroniser and fault of an asynchronous reset.

        The flip-flop must be part of an AsyncFFSynchronizer's chain.
        """
        if register.cell.kind != "TRELLIS_FF" or register.cell.text("SRMODE") != "ASYNC":
            return "", "no synchroniser"
        if len(sources) != 1:
            return "AsyncFFSynchronizer", "logic in front of an AsyncFFSynchronizer"
        length, start = self._chain(register)
        if start != ("0" if register.cell.text("REGSET") == "SET" else "1"):
            return "", "a register that another clock resets, without a synchroniser"
        if length == 1 and not self._has_next_stage(register):
            return "AsyncFFSynchronizer", "an AsyncFFSynchronizer of one stage"
        return "AsyncFFSynchronizer", ""

    def _chain(self, register: Register) -> tuple[int, Bit]:
        """Return the length of the chain of a clock and reset up to this flip-flop, and its first data."""
        length = 1
        while True:
            data = next(bit for pin, bit in register.inputs if pin in _DATA)
            previous = self.by_output.get(data) if isinstance(data, int) else None
            if (
                previous is None
                or not self._follows(previous, register)
                or len(self.users[previous.outputs[0]]) != 1
            ):
                return length, data
            register, length = previous, length + 1

    def _has_next_stage(self, register: Register) -> bool:
        users = [
            user
            for cell, pin in self.users[register.outputs[0]]
            if pin in _DATA
            for user in self.of_cell[cell.name]
        ]
        return len(self.users[register.outputs[0]]) == 1 and any(
            self._follows(register, user) for user in users
        )

    def _follows(self, first: Register, second: Register) -> bool:
        """Return whether two flip-flops have the same clock and reset."""
        resets = [register.cell.bit("LSR") for register in (first, second)]
        return self.clock(first) == self.clock(second) and resets[0] is not None and resets[0] == resets[1]

    def _is_memory(self, net: int) -> bool:
        return self.by_output[net].cell.kind != "TRELLIS_FF" and bool(self.by_output[net].reads)

    def _memory_fault(
        self, register: Register, memories: list[Register], clock: str, only_memories: bool
    ) -> str:
        fifos = {self._fifo(memory.cell) for memory in memories}
        if not only_memories or len(fifos) != 1 or None in fifos:
            return "a memory of another clock that is no AsyncFIFO's"
        (fifo,) = fifos
        return self._pointer_fault(str(fifo), clock, self.clock(register))

    def _within_memory(self, register: Register) -> Iterator[Crossing]:
        """Yield crossings in a block RAM between a write port and a read port of another clock."""
        cell = register.cell
        for other in self.of_cell[cell.name]:
            if self.clock(other) == self.clock(register) or not self._writes(other) or not register.outputs:
                continue
            fifo = self._fifo(cell)
            fault = "a memory of two clocks that is no AsyncFIFO's"
            if fifo is not None:
                fault = self._pointer_fault(fifo, self.clock(other), self.clock(register))
            target = register_names(self.netlist, register)[0]
            synchroniser = "AsyncFIFO" if fifo else ""
            yield Crossing(
                (cell.name,), self.clock(other), target, "contents", self.clock(register), synchroniser, fault
            )

    @staticmethod
    def _writes(register: Register) -> bool:
        return any(pin.startswith("WE") and bit != "0" for pin, bit in register.inputs)

    @staticmethod
    def _fifo(cell: Cell) -> str | None:
        match = _STORAGE.fullmatch(cell.name)
        return match["fifo"] if match else None

    def _pointer_fault(self, fifo: str, write_clock: str, read_clock: str) -> str:
        expected = {f"{fifo}.produce_cdc": read_clock, f"{fifo}.consume_cdc": write_clock}
        missing = [unit for unit, clock in expected.items() if self.synchronised.get(unit) != clock]
        return f"{fifo} has no synchroniser {missing[0].removeprefix(fifo + '.')}" if missing else ""

    def _synchronised_units(self) -> dict[str, str]:
        """Return synchronisers by name, with the clock of their first stage."""
        units = {}
        for register in self.registers:
            for name in register_names(self.netlist, register):
                match = _STAGE.fullmatch(name)
                if match and match["unit"] and match["number"] == "0":
                    units[match["unit"]] = self.clock(register)
        return units

    def _name_of(self, net: int) -> str:
        if net in self.by_output:
            return register_names(self.netlist, self.by_output[net])[0]
        cell, pin = self.drivers[net]
        return f"{cell.name}.{pin}"
