"""Decoder of an MX element."""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring

from fanin.codec.facts import EXPONENT_BITS, FLOAT_BITS, FRACTION_BITS, QUIET_NAN, SPECIAL_EXPONENT
from fanin.codec.formats import SCALE_NAN, Element
from fanin.hdl.arith.select import lookup
from fanin.hdl.codec.blocks.format import decoder_members

LATENCY = 3

_OFFSET_BITS = 6  # signed: powers of two of a number, -16 to 15


class _Number(NamedTuple):
    """An element's magnitude: 1.``fraction`` · 2^``power``, unless it is zero, infinite or NaN."""

    power: int = 0
    fraction: int = 0
    zero: bool = False
    infinite: bool = False
    nan: bool = False


def _number(element: Element, code: int) -> _Number:
    """Return the number of a code without its sign; INT8's code has all bits."""
    layout = element.layout
    if element is Element.INT8:
        significand, power = (code if code < 1 << layout.bits - 1 else (1 << layout.bits) - code), 1
    elif layout.infinity is not None and code >= layout.infinity:
        return _Number(infinite=code == layout.infinity, nan=code > layout.infinity)
    elif code == layout.nan:
        return _Number(nan=True)
    else:
        field, significand = code >> layout.fraction, code & (1 << layout.fraction) - 1
        significand |= bool(field) << layout.fraction
        power = max(field, 1) - layout.bias
    if not significand:
        return _Number(zero=True)
    places = layout.fraction + 1 - significand.bit_length()
    return _Number(power - places, significand << places & (1 << layout.fraction) - 1)


class MxDecoder(wiring.Component):
    """Decoder of an element to a binary32 value: subnormal results become zeros, large ones infinity.

    Members
    -------
    ``i`` : In, bits of the element
        Code.
    ``scale`` : In, 8
        Scale of the element's block.
    ``enable`` : In, 1
        Advance the pipeline.
    ``o`` : Out, 32
        Value.

    Parameters
    ----------
    ``element`` : Element
        Format of the code.

    Latency
    -------
    3 cycles with ``enable``: lookup of the number, scale, special values. One value a cycle.

    Source
    ------
    docs/systems/codec.md; OCP Microscaling formats v1.0, section 5.
    """

    def __init__(self, *, element: Element):
        self.element = element
        super().__init__(decoder_members(code_bits=element.layout.bits, scaled=True))

    def elaborate(self, platform: Any) -> Module:
        """Look the normalised number up, each bit a function of 7 bits, or 8; then add the scale."""
        m = Module()
        layout = self.element.layout
        number = data.StructLayout(
            {
                "power": _OFFSET_BITS,
                "fraction": layout.fraction,
                "zero": 1,
                "infinite": 1,
                "nan": 1,
                "sign": 1,
            }
        )
        first = Signal(number, reset_less=True)
        second = Signal(number, reset_less=True)
        scale = Signal(EXPONENT_BITS, reset_less=True)
        exponent = Signal(signed(EXPONENT_BITS + 2), reset_less=True)
        decoded = Signal(FLOAT_BITS, reset_less=True)
        index = self.i if self.element is Element.INT8 else self.i[:-1]
        table = [_number(self.element, code) for code in range(1 << len(index))]
        found = {
            name: lookup([int(getattr(entry, name)) & (1 << number[name].width) - 1 for entry in table], index)
            for name in _Number._fields
        }
        found["nan"] |= self.scale == SCALE_NAN
        with m.If(self.enable):
            m.d.sync += [first[name].eq(value) for name, value in found.items()]
            m.d.sync += [
                first.sign.eq(self.i[-1]),
                scale.eq(self.scale),
                second.eq(first),
                exponent.eq(scale + first.power.as_signed()),
                decoded.eq(self._value(second, exponent)),
            ]
        m.d.comb += self.o.eq(decoded)
        return m

    def _value(self, number: Any, exponent: Signal) -> Any:
        """Return the value of a number with its scaled exponent."""
        zero = number.zero | (exponent <= 0) & ~number.infinite
        infinite = number.infinite | (exponent >= SPECIAL_EXPONENT) & ~number.zero
        fraction = Cat(Const(0, FRACTION_BITS - self.element.layout.fraction), number.fraction)
        magnitude = Mux(zero | infinite, 0, Cat(fraction, exponent[:EXPONENT_BITS]))
        field = infinite.replicate(EXPONENT_BITS)
        return Mux(number.nan, QUIET_NAN, Cat(magnitude | Cat(Const(0, FRACTION_BITS), field), number.sign))
