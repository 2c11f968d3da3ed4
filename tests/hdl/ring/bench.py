"""Ring nodes in Amaranth's simulator: their memories, the network between them, and their hosts."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.ring.node import RingNode
from fanin.host.driver import AsyncRegisterDriver
from fanin.ring.driver import RingDriver, RingMember, RingStatus
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce, codes_of
from fanin.ring.golden.random_bits import RandomBits
from fanin.sim.rtl.memory import ReadMemory
from fanin.sim.rtl.stalls import Side, Stalls
from tests.hdl.aggregation.bench import beats_of
from tests.hdl.bus.test_registers import Host
from tests.hdl.glm.training import Bench
from tests.support import simulate

ADDRESS_WIDTH = 16
BYTES = 1 << ADDRESS_WIDTH
#: Streams that ``halt`` withdraws.
HALTED = {
    *("AxiWriter.command", "AxiReader.command", "BurstSplitter.command"),
    *("LocalPath.o", "RingEngine/RegisterSlice.i", "RingNode/ReliableLink.tx"),
}


@dataclass(frozen=True)
class Vector:
    """A descriptor: its address, alike at all nodes, and the nodes' gradients."""

    address: int
    gradients: list[Any]

    @property
    def count(self) -> int:
        """Values."""
        return len(self.gradients[0])


@dataclass
class Memory:
    """A node's memory behind one AXI4 port: ``content`` is what the processes read and write."""

    port: Any
    seed: int
    stall: float = 0.0
    latency: int = 5
    read_errors: set[int] = field(default_factory=set)
    write_errors: set[int] = field(default_factory=set)
    content: bytearray = field(default_factory=lambda: bytearray(BYTES))
    before: bytes = b""

    def fill(self, node: int, vectors: list[Vector]) -> None:
        """A node's gradients, and random bytes around them."""
        self.content[:] = random.Random(self.seed).randbytes(BYTES)
        self._put(self.content, vectors, [vector.gradients[node] for vector in vectors])
        self.before = bytes(self.content)

    def check(self, vectors: list[Vector], config: RingConfig) -> None:
        """The vectors have become their sums, and nothing else has changed."""
        expected = bytearray(self.before)
        bits = RandomBits()
        self._put(expected, vectors, [all_reduce(vector.gradients, config, bits=bits) for vector in vectors])
        wrong = [at for at in range(BYTES) if self.content[at] != expected[at]]
        assert not wrong, f"{len(wrong)} bytes are wrong, from {wrong[0]:#x} on"

    @staticmethod
    def _put(content: bytearray, vectors: list[Vector], values: list[Any]) -> None:
        for vector, value in zip(vectors, values, strict=True):
            raw = value.tobytes()
            content[vector.address : vector.address + len(raw)] = raw

    @property
    def processes(self) -> list[Any]:
        """Testbench processes."""
        reader = ReadMemory(
            self.port,
            self._word,
            latency=self.latency,
            stall=self.stall,
            seed=self.seed,
            errors=self.read_errors,
        )
        return [reader.process, self._write]

    def _word(self, address: int) -> int:
        return int.from_bytes(self.content[address : address + len(self.port.rdata) // 8], "little")

    async def _write(self, ctx: Any) -> None:
        """Answer each burst once all of it has come, a few cycles later."""
        port, stalls = self.port, Stalls(self.stall, self.seed)
        names = (
            "awvalid",
            "awready",
            "awaddr",
            "awlen",
            "wvalid",
            "wready",
            "wdata",
            "wstrb",
            "wlast",
            "bready",
        )
        signals = [getattr(port, name) for name in names]
        bursts: deque[list[int]] = deque()
        words: deque[tuple[int, int, int]] = deque()
        answers: deque[tuple[int, Resp]] = deque()
        cycle = 0
        while True:
            ctx.set(port.awready, not stalls.pauses("aw", Side.SINK, cycle))
            ctx.set(port.wready, not stalls.pauses("w", Side.SINK, cycle))
            due = bool(answers) and answers[0][0] <= cycle
            ctx.set(port.bvalid, due)
            ctx.set(port.bresp, answers[0][1] if due else Resp.OKAY)
            _, _, *values = await ctx.tick().sample(*signals)
            awvalid, awready, awaddr, awlen, wvalid, wready, wdata, wstrb, wlast, bready = values
            if due and bready:
                answers.popleft()
            if awvalid and awready:
                bursts.append([awaddr, awlen + 1])
            if wvalid and wready:
                words.append((wdata, wstrb, wlast))
            while bursts and len(words) >= bursts[0][1]:
                address, length = bursts.popleft()
                answers.append(
                    (cycle + self.latency, self._take(address, [words.popleft() for _ in range(length)]))
                )
            cycle += 1

    def _take(self, address: int, words: list[tuple[int, int, int]]) -> Resp:
        step = len(self.port.wdata) // 8
        assert [last for _, _, last in words] == [0] * (len(words) - 1) + [1]
        assert address // 4096 == (address + step * len(words) - 1) // 4096
        assert address % step == 0
        response = Resp.OKAY
        for data, strobes, _ in words:
            assert strobes
            for byte in range(step):
                if strobes >> byte & 1:
                    self.content[address + byte] = data >> 8 * byte & 0xFF
            if address in self.write_errors:
                response = Resp.SLVERR
            address += step
        return response


def mac_of(node: int) -> int:
    """A node's MAC address."""
    return 0x02_00_00_00_03_00 + node


@dataclass
class Network:
    """A switch that carries every frame to the node whose MAC is its destination; ``lose`` says which not.

    ``change`` gives the frame that arrives in place of another.
    """

    nodes: list[Any]
    rng: random.Random
    stall: float
    lose: Callable[[int, bytes], bool]
    change: Callable[[int, bytes], bytes]
    delay: int = 4
    frames: list[tuple[int, int, bytes]] = field(default_factory=list)  # cycle, sender, frame
    busy: list[list[int]] = field(default_factory=list)  # cycles in which a node sends a beat

    async def process(self, ctx: Any) -> None:
        """Every cycle: what leaves the nodes and what arrives."""
        ports = [p for n in self.nodes for p in (n.mac_tx.valid, n.mac_tx.ready, n.mac_tx.payload)]
        building = [b"" for _ in self.nodes]
        queues: list[deque[tuple[int, dict[str, int]]]] = [deque() for _ in self.nodes]
        self.busy = [[] for _ in self.nodes]
        stalls, cycle = Stalls(self.stall, self.rng.random()), 0
        while True:
            for number, (node, queue) in enumerate(zip(self.nodes, queues, strict=True)):
                ctx.set(node.mac_tx.ready, not stalls.pauses(f"mac_tx{number}", Side.SINK, cycle))
                arrives = bool(queue) and queue[0][0] <= cycle
                ctx.set(node.mac_rx.valid, arrives)
                if arrives:
                    ctx.set(node.mac_rx.payload, queue.popleft()[1])
            _, _, *values = await ctx.tick().sample(*ports)
            for sender in range(len(self.nodes)):
                valid, ready, beat = values[3 * sender : 3 * sender + 3]
                if valid and ready:
                    width = len(self.nodes[sender].mac_tx.payload.data) // 8
                    building[sender] += beat.data.to_bytes(width, "little")[: beat.keep.bit_count()]
                    self.busy[sender].append(cycle)
                    if beat.last:
                        self._carry(sender, building[sender], cycle, queues)
                        building[sender] = b""
            cycle += 1

    def _carry(self, sender: int, frame: bytes, cycle: int, queues: Any) -> None:
        self.frames.append((cycle, sender, frame))
        receiver = int.from_bytes(frame[:6], "big") - mac_of(0)
        if receiver in range(len(self.nodes)) and not self.lose(sender, frame):
            width = len(self.nodes[receiver].mac_rx.payload.data)
            arriving = beats_of(self.change(sender, frame), width)
            queues[receiver] += [(cycle + self.delay, beat) for beat in arriving]


def vectors(counts: list[int], nodes: int, config: RingConfig, seed: int) -> list[Vector]:
    """Random gradients of these counts, one vector behind the other, with a word's gap at least."""
    rng, result, address = np.random.default_rng(seed), [], 0x0FC0
    for count in counts:
        scale = np.float32(2.0) ** rng.integers(-20, 3, (nodes, count)).astype(np.float32)
        values = (rng.standard_normal((nodes, count)) * scale).astype(np.float32)
        result.append(Vector(address, [codes_of(own, config.tensor) for own in values]))
        address += config.word_bytes * (config.words(count) + 1)
    assert address <= BYTES
    return result


@dataclass
class Ring:
    """A ring of nodes that reduces ``vectors``; ``status`` and ``counters`` then say how it went.

    ``script`` is what the hosts do, by default: configure, start, post all, wait. ``members`` changes what a
    node's host believes of the job, ``configs`` what a node is.
    """

    config: RingConfig
    nodes: int
    vectors: list[Vector]
    seed: int
    stall: float = 0.2
    timeout: int = 400
    retries: int = 100
    queue: int = 8
    lose: Callable[[int, bytes], bool] = lambda sender, frame: False
    change: Callable[[int, bytes], bytes] = lambda sender, frame: frame
    configs: dict[int, RingConfig] = field(default_factory=dict)
    members: dict[int, dict[str, Any]] = field(default_factory=dict)
    script: Callable[[Ring], Awaitable[None]] | None = None
    halts: bool = False  # jobs end before their descriptors
    status: list[RingStatus] = field(default_factory=list)
    counters: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        configs = [self.configs.get(n, self.config) for n in range(self.nodes)]
        parts = [RingNode(config=replace(c, address_width=ADDRESS_WIDTH), queue=self.queue) for c in configs]
        self.bench = Bench(*parts)
        self.drivers = [RingDriver(config) for config in configs]
        self.network = Network(parts, rng, self.stall, self.lose, self.change)
        self.memories = [Memory(part.memory, self.seed + n, stall=self.stall) for n, part in enumerate(parts)]
        for n, memory in enumerate(self.memories):
            memory.fill(n, self.vectors)

    def run(self, *, limit: int = 20_000) -> Ring:
        """Simulate to the end of the script."""
        processes = [p for memory in self.memories for p in memory.processes]
        simulate(
            self.bench,
            collect={"done": 1},
            stall=0.0,
            processes=[*processes, self.network.process, self._host],
            seed=self.seed,
            limit=limit,
            excused=HALTED if self.halts else (),
        )
        return self

    def check(self) -> None:
        """All vectors are their sums, on all nodes, and nothing else has changed."""
        for memory in self.memories:
            memory.check(self.vectors, self.config)

    async def start(self, *, job: int = 1) -> None:
        """Identify, configure and start all nodes."""
        for rank, (driver, bus) in enumerate(zip(self.drivers, self.buses, strict=True)):
            driver.check_identity(await bus.run(driver.identify()))
            member = RingMember(
                id=job,
                macs=[mac_of(n) for n in range(self.nodes)],
                rank=rank,
                timeout=self.timeout,
                retries=self.retries,
                ack_frames=2,
                ack_delay=50,
            )
            await bus.run(driver.configure(replace(member, **self.members.get(rank, {}))))
            await bus.run(driver.start())

    async def post(self, posts: list[tuple[int, int]] | None = None) -> None:
        """Post ``(address, count)`` to all nodes, by default the vectors'."""
        for address, count in posts or [(v.address, v.count) for v in self.vectors]:
            for driver, bus in zip(self.drivers, self.buses, strict=True):
                await bus.run(driver.post(address, count))

    async def wait(self) -> None:
        """Until all nodes have finished or failed."""
        self.status = []
        for driver, bus in zip(self.drivers, self.buses, strict=True):
            while not (status := driver.status_of(await bus.run(driver.wait()))).finished:
                pass
            self.status.append(status)

    async def count(self) -> None:
        """Read the counters."""
        pairs = zip(self.drivers, self.buses, strict=True)
        self.counters = [d.counters_of(await bus.run(d.counters())) for d, bus in pairs]

    async def _default(self) -> None:
        await self.start()
        await self.post()
        await self.wait()

    async def _host(self, ctx: Any) -> None:
        rng = random.Random(self.seed)
        self.buses = [
            self._bus(n, Host(ctx, part.axil, rng, patience=0.0)) for n, part in enumerate(self.bench.part)
        ]
        await (self.script(self) if self.script else self._default())
        await self.bench.end(ctx)

    def _bus(self, node: int, host: Any) -> AsyncRegisterDriver:
        async def read32(address: int) -> int:
            word, response = await host.read(address)
            assert response is Resp.OKAY
            return word

        async def write32(address: int, value: int) -> None:
            assert await host.write(address, value) is Resp.OKAY

        return AsyncRegisterDriver(self.drivers[node].registers, read32, write32)
