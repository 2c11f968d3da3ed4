"""The pads of SDR SDRAM: a register each way at every one, and the clock half a period behind the commands."""

from __future__ import annotations

from typing import Any

from amaranth import Elaboratable, Module
from amaranth.lib import io

from fanin.boards.sdram import Sdram
from fanin.hdl.boards.sdram.signature import chip_pins


class SdramPins(Elaboratable):
    """The SDRAM of a board at its pads, in the domain ``sync``.

    ``chip`` is what the chips get, a cycle later, and what they gave, a cycle ago. Their clock rises in the
    middle of a cycle: commands and data are there half a cycle before, and a word is taken half a cycle behind.
    """

    def __init__(self, *, port: Any, sdram: Sdram):
        self._port = port
        self.chip = chip_pins(sdram).flip().create()

    def elaborate(self, platform: Any) -> Module:
        """Clock enable, select and masks are tied on the boards, and have no pad."""
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
