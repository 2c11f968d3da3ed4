"""Pads of SDR SDRAM: a register in each direction at every pad, and a clock half a period later."""

from __future__ import annotations

from typing import Any

from amaranth import Elaboratable, Module
from amaranth.lib import io

from fanin.boards.sdram import Sdram
from fanin.hdl.boards.sdram.signature import chip_pins


class SdramPins(Elaboratable):
    """Pads of a board's SDRAM, in the domain ``sync``.

    ``chip`` reaches the chips a cycle later; values from the chips are a cycle old. The chips' clock rises in
    the middle of a cycle: commands and data are stable half a cycle before, and words are sampled half a cycle
    after.
    """

    def __init__(self, *, port: Any, sdram: Sdram):
        self._port = port
        self.chip = chip_pins(sdram).flip().create()

    def elaborate(self, platform: Any) -> Module:
        """Instantiate the pads; boards tie clock enable, select and masks, which have no pad."""
        m = Module()
        port, chip = self._port, self.chip
        m.submodules.clock = clock = io.DDRBuffer("o", port.clk)
        m.d.comb += [clock.o[0].eq(0), clock.o[1].eq(1)]
        for name in ("ras", "cas", "we", "ba", "a"):
            m.submodules[name] = buffer = io.FFBuffer("o", getattr(port, name))
            m.d.comb += buffer.o.eq(getattr(chip, name))
        m.submodules.dq = dq = io.FFBuffer("io", port.dq)
        m.d.comb += [dq.o.eq(chip.dq_o), dq.oe.eq(chip.dq_oe), chip.dq_i.eq(dq.i)]
        return m
