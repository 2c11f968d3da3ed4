"""The receiver beside the decoder of frames."""

import random
from collections import Counter

import pytest
from scapy.contrib.roce import BTH, CNP_OPCODE
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin.hdl.rdma.receiver import Receiver
from fanin.hdl.rdma.regions import LATENCY as REGION_LATENCY
from fanin.rdma.facts import FIRST_QUEUE_PAIR, RdmaConfig
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import REFUSED_OPCODES, Fault, Opcode, RdmaPacket, encode, judge
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed, slow

OWN = Endpoint(0x02_11_22_33_44_55, 0x0A_00_00_07, 4791)
PEER = Endpoint(0x02_11_22_33_44_66, 0x0A_00_00_08, 50_000)


def config_of(width):
    words = 4 * (4096 * 8 // width + 1)
    return RdmaConfig(width=width, address_width=32, queue_pairs=4, regions=2, buffer_words=words,
                      fetch_words=words)  # fmt: skip


def random_packet(rng):
    opcode = rng.choice(list(Opcode))
    size = 0 if opcode is Opcode.ACKNOWLEDGE else rng.choice([0, 1, 2, 5, 63, 64, 65, 256, rng.randrange(1025)])
    begins = opcode.begins
    length = rng.choice([0, 256, 257, 4096, 4097, rng.getrandbits(32)])
    return RdmaPacket(
        opcode, FIRST_QUEUE_PAIR + rng.randrange(4), rng.getrandbits(24), rng.random() < 0.5,
        rng.getrandbits(32) * begins, rng.getrandbits(32) * begins, length * begins,
        rng.getrandbits(32) if opcode.has_immediate else 0,
        rng.getrandbits(8) if opcode is Opcode.ACKNOWLEDGE else 31,
        rng.getrandbits(24) if opcode is Opcode.ACKNOWLEDGE else 0,
        rng.randbytes(size),
    )  # fmt: skip


def other_frame(rng):
    """A frame with another opcode, partition or version; scapy reckons its ICRC."""
    ip = IP(src="10.0.0.8", dst="10.0.0.7", flags=rng.choice(["DF", 0]), id=rng.getrandbits(16))
    bth = BTH(
        opcode=rng.choice([*REFUSED_OPCODES, CNP_OPCODE, rng.randrange(256)]),
        dqpn=FIRST_QUEUE_PAIR + rng.randrange(8), psn=rng.getrandbits(24), padcount=rng.choice([0, 0, 3]),
        pkey=rng.choice([0xFFFF, 0xFFFF, 0x7FFF, 0xFFFE]), version=rng.choice([0, 0, 0, 1]),
    )  # fmt: skip
    ether = Ether(dst="02:11:22:33:44:55", src="02:11:22:33:44:66")
    size = 4 * rng.choice([0, 1, 4, 7, 1025, rng.randrange(300)])
    return bytes(ether / ip / UDP(sport=50_000) / bth / Raw(rng.randbytes(size))).ljust(60, b"\0")


def spoilt(rng, frame):
    """The frame with something wrong, and whether the MAC says so."""
    match rng.randrange(6):
        case 0:  # one bit, anywhere
            at = rng.randrange(8 * len(frame))
            return (int.from_bytes(frame, "little") ^ 1 << at).to_bytes(len(frame), "little"), False
        case 1:
            return frame, True
        case 2:  # cut off
            return frame[: rng.randrange(1, len(frame))], False
        case 3:  # too long
            return frame + rng.randbytes(rng.choice([1, 4, 64, 200])), False
        case 4:
            return rng.randbytes(rng.choice([1, 14, 60, 61, 64, 65, 1500, 6000])), False
        case _:  # for someone else, or from nobody
            to = Endpoint(OWN.mac ^ rng.choice([0, 1 << rng.randrange(48)]), OWN.ip ^ 1 << rng.randrange(32), 0)
            return encode(random_packet(rng), source=PEER, destination=to), False


def judged(frame, error):
    """The packet, or the fault; a frame may have padding up to 60 bytes, and nothing else."""
    found = judge(frame, own=OWN)
    if found is Fault.FOREIGN:
        return found
    if error or len(frame) != max(60, 14 + int.from_bytes(frame[16:18], "big")):
        return Fault.DAMAGED
    if isinstance(found, Fault) or found.queue_pair in range(FIRST_QUEUE_PAIR, FIRST_QUEUE_PAIR + 4):
        return found
    return Fault.UNKNOWN


async def send(ctx, dut, frames, size, rng, pause):
    """Frames from a MAC, which never waits."""
    for frame, error in frames:
        for at in range(0, len(frame), size):
            word = frame[at : at + size]
            while rng.random() < pause:
                ctx.set(dut.i.valid, 0)
                await ctx.tick()
            last = at + size >= len(frame)
            data = int.from_bytes(word + rng.randbytes(size - len(word)), "little")
            fields = {"data": data, "keep": (1 << len(word)) - 1, "last": last, "error": error and last}
            ctx.set(dut.i.payload, fields)
            ctx.set(dut.i.valid, 1)
            await ctx.tick()
    ctx.set(dut.i.valid, 0)


def regions(dut):
    """A table that allows odd keys."""

    async def answer(ctx):
        asked = [0] * REGION_LATENCY
        while True:
            asked = [ctx.get(dut.ask).rkey & 1, *asked[: REGION_LATENCY - 1]]
            await ctx.tick()
            ctx.set(dut.allowed, asked[-1])

    return answer


def own_fields():
    return {"mac": OWN.mac, "ip": OWN.ip}


@pytest.mark.parametrize("width", [*slow(128, 256), 512])
@pytest.mark.parametrize("pause", [*slow(0.0), 0.4])
def test_every_frame_is_judged_as_the_decoder_judges_it_and_its_payload_kept(width, pause):
    seed = new_seed()
    rng = random.Random(seed)
    config, size = config_of(width), width // 8
    dut = Receiver(config=config)
    bench = Bench(dut, ["o", "words"], seed=seed)
    frames = []
    for _ in range(90):
        frame = encode(random_packet(rng), source=PEER, destination=OWN)
        frame = rng.choices([frame, other_frame(rng)], [2, 1])[0]
        frames.append(spoilt(rng, frame) if rng.random() < 0.4 else (frame, False))

    async def main(ctx):
        ctx.set(dut.own, own_fields())
        await send(ctx, dut, frames, size, rng, pause)
        await ctx.tick().repeat(40)

    bench.run(main, regions(dut))
    records, words = [r for _, r in bench.log["o"]], [w for _, w in bench.log["words"]]
    assert len(records) == len(frames), seed
    seen = Counter()
    for (frame, error), record in zip(frames, records, strict=True):
        packet = judged(frame, error)
        fault = packet if isinstance(packet, Fault) else Fault.NONE
        seen[fault] += 1
        kept = b"".join(word.to_bytes(size, "little") for word in words[: record.words])
        del words[: record.words]
        assert record.fault == fault, (seed, len(frame), error, packet)
        if fault:
            continue
        if packet.opcode in REFUSED_OPCODES:
            assert (record.opcode, record.psn, record.words) == (packet.opcode, packet.psn, 0)
            continue
        count, opcode = len(packet.payload), Opcode(packet.opcode)
        assert (record.opcode, record.psn, record.acknowledge) == (opcode, packet.psn, packet.acknowledge)
        assert record.index == packet.queue_pair - FIRST_QUEUE_PAIR
        assert record.size == count
        assert record.words == (-(-(record.lane + count) // size) if count else 0)
        assert kept[record.lane : record.lane + count] == packet.payload
        if opcode.begins:
            assert (record.address, record.length) == (packet.address, packet.length)
            assert record.allowed == packet.rkey & 1
        if opcode.has_immediate:
            assert record.immediate == packet.immediate
        if opcode is Opcode.ACKNOWLEDGE:
            assert record.syndrome == packet.syndrome
    assert not words
    assert seen[Fault.NONE] > 15
    assert set(seen) > {Fault.NONE, Fault.FOREIGN, Fault.DAMAGED}


def test_the_record_comes_seven_cycles_after_the_last_word_and_the_payload_before():
    dut = Receiver(config=config_of(512))
    bench = Bench(dut, ["o", "words"], seed=1)
    rng = random.Random(1)
    ends = []

    async def main(ctx):
        ctx.set(dut.own, own_fields())
        for size in (1, 10, 64, 4096):
            packet = RdmaPacket(
                Opcode.WRITE_ONLY, FIRST_QUEUE_PAIR, 0, length=size, payload=rng.randbytes(size)
            )
            await send(ctx, dut, [(encode(packet, source=PEER, destination=OWN), False)], 64, rng, 0.0)
            ends.append(bench.cycle)  # ``collect`` has yet to count the last word's
            await ctx.tick().repeat(20)
            assert bench.log["words"][-1][0] < bench.log["o"][-1][0]

    bench.run(main)
    assert [cycle - end for end, (cycle, _) in zip(ends, bench.log["o"], strict=True)] == [7] * 4


@pytest.mark.slow
def test_frames_without_room_are_lost_whole_and_the_others_are_not_harmed():
    seed = new_seed()
    rng = random.Random(seed)
    config = config_of(256)
    dut = Receiver(config=config)
    bench = Bench(dut, [], seed=seed)
    sizes = [rng.choice([0, 1, 200, 1000, 4096]) for _ in range(120)]
    packets = [
        RdmaPacket(Opcode.WRITE_ONLY, FIRST_QUEUE_PAIR, n, length=size, payload=rng.randbytes(size))
        for n, size in enumerate(sizes)
    ]
    taken, words, lost = [], [], []

    async def drain(ctx):
        while True:
            busy = bench.cycle // 400 % 2  # for long it takes nothing
            for port in (dut.o, dut.words):
                ctx.set(port.ready, not busy)
            if not busy:
                taken.extend([ctx.get(dut.o.payload)] * ctx.get(dut.o.valid))
                words.extend([ctx.get(dut.words.payload)] * ctx.get(dut.words.valid))
            lost.extend([1] * ctx.get(dut.lost))
            await ctx.tick()

    async def main(ctx):
        ctx.set(dut.own, own_fields())
        frames = [(encode(packet, source=PEER, destination=OWN), False) for packet in packets]
        await send(ctx, dut, frames, 32, rng, 0.0)
        await ctx.tick().repeat(2000)

    bench.run(main, drain)
    assert len(taken) + len(lost) == len(packets)
    assert lost
    assert len(taken) > 10
    for record in taken:
        payload = b"".join(word.to_bytes(32, "little") for word in words[: record.words])
        del words[: record.words]
        assert record.fault == Fault.NONE, seed
        assert payload[record.lane : record.lane + record.size] == packets[record.psn].payload, seed
