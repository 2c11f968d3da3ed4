# amaranth: UnusedElaboratable=no
"""The bridges to Intel's buses, against models of what is on the other side."""

import random
from collections import deque

import pytest

from fanin.hdl.boards.vendor.avalon_memory import COMMANDS, AxiToAvalonMemory
from fanin.hdl.boards.vendor.avalon_registers import BAD_READ, AvalonToAxiLite
from fanin.hdl.boards.vendor.avalon_stream import AvalonToPacket, PacketToAvalon
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

WIDTH = 64
STEP = WIDTH // 8
BURST = 4
REGION = 0x400  # bytes that are read; those behind are written


async def until(ctx, condition, *values):
    """The values in the cycle in which the condition holds; a simulation may end before it does."""
    done = False
    while not done:
        _, _, done, *sampled = await ctx.tick().sample(condition, *values)
    return sampled


class AvalonMemory:
    """A memory controller: it waits now and then, answers late and in order, and checks what it is asked."""

    def __init__(self, dut, rng, *, stall):
        self.dut, self.rng, self.stall = dut, rng, stall
        self.content = bytearray(rng.randbytes(2 * REGION))
        self.reads = deque()  # words that wait for their time
        self.left = 0  # words of the write burst under way
        self.held = None

    async def process(self, ctx):
        dut = self.dut
        outputs = dut.read, dut.write, dut.address, dut.burstcount, dut.writedata, dut.byteenable
        for cycle in range(10**9):
            waits = self.rng.random() < self.stall
            ctx.set(dut.waitrequest, waits)
            answers = bool(self.reads) and self.reads[0][0] <= cycle and self.rng.random() >= self.stall
            ctx.set(dut.readdatavalid, answers)
            ctx.set(dut.readdata, self.reads.popleft()[1] if answers else self.rng.getrandbits(WIDTH))
            _, _, read, write, *rest = await ctx.tick().sample(*outputs)
            self._check(read, write, rest)
            if not waits and read:
                self._read(cycle, *rest[:2])
            if not waits and write:
                self._write(*rest)
            self.held = self._command(read, write, rest) if waits and (read or write) else None

    def _command(self, read, write, rest):
        """What may not change while it waits; a read has no data."""
        return (read, write, *(rest if write else rest[:2]))

    def _check(self, read, write, rest):
        assert not (read and write)
        command = self._command(read, write, rest)
        assert self.held in (None, command), "a command changed while it waited"
        if self.left:
            assert not read, "a read inside a write burst"

    def _read(self, cycle, address, count):
        assert 1 <= count <= BURST
        for n in range(count):
            at = address + n * STEP
            word = int.from_bytes(self.content[at : at + STEP], "little")
            self.reads.append((cycle + 1 + self.rng.randrange(20), word))

    def _write(self, address, count, word, strobes):
        if not self.left:
            self.left, self.at, self.burst = count, address, (address, count)
        assert (address, count) == self.burst, "a burst's address moved"
        for byte in range(STEP):
            if strobes >> byte & 1:
                self.content[self.at + byte] = word >> 8 * byte & 0xFF
        self.at += STEP
        self.left -= 1


class AxiHost:
    """Bursts of writes and of reads, side by side, with all five channels stalled on their own."""

    def __init__(self, dut, memory, rng, *, stall, count):
        self.dut, self.memory, self.rng, self.stall, self.count = dut, memory, rng, stall, count
        self.expected = bytearray(memory.content)
        self.bursts = [self._burst(REGION) for _ in range(count)]
        self.asked = [self._burst(0) for _ in range(count)]
        self.words = [
            (rng.getrandbits(WIDTH), rng.getrandbits(STEP), n == length - 1)
            for _, length in self.bursts
            for n in range(length)
        ]
        self.ids = [rng.randrange(2) for _ in range(count)]
        self.answered, self.read, self.read_ids = [], [], []
        source = iter(self.words)
        for address, length in self.bursts:
            for at in range(address, address + length * STEP, STEP):
                word, strobes, _ = next(source)
                for byte in range(STEP):
                    if strobes >> byte & 1:
                        self.expected[at + byte] = word >> 8 * byte & 0xFF

    def _burst(self, base):
        length = self.rng.randrange(1, BURST + 1)
        return base + STEP * self.rng.randrange(REGION // STEP - length), length

    def _commands(self, bursts):
        numbered = zip(bursts, self.ids, strict=True)
        return [{"addr": address, "len": length - 1, "id": name} for (address, length), name in numbered]

    def processes(self):
        channels = [
            ("aw", self._commands(self.bursts)),
            ("ar", self._commands(self.asked)),
            ("w", [{"data": d, "strb": s, "last": e} for d, s, e in self.words]),
        ]
        return [*(self._offer(*channel) for channel in channels), self._take_b, self._take_r]

    def _offer(self, prefix, items):
        port = lambda name: getattr(self.dut.memory, f"{prefix}{name}")  # noqa: E731

        async def process(ctx):
            for item in items:
                while self.rng.random() < self.stall:
                    await ctx.tick()
                for name, value in item.items():
                    ctx.set(port(name), value)
                ctx.set(port("valid"), 1)
                await until(ctx, port("ready"))
                ctx.set(port("valid"), 0)

        return process

    async def _take_b(self, ctx):
        memory = self.dut.memory
        while True:
            ctx.set(memory.bready, self.rng.random() >= self.stall)
            _, _, valid, ready, name = await ctx.tick().sample(memory.bvalid, memory.bready, memory.bid)
            if valid and ready:
                self.answered.append(name)

    async def _take_r(self, ctx):
        memory, burst = self.dut.memory, b""
        while True:
            ctx.set(memory.rready, self.rng.random() >= self.stall)
            outputs = memory.rvalid, memory.rready, memory.rdata, memory.rlast, memory.rid
            _, _, valid, ready, word, last, name = await ctx.tick().sample(*outputs)
            if valid and ready:
                burst += word.to_bytes(STEP, "little")
                if last:
                    self.read.append(burst)
                    self.read_ids.append(name)
                    burst = b""


@pytest.mark.parametrize(("stall", "cycles"), [(0.0, 600), (0.3, 1000), (0.7, 2500)])
def test_memory_ends_as_written_and_gives_what_it_has(stall, cycles):
    rng = random.Random(new_seed())
    dut = AxiToAvalonMemory(data_width=WIDTH, address_width=16, burst=BURST)
    memory = AvalonMemory(dut, rng, stall=stall)
    host = AxiHost(dut, memory, rng, stall=stall, count=40)
    simulate(dut, processes=[memory.process, *host.processes()], idle=cycles)
    assert memory.content == host.expected
    assert host.answered == host.ids
    assert host.read_ids == host.ids
    assert host.read == [bytes(memory.content[a : a + n * STEP]) for a, n in host.asked]


def test_a_write_waits_for_its_last_word():
    """While it waits, reads go on."""
    dut = AxiToAvalonMemory(data_width=WIDTH, address_width=16, burst=BURST)
    axi, seen = dut.memory, []

    async def host(ctx):
        ctx.set(axi.awvalid, 1)
        ctx.set(axi.awlen, 1)
        await ctx.tick()
        ctx.set(axi.awvalid, 0)
        ctx.set(axi.wvalid, 1)
        await ctx.tick()
        ctx.set(axi.wvalid, 0)
        ctx.set(axi.arvalid, 1)
        await ctx.tick()
        ctx.set(axi.arvalid, 0)
        for cycle in range(20):
            ctx.set(axi.wvalid, cycle == 9)
            ctx.set(axi.wlast, 1)
            _, _, read, write = await ctx.tick().sample(dut.read, dut.write)
            seen.append("r" * read + "w" * write)

    simulate(dut, processes=[host], idle=40)
    assert [kind for kind in seen if kind] == ["r", "w", "w"]
    assert seen.index("r") < 9 < seen.index("w")


def test_reads_and_writes_take_turns():
    dut, kinds = AxiToAvalonMemory(data_width=WIDTH, address_width=16, burst=BURST), []

    async def host(ctx):
        axi = dut.memory
        for valid in (axi.awvalid, axi.wvalid, axi.wlast, axi.bready, axi.arvalid, axi.rready):
            ctx.set(valid, 1)
        for _ in range(60):
            _, _, read, write = await ctx.tick().sample(dut.read, dut.write)
            ctx.set(dut.readdatavalid, read)
            kinds.append("r" * read + "w" * write)

    simulate(dut, processes=[host], idle=70)
    turns = "".join(kinds)
    assert len(turns) > 20
    assert "rr" not in turns
    assert "ww" not in turns


def test_no_response_is_lost_while_none_is_taken():
    count = 3 * COMMANDS
    dut, answers = AxiToAvalonMemory(data_width=WIDTH, address_width=16, burst=BURST), []

    async def addresses(ctx):
        ctx.set(dut.memory.awvalid, 1)
        for _ in range(count):
            await until(ctx, dut.memory.awready)
        ctx.set(dut.memory.awvalid, 0)

    async def words(ctx):
        ctx.set(dut.memory.wlast, 1)
        ctx.set(dut.memory.wvalid, 1)
        for _ in range(count):
            await until(ctx, dut.memory.wready)
        ctx.set(dut.memory.wvalid, 0)

    async def responses(ctx):
        for cycle in range(400):
            ctx.set(dut.memory.bready, cycle > 200)
            _, _, valid, ready = await ctx.tick().sample(dut.memory.bvalid, dut.memory.bready)
            answers.append(valid and ready)

    simulate(dut, processes=[addresses, words, responses], idle=410)
    assert sum(answers) == count


def test_throughput_is_a_word_a_cycle_and_a_cycle_between_bursts():
    dut = AxiToAvalonMemory(data_width=WIDTH, address_width=16, burst=BURST)
    cycles = []

    async def host(ctx):
        ctx.set(dut.memory.awvalid, 1)
        ctx.set(dut.memory.awlen, BURST - 1)
        ctx.set(dut.memory.wvalid, 1)
        ctx.set(dut.memory.bready, 1)
        sent = 0
        for cycle in range(100):
            ctx.set(dut.memory.wlast, sent % BURST == BURST - 1)
            _, _, ready, write = await ctx.tick().sample(dut.memory.wready, dut.write)
            sent += ready
            if write:
                cycles.append(cycle)

    simulate(dut, processes=[host], idle=110)
    steady = cycles[2 * BURST : 10 * BURST]
    assert steady[-1] - steady[0] == 8 * (BURST + 1) - 2


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_registers_are_read_and_written_in_order(stall):
    rng = random.Random(new_seed())
    dut = AvalonToAxiLite(address_width=12)
    axil, registers, refused = dut.axil, {}, 0x40
    operations = [
        (rng.random() < 0.5, rng.choice([0, 4, 8, refused]), rng.getrandbits(32), rng.getrandbits(4))
        for _ in range(80)
    ]
    model, expected, got = {}, [], []
    for write, address, value, strobes in operations:
        mask = sum(0xFF << 8 * n for n in range(4) if strobes >> n & 1)
        if write and address != refused:
            model[address] = model.get(address, 0) & ~mask | value & mask
        elif not write:
            expected.append(BAD_READ if address == refused else model.get(address, 0))

    async def host(ctx):
        for write, address, value, strobes in operations:
            ctx.set(dut.address, address)
            ctx.set(dut.writedata, value)
            ctx.set(dut.byteenable, strobes)
            ctx.set(dut.write if write else dut.read, 1)
            await until(ctx, ~dut.waitrequest)
            ctx.set(dut.write, 0)
            ctx.set(dut.read, 0)

    async def receive(ctx):
        while True:
            _, _, valid, value = await ctx.tick().sample(dut.readdatavalid, dut.readdata)
            if valid:
                got.append(value)

    async def channel(ctx, prefix, *fields):
        while rng.random() < stall:
            await ctx.tick()
        ctx.set(getattr(axil, f"{prefix}ready"), 1)
        valid = getattr(axil, f"{prefix}valid")
        values = await until(ctx, valid, *(getattr(axil, name) for name in fields))
        ctx.set(getattr(axil, f"{prefix}ready"), 0)
        return values

    async def writes(ctx):
        while True:
            (address,) = await channel(ctx, "aw", "awaddr")
            value, strobes = await channel(ctx, "w", "wdata", "wstrb")
            mask = sum(0xFF << 8 * n for n in range(4) if strobes >> n & 1)
            if address != refused:
                registers[address] = registers.get(address, 0) & ~mask | value & mask
            ctx.set(axil.bvalid, 1)
            await until(ctx, axil.bready)
            ctx.set(axil.bvalid, 0)

    async def reads(ctx):
        while True:
            (address,) = await channel(ctx, "ar", "araddr")
            ctx.set(axil.rdata, registers.get(address, 0))
            ctx.set(axil.rresp, 2 if address == refused else 0)
            ctx.set(axil.rvalid, 1)
            await until(ctx, axil.rready)
            ctx.set(axil.rvalid, 0)

    simulate(dut, processes=[host, receive, writes, reads], idle=1500)
    assert registers == model
    assert got == expected


@pytest.mark.parametrize("width", [16, 256])
def test_a_packet_is_turned_and_turned_back(width):
    rng, step = random.Random(new_seed()), width // 8
    sent = [rng.randbytes(rng.choice([1, step, step + 1, rng.randrange(1, 200)])) for _ in range(40)]
    offered, taken = list(beats(sent, width, errors=None)), []
    out = PacketToAvalon(width=width)

    async def sink(ctx):
        fields = out.valid, out.ready, out.data, out.empty, out.startofpacket, out.endofpacket
        while True:
            ctx.set(out.ready, rng.random() < 0.6)
            _, _, valid, ready, *beat = await ctx.tick().sample(*fields)
            if valid and ready:
                taken.append(beat)

    simulate(out, drive={"i": offered}, processes=[sink], idle=50)
    packets, packet = [], b""
    for word, empty, start, end in taken:
        assert start == (packet == b"")
        packet += word.to_bytes(step, "big")[: step - empty]
        if end:
            packets.append(packet)
            packet = b""
    assert packets == sent

    back, turned = AvalonToPacket(width=width), []
    errors = {n for n in range(len(sent)) if rng.random() < 0.3}

    async def source(ctx):
        number = 0
        for word, empty, _, end in taken:
            ctx.set(back.data, word)
            ctx.set(back.empty, empty if end else rng.randrange(step))  # no meaning before the end
            ctx.set(back.endofpacket, end)
            ctx.set(back.error, number in errors if end else rng.randrange(2))
            ctx.set(back.valid, 1)
            await ctx.tick()
            number += end
            ctx.set(back.valid, 0)

    async def collect(ctx):
        while True:
            _, _, valid, beat = await ctx.tick().sample(back.o.valid, back.o.p)
            if valid:
                turned.append(beat)

    simulate(back, processes=[source, collect], idle=len(taken) + 10)
    assert list(frames(turned)) == sent
    assert [n for n, end in enumerate(b for b in turned if b.last) if end.error] == sorted(errors)


@pytest.mark.parametrize("width", [8, 48])
@pytest.mark.parametrize("component", [PacketToAvalon, AvalonToPacket])
def test_a_width_that_avalon_has_not(component, width):
    with pytest.raises(ValueError, match="width must be a power of two from 16"):
        component(width=width)
