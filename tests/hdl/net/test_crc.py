# amaranth: UnusedElaboratable=no
"""CRC-32 by words, beside zlib's by bytes."""

import random
import zlib

import pytest
from amaranth.sim import Simulator

from fanin.hdl.net.crc import PacketCrc, remainder, step
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import Opcode, RdmaPacket, encode
from tests.support import new_seed, slow


def packets_in_words(rng, size, count):
    """Packets of 1 byte and more, and each as words: bytes, last."""
    for _ in range(count):
        packet = rng.randbytes(rng.choice([1, size - 1, size, size + 1, 2 * size, rng.randint(1, 5 * size)]))
        yield packet, [packet[at : at + size] for at in range(0, len(packet), size)]


@pytest.mark.parametrize(
    ("width", "pause"), [(64, 0.4), (256, 0.0), *slow((64, 0.0), (256, 0.4), (512, 0.0), (512, 0.4))]
)
def test_every_packet_has_zlib_s_crc_after_the_stated_latency(width, pause):
    seed = new_seed()
    rng = random.Random(seed)
    dut = PacketCrc(width=width)
    expected, found = {}, {}

    async def bench(ctx):
        cycle = 0

        async def tick():
            nonlocal cycle
            await ctx.tick()
            cycle += 1
            if ctx.get(dut.o.valid):
                found[cycle] = ctx.get(dut.o.crc)

        for packet, words in packets_in_words(rng, width // 8, 60):
            for n, word in enumerate(words):
                while rng.random() < pause:
                    ctx.set(dut.i.valid, 0)
                    ctx.set(dut.i.p.data, rng.getrandbits(width))
                    await tick()
                garbage = rng.randbytes(width // 8 - len(word))
                ctx.set(dut.i.valid, 1)
                ctx.set(dut.i.p.data, int.from_bytes(word + garbage, "little"))
                ctx.set(dut.i.p.keep, (1 << len(word)) - 1)
                ctx.set(dut.i.p.last, n == len(words) - 1)
                if n == len(words) - 1:
                    expected[cycle + dut.latency] = zlib.crc32(packet)
                await tick()
        ctx.set(dut.i.valid, 0)
        for _ in range(dut.latency + 2):
            await tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == expected, seed


def _crcs(dut, packets):
    """The CRCs of packets without a pause."""
    found, size = [], dut.width // 8

    async def bench(ctx):
        for packet in packets:
            for at in range(0, len(packet), size):
                word = packet[at : at + size]
                ctx.set(dut.i.valid, 1)
                ctx.set(dut.i.p.data, int.from_bytes(word, "little"))
                ctx.set(dut.i.p.keep, (1 << len(word)) - 1)
                ctx.set(dut.i.p.last, at + size >= len(packet))
                await ctx.tick()
                found.extend([ctx.get(dut.o.crc)] * ctx.get(dut.o.valid))
        ctx.set(dut.i.valid, 0)
        for _ in range(dut.latency):
            await ctx.tick()
            found.extend([ctx.get(dut.o.crc)] * ctx.get(dut.o.valid))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def test_a_prefix_counts_and_skipped_bytes_do_not():
    rng = random.Random(5)
    packets = [rng.randbytes(size) for size in (14, 15, 32, 33, 100)]
    found = _crcs(PacketCrc(width=256, skip=14, prefix=b"\xff" * 8), packets)
    assert found == [zlib.crc32(b"\xff" * 8 + packet[14:]) for packet in packets]


@pytest.mark.parametrize("width", [64, *slow(512)])
def test_zeros_at_the_end_do_not_count_wherever_they_lie(width):
    """Also where the last word has nothing else, and where they take more than a word."""
    rng = random.Random(new_seed())
    for trailer in (1, 4, 9):
        packets = [rng.randbytes(size) for size in (1, 4, 5, 59, 60, 62, 63, 64, 100, 126)]
        found = _crcs(PacketCrc(width=width, trailer=trailer), [packet + bytes(trailer) for packet in packets])
        assert found == [zlib.crc32(packet) for packet in packets]


@pytest.mark.parametrize("width", [64, *slow(512)])
@pytest.mark.parametrize(("unit", "extra"), [(4, 0), (4, 2), (2, 1)])
def test_lengths_in_units_of_bytes(width, unit, extra):
    """Every length that such packets have, and what fills their last words up."""
    rng = random.Random(new_seed())
    packets = [rng.randbytes(size) for size in range(extra or unit, 2 * width // 8 + unit, unit)]
    for trailer in (0, 4):
        dut = PacketCrc(width=width, unit=unit, extra=extra, trailer=trailer)
        assert _crcs(dut, [p + bytes(trailer) for p in packets]) == [zlib.crc32(p) for p in packets]


def test_it_is_the_icrc_of_a_rocev2_frame_whose_variable_fields_are_ones():
    """A frame as it stands: the 14 bytes of its Ethernet header skipped, a link header of ones in front."""
    rng = random.Random(6)
    source, destination = Endpoint(mac=1, ip=2, port=3), Endpoint(mac=4, ip=5)
    packets, expected = [], []
    for size in (0, 1, 5, 64, 200, 256):
        packet = RdmaPacket(Opcode.WRITE_ONLY, 7, 8, payload=rng.randbytes(size), length=size)
        frame = bytearray(encode(packet, source=source, destination=destination)[: 74 + size + -size % 4])
        expected.append(int.from_bytes(frame[-4:], "little"))
        for at in (15, 22, 24, 25, 40, 41, 46):
            frame[at] = 0xFF
        packets.append(bytes(frame[:-4]))
    dut = PacketCrc(width=512, skip=14, prefix=b"\xff" * 8)
    assert _crcs(dut, packets) == expected


def test_latency_is_the_documented_one():
    assert [PacketCrc(width=512, unit=unit).latency for unit in (1, 4)] == [9, 7]


def test_steps_are_undone():
    for state in (1, 0xDEADBEEF, 0xFFFFFFFF):
        assert step(step(state, 14), -14) == step(step(state, -3), 3) == state
    assert remainder(b"123456789", 0xFFFFFFFF) ^ 0xFFFFFFFF == 0xCBF43926


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 96}, "width must be"),
        ({"width": 32}, "width must be"),
        ({"width": 64, "skip": 8}, "skip"),
        ({"trailer": -1}, "trailer"),
        ({"unit": 3}, "unit must be"),
        ({"width": 64, "unit": 8}, "unit must be"),
        ({"unit": 4, "extra": 4}, "extra"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        PacketCrc(**parameters)
