"""The clock of the simulated nodes: its period, when its edges are, and a link's rate counted in its cycles."""

from __future__ import annotations

from fanin.base.errors import InputError

_MHZ = (1, 2000)
_PS_BYTES = 8000  # a byte at 1 Gb/s takes that many ps


def period_of(clock_mhz: float) -> int:
    """The period of a clock in ps, even: it has two halves. Raises InputError for one out of range."""
    least, most = _MHZ
    if not least <= clock_mhz <= most:
        raise InputError(f"clock_mhz must be in {least}…{most}, not {clock_mhz:g}")
    return 2 * round(500_000 / clock_mhz)


def port_rate(gbps: float, period_ps: int, width: int) -> float:
    """Bytes a cycle that a port of ``width`` bits is held to; 0, none, where the port alone is no faster."""
    rate = bytes_a_cycle(gbps, period_ps)
    return rate if rate < width / 8 else 0.0


def bytes_a_cycle(gbps: float, period_ps: int) -> float:
    """A rate in Gb/s, counted in bytes and cycles."""
    return gbps * period_ps / _PS_BYTES


class Clock:
    """Simulated time in ps: rising edge n is at n periods, and later by all that was skipped before."""

    def __init__(self, period_ps: int):
        self.period_ps = period_ps
        self.skipped_ps = 0

    def time(self, edge: int) -> int:
        """When a rising edge is, unless time is skipped before it."""
        return edge * self.period_ps + self.skipped_ps

    def edge(self, time: int) -> int:
        """The first rising edge at or after a time, which has not been skipped."""
        return -((self.skipped_ps - time) // self.period_ps)
