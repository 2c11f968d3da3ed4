# amaranth: UnusedElaboratable=no
"""Encoders and decoders of narrow formats, proved for every value, scale and random bits there are.

The formulas here are exact and share nothing with the RTL: a code is right if its number is the nearest of all
numbers of the format, which holds if it lies between the midpoints to both neighbours.
"""

import pytest
from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import Bf16, Fp16, Mx
from fanin.codec.formats import Element, Rounding
from fanin.hdl.codec.half.format import HalfFormat
from fanin.hdl.codec.mx.format import MxFormat
from tests.formal import Proof
from tests.support import slow

pytestmark = pytest.mark.formal

QUIET_NAN = 0x7FC00000


class Lane(wiring.Component):
    """A value, reduced and encoded, as in the compressor; ``largest`` is the block's exponent before limits."""

    def __init__(self, form):
        self.form = form
        super().__init__(
            {"i": In(32), "largest": In(9), "random": In(8), "scale": Out(8), "o": Out(form.code_bits)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.encoder = encoder = self.form.encoder()
        m.d.comb += [encoder.i.eq(self.form.reduced(self.i)), encoder.enable.eq(1), self.o.eq(encoder.o)]
        if self.form.exponent_bits:
            exponent = self.form.limited(self.largest)
            m.d.comb += [encoder.exponent.eq(exponent), self.scale.eq(self.form.scale_of(exponent))]
        if self.form.is_stochastic:
            m.d.comb += encoder.random.eq(self.random)
        return m


def held(component, latency):
    """The proof of a component whose inputs never change, and whether their result is there.

    The lanes have no feedback: what they give depends on nothing before ``latency`` cycles ago.
    """
    component._MustUse__used = True  # a proof calls ``elaborate`` itself
    proof = Proof(component)
    held_inputs = {}
    for name, member in component.signature.members.items():
        if member.flow == wiring.In:
            held_inputs[name] = Const(1) if name == "enable" else proof.constant(member.shape)
            proof.assume(getattr(component, name) == held_inputs[name])
    cycle = Signal(range(latency + 1))
    with proof.m.If(cycle != latency):
        proof.m.d.sync += cycle.eq(cycle + 1)
    return proof, held_inputs, cycle == latency


def named(proof, value, name):
    signal = Signal(value.shape(), name=name)
    proof.m.d.comb += signal.eq(value)
    return signal


def number(layout, magnitude):
    """A magnitude as a multiple of the least subnormal number; infinity is the next power of two."""
    fraction, field = magnitude[: layout.fraction], magnitude[layout.fraction :]
    if not layout.exponent:
        return magnitude
    return Mux(field == 0, fraction, Cat(fraction, 1) << (field - 1)[: layout.exponent])


class Scaled:
    """A word and the scale of its block by the specification, and what they are in units of the format.

    The word is ``significand`` · 2^(``steps`` - 23 - ``distance``) least subnormal numbers.
    """

    def __init__(self, proof, form, layout, inputs):
        word, emax = inputs["i"], layout.max_exponent
        self.sign, self.exponent, self.fraction = word[31], word[23:31], word[:23]
        self.significand = Cat(self.fraction, self.exponent != 0)
        if isinstance(form, MxFormat):
            largest = inputs["largest"][:8]
            self.scale = named(proof, Mux(largest > emax, largest - emax, 0)[:8], "spec_scale")
            top = self.scale + emax
            proof.assume(largest >= self.exponent)
        else:
            top = Const(127 + emax)
        power = Mux(self.exponent == 0, 1, self.exponent)
        self.above = power > top
        self.distance = named(proof, Mux(self.above, 0, top - power)[:8], "spec_distance")
        self.steps = emax - layout.min_exponent + layout.fraction


MX = [Mx(element) for element in Element]


@pytest.mark.parametrize("config", [*MX[:1], *slow(*MX[1:], Fp16())], ids=str)
def test_every_value_becomes_the_nearest_number(config, tmp_path):
    form = MxFormat(config) if isinstance(config, Mx) else HalfFormat(config)
    layout = config.element.layout if isinstance(config, Mx) else config.layout
    proof, inputs, done = held(Lane(form), form.encoder_latency)
    spec = Scaled(proof, form, layout, inputs)
    code, bits = proof.component.o, layout.bits - 1
    magnitude = code[:bits]
    if config == Mx(Element.INT8):
        magnitude = named(proof, Mux(code[-1], -code, code)[:8], "magnitude")
        proof.check(~done | (magnitude < 128))
        proof.check(~done | (code == 0) | (code[-1] == spec.sign) | inputs["largest"].all())
        bits = 8
    own = named(proof, number(layout, magnitude), "own")
    above = named(proof, number(layout, (magnitude + 1)[: bits + 1]), "above")
    below = named(proof, number(layout, (magnitude - 1)[:bits]), "below")
    far = spec.distance > spec.steps + 3
    near = spec.distance[: (spec.steps + 4).bit_length()]
    twice = named(proof, spec.significand << (spec.steps + 1), "twice")
    upper = named(proof, ((own + above) << 23) << near, "upper")
    lower = named(proof, ((own + below) << 23) << near, "lower")
    is_special = spec.exponent == 255
    if isinstance(config, Mx):
        nan = inputs["largest"][8] | ((config.element is Element.INT8) & (spec.scale == 255))
        proof.check(proof.component.scale == Mux(inputs["largest"][8], 255, spec.scale))
        proof.check(~done | ~inputs["largest"][8] | (code == 0))
        finite = done & ~nan & ~is_special & (spec.exponent != 0)
        limit = layout.largest
        proof.check(~done | nan | ~is_special | (magnitude == limit))
        proof.check(~done | nan | (spec.exponent != 0) | (magnitude == 0))  # subnormal values are flushed
    else:
        finite = done & ~is_special
        limit = layout.infinity
        is_nan = is_special & spec.fraction.any()
        proof.check(~done | ~is_nan | (code == layout.nan))
        proof.check(~done | ~is_special | is_nan | (magnitude == limit))
        proof.check(~finite | ~spec.above | (magnitude == limit))
        finite &= ~spec.above
    if config != Mx(Element.INT8):
        proof.check(~finite | (code[-1] == spec.sign))
    even = ~magnitude[0]
    proof.check(~finite | (magnitude <= limit))
    proof.check(~finite | ~far | (magnitude == 0))
    proof.check(~finite | far | (magnitude == limit) | (twice < upper) | ((twice == upper) & even))
    proof.check(~finite | far | (magnitude == 0) | (twice > lower) | ((twice == lower) & even))
    proof.prove(tmp_path, depth=form.encoder_latency + 1, induction=False, timeout=600)


@pytest.mark.parametrize("rounding", Rounding)
def test_bfloat16_is_the_upper_half_of_a_rounded_sum(rounding, tmp_path):
    form = HalfFormat(Bf16(rounding))
    proof, inputs, done = held(Lane(form), form.encoder_latency)
    word = inputs["i"]
    if rounding is Rounding.NEAREST:
        rounded = word + 0x7FFF + word[16]
    else:  # the upper 8 cut-off bits, the ninth as a carry
        rounded = word + (inputs["random"] + word[7] << 8)
    is_nan = word[23:31].all() & word[:23].any()
    special = word[23:31].all()
    expected = Mux(is_nan, 0x7FC0, Mux(special, word, rounded)[16:32])
    proof.check(~done | (proof.component.o == expected))
    proof.prove(tmp_path, depth=form.encoder_latency + 1, induction=False)


STOCHASTIC = [Mx(element, rounding=Rounding.STOCHASTIC) for element in Element]


@pytest.mark.parametrize("config", slow(*STOCHASTIC, Fp16(Rounding.STOCHASTIC)), ids=str)
def test_random_bits_decide_between_both_neighbours(config, tmp_path):
    """Up if the cut-off part in 256ths of a step, rounded, and the random bits overflow."""
    form = MxFormat(config) if isinstance(config, Mx) else HalfFormat(config)
    layout = config.element.layout if isinstance(config, Mx) else config.layout
    proof, inputs, done = held(Lane(form), form.encoder_latency)
    spec = Scaled(proof, form, layout, inputs)
    normal = layout.max_exponent - layout.min_exponent
    # The word in 512ths of a least subnormal number, and of a step of its own power of two.
    near = Mux(spec.distance > spec.steps + 12, spec.steps + 12, spec.distance)
    fine = named(proof, (spec.significand << (spec.steps + 9)) >> near + 23, "fine")
    above_subnormal = Mux(spec.distance < normal, normal - spec.distance, 0)[:8] if normal > 0 else Const(0, 1)
    in_steps = named(proof, (fine >> above_subnormal)[: layout.fraction + 11], "in_steps")
    carry = (in_steps[1:9] + in_steps[0] + inputs["random"])[8]
    magnitude = named(proof, (above_subnormal << layout.fraction) + in_steps[9:] + carry, "rounded")
    special = spec.exponent == 255
    if isinstance(config, Mx):
        limit = layout.largest
        flushed = spec.exponent == 0
        bounded = Mux(flushed, 0, Mux(special | (magnitude > limit), limit, magnitude))[: layout.bits - 1]
        nan = inputs["largest"][8] | ((config.element is Element.INT8) & (spec.scale == 255))
        if config.element is Element.INT8:
            nan = inputs["largest"][8]
            proof.assume(nan | ~inputs["largest"][:8].all())
            code = Mux(spec.sign, -bounded, bounded)[:8]
        else:
            code = Cat(bounded, spec.sign)
        expected = Mux(nan, 0, code)
    else:
        limit = layout.infinity
        bounded = Mux(special | spec.above | (magnitude > limit), limit, magnitude)[: layout.bits - 1]
        expected = Mux(special & spec.fraction.any(), layout.nan, Cat(bounded, spec.sign))
    proof.check(~done | (proof.component.o == expected))
    proof.prove(tmp_path, depth=form.encoder_latency + 1, induction=False, timeout=600)


@pytest.mark.parametrize("element", [Element.E4M3, *slow(*list(Element)[1:])])
def test_every_element_and_scale_becomes_its_product(element, tmp_path):
    form, layout = MxFormat(Mx(element)), element.layout
    proof, inputs, done = held(form.decoder(), form.decoder_latency)
    code, scale, o = inputs["i"], inputs["scale"], proof.component.o
    bits = layout.bits - 1
    magnitude = Mux(code[-1], -code, code)[:8] if element is Element.INT8 else code[:bits]
    own = named(proof, number(layout, magnitude), "own")
    infinite = (magnitude == layout.infinity) if layout.infinity is not None else Const(0, 1)
    nan = scale == 255
    if layout.infinity is not None:
        nan |= magnitude > layout.infinity
    elif layout.nan is not None:
        nan |= magnitude == layout.nan
    least = layout.fraction - layout.min_exponent  # a least subnormal number is 2^-least
    proof.check(~done | ~nan | (o == QUIET_NAN))
    known = done & ~nan
    proof.check(~known | (o[31] == code[-1]))
    proof.check(~known | ~infinite | (o[:31] == 0x7F800000))
    finite = known & ~infinite
    low, high = scale < 32, scale >= 200
    small = low & ((own << scale[:5]) < Const(1 << least + 1))  # below 2^-126
    large = high & ((own << (scale - 200)[:6]) >= Const(1 << 55 + least))  # at least 2^128
    proof.check(~finite | ~small | (o[:31] == 0))
    proof.check(~finite | ~large | (o[:31] == 0x7F800000))
    exact = finite & (own != 0) & ~small & ~large
    significand, exponent = Cat(o[:23], 1), o[23:31]
    # own · 2^(scale - 127 - least) = significand · 2^(exponent - 150)
    places = named(proof, exponent + least - scale, "places")
    proof.check(~exact | ((exponent > 0) & (exponent < 255) & (places >= 0) & (places < 64)))
    proof.check(~exact | ((own << 23) == significand << places[:6]))
    proof.check(~finite | (own != 0) | (o[:31] == 0))
    proof.prove(tmp_path, depth=form.decoder_latency + 1, induction=False, timeout=600)


@pytest.mark.parametrize("config", [Bf16(), Fp16()], ids=str)
def test_every_code_of_16_bits_becomes_its_number(config, tmp_path):
    form, layout = HalfFormat(config), config.layout
    proof, inputs, done = held(form.decoder(), form.decoder_latency)
    code, o = inputs["i"], proof.component.o
    fraction, field = code[: layout.fraction], code[layout.fraction : -1]
    nan = field.all() & fraction.any()
    proof.check(~done | ~nan | (o == QUIET_NAN))
    proof.check(~done | nan | (o[31] == code[-1]))
    proof.check(~done | nan | ~field.all() | (o[:31] == 0x7F800000))
    proof.check(~done | code[:-1].any() | (o[:31] == 0))
    finite = done & ~field.all() & code[:-1].any()
    if layout.exponent == 8:
        proof.check(~finite | (o[16:31] == code[:-1]) & (o[:16] == 0))
    else:
        own = named(proof, number(layout, code[:-1]), "own")
        places = named(proof, o[23:31] - (127 + layout.min_exponent - layout.fraction), "places")
        proof.check(~finite | ((places >= 0) & (places < 64)))
        proof.check(~finite | ((own << 23) == Cat(o[:23], 1) << places[:6]))
    proof.prove(tmp_path, depth=form.decoder_latency + 1, induction=False)
