"""Loss unit for small devices: processes the samples of a micro-batch one after the other."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.fixed import MANTISSA_BITS, MAX_SHIFT, VALUE_BITS, Loss, check_frac
from fanin.hdl.glm.loss import LossUnit, loss_latency
from fanin.hdl.stream.connect import connect_typed


class LossSequence(wiring.Component):
    """Loss unit of ``banks`` samples that reuses a smaller :class:`LossUnit` in several steps.

    FAs and scales are whole micro-batches; labels arrive step by step. A small device has multipliers for only
    one or two samples. Its throughput does not suffer: the network takes longer for a micro-batch than all
    steps.

    Members
    -------
    ``fa`` : In, stream of ``banks`` × signed(32)
        Full activations; taken in the cycle after the micro-batch's last labels. ``ready`` is a register.
    ``labels`` : In, stream of ``at_once`` × signed(32)
        Labels of the same samples, first samples first.
    ``loss`` : In, ``fixed.Loss``
        Loss function.
    ``mantissa`` : In, 16
        Mantissa of the rate: γ/B · 2^shift.
    ``shift`` : In, 6
        Shift of the rate, 0…39.
    ``scale`` : Out, stream of ``banks`` × signed(32)
        Factors of the samples in backward.

    Parameters
    ----------
    ``banks`` : int, at least 2
        Samples of a micro-batch.
    ``at_once`` : int, a divisor of ``banks`` and less
        Samples processed in parallel; 1 by default.
    ``frac`` : int, 6…28
        Fractional bits of activations, labels and scales.

    Latency
    -------
    ``latency`` = 7 + ``banks / at_once`` cycles from ``fa`` to ``scale``; a micro-batch every ``banks /
    at_once`` + 1 cycles.

    Source
    ------
    docs/systems/glm.md, "The loss unit".
    """

    def __init__(self, *, banks: int, frac: int, at_once: int = 1):
        if at_once < 1 or banks % at_once or at_once >= banks:
            raise ValueError(f"at_once must be a divisor of {banks} banks and smaller, not {at_once!r}")
        check_frac(frac)
        self.banks = banks
        self.at_once = at_once
        self.frac = frac
        self.latency = loss_latency(banks, at_once)
        vector = stream.Signature(data.ArrayLayout(signed(VALUE_BITS), banks))
        super().__init__(
            {
                "fa": In(vector),
                "labels": In(stream.Signature(data.ArrayLayout(signed(VALUE_BITS), at_once))),
                "loss": In(Loss),
                "mantissa": In(MANTISSA_BITS),
                "shift": In(range(MAX_SHIFT + 1)),
                "scale": Out(vector),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Feed the unit a step's FAs at a time, and collect its scales.

        The scales of all steps but the last are stored; those of the last step go out directly beside them.
        """
        m = Module()
        steps = self.banks // self.at_once
        m.submodules.unit = unit = LossUnit(banks=self.at_once, frac=self.frac)
        connect_typed(m, flipped(self.labels), unit.labels)
        input_step = Signal(range(steps))
        output_step = Signal(range(steps))
        bits = self.at_once * VALUE_BITS
        is_last_input, is_last_output = input_step == steps - 1, output_step == steps - 1
        m.d.comb += [
            unit.loss.eq(self.loss),
            unit.mantissa.eq(self.mantissa),
            unit.shift.eq(self.shift),
            unit.fa.valid.eq(self.fa.valid & ~self.fa.ready),
            unit.fa.payload.as_value().eq(self.fa.payload.as_value().word_select(input_step, bits)),
        ]
        m.d.sync += self.fa.ready.eq(unit.fa.valid & unit.fa.ready & is_last_input)
        with m.If(unit.fa.valid & unit.fa.ready):
            m.d.sync += input_step.eq(Mux(is_last_input, 0, input_step + 1))

        earlier_scales = Signal((steps - 1) * bits, reset_less=True)
        scale = unit.scale
        m.d.comb += [
            self.scale.payload.as_value().eq(Cat(earlier_scales, scale.payload)),
            self.scale.valid.eq(scale.valid & is_last_output),
            scale.ready.eq(~is_last_output | self.scale.ready),
        ]
        with m.If(scale.valid & scale.ready):
            m.d.sync += [
                output_step.eq(Mux(is_last_output, 0, output_step + 1)),
                earlier_scales.eq(Cat(earlier_scales, scale.payload)[bits:]),
            ]
        return m
