"""The cipher against the published vector, and against its specification where it is stirred."""

import random

from amaranth import Module, ResetInserter, Signal
from amaranth.sim import Simulator

from fanin.hdl.net.control.trivium import Trivium
from tests.support import new_seed

#: ECRYPT's test vectors for Trivium, set 2, vector 0: key and IV 0, the first 64 bytes; first bit lowest.
KEY_STREAM = bytes.fromhex(
    "FBE0BF265859051B517A2E4E239FC97F563203161907CF2DE7A8790FA1B2E9CD"
    "F75292030268B7382B4C1A759AA2599A285549986E74805903801A4CB5A5D4F2"
)


def words(stirs, resets=()):
    """``word`` after each cycle; ``stirs[n]`` says whether cycle n flips a bit."""
    dut, reset, seen = Trivium(), Signal(), []
    m = Module()
    m.submodules.dut = ResetInserter(reset)(dut)

    async def body(ctx):
        for cycle, stir in enumerate(stirs):
            ctx.set(dut.stir, stir)
            ctx.set(reset, cycle in resets)
            await ctx.tick()
            seen.append(ctx.get(dut.word))

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(body)
    simulator.run()
    return seen


def specified(stirs):
    """Bits of the key stream, in the words of the specification: s1 … s288, and 1,152 steps of warm-up."""
    s = [None] + [0] * 285 + [1] * 3
    bits = []
    for stir in [False] * 1152 + stirs:
        t1, t2, t3 = s[66] ^ s[93], s[162] ^ s[177], s[243] ^ s[288]
        bits.append(t1 ^ t2 ^ t3)
        t1 ^= s[91] & s[92] ^ s[171]
        t2 ^= s[175] & s[176] ^ s[264]
        t3 ^= s[286] & s[287] ^ s[69]
        s = [None, t3 ^ stir, *s[1:93], t1, *s[94:177], t2, *s[178:288]]
    return bits[1152:]


def test_the_key_stream_is_the_published_one():
    seen = words([0] * (8 * len(KEY_STREAM)))
    found = b"".join(word.to_bytes(4, "little") for word in seen[31::32])
    assert found == KEY_STREAM


def test_a_bit_that_is_flipped_changes_what_follows_and_a_reset_nothing():
    rng = random.Random(new_seed())
    stirs = [rng.random() < 0.05 for _ in range(700)]
    bits = [word >> 31 for word in words(stirs, resets={1, 50, 51, 699})]
    assert bits == specified(stirs)
    assert bits != specified([False] * 700)
