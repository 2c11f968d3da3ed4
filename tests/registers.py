"""Register maps driven through coroutines, as simulated buses need it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fanin.hdl.bus.register_map import RegisterMap
from fanin.host.driver import Batch, Value


class AsyncRegisterDriver:
    """:class:`~fanin.host.driver.RegisterDriver` over two coroutine functions."""

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
