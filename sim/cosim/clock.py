"""Clock of the simulated nodes: its period, times of its edges, and rates in bytes per cycle."""

from __future__ import annotations

from fanin.base.errors import InputError

_MHZ = (1, 2000)
_PS_BYTES = 8000  # ps per byte at 1 Gb/s


def period_of(clock_mhz: float) -> int:
    """Return the period of a clock in ps, rounded to an even number. Raises InputError out of range."""
    minimum, maximum = _MHZ
    if not minimum <= clock_mhz <= maximum:
        raise InputError(f"clock_mhz must be in {minimum}…{maximum}, not {clock_mhz:g}")
    return 2 * round(500_000 / clock_mhz)


def port_rate(gbps: float, period_ps: int, width: int) -> float:
    """Return the bytes per cycle that limit a port of ``width`` bits; 0 if the port itself is no faster."""
    rate = bytes_a_cycle(gbps, period_ps)
    return rate if rate < width / 8 else 0.0


def bytes_a_cycle(gbps: float, period_ps: int) -> float:
    """Return a rate in Gb/s as bytes per cycle."""
    return gbps * period_ps / _PS_BYTES


class Clock:
    """Simulated time in ps: rising edge n is at n periods plus all skipped time."""

    def __init__(self, period_ps: int):
        self.period_ps = period_ps
        self.skipped_ps = 0

    def time(self, edge: int) -> int:
        """Return the time of a rising edge, if no more time is skipped before it."""
        return edge * self.period_ps + self.skipped_ps

    def edge(self, time: int) -> int:
        """Return the first rising edge at or after a time that lies after all skips."""
        return -((self.skipped_ps - time) // self.period_ps)
