"""Loss unit: from full activations and labels to the scales of backward propagation."""

from itertools import pairwise
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.fixed import (
    MANTISSA_BITS,
    MAX_SHIFT,
    SIGMA_ENTRIES,
    SIGMA_RANGE,
    SIGMA_STEP_BITS,
    VALUE_BITS,
    Loss,
    check_frac,
    sigma_fraction_bits,
    sigma_table,
    unknown_loss,
)

STAGES = 8  # pipeline stages, listed in the docstring of ``LossUnit``
_DF_BITS = VALUE_BITS + 1
_LOW_BITS = 17  # df · mantissa is computed as two products, each of which fits a 27 × 18 DSP
_PRODUCT_BITS = _DF_BITS + MANTISSA_BITS


def loss_latency(banks: int, lanes: int) -> int:
    """Return the cycles from a micro-batch's FAs to its scales, with ``lanes`` banks processed at once."""
    return STAGES + banks // lanes - 1


class LossUnit(wiring.Component):
    """Scale of each sample: derivative df of the loss by FA, times γ/B, bit for bit as in ``fanin.fixed``.

    The unit takes one FA vector together with one label vector and returns one scale vector:
    ``fixed.scale(fixed.df(FA, y), mantissa, shift)``. ``loss``, ``mantissa`` and ``shift`` must be constant
    while a vector is in flight.

    Members
    -------
    ``fa`` : In, stream of ``banks`` × signed(32)
        Full activations, with ``frac`` fractional bits.
    ``labels`` : In, stream of ``banks`` × signed(32)
        Labels of the same samples, in the format of ``fixed.labels``.
    ``loss`` : In, ``fixed.Loss``
        Loss function. For a value that is no loss, df is −label (``RunCheck`` rejects such a run).
    ``mantissa`` : In, 16
        Mantissa of the rate: γ/B · 2^shift.
    ``shift`` : In, 6
        Shift of the rate, 0…39.
    ``scale`` : Out, stream of ``banks`` × signed(32)
        Factors of the samples in backward.

    Parameters
    ----------
    ``banks`` : int, at least 1
        Samples processed in parallel.
    ``frac`` : int, 6…28
        Fractional bits of activations, labels and scales.

    Latency
    -------
    8 cycles from ``fa`` to ``scale``, 7 from ``labels``, for every loss; one micro-batch a cycle. While
    ``scale`` stalls, the whole pipeline stalls.
    Stages:

    1. σ table, indexed by FA
    2. minuend of df (FA, σ or 0), and step to the table's next entry
    3. step × fraction of FA; minuend − label
    4. df
    5. df × mantissa, in two halves
    6. sum of the halves
    7. shift by a multiple of 8
    8. rest of the shift, saturation

    Source
    ------
    docs/reference/numbers.md; P4SGD, section IV.
    """

    def __init__(self, *, banks: int, frac: int):
        if not isinstance(banks, int) or banks < 1:
            raise ValueError(f"banks must be at least 1, not {banks!r}")
        check_frac(frac)
        self.banks = banks
        self.frac = frac
        vector = stream.Signature(data.ArrayLayout(signed(VALUE_BITS), banks))
        super().__init__(
            {
                "fa": In(vector),
                "labels": In(vector),
                "loss": In(Loss),
                "mantissa": In(MANTISSA_BITS),
                "shift": In(range(MAX_SHIFT + 1)),
                "scale": Out(vector),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Advance the pipeline unless a scale waits at its end.

        The first stage also waits while its FA has no label.
        """
        m = Module()
        advance = Signal()
        accept = Signal()
        valid = Signal(STAGES)
        m.d.comb += [
            advance.eq(~self.scale.valid | self.scale.ready),
            accept.eq(advance & (self.labels.valid | ~valid[0])),
            self.fa.ready.eq(accept),
            self.labels.ready.eq(advance & valid[0]),
            self.scale.valid.eq(valid[-1]),
        ]
        ports = self._table_ports(m)
        fa1 = Signal.like(self.fa.payload, reset_less=True)
        for port, fa in zip(ports, self.fa.payload, strict=True):
            m.d.comb += [port.en.eq(accept), port.addr.eq(self._index(fa))]
        mask = self._overflow_mask(m)
        with m.If(accept):
            m.d.sync += [valid[0].eq(self.fa.valid), fa1.eq(self.fa.payload)]
        with m.If(advance):
            m.d.sync += valid[1:].eq(Cat(valid[0] & self.labels.valid, valid[1:]))
            for bank, port in enumerate(ports):
                df = self._derivative(m, fa1[bank], self.labels.payload[bank], port.data)
                m.d.sync += self.scale.payload[bank].eq(self._scaled(m, df, mask))
        return m

    def _table_ports(self, m: Module) -> list[Any]:
        """Return ports of the σ table, one per bank; two banks share a memory.

        An entry has σ and the step to the next entry.
        """
        values = [int(v) for v in sigma_table(self.frac)]
        steps = [right - left for left, right in pairwise(values)]
        entry = data.StructLayout({"value": self.frac + 1, "step": max(1, max(steps).bit_length())})
        init = [{"value": value, "step": step} for value, step in zip(values, steps, strict=False)]
        ports = []
        for pair in range(-(-self.banks // 2)):
            m.submodules[f"table_{pair}"] = table = Memory(shape=entry, depth=SIGMA_ENTRIES, init=init)
            ports += [table.read_port() for _ in range(min(2, self.banks - 2 * pair))]
        return ports

    def _index(self, fa: Value) -> Value:
        """Return the index of the σ table's entry for ``fa``: FA + 8 in steps of 1/64.

        The addition of 8 only inverts the top bit.
        """
        top = self.frac + (SIGMA_RANGE - 1).bit_length()
        return Cat(fa[self.frac - SIGMA_STEP_BITS : top], ~fa[top])

    def _derivative(self, m: Module, fa1: Value, label: Value, entry: Any) -> Signal:
        """Return df, computed in stages 2 to 4.

        FA and ``entry`` are registers of stage 1, which the label joins.
        """
        top = self.frac + (SIGMA_RANGE - 1).bit_length()
        n = sigma_fraction_bits(self.frac)
        step = self.frac - SIGMA_STEP_BITS

        in_table = fa1[top:].all() | ~fa1[top:].any()
        at_least_one = ~fa1[-1] & fa1[self.frac :].any()
        has_fraction = fa1[: self.frac].any()
        at_most_minus_one = fa1[-1] & ~(fa1[self.frac :].all() & has_fraction)
        interpolate = in_table & (self.loss == Loss.LOGISTIC)
        base = Signal(signed(VALUE_BITS))  # the label is subtracted from it
        step2 = Signal.like(entry.step)
        fraction = Signal(n)  # 0 without interpolation
        label2 = Signal.like(label, name="label2")
        satisfied = Signal()  # y · FA >= 1
        m.d.sync += [
            step2.eq(entry.step),
            fraction.eq(Mux(interpolate, fa1[step - n : step], 0)),
            label2.eq(label),
            satisfied.eq((self.loss == Loss.HINGE) & Mux(label[-1], at_most_minus_one, at_least_one)),
        ]
        sigma = Mux(in_table, entry.value, Mux(fa1[-1], 0, 1 << self.frac))
        with m.Switch(self.loss):
            for loss in Loss:
                minuend = _minuend(loss, fa1, sigma)
                if minuend is not None:
                    with m.Case(loss):
                        m.d.sync += base.eq(minuend)
            with m.Default():
                m.d.sync += base.eq(0)

        product = Signal(len(step2) + n)
        difference = Signal(signed(_DF_BITS))
        m.d.sync += [product.eq(step2 * fraction), difference.eq(base - Mux(satisfied, 0, label2))]

        df = Signal(signed(_DF_BITS))
        m.d.sync += df.eq(difference + product[n:])
        return df

    def _overflow_mask(self, m: Module) -> Signal:
        """Return a mask of the product's bits that must equal its sign if the shifted product fits 32 bits."""
        mask = Signal(_PRODUCT_BITS, reset_less=True)
        m.d.sync += mask.eq((-1 << VALUE_BITS - 1) << self.shift)
        return mask

    def _scaled(self, m: Module, df: Signal, mask: Signal) -> Value:
        """Return the input of stage 8, floor(df · mantissa / 2^shift), saturated, computed in stages 5 to 7."""
        mantissa = Signal.like(self.mantissa, reset_less=True)  # a register near each multiplier
        low = Signal(_LOW_BITS + MANTISSA_BITS)
        high = Signal(signed(_PRODUCT_BITS - _LOW_BITS))
        m.d.sync += [
            mantissa.eq(self.mantissa),
            low.eq(df[:_LOW_BITS] * mantissa),
            high.eq(df[_LOW_BITS:].as_signed() * mantissa),
        ]
        product = Signal(signed(_PRODUCT_BITS))
        m.d.sync += product.eq(Cat(low[:_LOW_BITS], high + low[_LOW_BITS:]))

        coarse = Signal(signed(VALUE_BITS + 7))  # shifted by a multiple of 8
        negative = Signal()
        overflow = Signal()
        m.d.sync += [
            coarse.eq(product >> Cat(C(0, 3), self.shift[3:])),
            negative.eq(product[-1]),
            overflow.eq(((product ^ product[-1].replicate(_PRODUCT_BITS)) & mask).any()),
        ]
        limit = Cat((~negative).replicate(VALUE_BITS - 1), negative)
        return Mux(overflow, limit, (coarse >> self.shift[:3])[:VALUE_BITS]).as_signed()


def _minuend(loss: Loss, fa: Value, sigma: Value) -> Value | None:
    """Return the value that the label is subtracted from; None for 0.

    Raises ValueError for a loss without hardware.
    """
    match loss:
        case Loss.LINEAR:
            return fa
        case Loss.LOGISTIC:
            return sigma
        case Loss.HINGE:
            return None
        case _:
            raise unknown_loss(loss)
