"""The host's side of a register map: names and numbers in, bus operations out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from fanin.hdl.bus.register_map import WORD_BITS, WORD_BYTES, Access, Register, RegisterMap

Value = int | dict[str, int]


class Operation(NamedTuple):
    """One 32-bit bus access: a write of ``data``, or a read when ``data`` is None."""

    address: int
    data: int | None = None


class Batch:
    """Register accesses in order, as bus operations: all of them can be handed over at once.

    ``base`` is the bus address of the map. Send ``operations`` to the hardware, give the words that its
    reads returned to :meth:`results`.
    """

    def __init__(self, registers: RegisterMap, *, base: int = 0):
        self.registers = registers
        self.base = base
        self.operations: list[Operation] = []
        self._reads: list[Register] = []

    def write(self, name: str, value: int | None = None, /, *, index: int = 0, **fields: int) -> Batch:
        """Write a register: a ``value``, or its fields by name (see :meth:`Register.pack`).

        Raises KeyError, IndexError, and ValueError for a register that takes no writes or a bad value.
        """
        register = self.registers[name]
        if register.access not in (Access.RW, Access.PULSE, Access.WINDOW):
            raise ValueError(f"register {name} is {register.access}: it cannot be written")
        if value is not None:
            if register.fields or fields:
                raise ValueError(f"register {name}: give its fields by name, not a value")
            fields = {name: value}
        word = register.pack(fields)
        for address in self._addresses(register, index):
            self.operations.append(Operation(address, word & ((1 << WORD_BITS) - 1)))
            word >>= WORD_BITS
        return self

    def read(self, name: str, /, *, index: int = 0) -> Batch:
        """Read a register; its value is the next of :meth:`results`. Raises KeyError, IndexError."""
        register = self.registers[name]
        self.operations += [Operation(address) for address in self._addresses(register, index)]
        self._reads.append(register)
        return self

    def results(self, words: Sequence[int]) -> list[Value]:
        """One value per read, in order: a number, or a dict of fields where the register has fields."""
        expected = sum(register.words for register in self._reads)
        if len(words) != expected:
            raise ValueError(f"words must be the {expected} that were read, not {len(words)}")
        values: list[Value] = []
        rest = iter(words)
        for register in self._reads:
            bits = sum(next(rest) << WORD_BITS * n for n in range(register.words))
            fields = register.unpack(bits)
            values.append(fields if register.fields else fields[register.name])
        return values

    def _addresses(self, register: Register, index: int) -> list[int]:
        start = self.base + self.registers.offset(register.name, index)
        return [start + WORD_BYTES * n for n in range(register.words)]


class RegisterDriver:
    """Reads and writes registers by name through any two functions that access one 32-bit word."""

    def __init__(
        self,
        registers: RegisterMap,
        read32: Callable[[int], int],
        write32: Callable[[int, int], None],
        *,
        base: int = 0,
    ):
        self.registers = registers
        self.base = base
        self._read32 = read32
        self._write32 = write32

    def run(self, batch: Batch) -> list[Value]:
        """Carry out a batch; the values of its reads."""
        words = []
        for address, data in batch.operations:
            if data is None:
                words.append(self._read32(address))
            else:
                self._write32(address, data)
        return batch.results(words)

    def write(self, name: str, value: int | None = None, /, *, index: int = 0, **fields: int) -> None:
        """See :meth:`Batch.write`."""
        self.run(Batch(self.registers, base=self.base).write(name, value, index=index, **fields))

    def read(self, name: str, /, *, index: int = 0) -> Value:
        """See :meth:`Batch.read`."""
        return self.run(Batch(self.registers, base=self.base).read(name, index=index))[0]


class AsyncRegisterDriver:
    """:class:`RegisterDriver` over two coroutine functions, as simulated buses are driven."""

    def __init__(
        self,
        registers: RegisterMap,
        read32: Callable[[int], Awaitable[int]],
        write32: Callable[[int, int], Awaitable[None]],
        *,
        base: int = 0,
    ):
        self.registers = registers
        self.base = base
        self._read32 = read32
        self._write32 = write32

    async def run(self, batch: Batch) -> list[Value]:
        """Carry out a batch; the values of its reads."""
        words = []
        for address, data in batch.operations:
            if data is None:
                words.append(await self._read32(address))
            else:
                await self._write32(address, data)
        return batch.results(words)

    async def write(self, name: str, value: int | None = None, /, *, index: int = 0, **fields: int) -> None:
        """See :meth:`Batch.write`."""
        await self.run(Batch(self.registers, base=self.base).write(name, value, index=index, **fields))

    async def read(self, name: str, /, *, index: int = 0) -> Value:
        """See :meth:`Batch.read`."""
        return (await self.run(Batch(self.registers, base=self.base).read(name, index=index)))[0]


class BaseDriver:
    """Batches of register accesses for a node whose ``registers`` lie at ``base``: those that all nodes have.

    Run each with any :class:`RegisterDriver`, and give what its reads returned to the method named ``…_of``.
    ``constants`` are the fields that say what the node is, with the values that they must have.
    """

    def __init__(self, registers: RegisterMap, constants: Mapping[str, int], *, base: int = 0):
        self.registers = registers
        self.base = base
        self._constants = constants
        self._identity = [
            register.name
            for register in registers.registers
            if any(field.name in constants for field in register.parts)
        ]
        self._counters = [
            register.name for register in registers.registers if register.access is Access.COUNTER
        ]

    def batch(self) -> Batch:
        """An empty batch."""
        return Batch(self.registers, base=self.base)

    def command(self, *names: str) -> Batch:
        """Pulse some of the fields of the register ``control``."""
        return self.batch().write("control", **dict.fromkeys(names, 1))

    def identify(self) -> Batch:
        """Read what the node is; see :meth:`check_identity`."""
        batch = self.batch()
        for name in self._identity:
            batch.read(name)
        return batch

    def check_identity(self, values: Sequence[Value]) -> None:
        """Raise ValueError unless the node is what the driver was made for."""
        found: dict[str, int] = {}
        for name, value in zip(self._identity, values, strict=True):
            found |= value if isinstance(value, dict) else {name: value}
        for name, value in self._constants.items():
            if found[name] != value:
                raise ValueError(f"the node's {name} must be {value}, not {found[name]}")

    def counters(self) -> Batch:
        """Read all counters; see :meth:`counters_of`."""
        batch = self.batch()
        for name in self._counters:
            batch.read(name)
        return batch

    def counters_of(self, values: Sequence[Value]) -> dict[str, int]:
        """The counters that were read, by name."""
        return {name: int(value) for name, value in zip(self._counters, values, strict=True)}  # type: ignore[arg-type]
