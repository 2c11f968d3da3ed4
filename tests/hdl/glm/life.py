"""The life of a node in Amaranth's simulator: host, memory and network err, and jobs come and go."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fanin.glm.facts import GlmConfig
from fanin.hdl.glm.node import GlmNode
from fanin.host.driver import Operation
from fanin.sim.rtl.memory import ReadMemory
from fanin.wire.aggregation import AggPacket
from tests.hdl.bus.test_registers import Host
from tests.hdl.glm.cluster import Links
from tests.hdl.glm.script import REGION, Script
from tests.hdl.glm.training import Bench
from tests.support import simulate


class _Errors:
    """Addresses that answer SLVERR: each read does so with the odds of the moment."""

    def __init__(self, life: Life):
        self.life, self.rng = life, random.Random(life.seed + 1)

    def __contains__(self, address: object) -> bool:
        return self.rng.random() < self.life.errors

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Life(Script):
    """The script, with a node, its memories and its links in Amaranth's simulator."""

    def run(self) -> Life:
        """Simulate; AssertionError with the last steps where a clean job is wrong."""
        self.begin()
        self.bench = Bench(GlmNode(config=self.node))
        self.links = Links(self.bench.part, self.switch, self._link, self.node.encap, 0.3, self.rng)
        memories = [memory.process for memory in self._memories()]
        try:
            simulate(
                self.bench,
                collect={"done": 1},
                processes=[*memories, self.links.process, self._host],
                seed=self.seed,
                limit=10_000_000,
            )
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.events[-25:]])) from error
        return self

    def _link(self, up: bool, worker: int, packet: AggPacket, before: int) -> list[int]:
        return self.fate(up)

    def _memories(self) -> list[ReadMemory]:
        node, errors = self.bench.part[0], _Errors(self)

        def word(port: int, step: int) -> Callable[[int], int]:
            def read(address: int) -> int:
                content, offset = self.content[port], address - port * REGION
                if 0 <= offset <= len(content) - step:
                    return int.from_bytes(content[offset : offset + step], "little")
                return hash((address, port)) & ((1 << 8 * step) - 1)  # of nobody's

            return read

        return [
            ReadMemory(
                axi,
                word(port, len(axi.rdata) // 8),
                latency=7,
                stall=0.3,
                seed=self.seed + port,
                errors=errors,
            )
            for port, axi in enumerate([*node.samples, node.labels, *(node.lists if self.node.sparse else ())])
        ]

    async def _host(self, ctx: Any) -> None:
        self.ctx = ctx
        self.bus = Host(ctx, self.bench.part[0].axil, self.rng, patience=0.0)
        await self.live()
        await self.bench.end(ctx)

    async def access(self, operations: Sequence[Operation]) -> list[int]:
        """Access registers one by one."""
        words = []
        for address, value in operations:
            if value is None:
                word, response = await self.bus.read(address)
                words.append(word)
            else:
                response = await self.bus.write(address, value)
            assert response.value == 0
        return words

    async def pass_time(self, cycles: int) -> None:
        """Let cycles pass."""
        await self.ctx.tick().repeat(cycles)

    def lay(self, content: list[bytes]) -> None:
        """Replace what memory has."""
        self.content = content


def narrow(node: GlmConfig, **changes: Any) -> GlmConfig:
    """A node that is quick to simulate."""
    return replace(node, **{"lanes": 2, "read_ahead": 16} | changes)
