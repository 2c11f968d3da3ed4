"""Host side of a register map: turns names and values into bus operations."""

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
    """Batch of register accesses in order, as bus operations that can be sent together.

    ``base``: bus address of the map. Send ``operations`` to the hardware, then pass the words that its reads
    returned to :meth:`results`.
    """

    def __init__(self, registers: RegisterMap, *, base: int = 0):
        self.registers = registers
        self.base = base
        self.operations: list[Operation] = []
        self._reads: list[Register] = []

    def write(self, name: str, value: int | None = None, /, *, index: int = 0, **fields: int) -> Batch:
        """Write a register: a ``value``, or its fields by name (see :meth:`Register.pack`).

        Raises KeyError, IndexError, and ValueError for a register that is not writable or a bad value.
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
        """Read a register; :meth:`results` returns the values in order. Raises KeyError, IndexError."""
        register = self.registers[name]
        self.operations += [Operation(address) for address in self._addresses(register, index)]
        self._reads.append(register)
        return self

    def results(self, words: Sequence[int]) -> list[Value]:
        """Return one value per read, in order: a number, or a dict if the register has fields."""
        expected = sum(register.words for register in self._reads)
        if len(words) != expected:
            raise ValueError(f"words must be the {expected} that were read, not {len(words)}")
        values: list[Value] = []
        remaining_words = iter(words)
        for register in self._reads:
            bits = sum(next(remaining_words) << WORD_BITS * n for n in range(register.words))
            fields = register.unpack(bits)
            values.append(fields if register.fields else fields[register.name])
        return values

    def _addresses(self, register: Register, index: int) -> list[int]:
        start = self.base + self.registers.offset(register.name, index)
        return [start + WORD_BYTES * n for n in range(register.words)]


class RegisterDriver:
    """Driver that accesses registers by name through two functions, which read and write one 32-bit word."""

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
        """Run a batch; return the values of its reads."""
        words = []
        for address, data in batch.operations:
            if data is None:
                words.append(self._read32(address))
            else:
                self._write32(address, data)
        return batch.results(words)

    def write(self, name: str, value: int | None = None, /, *, index: int = 0, **fields: int) -> None:
        """Write a register as :meth:`Batch.write` does."""
        self.run(Batch(self.registers, base=self.base).write(name, value, index=index, **fields))

    def read(self, name: str, /, *, index: int = 0) -> Value:
        """Read a register as :meth:`Batch.read` does; return its value."""
        return self.run(Batch(self.registers, base=self.base).read(name, index=index))[0]


class AsyncRegisterDriver:
    """:class:`RegisterDriver` over two coroutine functions, for simulated buses."""

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
        """Run a batch; return the values of its reads."""
        words = []
        for address, data in batch.operations:
            if data is None:
                words.append(await self._read32(address))
            else:
                await self._write32(address, data)
        return batch.results(words)

    async def write(self, name: str, value: int | None = None, /, *, index: int = 0, **fields: int) -> None:
        """Write a register as :meth:`Batch.write` does."""
        await self.run(Batch(self.registers, base=self.base).write(name, value, index=index, **fields))

    async def read(self, name: str, /, *, index: int = 0) -> Value:
        """Read a register as :meth:`Batch.read` does; return its value."""
        return (await self.run(Batch(self.registers, base=self.base).read(name, index=index)))[0]


class BaseDriver:
    """Base of drivers: makes the batches of register accesses that all nodes have in common.

    Run each batch with any :class:`RegisterDriver`, and pass the values of its reads to the method ``…_of``.
    ``constants``: fields that identify the node, with their expected values.
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
        """Return an empty batch."""
        return Batch(self.registers, base=self.base)

    def command(self, *names: str) -> Batch:
        """Pulse the named fields of the register ``control``."""
        return self.batch().write("control", **dict.fromkeys(names, 1))

    def identify(self) -> Batch:
        """Read the node's identity; :meth:`check_identity` compares it."""
        batch = self.batch()
        for name in self._identity:
            batch.read(name)
        return batch

    def check_identity(self, values: Sequence[Value]) -> None:
        """Raise ValueError unless the node is of the kind that the driver was made for."""
        identity: dict[str, int] = {}
        for name, value in zip(self._identity, values, strict=True):
            identity |= value if isinstance(value, dict) else {name: value}
        for name, value in self._constants.items():
            if identity[name] != value:
                raise ValueError(f"the node's {name} must be {value}, not {identity[name]}")

    def counters(self) -> Batch:
        """Read all counters; :meth:`counters_of` decodes them."""
        batch = self.batch()
        for name in self._counters:
            batch.read(name)
        return batch

    def counters_of(self, values: Sequence[Value]) -> dict[str, int]:
        """Return the counters that were read, by name."""
        return {name: int(value) for name, value in zip(self._counters, values, strict=True)}  # type: ignore[arg-type]
