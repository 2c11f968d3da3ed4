# amaranth: UnusedElaboratable=no
"""The ICRC in frames that go out, and its verdict on those that come in, beside the model's."""

import itertools
import random
import zlib

import pytest
from amaranth.sim import Simulator

from fanin.hdl.rdma.icrc import DEPTH, IcrcChecker, IcrcInserter
from fanin.wire.ethernet import ETHERNET, IPV4, UDP, Endpoint
from fanin.wire.fields import byte_length
from fanin.wire.rdma import ICRC_BYTES, LINK_HEADER, MUTABLE, Opcode, RdmaPacket, encode, header_bytes
from tests.support import new_seed, simulate, slow

WIDTHS = [128, 256, 512]
IP = byte_length(ETHERNET)
BTH = IP + byte_length(IPV4) + byte_length(UDP)
CHANGEABLE = [IP + 1, IP + 8, IP + 10, IP + 11, BTH - 2, BTH - 1, BTH + 4]


def frame_of(rng, opcode, size):
    """A frame with its ICRC, without padding behind it."""
    size = 0 if opcode is Opcode.ACKNOWLEDGE else size
    packet = RdmaPacket(
        opcode,
        rng.getrandbits(24),
        rng.getrandbits(24),
        acknowledge=rng.random() < 0.5,
        payload=rng.randbytes(size),
        address=rng.getrandbits(64),
        length=size,
        immediate=rng.getrandbits(32),
    )
    source = Endpoint(mac=rng.getrandbits(48), ip=rng.getrandbits(32), port=rng.getrandbits(16))
    destination = Endpoint(mac=rng.getrandbits(48), ip=rng.getrandbits(32))
    frame = encode(packet, source=source, destination=destination)
    return frame[: header_bytes(opcode) + size + -size % 4 + ICRC_BYTES]


def frames_of(rng, sizes):
    """Frames with these payloads, their opcodes in turn."""
    return [frame_of(rng, opcode, size) for opcode, size in zip(itertools.cycle(Opcode), sizes)]


def without_icrc(frame):
    return frame[:-ICRC_BYTES] + bytes(ICRC_BYTES)


def words_of(frame, width):
    """The words of a frame, zeros behind its end."""
    step = width // 8
    return [
        {
            "data": int.from_bytes(frame[at : at + step], "little"),
            "keep": (1 << len(frame[at : at + step])) - 1,
            "last": int(at + step >= len(frame)),
        }
        for at in range(0, len(frame), step)
    ]


def words_of_all(frames, width):
    return [word for frame in frames for word in words_of(frame, width)]


def inserted(frames, width, *, limit=60_000, **options):
    """The log of frames that pass the inserter; what came out is asserted."""
    dut = IcrcInserter(width=width)
    words = words_of_all([without_icrc(frame) for frame in frames], width)
    log = simulate(dut, drive={"i": words}, collect={"o": len(words)}, limit=limit, **options)
    got = [{"data": p.data, "keep": p.keep, "last": p.last} for _, p in log["o"]]
    assert got == words_of_all(frames, width)
    return dut, log


@pytest.mark.parametrize("width", [128, *slow(256, 512)])
def test_frames_of_all_sizes_get_their_icrc_at_full_rate(width):
    """Opcodes in turn, so each size is tried; a word a cycle, back to back, ``latency`` cycles later."""
    rng = random.Random(new_seed())
    frames = frames_of(rng, [*range(141), 255, 256, 1023, 4095, 4096])
    split = [frame for frame in frames if 0 < len(frame) % (width // 8) < ICRC_BYTES]
    assert split, "no ICRC lies in two words"
    dut, log = inserted(frames, width, stall=0.0)
    came, left = ([cycle for cycle, _ in log[name]] for name in "io")
    assert came == list(range(came[0], came[0] + len(came)))
    assert left == [cycle + dut.latency for cycle in came]


@pytest.mark.parametrize("stall", [*slow({"i": 0.5, "o": 0.0}, {"i": 0.0, "o": 0.5}), {"i": 0.3, "o": 0.3}])
@pytest.mark.parametrize("width", [*slow(128, 256), 512])
def test_nothing_is_lost_when_either_side_pauses(width, stall):
    seed = new_seed()
    rng = random.Random(seed)
    sizes = [rng.choice([0, 6, 22, 54, 58, rng.randrange(141), rng.randrange(600)]) for _ in range(60)]
    inserted(frames_of(rng, sizes), width, stall=stall, seed=seed)


def test_every_opcode_with_payloads_of_many_sizes():
    seed = new_seed()
    rng = random.Random(seed)
    frames = [frame_of(rng, opcode, rng.randrange(200)) for opcode in Opcode for _ in range(15)]
    rng.shuffle(frames)
    inserted(frames, 256, stall=0.1, seed=seed)


@pytest.mark.parametrize("width", [128, *slow(256, 512)])
def test_a_receiver_that_stalls_and_goes_on_sees_full_rate(width):
    """However long it stalled: what is under way fits in the queue, and reaches as far as the next words."""
    rng = random.Random(new_seed())
    frames = [without_icrc(frame_of(rng, Opcode.WRITE_MIDDLE, 256)) for _ in range(width // 16)]
    words = words_of_all(frames, width)
    dut = IcrcInserter(width=width)
    left = []

    async def receiver(ctx):
        for ready, cycles in ((1, 30), (0, 100), (1, 400)):
            ctx.set(dut.o.ready, ready)
            for cycle in range(cycles):
                _, _, valid = await ctx.tick().sample(dut.o.valid)
                if valid and ready:
                    left.append((cycles, cycle))

    simulate(dut, drive={"i": words}, stall=0.0, idle=600, processes=[receiver])
    assert len(left) == len(words)
    again = [cycle for cycles, cycle in left if cycles == 400]
    assert len(again) > 2 * DEPTH
    assert again == list(range(len(again)))


def judged(frames, width, *, pause=0.0, seed=0):
    """What the checker says of each frame, which must come ``latency`` cycles behind its last word."""
    dut, rng = IcrcChecker(width=width), random.Random(seed)
    ends, verdicts = [], []

    async def bench(ctx):
        cycle = 0

        async def tick():
            nonlocal cycle
            await ctx.tick()
            cycle += 1
            if ctx.get(dut.o.valid):
                verdicts.append((cycle, bool(ctx.get(dut.o.good))))

        for words in frames:
            for word in words:
                while rng.random() < pause:
                    ctx.set(dut.i.valid, 0)
                    ctx.set(dut.i.p.data, rng.getrandbits(width))
                    await tick()
                ctx.set(dut.i.p, word)
                ctx.set(dut.i.valid, 1)
                if word["last"]:
                    ends.append(cycle + dut.LATENCY)
                await tick()
        ctx.set(dut.i.valid, 0)
        for _ in range(dut.LATENCY + 2):
            await tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert [cycle for cycle, _ in verdicts] == ends
    return [good for _, good in verdicts]


def with_flipped_bit(rng, frame):
    """A frame of which one bit is wrong that the ICRC covers."""
    at = rng.choice([n for n in range(IP, len(frame)) if n not in CHANGEABLE])
    return frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]


def rerouted(rng, frame):
    """A frame with other bytes where a router may write."""
    changed = bytearray(frame)
    for at in CHANGEABLE:
        changed[at] = rng.getrandbits(8)
    return bytes(changed)


def without_word(rng, words):
    """The words of a frame but one."""
    gone = rng.randrange(len(words))
    rest = words[:gone] + words[gone + 1 :]
    return [*rest[:-1], rest[-1] | {"last": 1}]


@pytest.mark.parametrize("pause", [*slow(0.0), 0.3])
@pytest.mark.parametrize("width", [*slow(128, 256), 512])
def test_the_checker_takes_right_frames_and_no_others(width, pause):
    """Each frame right, rerouted, with a wrong bit and, if more than Ethernet is left, without a word."""
    seed = new_seed()
    rng = random.Random(seed)
    tried, expected = [], []
    for frame in frames_of(rng, [*rng.sample(range(141), 40), 256, 1023]):
        right = words_of(frame, width)
        cases = [(right, True), (words_of(rerouted(rng, frame), width), True)]
        cases.append((words_of(with_flipped_bit(rng, frame), width), False))
        if len(frame) - width // 8 > IP:
            cases.append((without_word(rng, right), False))
        rng.shuffle(cases)
        tried += [words for words, _ in cases]
        expected += [good for _, good in cases]
    assert judged(tried, width, pause=pause, seed=seed) == expected


@pytest.mark.parametrize("width", [128, *slow(256, 512)])
def test_a_frame_may_end_behind_any_unit_of_four_bytes(width):
    """Each number of bytes that its last word lacks: right, and with a wrong bit."""
    rng = random.Random(new_seed())
    frames = [frame_of(rng, Opcode.WRITE_MIDDLE, size) for size in range(0, width // 8 + 4, 4)]
    tried = [frame for right in frames for frame in (right, with_flipped_bit(rng, right))]
    assert judged([words_of(frame, width) for frame in tried], width) == [True, False] * len(frames)


def test_a_frame_that_ends_elsewhere_is_not_good():
    """Also if its last four bytes are the CRC of what is in front of them."""
    rng = random.Random(new_seed())
    words, sizes = [], range(max(CHANGEABLE) + 1, 180)
    for size in sizes:
        frame = bytearray(rng.randbytes(size))
        for at in CHANGEABLE:
            frame[at] = 0xFF
        crc = zlib.crc32(LINK_HEADER + frame[IP:])
        words.append(words_of(bytes(frame) + crc.to_bytes(ICRC_BYTES, "little"), 512))
    assert judged(words, 512) == [size % ICRC_BYTES == IP % ICRC_BYTES for size in sizes]


@pytest.mark.slow
def test_every_single_bit_counts():
    """All bits of a frame: those of the Ethernet header and those that a router may change do not matter."""
    frame = frame_of(random.Random(new_seed()), Opcode.WRITE_ONLY, 9)
    flipped = [
        frame[:at] + bytes([frame[at] ^ 1 << bit]) + frame[at + 1 :]
        for at in range(len(frame))
        for bit in range(8)
    ]
    expected = [at < IP or at in CHANGEABLE for at in range(len(frame)) for _ in range(8)]
    assert judged([words_of(other, 512) for other in flipped], 512) == expected


def test_latencies_are_the_documented_ones():
    assert [IcrcInserter(width=width).latency for width in WIDTHS] == [8, 9, 10]
    assert IcrcChecker.LATENCY == 5


def test_what_a_router_may_change_is_what_annex_a17_lists():
    assert [IP + at for at in MUTABLE] == CHANGEABLE


@pytest.mark.parametrize("component", [IcrcInserter, IcrcChecker])
def test_other_widths_are_refused(component):
    with pytest.raises(ValueError, match="width must be one of 128, 256, 512, not 64"):
        component(width=64)
