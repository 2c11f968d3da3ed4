# amaranth: UnusedElaboratable=no
"""The cycles that the parts promise."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.rdma import node
from fanin.hdl.rdma.answers import Answers
from fanin.hdl.rdma.header_reader import HeaderReader
from fanin.hdl.rdma.header_writer import HeaderWriter
from fanin.hdl.rdma.icrc import IcrcInserter
from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.payload_filter import PayloadFilter
from fanin.hdl.rdma.responder import Responder
from fanin.hdl.rdma.transmitter import Transmitter
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, RdmaConfig
from fanin.rdma.golden.nic import Connection, Region
from fanin.rdma.golden.nic import Responder as Golden
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import MOST_HEADER_BYTES, Fault, Opcode, RdmaPacket, encode
from tests.hdl.rdma.bench import Bench, connect_fields, cycles_until
from tests.hdl.rdma.payloads import windows
from tests.hdl.rdma.test_responder import received
from tests.hdl.rdma.test_transmitter import headers
from tests.support import slow

CONFIG = RdmaConfig(address_width=32, queue_pairs=4, regions=2)
HERE = Endpoint(0x02_11_22_33_44_55, 0x0A_00_00_07, 4791)
THERE = Endpoint(0x02_11_22_33_44_66, 0x0A_00_00_08, 50_000)


def write_packet(size, *, opcode=Opcode.WRITE_ONLY, psn=0):
    """To the first queue pair, an ACK is asked for."""
    return RdmaPacket(
        opcode, FIRST_QUEUE_PAIR, psn, True, 0, 0, size, payload=random.Random(size).randbytes(size)
    )


def gaps(log):
    """Cycles between transfers."""
    return [later - earlier for (earlier, _), (later, _) in pairwise(log)]


def words_of(frame, size):
    """The words of a frame, as a packet stream has them."""
    for at in range(0, len(frame), size):
        word = frame[at : at + size]
        last = at + size >= len(frame)
        yield {"data": int.from_bytes(word, "little"), "keep": (1 << len(word)) - 1, "last": last}


async def pass_by(ctx, dut, frame, size):
    """A frame passes, word by word; ends in the cycle of its last word."""
    for word in words_of(frame, size):
        await ctx.tick()
        ctx.set(dut.i, {"valid": 1, "p": word})


async def pass_on(ctx, dut):
    """The cycle behind a frame's last word."""
    await ctx.tick()
    ctx.set(dut.i.valid, 0)


def test_answers():
    dut = Answers(config=CONFIG)
    bench = Bench(dut, ["headers"], seed=1)

    async def answer(ctx, index):
        ctx.set(dut.index, index)
        ctx.set(dut.valid, 1)
        await ctx.tick()
        ctx.set(dut.valid, 0)

    async def main(ctx):
        await ctx.tick().repeat(3)
        await answer(ctx, 2)
        assert 1 + await cycles_until(ctx, dut.headers.valid) == 6
        await ctx.tick().repeat(10)
        bench.log["headers"].clear()
        for index in range(4):
            await answer(ctx, index)
        await ctx.tick().repeat(30)
        assert gaps(bench.log["headers"]) == [5] * 3

    bench.run(main)


def test_the_responder_answers_and_the_store_hears_of_a_packet():
    dut = Responder(config=CONFIG)
    model = Golden(0, Connection(5, mtu=256), bytearray(256), [Region(0, 256, 0, frozenset([0]))])
    bench = Bench(dut, ["store", "answer"], seed=1)

    async def main(ctx):
        await bench.put(ctx, dut.connect, connect_fields(0, model.connection))
        await ctx.tick().repeat(3)
        ctx.set(dut.i.payload, received(model, 0, write_packet(64)))
        ctx.set(dut.i.valid, 1)
        assert await cycles_until(ctx, dut.store.valid) == 3
        assert ctx.get(dut.i.ready)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        assert 1 + await cycles_until(ctx, dut.answer.valid) == 6

    bench.run(main)


@pytest.mark.parametrize("width", [*slow(128), 512])
def test_the_header_writer(width):
    dut = HeaderWriter(width=width)
    bench = Bench(dut, ["o"], seed=1)

    async def main(ctx):
        await ctx.tick().repeat(3)
        ctx.set(dut.i.payload, headers(write_packet(100), THERE))
        ctx.set(dut.i.valid, 1)
        assert await cycles_until(ctx, dut.o.valid) == 5
        await ctx.tick().repeat(40)
        assert set(gaps(bench.log["o"])) == {6}

    bench.run(main)


@pytest.mark.parametrize("width", [128, 256, 512])
def test_the_header_reader(width):
    dut = HeaderReader(config=RdmaConfig(width=width, buffer_words=1024, fetch_words=1024))
    size = width // 8
    long = encode(write_packet(1000), source=THERE, destination=HERE)
    through = -(-MOST_HEADER_BYTES // size) * size  # the word in which the longest header ends

    async def main(ctx):
        ctx.set(dut.own, {"mac": HERE.mac, "ip": HERE.ip})
        for frame in (long[:through], long[:20]):
            await pass_by(ctx, dut, frame, size)
            await pass_on(ctx, dut)
            assert 1 + await cycles_until(ctx, dut.o.valid) == 5
            await ctx.tick().repeat(10)
        await pass_by(ctx, dut, long[:through], size)
        for cycle in range(1, 6):  # the frame goes on
            await ctx.tick()
            assert ctx.get(dut.o.valid) == (cycle == 5)
            assert cycle < 5 or ctx.get(dut.o.record.packet.fault) == Fault.NONE

    Bench(dut, [], seed=1).run(main)


@pytest.mark.parametrize("width", [128, 512])
def test_the_payload_filter(width):
    dut = PayloadFilter(width=width, depth=1024)
    size = width // 8
    frame = encode(write_packet(2 * size), source=THERE, destination=HERE)
    words = len(list(words_of(frame, size)))
    first = MOST_HEADER_BYTES // size if width == 512 else 70 // size  # word with the payload's first byte
    bench = Bench(dut, ["words"], seed=1)

    async def main(ctx):
        ctx.set(dut.admit, 1)
        await ctx.tick().repeat(3)
        began = bench.cycle + 2  # the first word comes in the next cycle, and ``collect`` has yet to count this
        await pass_by(ctx, dut, frame, size)
        await pass_on(ctx, dut)
        assert 1 + await cycles_until(ctx, dut.count.valid) == 4
        await ctx.tick().repeat(10)
        assert [cycle for cycle, _ in bench.log["words"]] == [began + n + 5 for n in range(first, words)]

    bench.run(main)


@pytest.mark.parametrize("width", [128, *slow(512)])
def test_the_transmitter(width):
    dut = Transmitter(width=width)
    size = width // 8
    bench = Bench(dut, ["o"], seed=1)

    async def main(ctx):
        for opcode in (Opcode.WRITE_ONLY, Opcode.WRITE_MIDDLE):
            packet = write_packet(size, opcode=opcode)
            ctx.set(dut.packets.payload, headers(packet, THERE))
            ctx.set(dut.packets.valid, 1)
            await ctx.tick().repeat(5)
            lane = packet_lane(opcode, size)
            ctx.set(dut.payload.payload, next(windows([(lane, size, lane)], size)))
            ctx.set(dut.payload.valid, 1)
            ctx.set(dut.words.valid, 1)
            await ctx.tick()
            ctx.set(dut.payload.valid, 0)
            assert 1 + await cycles_until(ctx, dut.packets.ready) == 2
            await ctx.tick()
            ctx.set(dut.packets.valid, 0)
            assert 3 + await cycles_until(ctx, dut.o.valid) == 3 + IcrcInserter(width=width).latency
            await ctx.tick().repeat(20)

    bench.run(main)


def packet_lane(opcode, size):
    """Where the payload of a packet begins."""
    return (MOST_HEADER_BYTES - 4 if opcode.begins else 54) % size


def test_a_post_of_the_node(monkeypatch):
    nics = []

    def make(**parameters):
        nics.append(RdmaNic(**parameters))
        return nics[0]

    monkeypatch.setattr(node, "RdmaNic", make)
    dut = node.RdmaNode(config=PRESETS["tiny"])
    registers, axil = node.rdma_registers(dut.config), dut.axil

    async def main(ctx):
        await ctx.tick().repeat(3)
        ctx.set(axil.awaddr, registers.offset("control"))
        ctx.set(axil.wdata, registers["control"].pack({"post": 1}))
        ctx.set(axil.wstrb, 0xF)
        for port in (axil.awvalid, axil.wvalid, axil.bready):
            ctx.set(port, 1)
        assert ctx.get(axil.awready & axil.wready)
        await ctx.tick()
        for port in (axil.awvalid, axil.wvalid):
            ctx.set(port, 0)
        await cycles_until(ctx, axil.bvalid)
        assert await cycles_until(ctx, nics[0].post.valid) == 4

    Bench(dut, [], seed=1).run(main)
