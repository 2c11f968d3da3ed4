"""Initialisation of SDRAM chips, without a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from fanin.boards.sdram import CAS_LATENCY, START_REFRESHES, SdramTiming

ALL_BANKS = 1 << 10  # A10 of a precharge: all banks
MODE = CAS_LATENCY << 4  # mode register: bursts of one word, in order


class _Step(NamedTuple):
    """Command, its address, and the cycles until the next command."""

    ras: int
    cas: int
    we: int
    a: int
    cycles: int


def _steps(timing: SdramTiming) -> Iterator[_Step]:
    """Yield the commands after the initial pause: precharge of all banks, refreshes, mode register."""
    yield _Step(ras=1, cas=0, we=1, a=ALL_BANKS, cycles=timing.precharge)
    for _ in range(START_REFRESHES):
        yield _Step(ras=1, cas=1, we=0, a=0, cycles=timing.refresh_cycle)
    yield _Step(ras=1, cas=1, we=1, a=MODE, cycles=timing.mode)


class SdramStart(wiring.Component):
    """Initialisation of SDR SDRAM, once after a reset: pause, precharge of all banks, refreshes, mode register.

    Members
    -------
    ``ras``, ``cas``, ``we``, ``a`` : Out
        Command of this cycle; all 0: none. The bank is always 0.
    ``done`` : Out(1)
        The chips accept any command from this cycle on.

    Parameters
    ----------
    ``timing`` : SdramTiming
        Times of the chips in cycles.

    Latency
    -------
    ``timing.start`` cycles until the first command, then the chips' own times.

    Source
    ------
    JEDEC 21-C, "Power-up and initialization" of SDR SDRAM; data sheet of the M12L64322A.
    """

    def __init__(self, *, timing: SdramTiming):
        self.timing = timing
        super().__init__({"ras": Out(1), "cas": Out(1), "we": Out(1), "a": Out(11), "done": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """Step through the commands; ``cycles_left``: cycles until the next one."""
        m = Module()
        steps = list(_steps(self.timing))
        cycles_left = Signal(range(self.timing.start + 1), init=self.timing.start)
        step = Signal(range(len(steps) + 1))
        m.d.comb += self.done.eq((step == len(steps)) & (cycles_left == 0))
        with m.If(cycles_left != 0):
            m.d.sync += cycles_left.eq(cycles_left - 1)
        with m.Else(), m.Switch(step):
            for number, command in enumerate(steps):
                with m.Case(number):
                    m.d.comb += [
                        getattr(self, name).eq(getattr(command, name)) for name in ("ras", "cas", "we", "a")
                    ]
                    m.d.sync += [step.eq(number + 1), cycles_left.eq(command.cycles - 1)]
        return m
