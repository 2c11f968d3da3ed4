"""Bench for the life of the node: its registers, its memory, its MAC, and a model at the other end."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from amaranth import Module, ResetInserter, Signal
from amaranth.sim import Simulator

from fanin.hdl.rdma.node import RdmaNode
from fanin.host.driver import AsyncRegisterDriver
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Connection, Ending, Refusal, Region, Write, next_psn
from fanin.rdma.golden.node import Node
from fanin.sim.rtl.memory import ReadMemory, WriteMemory
from fanin.wire.ethernet import Endpoint
from tests.hdl.bus.test_registers import Host

CONFIG = replace(PRESETS["tiny"], queue_pairs=2, regions=2, descriptors=2, address_width=16)
HERE, THERE = Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01, 0), Endpoint(0x02_00_00_00_00_02, 0x0A_00_00_02, 9)
SIZE = 1 << CONFIG.address_width
STEP = CONFIG.width // 8
PAIRS = frozenset({FIRST_QUEUE_PAIR, FIRST_QUEUE_PAIR + 1})
OURS, THEIRS = Region(0x4000, 0x4000, 5, PAIRS), Region(0x8000, 0x4000, 6, PAIRS)
LONGEST = 900  # bytes of a write


class NodeLife:
    """A node in RTL, joined to a model of a node; each end writes into the other's region."""

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.dut, self.reset = RdmaNode(config=CONFIG), Signal()
        self.driver = RdmaDriver(CONFIG)
        self.source = rng.randbytes(SIZE)  # the node's memory as it is read; what it writes is in ``written``
        self.read = ReadMemory(self.dut.memory, self._word, latency=9, stall=0.2, seed=seed)
        self.written = WriteMemory(self.dut.memory, latency=40, stall=0.2, seed=seed)
        self.peer = Node(THERE, bytearray(rng.randbytes(SIZE)), [THEIRS])
        self.psns = [[0, 0] for _ in range(CONFIG.queue_pairs)]  # of the node, and of the peer
        self.up: set[int] = set()  # queue pairs that were connected and have not been disconnected
        self.frame = b""  # of the node, of which not all words have come
        self.dead = self.stuck = False
        self.unfinished = 0
        self.tag = 0

    def _word(self, address: int) -> int:
        return int.from_bytes(self.source[address : address + STEP], "little")

    # ---- the MAC and the network ----

    async def send(self, ctx: Any) -> None:
        """Frames of the node, to the peer, unless the MAC is stuck."""
        dut = self.dut
        while True:
            ctx.set(dut.mac_tx.ready, not self.stuck)
            _, _, valid, ready, beat = await ctx.tick().sample(
                dut.mac_tx.valid, dut.mac_tx.ready, dut.mac_tx.payload
            )
            if not (valid and ready):
                continue
            self.frame += beat.data.to_bytes(STEP, "little")[: beat.keep.bit_count()]
            if beat.last:
                if not self.dead:
                    self.peer.receive(self.frame)
                self.frame = b""

    async def receive(self, ctx: Any) -> None:
        """Frames of the peer, to the node; now and then one of an old connection once more."""
        port, rng = self.dut.mac_rx, self.rng
        old: list[bytes] = []
        while True:
            frames = [] if self.dead else list(self.peer.frames())
            old += [frame for frame in frames if rng.random() < 0.05]
            if old and rng.random() < 0.01:
                frames.append(rng.choice(old))
            for frame in frames:
                for at in range(0, len(frame), STEP):
                    word = frame[at : at + STEP]
                    ctx.set(port.payload.data, int.from_bytes(word, "little"))
                    ctx.set(port.payload.keep, (1 << len(word)) - 1)
                    ctx.set(port.payload.last, at + STEP >= len(frame))
                    ctx.set(port.valid, 1)
                    await ctx.tick()
                ctx.set(port.valid, 0)
            await ctx.tick()

    # ---- the host ----

    async def start(self, ctx: Any) -> None:
        """What a host does after a reset."""
        self.host = Host(ctx, self.dut.axil, self.rng, patience=0.0)

        async def read32(address: int) -> int:
            return (await self.host.read(address))[0]

        async def write32(address: int, value: int) -> None:
            await self.host.write(address, value)

        self.bus = AsyncRegisterDriver(self.driver.registers, read32, write32)
        await self.run(self.driver.configure(HERE, timeout=1500))
        await self.run(self.driver.set_regions([OURS]))

    async def run(self, batch: Any) -> list[Any]:
        """A batch of register accesses."""
        return await self.bus.run(batch)

    async def settle(self) -> None:
        """Until the last ``connect`` is carried out, whatever the MAC does."""
        for _ in range(60):
            (status,) = await self.run(self.driver.batch().read("status"))
            if not status["connecting"]:
                return
        raise AssertionError("a connection waits for more than memory")

    async def refusal(self, name: str) -> Refusal:
        """Why the last command was refused."""
        register, _, field = name.partition(".")
        (value,) = await self.run(self.driver.batch().read(register))
        return Refusal(value[field] if field else value)

    async def disconnect(self, index: int) -> None:
        """End a queue pair; its memory is left alone then."""
        await self.run(self.driver.disconnect(index))
        await self.settle()
        self.up.discard(index)
        (ended,) = await self.run(self.driver.batch().read("ended_psn"))
        if ended:
            self.psns[index][0] = next_psn(ended)

    async def connect(self, ctx: Any, index: int, *, retries: int = 1) -> None:
        """Connect both ends anew, with numbers that nothing late has."""
        await self.disconnect(index)
        quiet = len(self.written.requests)
        await ctx.tick().repeat(60)
        assert len(self.written.requests) == quiet or self.up, "memory is written after the end"
        self.psns[index][1] = next_psn(self.psns[index][1])
        number = FIRST_QUEUE_PAIR + index
        ours, theirs = self.psns[index]
        connection = Connection(number, ours, theirs, mtu=256, window=4, retries=retries)
        self.peer.connect(index, Connection(number, theirs, ours, mtu=256, window=4), replace(HERE, port=9))
        await self.run(self.driver.connect(index, connection, THERE))
        await self.settle()
        assert await self.refusal("refusals.connect_refusal") == Refusal.NONE
        self.up.add(index)

    async def post(self, index: int) -> Write | None:
        """Post a write; None if it was refused."""
        rng, length = self.rng, self.rng.choice([0, 1, 256, self.rng.randrange(LONGEST)])
        self.tag = (self.tag + 1) % (1 << 16)
        write = Write(self.tag, rng.randrange(0x3000), THEIRS.base + rng.randrange(0x3000), THEIRS.rkey, length)
        await self.run(self.driver.post(index, write))
        refused = await self.refusal("post_refusal")
        assert refused in (Refusal.NONE, Refusal.FULL)
        self.unfinished += refused == Refusal.NONE
        return write if refused == Refusal.NONE else None

    async def complete(self) -> list[tuple[int, Ending]]:
        """All completions that there are."""
        taken = []
        while True:
            (word,) = await self.run(self.driver.batch().read("completion"))
            if not word["completed"]:
                return taken
            done = self.driver.completion_of(await self.run(self.driver.take_completion()))
            taken.append((done.tag, done.ending))
            self.unfinished -= 1
            assert self.unfinished >= 0, "a completion without a write"

    async def drain(self) -> list[tuple[int, Ending]]:
        """Until all writes have completed."""
        taken: list[tuple[int, Ending]] = []
        for _ in range(400):
            taken += await self.complete()
            if not self.unfinished:
                return taken
        raise AssertionError(f"{self.unfinished} writes never complete")

    async def wrong(self) -> None:
        """Commands that cannot be, each refused with its cause; the queue pairs are as before."""
        (before,) = await self.run(self.driver.batch().read("receiving"))
        index, batch = self.rng.randrange(CONFIG.queue_pairs, 64), self.driver.batch
        good = {"pair_index": 1, "pair_enable": 1, "mtu": 0, "window": 4, "retries": 1}
        for changes, cause in (
            ({"pair_index": index}, Refusal.PLACE),
            ({"pair_index": index, "pair_enable": 0}, Refusal.PLACE),
            ({"window": 12}, Refusal.SETTINGS),
            ({"mtu": 6}, Refusal.SETTINGS),
        ):
            await self.run(batch().write("pair", **good | changes).write("control", connect=1))
            assert await self.refusal("refusals.connect_refusal") == cause
        write = batch().write("write", write_index=index, with_immediate=0, tag=0)
        await self.run(write.write("control", post=1))
        assert await self.refusal("post_refusal") == Refusal.PLACE
        region = batch().write("region", region_index=index, region_enable=0)
        await self.run(region.write("control", set_region=1))
        assert await self.refusal("refusals.region_refusal") == Refusal.PLACE
        assert await self.run(batch().read("receiving")) == [before]

    async def restart(self, ctx: Any) -> None:
        """Reset the node, once memory has answered what it was asked; its host begins anew."""
        self.stuck = self.dead = True
        await ctx.tick().repeat(400)
        ctx.set(self.reset, 1)
        await ctx.tick().repeat(2)
        ctx.set(self.reset, 0)
        self.stuck = self.dead = False
        self.unfinished = 0
        self.up.clear()
        self.frame = b""
        await self.start(ctx)

    async def clean_job(self, ctx: Any) -> None:
        """Both ends write over both queue pairs, and each has what the other one wrote."""
        self.dead = self.stuck = False
        await self.drain()
        for index in range(CONFIG.queue_pairs):
            await self.connect(ctx, index, retries=7)
        await self.drain()
        for index in range(CONFIG.queue_pairs):
            theirs = Write(1, 0x100 + self.rng.randrange(64), OURS.base + 0x1000 * index + 3, OURS.rkey, 700)
            expected = self.peer.memory[theirs.local : theirs.local + 700]
            self.peer.post(index, theirs)
            ours = await self.post(index)
            assert ours is not None
            assert await self.drain() == [(ours.tag, Ending.DONE)]
            there = self.peer.memory[ours.remote : ours.remote + ours.length]
            assert there == self.source[ours.local : ours.local + ours.length]
            for _ in range(4000):
                if self.peer.requester(index).idle:
                    break
                await ctx.tick()
            await ctx.tick().repeat(200)
            here = [self.written.content.get(theirs.remote + n) for n in range(700)]
            assert bytes(byte or 0 for byte in here) == expected, "the peer's write is not in memory"

    def simulate(self, main: Any) -> None:
        """Until ``main`` ends."""
        top = Module()
        top.submodules.dut = ResetInserter(self.reset)(self.dut)
        simulator = Simulator(top)
        simulator.add_clock(1e-6)
        simulator.add_testbench(main)
        for process in (self.read.process, self.written.process, self.send, self.receive):
            simulator.add_testbench(process, background=True)
        simulator.run()


async def random_step(ctx: Any, life: NodeLife) -> None:
    """Something that a host, a network, a peer or a MAC may do."""
    rng = life.rng
    index = rng.randrange(CONFIG.queue_pairs)
    event = rng.choices(
        ["post", "theirs", "connect", "disconnect", "wrong", "idle", "die", "stick", "take", "reset"],
        [30, 15, 10, 5, 8, 10, 5, 5, 8, 4],
    )[0]
    match event:
        case "post":
            await life.post(index)
        case "theirs":
            if index + FIRST_QUEUE_PAIR in life.peer._pairs:
                there = OURS.base + rng.randrange(0x3000)
                life.peer.post(index, Write(2, 0, there, OURS.rkey, rng.randrange(LONGEST)))
        case "connect":
            await life.connect(ctx, index)
        case "disconnect":
            await life.disconnect(index)
        case "wrong":
            await life.wrong()
        case "idle":
            await ctx.tick().repeat(rng.randrange(1, 200))
        case "die":
            life.dead = not life.dead
        case "stick":
            life.stuck = not life.stuck
        case "take":
            await life.complete()
        case "reset":
            await life.restart(ctx)
