"""Bench for the life of the sending half: host, memory, MAC, network and peers, which misbehave at random.

The bench checks after every cycle that memory is read for incomplete writes only, and that each write completes
once, in order, and as done only if its own peer has its bytes. The host overwrites a buffer when its write
completes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.rdma.queue_pair import answer_layout, completion_layout, connect_layout, write_layout
from fanin.hdl.rdma.requester import Requester
from fanin.hdl.rdma.shapes import Headers, fetch_layout
from fanin.hdl.rdma.write_queue import WriteQueue
from fanin.hdl.stream.connect import connect_typed
from fanin.rdma.facts import Connection, Ending, RdmaConfig, Region, Write, next_psn
from fanin.rdma.golden.nic import Responder
from fanin.wire.rdma import Opcode, RdmaPacket
from tests.hdl.rdma.bench import connect_fields, post_fields

CONFIG = RdmaConfig(width=128, address_width=20, queue_pairs=4, descriptors=4, regions=2, buffer_words=1024,
                    fetch_words=1024)  # fmt: skip
SLOT = 2048  # bytes of a buffer, here and at a peer
SLOTS = 128
KEY = 7
CAPACITY = 6  # payloads between memory and MAC
PATIENCE = 1000  # cycles in which a connection is carried out, whatever the MAC does


class Sender(wiring.Component):
    """Write queue and requester, joined as in the node."""

    def __init__(self) -> None:
        layout = fetch_layout(width=CONFIG.width, address_width=CONFIG.address_width)
        super().__init__(
            {
                "connect": In(stream.Signature(connect_layout(CONFIG))),
                "timeout": In(32),
                "post": In(1),
                "write": In(write_layout(CONFIG)),
                "answer": In(stream.Signature(answer_layout(CONFIG))),
                "headers": Out(stream.Signature(Headers)),
                "fetch": Out(stream.Signature(layout)),
                "room": In(1),
                "free": In(1),
                "reading": In(1),
                "completion": Out(stream.Signature(completion_layout(CONFIG))),
                "accepted": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.queue = queue = WriteQueue(config=CONFIG, completions=64)
        m.submodules.requester = requester = Requester(config=CONFIG)
        connect_typed(m, queue.o, requester.post)
        for name in ("connect", "answer"):
            connect_typed(m, flipped(getattr(self, name)), getattr(requester, name))
        for name in ("headers", "fetch", "completion"):
            connect_typed(m, getattr(requester, name), flipped(getattr(self, name)))
        for name in ("room", "free", "reading", "timeout"):
            m.d.comb += getattr(requester, name).eq(getattr(self, name))
        for name in ("accepted", "refused"):
            m.d.comb += getattr(self, name).eq(getattr(queue, name))
        connect = self.connect
        m.d.comb += [
            queue.post.eq(self.post),
            queue.write.eq(self.write),
            queue.local.eq(self.write.local),
            queue.connecting.eq(connect.valid & (connect.payload.index == self.write.index)),
            queue.connected.eq(connect.valid & connect.ready),
            queue.connected_index.eq(connect.payload.index),
            queue.completed.eq(self.completion.valid & self.completion.ready),
            requester.stale.eq(queue.stale),
        ]
        return m


@dataclass(eq=False)
class Posted:
    """A write, its bytes when it was posted, and the connection that it is to be done over."""

    write: Write
    data: bytes
    epoch: Epoch | None
    complete: bool = False


@dataclass(eq=False)
class Epoch:
    """A connection of a queue pair, and its peer."""

    number: int
    index: int
    connection: Connection
    answers: bool = True  #: else the peer is dead
    posted: int = 0
    peer: Responder = field(init=False)

    def __post_init__(self) -> None:
        there = Connection(0, receive_psn=self.connection.send_psn, mtu=self.connection.mtu)
        regions = [Region(0, SLOTS * SLOT, KEY, frozenset([self.index]))]
        self.peer = Responder(self.index, there, bytearray(SLOTS * SLOT), regions)


class Life:
    """The world around a sender, a cycle at a time; ``rng`` decides all."""

    def __init__(self, dut: Sender, rng: Any, reset: Any):
        self.dut, self.rng, self.reset = dut, rng, reset
        self.memory = bytearray(rng.randbytes(SLOTS * SLOT))
        self.slots: list[Posted | None] = [None] * SLOTS
        self.epochs: list[Epoch] = []
        self.now: list[Epoch | None] = [None] * CONFIG.queue_pairs
        self.psns = [rng.choice([0, (1 << 24) - 2, rng.randrange(1 << 24)]) for _ in self.now]
        self.expected: list[deque[Posted]] = [deque() for _ in self.now]
        self.cycle = 0
        self.posting: tuple[int, Posted] | None = None  # neither accepted nor refused yet, and its queue pair
        self.endings: list[Ending] = []
        self.reads: deque[list[Any]] = deque()  # of each payload: cycle in which it comes, address, size, data
        self.headers: deque[Any] = deque()
        self.answers: deque[tuple[int, int, int]] = deque()
        self.network: list[tuple[int, Any]] = []
        self.loses = True
        self.room = deque([True], maxlen=5)  # of the last cycles: what the reader says is some cycles old
        self.stuck_until = 0  # the MAC takes nothing
        self.answer = dut.answer.payload  # a view is made anew at each access, and has an id of its own
        self.driven: dict[int, Any] = {}  # inputs as they are, by their ids
        streams = (dut.headers, dut.fetch, dut.completion, dut.answer, dut.connect)
        flags = [flag for port in streams for flag in (port.valid, port.ready)]
        payloads = [port.p.as_value() for port in streams[:3]]  # numbers: what moves alone is decoded
        self.sampled = [dut.accepted, dut.refused, *flags, *payloads]

    # ---- the host ----

    async def connect(self, ctx: Any, index: int, *, enable: bool = True, retries: int = 1) -> None:
        """Connect a queue pair anew, or disconnect it."""
        rng = self.rng
        connection = Connection(
            len(self.epochs), self.psns[index], rng.randrange(1 << 24), 256, 1 << rng.randrange(5), retries
        )
        epoch = Epoch(len(self.epochs), index, connection, answers=not self.loses or rng.random() < 0.8)
        self.epochs.append(epoch)
        ctx.set(self.dut.connect.payload, connect_fields(index, connection, enable=enable))
        ctx.set(self.dut.connect.valid, 1)
        for _ in range(PATIENCE):
            if await self.step(ctx):
                break
        else:
            raise AssertionError(f"the connection waits for more than memory, cycle {self.cycle}")
        ctx.set(self.dut.connect.valid, 0)
        self.now[index] = epoch if enable else None
        self.psns[index] = next_psn(connection.send_psn)  # a packet that leaves moves it on

    async def post(self, ctx: Any, index: int, *, key: int = KEY) -> bool:
        """Post a write of random length; whether it was accepted."""
        slot = next((n for n, posted in enumerate(self.slots) if posted is None), None)
        if slot is None:
            return False
        rng, base = self.rng, slot * SLOT
        length = rng.choice([0, 1, 255, 256, 257, 700, rng.randrange(SLOT)])
        local = base + rng.randrange(SLOT - length)
        there = rng.randrange(SLOT - length) + base
        self.memory[base : base + SLOT] = rng.randbytes(SLOT)
        epoch = self.now[index]
        write = Write(slot, local, there, key, length)
        posted = Posted(write, bytes(self.memory[local : local + length]), epoch)
        self.posting = index, posted
        ctx.set(self.dut.write, post_fields(index, write))
        ctx.set(self.dut.post, 1)
        await self.step(ctx)
        ctx.set(self.dut.post, 0)
        while self.posting is not None:
            await self.step(ctx)
        return self.slots[slot] is posted

    async def idle(self, ctx: Any, cycles: int) -> None:
        """Let time pass."""
        for _ in range(cycles):
            await self.step(ctx)

    async def drain(self, ctx: Any, most: int = 20_000) -> None:
        """Await the completion of all writes."""
        for _ in range(most):
            if not any(self.expected):
                return
            await self.step(ctx)
        raise AssertionError(f"writes never complete: {[len(each) for each in self.expected]}")

    async def restart(self, ctx: Any) -> None:
        """Reset the node in the midst of whatever it does; the network keeps what is in it."""
        ctx.set(self.reset, 1)
        ctx.set(self.dut.connect.valid, 0)
        for _ in range(self.rng.randrange(1, 4)):
            self.reads.clear()
            self.headers.clear()
            self._drive(ctx)
            await ctx.tick()
            self.cycle += 1
        ctx.set(self.reset, 0)
        self.answers.clear()
        self.now = [None] * CONFIG.queue_pairs
        for each in self.expected:
            each.clear()
        self.slots = [None] * SLOTS

    # ---- one cycle ----

    async def step(self, ctx: Any) -> bool:
        """One cycle; whether a connection was taken in it."""
        dut = self.dut
        self._arrive()
        self._drive(ctx)
        _, _, accepted, refused, *values, header, fetch, completion = await ctx.tick().sample(*self.sampled)
        self.cycle += 1
        moved = [valid and ready for valid, ready in zip(values[::2], values[1::2], strict=True)]
        if moved[2]:
            self._complete(dut.completion.p.shape().from_bits(completion))
        if moved[1]:
            fetch = dut.fetch.p.shape().from_bits(fetch)
            due = self.cycle + self.rng.randrange(1, self.rng.choice([30, 30, 30, 400]))
            due = max(due, self.reads[-1][0]) if self.reads else due
            self.reads.append([due, fetch.address, fetch.size, None])
        if moved[0]:
            self.headers.append(dut.headers.p.shape().from_bits(header))
        if moved[3]:
            self.answers.popleft()
        if (accepted or refused) and self.posting is not None:
            index, posted = self.posting
            if accepted:
                self.slots[posted.write.tag] = posted
                self.expected[index].append(posted)
            self.posting = None
        self._read()
        self._send()
        return bool(moved[4])

    def _drive(self, ctx: Any) -> None:
        dut, rng = self.dut, self.rng
        free = len(self.reads) < CAPACITY
        self._set(ctx, dut.free, free and rng.random() < 0.9)
        self.room.append(free)
        self._set(ctx, dut.room, self.room[0])
        self._set(ctx, dut.reading, any(data is None for *_, data in self.reads))
        self._set(ctx, dut.fetch.ready, free and rng.random() < 0.7)
        self._set(ctx, dut.completion.ready, rng.random() < 0.8)
        self._set(ctx, dut.headers.ready, self.cycle >= self.stuck_until and len(self.headers) < 2)
        self._set(ctx, dut.answer.valid, bool(self.answers))
        if self.answers:
            index, psn, syndrome = self.answers[0]
            self._set(ctx, self.answer, {"index": index, "psn": psn, "syndrome": syndrome})

    def _set(self, ctx: Any, port: Any, value: Any) -> None:
        """Drive an input; one that has the value takes no time of the simulator."""
        if self.driven.get(id(port)) != value:
            self.driven[id(port)] = value
            ctx.set(port, value)

    def _complete(self, said: Any) -> None:
        posted = self.expected[said.index].popleft()
        write, ending = posted.write, Ending(said.ending)
        assert said.tag == write.tag, "a write completes out of its turn, or twice"
        self.endings.append(ending)
        if ending == Ending.DONE:
            assert posted.epoch is not None, "done without a connection"
            there = posted.epoch.peer.memory[write.remote : write.remote + write.length]
            assert there == posted.data, "done, and its peer has other bytes"
        posted.complete = True
        self.slots[write.tag] = None
        self.memory[write.tag * SLOT : (write.tag + 1) * SLOT] = self.rng.randbytes(SLOT)

    def _read(self) -> None:
        """Payloads come from memory: as late as they may, so that a buffer that is used again shows."""
        for read in self.reads:
            due, address, size, data = read
            if data is None and due <= self.cycle:
                posted = self.slots[address // SLOT]
                assert posted is not None, f"memory is read after its write completed, cycle {self.cycle}"
                read[3] = bytes(self.memory[address : address + size])

    def _send(self) -> None:
        """Packets whose payload has come go out."""
        while self.headers:
            said = self.headers[0]
            if said.size and (not self.reads or self.reads[0][3] is None):
                return
            self.headers.popleft()
            payload = self.reads.popleft()[3] if said.size else b""
            opcode = Opcode(said.opcode)
            packet = RdmaPacket(
                opcode, said.peer.queue_pair, said.psn, bool(said.acknowledge),
                said.address if opcode.begins else 0, said.rkey if opcode.begins else 0,
                said.length if opcode.begins else 0, said.immediate if opcode.has_immediate else 0,
                payload=payload,
            )  # fmt: skip
            epoch = self.epochs[said.peer.queue_pair]
            if self.now[epoch.index] is epoch:
                self.psns[epoch.index] = next_psn(said.psn)
            self._carry(packet)

    # ---- the network ----

    def _carry(self, item: Any) -> None:
        rng = self.rng
        odds = 0.05 if self.loses else 0.0
        for _ in range(rng.choices([0, 1, 2], [odds, 1 - 2 * odds, odds])[0]):
            late = rng.choice([200, 350, 3000]) if rng.random() < odds else 0
            self.network.append((self.cycle + rng.randrange(5, 20) + late, item))

    def _arrive(self) -> None:
        here = [item for due, item in self.network if due <= self.cycle]
        if not here:
            return
        self.network = [(due, item) for due, item in self.network if due > self.cycle]
        for item in here:
            if isinstance(item, tuple):
                self.answers.append(item)
                continue
            epoch = self.epochs[item.queue_pair]
            answer = epoch.peer.receive(item) if epoch.answers else None
            if answer is not None:
                self._carry((epoch.index, answer.psn, answer.syndrome))


async def clean_job(ctx: Any, life: Life) -> None:
    """Connect all queue pairs, and write over each: all is done, and ``_complete`` checks the bytes."""
    life.loses, life.stuck_until = False, 0
    await life.drain(ctx)
    for index in range(CONFIG.queue_pairs):
        await life.connect(ctx, index, retries=7)
    life.endings.clear()
    count = 0
    for _ in range(2):
        for index in range(CONFIG.queue_pairs):
            count += await life.post(ctx, index)
    await life.drain(ctx)
    assert life.endings == [Ending.DONE] * count
    assert count == 2 * CONFIG.queue_pairs
    life.loses = True


async def _connect_while_full(ctx: Any, life: Life) -> None:
    """The MAC sticks, what was read takes all of the reader's room, and a queue pair begins anew."""
    rng, pairs = life.rng, range(CONFIG.queue_pairs)
    for index in rng.sample(pairs, 2):
        await life.connect(ctx, index)
    life.stuck_until = life.cycle + 2500
    for _ in range(rng.randrange(4, 12)):
        await life.post(ctx, rng.choice(pairs))
    await life.idle(ctx, rng.choice([20, 100, 400]))
    await life.connect(ctx, rng.choice(pairs), enable=rng.random() < 0.7, retries=rng.randrange(3))


async def random_step(ctx: Any, life: Life) -> str:
    """Something that a host, a network or a MAC may do."""
    rng = life.rng
    index = rng.randrange(CONFIG.queue_pairs)
    event = rng.choices(
        ["post", "connect", "disconnect", "idle", "wait", "stick", "fill", "reset"], [50, 8, 4, 25, 6, 5, 3, 2]
    )[0]
    match event:
        case "post":
            for _ in range(rng.choice([1, 1, 6, 20])):
                await life.post(ctx, index, key=KEY if rng.random() < 0.95 else KEY + 1)
        case "connect" | "disconnect":
            await life.connect(ctx, index, enable=event == "connect", retries=rng.randrange(3))
        case "idle":
            await life.idle(ctx, rng.randrange(60))
        case "wait":
            await life.idle(ctx, 700)
        case "stick":
            life.stuck_until = life.cycle + rng.choice([50, 300, 2500])
        case "fill":
            await _connect_while_full(ctx, life)
        case "reset":
            await life.restart(ctx)
    return event
