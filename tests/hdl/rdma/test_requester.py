# amaranth: UnusedElaboratable=no
"""The requester beside its golden model, event by event, and against a golden responder over a bad network."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.rdma.requester import Requester
from fanin.rdma.facts import Ending, RdmaConfig, next_psn
from fanin.rdma.golden.nic import Connection, Region, Responder, Status, Write, psn_after
from fanin.rdma.golden.nic import Requester as Golden
from fanin.wire.rdma import NOT_READY, Nak, Opcode, RdmaPacket, header_bytes
from tests.hdl.rdma.bench import ENDINGS, Bench, connect_fields, cycles_until, post_fields
from tests.support import new_seed, slow

CONFIG = RdmaConfig(width=128, address_width=32, queue_pairs=4, descriptors=4, regions=2, buffer_words=1024,
                    fetch_words=1024)  # fmt: skip
MEMORY = 1 << 16


class SenderBench(Bench):
    """A requester and its memory; what it says is put together to packets."""

    def __init__(self, seed, stall):
        super().__init__(Requester(config=CONFIG), ["headers", "fetch", "completion"], seed=seed, stall=stall)
        self.memory = bytearray(self.rng.randbytes(MEMORY))
        self.packets = []
        self.completions = self.log["completion"]
        self.due = []  # for each payload that is being read, the cycles until it has come

    @property
    def drivers(self):
        return (self.read,)

    async def read(self, ctx):
        """The reader of payloads: takes one at once where it says so, and some cycles to read it."""
        dut = self.dut
        while True:
            self.due = [left - 1 for left in self.due if left > 1]
            ctx.set(dut.reading, bool(self.due))
            ctx.set(dut.room, self.rng.random() >= self.stall)
            ctx.set(dut.free, self.rng.random() >= self.stall)
            _, _, valid, ready = await ctx.tick().sample(dut.fetch.valid, dut.fetch.ready)
            if valid and ready:
                self.due.append(self.rng.randrange(1, 20))

    def noted(self):
        """Headers and the payloads that they ask for."""
        headers, fetches = self.log["headers"], self.log["fetch"]
        while headers and (not headers[0][1].size or fetches):
            self._join(headers, fetches)

    def _join(self, headers, fetches):
        cycle, said = headers.pop(0)
        opcode, size, payload = Opcode(said.opcode), said.size, b""
        if size:
            _, wanted = fetches.pop(0)
            assert wanted.size == size
            assert wanted.lane == header_bytes(opcode) % (CONFIG.width // 8)
            payload = bytes(self.memory[wanted.address : wanted.address + size])
        begins = opcode.begins
        packet = RdmaPacket(
            opcode, said.peer.queue_pair, said.psn, bool(said.acknowledge),
            said.address if begins else 0, said.rkey if begins else 0, said.length if begins else 0,
            said.immediate if opcode.has_immediate else 0, payload=payload,
        )  # fmt: skip
        self.packets.append((cycle, packet))

    async def connect(self, ctx, index, connection):
        await self.put(ctx, self.dut.connect, connect_fields(index, connection))

    async def post(self, ctx, index, write):
        await self.put(ctx, self.dut.post, post_fields(index, write))

    async def answer(self, ctx, index, psn, syndrome):
        await self.put(ctx, self.dut.answer, {"index": index, "psn": psn, "syndrome": syndrome})


def random_connection(rng, number):
    mtu, window = rng.choice([256, 512]), 1 << rng.randrange(0, 5)
    start = rng.choice([0, (1 << 24) - 3, rng.randrange(1 << 24)])
    return Connection(0x200 + number, start, rng.randrange(1 << 24), mtu, window, rng.randrange(0, 4))


def random_write(rng, tag):
    length = rng.choice([0, 1, 255, 256, 257, 512, rng.randrange(3000)])
    immediate = rng.getrandbits(32) if rng.random() < 0.3 else None
    return Write(tag, rng.randrange(MEMORY - 4096), rng.getrandbits(64), rng.getrandbits(32), length, immediate)


def random_answer(rng, golden):
    kinds = [31, 31, 31, *[Nak.SEQUENCE.syndrome, NOT_READY << 5 | rng.randrange(32)] * 2, 0b01111111, 0]
    kinds += [rng.choice(list(Nak)).syndrome] if rng.random() < 0.1 else []
    psn = psn_after(golden._oldest, rng.choice([0, 0, 1, 2, 3, rng.randrange(20), -1, rng.randrange(1 << 24)]))
    return RdmaPacket(Opcode.ACKNOWLEDGE, 0, psn, syndrome=rng.choice(kinds))


@pytest.mark.parametrize(("stall", "events"), [(0.4, 150), *slow((0.0, 300), (0.4, 300))])
def test_packets_and_completions_are_the_golden_model_s_after_every_event(stall, events):
    seed = new_seed()
    rng = random.Random(seed)
    bench = SenderBench(seed, stall)
    count = CONFIG.queue_pairs
    seen = set()

    async def main(ctx):
        ctx.set(bench.dut.timeout, 1 << 30)
        golden = [None] * count
        said = [0] * count
        for tag in range(events):
            index = rng.randrange(count)
            # now and then chance alone leaves no message to flush
            due = tag > events // 2 and Status.FLUSHED not in seen
            if golden[index] is None or (due and golden[index]._messages) or rng.random() < 0.03:
                connection = random_connection(rng, index)
                left = [m.write.tag for m in golden[index]._messages] if golden[index] else []
                await bench.connect(ctx, index, connection)
                golden[index], said[index] = Golden(connection, bench.memory), 0
                expected = [(tag, Status.FLUSHED) for tag in left]
            elif rng.random() < 0.5 and len(golden[index]._messages) < CONFIG.descriptors:
                write = random_write(rng, tag)
                golden[index].post(write)
                await bench.post(ctx, index, write)
                expected = []
            else:
                answer = random_answer(rng, golden[index])
                golden[index].receive(answer)
                await bench.answer(ctx, index, answer.psn, answer.syndrome)
                expected = []
            packets = list(golden[index].packets())
            expected += [(c.tag, c.status) for c in golden[index].completions[said[index] :]]
            said[index] = len(golden[index].completions)
            seen.update(status for _, status in expected)
            await settle(ctx, bench, packets, expected)
            got = [p for _, p in bench.packets]
            assert list(map(brief, got)) == list(map(brief, packets)), (seed, tag)
            assert got == packets, (seed, tag)
            got = [(c.tag, ENDINGS[Ending(c.ending)]) for _, c in bench.completions]
            assert got == expected, (seed, tag)
            assert all(c.index == index for _, c in bench.completions)
            bench.packets.clear()
            bench.completions.clear()

    bench.run(main)
    assert {Status.DONE, Status.FLUSHED} <= seen


async def settle(ctx, bench, packets, completions):
    """Until all that is expected has come, or long enough for it to come; then some cycles for what is not."""
    for _ in range(2000):
        if len(bench.packets) >= len(packets) and len(bench.completions) >= len(completions):
            break
        await ctx.tick()
    await ctx.tick().repeat(25)


class Network:
    """Carries packets both ways: loses, doubles and delays them."""

    def __init__(self, rng, odds):
        self.rng, self.odds, self.on_the_way = rng, odds, []

    def send(self, cycle, item):
        for _ in range(self.rng.choices([0, 1, 2], [self.odds, 1 - 2 * self.odds, self.odds])[0]):
            late = 200 if self.rng.random() < self.odds else 0
            self.on_the_way.append((cycle + self.rng.randrange(5, 20) + late, item))

    def arrived(self, cycle):
        here = [item for at, item in self.on_the_way if at <= cycle]
        self.on_the_way = [(at, item) for at, item in self.on_the_way if at > cycle]
        return here


@pytest.mark.parametrize("odds", [0.0, 0.05])
def test_all_writes_arrive_over_a_network_that_loses_doubles_and_reorders(odds):
    seed = new_seed()
    rng = random.Random(seed)
    bench = SenderBench(seed, 0.2)
    count, each = CONFIG.queue_pairs, 10
    target = bytearray(4 * MEMORY)
    model = bytearray(4 * MEMORY)
    connections = [Connection(n, (1 << 24) - 2, (1 << 24) - 2, 256, 8, 7) for n in range(count)]
    regions = [Region(n * MEMORY, MEMORY, n, frozenset([n])) for n in range(count)]
    responders = [Responder(n, connections[n], target, [regions[n]]) for n in range(count)]
    writes = {}
    for n in range(count):
        for k in range(each):
            length = rng.choice([0, 1, 300, rng.randrange(2000)])
            local, remote = rng.randrange(MEMORY - length), n * MEMORY + rng.randrange(MEMORY - length)
            writes[n, k] = Write(16 * n + k, local, remote, n, length)
            model[remote : remote + length] = bench.memory[local : local + length]

    async def main(ctx):
        ctx.set(bench.dut.timeout, 400)
        for n in range(count):
            await bench.connect(ctx, n, connections[n])
        network, answers, back = Network(rng, odds), [], Network(rng, odds)
        dut, pending = bench.dut, [(n, k) for k in range(each) for n in range(count)]
        while len(bench.completions) < len(writes):
            while bench.packets:
                network.send(bench.cycle, bench.packets.pop(0)[1])
            for packet in network.arrived(bench.cycle):
                answer = responders[packet.queue_pair].receive(packet)
                if answer is not None:
                    back.send(bench.cycle, (packet.queue_pair, answer))
            answers += back.arrived(bench.cycle)
            if pending:
                n, k = pending[0]
                write = writes[n, k]
                ctx.set(dut.post.payload, post_fields(n, write))
            ctx.set(dut.post.valid, bool(pending))
            if answers:
                index, answer = answers[0]
                ctx.set(dut.answer.payload, {"index": index, "psn": answer.psn, "syndrome": answer.syndrome})
            ctx.set(dut.answer.valid, bool(answers))
            _, _, posted, taken = await ctx.tick().sample(dut.post.ready, dut.answer.ready)
            del pending[: posted and bool(pending)], answers[: taken and bool(answers)]
        await ctx.tick().repeat(50)

    bench.run(main)
    assert target == model, seed
    for n in range(count):
        said = [(c.tag, c.ending) for _, c in bench.completions if c.index == n]
        assert said == [(16 * n + k, Ending.DONE) for k in range(each)], seed


def test_a_descriptor_is_fetched_after_the_stated_latency_and_packets_follow_at_the_stated_rate():
    bench = SenderBench(1, 0.0)
    cycles = []

    async def main(ctx):
        ctx.set(bench.dut.timeout, 1 << 30)
        await bench.connect(ctx, 1, Connection(5, mtu=256, window=16))
        await ctx.tick().repeat(10)
        began = bench.cycle + 1  # ``collect`` has yet to count this one
        await bench.post(ctx, 1, Write(1, 0, 0, 0, 2560))
        await ctx.tick().repeat(100)
        cycles.extend(cycle - began for cycle, _ in bench.packets)

    bench.run(main)
    assert cycles[0] == 8
    assert [later - earlier for earlier, later in pairwise(cycles[1:])] == [5] * 8


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.9])
def test_queue_pairs_send_in_turn_while_payloads_cannot_be_read_at_once(busy):
    """As docs/systems/rdma.md: a packet each. Did a try that fails take the turn, some could be left out."""
    bench = SenderBench(new_seed(), 0.0)
    dut, rng, each = bench.dut, bench.rng, 15
    counted = []

    async def read(ctx):
        while True:
            ctx.set(dut.free, rng.random() >= busy)
            ctx.set(dut.room, 1)
            await ctx.tick()

    async def main(ctx):
        ctx.set(dut.timeout, 1 << 30)
        for index in range(CONFIG.queue_pairs):
            await bench.connect(ctx, index, Connection(index, mtu=256, window=16))
        for index in range(CONFIG.queue_pairs):
            await bench.post(ctx, index, Write(index, 0, 0, 0, each * 256))
        counted.append(len(bench.packets))
        while len(bench.packets) < CONFIG.queue_pairs * each:
            await ctx.tick()

    bench.read = read
    bench.run(main)
    order = [packet.queue_pair for _, packet in bench.packets[counted[0] + 1 :]]
    all_send = order[: CONFIG.queue_pairs * (each - 8)]  # later some have sent all of theirs
    assert all(after == (before + 1) % CONFIG.queue_pairs for before, after in pairwise(all_send)), order


def test_a_packet_that_cannot_be_handed_on_at_once_leaves_before_the_next_post_is_taken():
    """As docs/systems/param-server-time.md: a posted write's first packet leaves, then one in turn."""
    bench = SenderBench(1, 0.0)
    dut = bench.dut

    async def read(ctx):
        while True:
            ctx.set(dut.free, 1)
            ctx.set(dut.room, 1)
            *_, taken = await ctx.tick().sample(dut.fetch.valid & dut.fetch.ready)
            if taken:  # as long as the reader takes to count its claim
                ctx.set(dut.free, 0)
                await ctx.tick().repeat(4)

    async def main(ctx):
        ctx.set(dut.timeout, 1 << 30)
        for index in range(CONFIG.queue_pairs):
            await bench.connect(ctx, index, Connection(index, mtu=256, window=16))
        for index in range(CONFIG.queue_pairs):
            await bench.post(ctx, index, Write(index, 0, 0, 0, 512))
            await ctx.tick().repeat(5)  # as the parameter server posts
        await ctx.tick().repeat(100)

    bench.read = read
    bench.run(main)
    assert [packet.queue_pair for _, packet in bench.packets] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_timeout_comes_whatever_cannot_be_handed_on():
    bench = SenderBench(1, 0.0)
    dut = bench.dut

    async def read(ctx):
        ctx.set(dut.room, 1)
        ctx.set(dut.free, 1)
        await ctx.tick().until(dut.fetch.valid & dut.fetch.ready)
        ctx.set(dut.free, 0)  # memory gives nothing more

    async def main(ctx):
        ctx.set(dut.timeout, 100)
        for index in 0, 1:
            await bench.connect(ctx, index, Connection(index, mtu=256, retries=0))
            await bench.post(ctx, index, Write(index, 0, 0, 0, 256))
        await ctx.tick().repeat(400)

    bench.read = read
    bench.run(main)
    assert [packet.queue_pair for _, packet in bench.packets] == [0]
    assert [(said.index, said.tag, said.ending) for _, said in bench.completions] == [(0, 0, Ending.RETRIES)]


def test_a_post_waits_while_the_ring_is_full():
    bench = SenderBench(1, 0.0)
    dut = bench.dut
    taken = []

    async def count_posts(ctx):
        posts = 0
        for _ in range(100):
            *_, ready = await ctx.tick().sample(dut.post.ready)
            posts += ready
        taken.append(posts)

    async def main(ctx):
        ctx.set(dut.timeout, 1 << 30)
        await bench.connect(ctx, 1, Connection(5, mtu=256, window=1))
        ctx.set(dut.post.payload, post_fields(1, Write(1, 0, 0, 0, 100)))
        ctx.set(dut.post.valid, 1)
        await count_posts(ctx)
        await bench.answer(ctx, 1, 0, 31)  # completes one of them
        await count_posts(ctx)

    bench.run(main)
    assert taken == [CONFIG.descriptors, 1]


@pytest.mark.parametrize("writes", [1, 3])
def test_an_answer_takes_the_stated_cycles(writes):
    bench = SenderBench(1, 0.0)
    dut = bench.dut
    answer = {"index": 1, "psn": writes - 1, "syndrome": 31}

    async def main(ctx):
        ctx.set(dut.timeout, 1 << 30)
        await bench.connect(ctx, 1, Connection(5, mtu=256, window=16))
        for tag in range(writes):
            await bench.post(ctx, 1, Write(tag, 0, 0, 0, 100))
        await ctx.tick().repeat(40)
        ctx.set(dut.answer.payload, answer)
        ctx.set(dut.answer.valid, 1)
        await cycles_until(ctx, dut.answer.ready)  # the next one says nothing new
        await ctx.tick()
        assert 1 + await cycles_until(ctx, dut.answer.ready) == 8 + 2 * writes

    bench.run(main)
    assert len(bench.completions) == writes


def test_a_queue_pair_without_answers_ends_after_its_retries_and_leaves_the_others_alone():
    bench = SenderBench(2, 0.0)
    timeout, retries = 500, 3

    async def main(ctx):
        ctx.set(bench.dut.timeout, timeout)
        for index in (0, 1):
            await bench.connect(ctx, index, Connection(5, mtu=256, window=16, retries=retries))
        for tag in (1, 2):
            await bench.post(ctx, 0, Write(tag, 0, 0, 0, 100))
        while len(bench.completions) < 2:
            await ctx.tick()
        await bench.post(ctx, 0, Write(3, 0, 0, 0, 100))
        await bench.post(ctx, 1, Write(4, 0, 0, 0, 100))
        await ctx.tick().repeat(30)
        await bench.answer(ctx, 1, 0, 31)
        await ctx.tick().repeat(30)

    bench.run(main)
    said = [(c.index, c.tag, Ending(c.ending)) for _, c in bench.completions]
    ends = [(0, 1, Ending.RETRIES), (0, 2, Ending.FLUSHED), (0, 3, Ending.FLUSHED), (1, 4, Ending.DONE)]
    assert said == ends
    sent = [cycle for cycle, packet in bench.packets if packet.psn == 0][: retries + 1]
    assert len(sent) == retries + 1
    for earlier, later in pairwise(sent):
        assert timeout <= later - earlier <= timeout + 30


def test_a_receiver_that_is_not_ready_is_asked_again_after_the_timeout_whatever_is_said_meanwhile():
    bench = SenderBench(3, 0.0)
    timeout = 500
    asked = []

    async def main(ctx):
        ctx.set(bench.dut.timeout, timeout)
        await bench.connect(ctx, 0, Connection(5, mtu=256, window=16, retries=1))
        for tag in range(3):
            await bench.post(ctx, 0, Write(tag, 0, 0, 0, 100))
        await ctx.tick().repeat(60)
        await bench.answer(ctx, 0, 1, NOT_READY << 5 | 12)  # of the second: the first one has arrived
        asked.append(bench.cycle)
        for _ in range(3):
            await bench.answer(ctx, 0, 1, Nak.SEQUENCE.syndrome)
            await ctx.tick().repeat(30)
        await ctx.tick().repeat(timeout)
        await bench.answer(ctx, 0, 2, 31)
        await ctx.tick().repeat(30)

    bench.run(main)
    assert [packet.psn for _, packet in bench.packets] == [0, 1, 2, 1, 2]
    assert timeout <= bench.packets[3][0] - asked[0] <= timeout + 50
    assert [(c.tag, Ending(c.ending)) for _, c in bench.completions] == [(tag, Ending.DONE) for tag in range(3)]


def brief(packet):
    """What an error message should show of a packet."""
    return packet.opcode, packet.psn, packet.acknowledge, packet.length, len(packet.payload)


def test_a_late_answer_of_the_old_connection_completes_nothing_of_the_next():
    bench = SenderBench(4, 0.0)
    dut = bench.dut
    endings = []

    async def main(ctx):
        ctx.set(dut.timeout, 1 << 30)
        await bench.connect(ctx, 1, Connection(5, 7, mtu=256, window=16))
        await bench.post(ctx, 1, Write(1, 0, 0, 0, 600))
        await ctx.tick().repeat(60)
        await bench.answer(ctx, 1, 8, 31)  # of its second packet
        await bench.connect(ctx, 1, Connection(6, 0, mtu=256, window=16))
        assert ctx.get(dut.ended_psn) == 9
        for first in (next_psn(9), 7):  # chosen as it should be; and the number that the old one began with
            await bench.connect(ctx, 1, Connection(6, first, mtu=256, window=16))
            await bench.post(ctx, 1, Write(2, 0, 0, 0, 600))
            await ctx.tick().repeat(60)
            bench.completions.clear()
            await bench.answer(ctx, 1, 9, 31)  # of the first connection, late
            await ctx.tick().repeat(30)
            endings.append([Ending(c.ending) for _, c in bench.completions])

    bench.run(main)
    assert endings == [[], [Ending.DONE]]
