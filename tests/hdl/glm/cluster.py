"""Nodes in Amaranth's simulator: their memories, a switch, links that misbehave on request, and the host."""

from __future__ import annotations

import heapq
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fanin.glm.driver import NodeDriver, NodeJob, NodeMemories, NodeStatus
from fanin.glm.golden import layout
from fanin.hdl.glm.node import GlmNode
from fanin.host.driver import AsyncRegisterDriver
from fanin.sim.rtl.memory import ReadMemory
from fanin.sim.rtl.stalls import Side, Stalls
from fanin.sim.switch.base import Job as SwitchJob
from fanin.sim.switch.base import Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket, Encap
from tests.hdl.aggregation.bench import BASE, JOB, SWITCH, beats_of, own, packet_of
from tests.hdl.bus.test_registers import Host
from tests.hdl.glm.training import Bench, Job
from tests.support import simulate

#: What a link does with a packet on its way (up, worker, packet, how many there were of its kind before):
#: the delays of what arrives; [] loses it.
Link = Callable[[bool, int, AggPacket, int], list[int]]
REGION_BITS = 20  # log2 of the bytes between a node's memory regions; less where addresses are narrow


def perfect(up: bool, worker: int, packet: AggPacket, before: int) -> list[int]:
    """A link that carries everything at once."""
    return [0]


@dataclass
class Links:
    """The MACs of all nodes, the links and the switch between them; times are cycles."""

    nodes: list[Any]
    switch: ReferenceSwitch
    link: Link
    encap: Encap
    stall: float
    rng: random.Random
    delay: int = 4
    seen: dict[tuple[bool, int, int], int] = field(default_factory=dict)
    times: dict[tuple[bool, int], list[int]] = field(default_factory=dict)  # worker 0's MAC, last beats
    _events: list[tuple[int, int, bool, int, bytes]] = field(default_factory=list)

    async def process(self, ctx: Any) -> None:
        """Every cycle: what leaves the nodes, what arrives at the switch and at the nodes."""
        ports = [p for n in self.nodes for p in (n.mac_tx.valid, n.mac_tx.ready, n.mac_tx.payload)]
        building = [b"" for _ in self.nodes]
        queues: list[list[Any]] = [[] for _ in self.nodes]
        stalls, cycle = Stalls(self.stall, self.rng.random()), 0
        while True:
            for number, (node, queue) in enumerate(zip(self.nodes, queues, strict=True)):
                ctx.set(node.mac_tx.ready, not stalls.pauses(f"mac_tx{number}", Side.SINK, cycle))
                ctx.set(node.mac_rx.valid, bool(queue))
                if queue:
                    beat, frame = queue.pop(0)
                    ctx.set(node.mac_rx.payload, beat)
                    if frame and node is self.nodes[0]:
                        self._note(False, frame, cycle)
            _, _, *values = await ctx.tick().sample(*ports)
            for worker in range(len(self.nodes)):
                valid, ready, beat = values[3 * worker : 3 * worker + 3]
                if valid and ready:
                    width = len(self.nodes[worker].mac_tx.payload.data) // 8
                    building[worker] += beat.data.to_bytes(width, "little")[: beat.keep.bit_count()]
                    if beat.last:
                        if worker == 0:
                            self._note(True, building[0], cycle)
                        self._carry(True, worker, building[worker], cycle)
                        building[worker] = b""
            for worker, frame in self._arrivals(cycle):
                beats = beats_of(frame, len(self.nodes[worker].mac_rx.payload.data))
                queues[worker] += [(beat, frame if beat is beats[-1] else None) for beat in beats]
            cycle += 1

    def _note(self, up: bool, frame: bytes, now: int) -> None:
        self.times.setdefault((up, packet_of(frame, encap=self.encap).kind), []).append(now)

    def _arrivals(self, now: int) -> Iterable[tuple[int, bytes]]:
        while self._events and self._events[0][0] <= now:
            _, _, up, worker, frame = heapq.heappop(self._events)
            if up:
                for port, answer, _ in self.switch.inject(worker, frame, now):
                    self._carry(False, port, answer, now)
            else:
                yield worker, frame

    def _carry(self, up: bool, worker: int, frame: bytes, now: int) -> None:
        packet = packet_of(frame, encap=self.encap)
        key = (up, worker, packet.kind)
        before = self.seen.get(key, 0)
        self.seen[key] = before + 1
        for serial, extra in enumerate(self.link(up, worker, packet, before)):
            order = 1000 * sum(self.seen.values()) + serial
            heapq.heappush(self._events, (now + self.delay + extra, order, up, worker, frame))


@dataclass
class Cluster:
    """Runs a job on its nodes; ``model``, ``status`` and ``counters`` then say how it went.

    ``script`` is what the host does, by default: configure, train ``runs`` times, read everything.
    """

    job: Job
    link: Link = perfect
    stall: float = 0.3
    runs: int = 1
    timeout: int = 300
    retries: int = 1000
    errors: set[int] = field(default_factory=set)  # addresses of worker 0's first port that answer SLVERR
    script: Callable[[Cluster], Awaitable[None]] | None = None
    model: list[int] = field(default_factory=list)
    status: list[NodeStatus] = field(default_factory=list)
    counters: list[dict[str, int]] = field(default_factory=list)

    def run(self, *, limit: int = 30_000) -> Cluster:
        """Simulate to the end of the script."""
        job, rng = self.job, random.Random(self.job.seed)
        self.driver = NodeDriver(job.node)
        self.bench = Bench(*(GlmNode(config=job.node) for _ in range(job.workers)))
        switch = ReferenceSwitch(endpoint=SWITCH, ports=job.workers)
        members = tuple(Member(w, 1 << w, own(w)) for w in range(job.workers))
        switch.add_job(SwitchJob(JOB, BASE, job.node.slots, members))
        self.links = Links(self.bench.part, switch, self.link, job.node.encap, self.stall, rng)
        simulate(
            self.bench,
            collect={"done": 1},
            stall=self.stall,
            processes=self.processes(),
            seed=job.seed,
            limit=limit,
        )
        return self

    def processes(self) -> list[Any]:
        """What goes on around the nodes: memories, network and host."""
        memories = [m.process for w in range(self.job.workers) for m in self._memories(w)]
        return [*memories, self.links.process, self._host]

    async def configure(self, **job: int) -> None:
        """Identify all nodes and tell them everything; ``job`` replaces members of their ``NodeJob``."""
        for worker, bus in enumerate(self.buses):
            self.driver.check_identity(await bus.run(self.driver.identify()))
            await bus.run(self._configuration(worker, **job))

    async def rewrite(self, name: str, fields: dict[str, int] | None = None) -> None:
        """Give one register other ``fields``, or what the configuration says."""
        for worker, bus in enumerate(self.buses):
            batch = self.driver.batch()
            if fields is None:
                offset = self.driver.registers.offset(name)
                configured = self._configuration(worker).operations
                batch.operations += [op for op in configured if op.address == offset]
            elif list(fields) == [name]:
                batch.write(name, fields[name])
            else:
                batch.write(name, **fields)
            await bus.run(batch)

    async def train(self) -> None:
        """Start all nodes and wait until none is busy."""
        await self.command("start", "clear_counters")
        await self.wait()

    async def command(self, *names: str) -> None:
        """Pulse control bits of all nodes."""
        for bus in self.buses:
            await bus.run(self.driver.command(*names))

    async def wait(self) -> None:
        """Poll ``status`` until no node is busy."""
        self.status = []
        for bus in self.buses:
            while (status := self.driver.status_of(await bus.run(self.driver.status()))).busy:
                pass
            self.status.append(status)

    async def read(self) -> None:
        """Read counters and models."""
        driver = self.driver
        self.counters = [driver.counters_of(await bus.run(driver.counters())) for bus in self.buses]
        chunks = self.job.shape.chunks
        self.model = self.job.join(
            [driver.model_of(await bus.run(driver.read_model(chunks))) for bus in self.buses]
        )

    async def _default(self) -> None:
        await self.configure()
        for _ in range(self.runs):
            await self.train()
        await self.read()

    async def _host(self, ctx: Any) -> None:
        rng = random.Random(self.job.seed)
        self.buses = [self._bus(Host(ctx, node.axil, rng, patience=0.0)) for node in self.bench.part]
        await (self.script(self) if self.script else self._default())
        await self.bench.end(ctx)

    def _memories(self, worker: int) -> Iterable[ReadMemory]:
        """The worker's regions as the layout says; the labels lie in the region behind the samples'."""
        job, node = self.job, self.bench.part[worker]
        regions = layout.split_ports(layout.pack_samples(job.features, job.shape, worker))
        regions.append(layout.pack_labels(job.labels, job.shape, worker))
        for port, (axi, region) in enumerate(zip([*node.samples, node.labels], regions, strict=True)):
            content, start, step = region.tobytes(), self._base(port), len(axi.rdata) // 8

            def word(address: int, content=content, start=start, step=step) -> int:
                offset = address - start
                assert 0 <= offset <= len(content) - step, f"read outside the region at {address:#x}"
                return int.from_bytes(content[offset : offset + step], "little")

            errors = self.errors if (worker, port) == (0, 0) else set()
            yield ReadMemory(axi, word, latency=7, stall=self.stall, seed=job.seed + port, errors=errors)

    def _base(self, port: int) -> int:
        """Address of a port's region; the port after the samples' is the labels'."""
        node = self.job.node
        return port << min(REGION_BITS, node.address_width - node.sample_ports.bit_length())

    def _bus(self, host: Any) -> AsyncRegisterDriver:
        async def read32(address: int) -> int:
            word, response = await host.read(address)
            assert response.value == 0
            return word

        async def write32(address: int, value: int) -> None:
            assert (await host.write(address, value)).value == 0

        return AsyncRegisterDriver(self.driver.registers, read32, write32)

    def _configuration(self, worker: int, **changes: int) -> Any:
        job = self.job
        settings = NodeJob(
            id=JOB,
            base=BASE,
            slots=job.node.slots,
            member=1 << worker,
            own=own(worker),
            switch=SWITCH,
            timeout=self.timeout,
            retries=self.retries,
        )
        return self.driver.configure(
            job.shape,
            loss=job.loss,
            rate=job.learning_rate,
            epochs=job.epochs,
            decay=job.decay,
            job=replace(settings, **changes),
            memories=NodeMemories(
                samples=[self._base(port) for port in range(job.node.sample_ports)],
                labels=self._base(job.node.sample_ports),
            ),
        )
