# amaranth: UnusedElaboratable=no
"""A value through the blocks: against the golden model, and, within the bound, for every value there is."""

import random

import numpy as np
import pytest
from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from fanin.codec.facts import MAX_BOUND, MIN_BOUND, TAG_BYTES, Inceptionn, Mode, Tag
from fanin.codec.golden import inceptionn
from fanin.hdl.codec.inceptionn.block import (
    COMPRESSION_LATENCY,
    DECOMPRESSION_LATENCY,
    CompressionBlock,
    DecompressionBlock,
)
from tests.formal import Proof
from tests.support import new_seed, simulate

LATENCY = COMPRESSION_LATENCY + DECOMPRESSION_LATENCY


class RoundTrip(wiring.Component):
    """Compression feeding decompression; the tag and value between them in step with ``o``."""

    def __init__(self):
        block = CompressionBlock().signature.members
        names = ("i", "keep", "bound", "mode", "enable")
        super().__init__(
            {name: block[name] for name in names} | {"tag": Out(2), "value": Out(32), "o": Out(32)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.compress = compress = CompressionBlock()
        m.submodules.decompress = decompress = DecompressionBlock()
        for name in ("i", "keep", "bound", "mode", "enable"):
            m.d.comb += getattr(compress, name).eq(getattr(self, name))
        m.d.comb += [
            decompress.tag.eq(compress.tag),
            decompress.value.eq(compress.value),
            decompress.enable.eq(self.enable),
            self.tag.eq(compress.tag),
            self.value.eq(compress.value),
            self.o.eq(decompress.o),
        ]
        return m


def values_of_every_kind(rng):
    """Both signs of every exponent with fractions at the edges, powers of two among them, and NaNs."""
    fractions = [0, 1, 0x7FFFFF, 0x400000, *(1 << k for k in range(2, 22, 3))]
    bits = [e << 23 | fraction for e in (*range(105, 131), 0, 1, 254, 255) for fraction in fractions]
    bits += [e << 23 | rng.getrandbits(23) & -1 << rng.randrange(23) for e in range(256)]
    return [word | rng.getrandbits(1) << 31 for word in bits] + [0, 1 << 31]


def golden(words, config):
    """Tag, value and decoded bits of each word."""
    floats = np.array(words, dtype=np.uint32).view(np.float32)
    tags, values = inceptionn.compress(floats, config)
    decoded = inceptionn.decompress(tags, values).view(np.uint32)
    return list(zip(tags.tolist(), values.tolist(), decoded.tolist(), strict=True))


def through(words, *, bound, mode, keep=15, stall=0.0):
    """Tag, value and decoded bits of each word, from blocks that pause at random."""
    dut = RoundTrip()
    rng = random.Random(new_seed())
    seen = []

    async def drive(ctx):
        ctx.set(dut.bound, bound)
        ctx.set(dut.mode, mode)
        for n in range(len(words) + LATENCY):
            ctx.set(dut.i, words[n] if n < len(words) else 0)
            ctx.set(dut.keep, keep)
            while rng.random() < stall:
                ctx.set(dut.enable, 0)
                await ctx.tick()
            ctx.set(dut.enable, 1)
            seen.append((ctx.get(dut.tag), ctx.get(dut.value), ctx.get(dut.o)))
            await ctx.tick()
        ctx.set(dut.enable, 0)

    simulate(dut, processes=[drive], idle=2 * LATENCY + int(len(words) / (1 - stall) * 1.5) + 50)
    forms = seen[COMPRESSION_LATENCY : COMPRESSION_LATENCY + len(words)]
    return [(tag, value, o) for (tag, value, _), (_, _, o) in zip(forms, seen[LATENCY:], strict=True)]


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("bound", [1, 7, 8, 10, 15])
def test_blocks_agree_with_the_golden_model(bound, mode):
    words = values_of_every_kind(random.Random(new_seed()))
    got = through(words, bound=bound, mode=mode)
    assert got == golden(words, Inceptionn(bound=bound, mode=mode))


def test_blocks_hold_while_they_are_not_enabled():
    words = random.Random(new_seed()).sample(values_of_every_kind(random.Random(1)), 60)
    assert through(words, bound=9, mode=Mode.STRICT, stall=0.5) == golden(words, Inceptionn(bound=9))


@pytest.mark.parametrize("keep", [0b1, 0b11, 0b111])
def test_a_value_that_misses_bytes_goes_raw_with_zeros_for_them(keep):
    words = values_of_every_kind(random.Random(new_seed()))[::9]
    kept = [word & (1 << 8 * keep.bit_count()) - 1 for word in words]
    got = through(words, bound=10, mode=Mode.STRICT, keep=keep)
    assert got == [(Tag.RAW, word, word) for word in kept]


def test_a_value_without_bytes_is_a_zero():
    words = values_of_every_kind(random.Random(new_seed()))[::9]
    assert through(words, bound=10, mode=Mode.STRICT, keep=0) == [(Tag.ZERO, 0, 0)] * len(words)


# ---- Proofs -----------------------------------------------------------------------------------------

UNIT = 149  # 2^-149 divides every binary32: magnitudes below 1 are integers of 149 bits


def magnitude(bits):
    """|bits| in units of 2^-149, exact, of a binary32 below 1."""
    exponent, fraction = bits[23:31], bits[:23]
    return Mux(exponent == 0, fraction, Cat(fraction, 1) << (exponent - 1)[:7])[: UNIT + 1]


def kept_at_the_inputs(**conditions):
    """Any word and any bound, kept at the inputs until its forms have gone through the blocks.

    The blocks have no feedback: what they give depends on what they were given LATENCY cycles ago, and on
    nothing before that. So what holds for the one word that is kept there holds in every cycle of any run.
    """
    dut = RoundTrip()
    proof = Proof(dut)
    word, bound = proof.constant(32), proof.constant(4)
    settings = {"i": word, "bound": bound, "enable": 1} | conditions
    for name, value in settings.items():
        proof.assume(getattr(dut, name) == value)
    proof.assume((bound >= MIN_BOUND) & (bound <= MAX_BOUND))
    cycle = Signal(range(LATENCY + 1))
    with proof.m.If(cycle != LATENCY):
        proof.m.d.sync += cycle.eq(cycle + 1)
    return proof, word, bound, cycle == LATENCY


def check_error(proof, word, bound, through):
    """What is decoded is within 2^-bound of the word; where that is not below 1, it is the word."""
    got, large = proof.component.o, word[23:31] >= 127
    error, limit = Signal(UNIT + 2), Signal(UNIT + 1)
    ours, theirs = magnitude(word), magnitude(got)
    difference = Mux(ours > theirs, ours - theirs, theirs - ours)
    proof.m.d.comb += [
        error.eq(Mux(word[31] == got[31], difference, ours + theirs)),
        limit.eq(Const(1 << UNIT, UNIT + 1) >> bound),
    ]
    proof.check(~through | ~large | (got == word))
    proof.check(~through | large | ((got[23:31] < 127) & (error <= limit)))
    return ours, limit


def prove(proof, path):
    proof.prove(path, depth=LATENCY + 1, induction=False)


@pytest.mark.formal
def test_strict_mode_is_within_the_bound_for_every_value_and_bound(tmp_path):
    kept = kept_at_the_inputs(mode=Mode.STRICT, keep=15)
    check_error(*kept)
    prove(kept[0], tmp_path)


@pytest.mark.formal
def test_strict_mode_takes_no_longer_form_than_it_must(tmp_path):
    kept = proof, word, _, through = kept_at_the_inputs(mode=Mode.STRICT, keep=15)
    ours, limit = check_error(*kept)
    tag = proof.component.tag
    lost = ours[: UNIT - 7]  # by a form that ends at 2^-7
    proof.check(~through | (tag != Tag.BITS8) | (ours > limit))
    proof.check(~through | (tag != Tag.BITS16) | (lost > limit))
    proof.check(~through | (tag != Tag.RAW) | (word[23:31] >= 127))
    prove(proof, tmp_path)


@pytest.mark.formal
def test_published_mode_is_within_bounds_down_to_2_to_the_minus_7(tmp_path):
    kept = kept_at_the_inputs(mode=Mode.PUBLISHED, keep=15)
    kept[0].assume(kept[2] <= 7)
    check_error(*kept)
    prove(kept[0], tmp_path)


@pytest.mark.formal
@pytest.mark.parametrize("bound", [8, 15])
def test_published_mode_breaks_smaller_bounds(bound, tmp_path):
    kept = kept_at_the_inputs(mode=Mode.PUBLISHED, keep=15)
    kept[0].assume(kept[2] == bound)
    check_error(*kept)
    with pytest.raises(AssertionError, match="Assert failed"):
        prove(kept[0], tmp_path)


@pytest.mark.formal
def test_a_form_has_no_ones_above_its_bits(tmp_path):
    proof, _, _, through = kept_at_the_inputs()
    tag, value = proof.component.tag, proof.component.value
    for form, size in TAG_BYTES.items():
        proof.check(~through | (tag != form) | (value[8 * size :] == 0))
    prove(proof, tmp_path)
