# amaranth: UnusedElaboratable=no
"""802.1Q tags in the stream of frames, beside scapy's reading of them."""

import random

import pytest
from amaranth.sim import Simulator
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from fanin.hdl.net.vlan import TagInserter, TagRemover
from fanin.sim.rtl.monitor import Monitored
from tests.support import new_seed, simulate, slow

WIDTHS = [*slow(256), 128, 512]


def frame_and_tag(rng, size):
    """A frame, its tag or None, and the frame as it is with the tag."""
    plain = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02", type=rng.choice([0x0800, 0x8100, 0x1234]))
    tci = rng.choice([None, rng.getrandbits(16)])
    payload = rng.randbytes(size)
    if tci is None:
        plain.type = 0x0800
        return bytes(plain / Raw(payload)), tci, bytes(plain / Raw(payload))
    tag = Dot1Q(prio=tci >> 13, dei=tci >> 12 & 1, vlan=tci & 0xFFF, type=plain.type)
    tagged = Ether(dst=plain.dst, src=plain.src) / tag / Raw(payload)
    return bytes(plain / Raw(payload)), tci, bytes(tagged)


def words_of(frame, size):
    """A frame's words, as a packet stream has them."""
    cut = [frame[at : at + size] for at in range(0, len(frame), size)]
    return [
        {"data": int.from_bytes(word, "little"), "keep": (1 << len(word)) - 1, "last": n == len(cut) - 1}
        for n, word in enumerate(cut)
    ]


def frames_of(words, size):
    """The frames of words, each of which but the last is whole."""
    frames, frame = [], b""
    for word in words:
        kept = word.keep.bit_length()
        assert word.keep == (1 << kept) - 1
        assert kept == size or word.last
        frame += word.data.to_bytes(size, "little")[:kept]
        if word.last:
            frames.append(frame)
            frame = b""
    assert not frame
    return frames


def some(rng, size):
    """Frames of all lengths around those of whole words."""
    return [frame_and_tag(rng, rng.choice([46, rng.randrange(46, 5 * size), *range(size, 2 * size)]))
            for _ in range(60)]  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_a_tag_is_put_behind_the_addresses_and_nothing_else_changes(width, stall):
    seed = new_seed()
    size = width // 8
    frames = some(random.Random(seed), size)
    tags = [{"present": tci is not None, "tci": tci or 0} for _, tci, _ in frames]
    log = simulate(
        TagInserter(width=width),
        drive={"i": [word for plain, _, _ in frames for word in words_of(plain, size)], "tag": tags},
        collect={"o": sum(-(-len(tagged) // size) for _, _, tagged in frames)},
        stall=stall,
        seed=seed,
    )
    assert frames_of([word for _, word in log["o"]], size) == [tagged for _, _, tagged in frames]
    if not stall:
        cycles = [cycle for cycle, _ in log["o"]]
        assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_a_tag_is_taken_out_and_nothing_else_changes(width, pause):
    seed = new_seed()
    rng = random.Random(seed)
    size = width // 8
    frames = some(rng, size)
    bad = [rng.random() < 0.3 for _ in frames]
    dut = TagRemover(width=width)
    got, ends = [], []

    async def main(ctx):
        for (_, _, tagged), error in zip(frames, bad, strict=True):
            for word in words_of(tagged, size):
                while rng.random() < pause:
                    ctx.set(dut.i.valid, 0)
                    await tick(ctx)
                ctx.set(dut.i, {"valid": 1, "p": word | {"error": error and word["last"]}})
                await tick(ctx)
            ends.append(cycle[0])
        ctx.set(dut.i.valid, 0)
        for _ in range(4):
            await tick(ctx)

    cycle = [0]

    async def tick(ctx):
        await ctx.tick()
        cycle[0] += 1
        if ctx.get(dut.o.valid):
            got.append((cycle[0], ctx.get(dut.o.p)))

    simulator = Simulator(Monitored(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(main)
    simulator.run()
    assert frames_of([word for _, word in got], size) == [plain for plain, _, _ in frames], seed
    assert [word.error for _, word in got if word.last] == bad, seed
    last = [at for at, word in got if word.last]
    shrunk = [-(-len(plain) // size) < -(-len(tagged) // size) for plain, _, tagged in frames]
    assert [1 + at - end for at, end in zip(last, ends, strict=True)] == [1 if less else 2 for less in shrunk]


@pytest.mark.parametrize("make", [TagInserter, TagRemover])
def test_a_word_without_room_for_the_tag_is_refused(make):
    with pytest.raises(ValueError, match="at least 128"):
        make(width=64)
