"""Adaptive retransmission timeout (docs/systems/aggregation.md, "Timers"), with the integers of the RTL.

The RTL is :mod:`fanin.hdl.aggregation.round_trip`. All times are in cycles.
"""

from __future__ import annotations

from dataclasses import dataclass

RTT_BITS = 24  #: bits of a round trip; a longer one counts as the longest
MEAN_SHIFT = 3  #: a sample moves the mean by 1/8 of its distance
DEVIATION_SHIFT = 4  #: a sample moves the deviation by 1/16 of its distance
FLOOR_CYCLES = 64  #: default of ``least``
UNKNOWN_SHIFT = 3  #: before the first sample the timeout is ``most`` / 8


@dataclass
class RoundTrip:
    """Estimator of the round trips of one kind of packet.

    - ``least``: floor of the timeout.
    - ``most``: timeout in fixed mode; else the ceiling of the timeout, also after back-off.
    - ``adaptive``: follow the samples.
    """

    least: int
    most: int
    adaptive: bool = True
    known: bool = False  #: a sample has been taken
    scaled_mean: int = 0  #: the mean, times 2^MEAN_SHIFT
    scaled_deviation: int = 0  #: the mean deviation, times 2^DEVIATION_SHIFT

    def sample(self, cycles: int) -> None:
        """Take the round trip of a packet that was sent once."""
        cycles = min(cycles, (1 << RTT_BITS) - 1)
        if not self.known:
            self.known = True
            self.scaled_mean = cycles << MEAN_SHIFT
            self.scaled_deviation = cycles << DEVIATION_SHIFT - 1
            return
        error = cycles - self.mean
        self.scaled_mean += error
        self.scaled_deviation += abs(error) - self.deviation

    @property
    def mean(self) -> int:
        """Smoothed round trip, 0 before the first sample."""
        return self.scaled_mean >> MEAN_SHIFT

    @property
    def deviation(self) -> int:
        """Smoothed mean deviation."""
        return self.scaled_deviation >> DEVIATION_SHIFT

    @property
    def timeout(self) -> int:
        """Timeout of a packet's first transmission: mean and 4 deviations, or mean and 1/8."""
        if not self.adaptive:
            return self.most
        if not self.known:
            return self._limited(self.most >> UNKNOWN_SHIFT)
        return self._limited(self.mean + self._margin(4))

    @property
    def slack(self) -> int:
        """Cycles by which an overtaken packet is sent again before ``timeout``: one deviation at most."""
        if not (self.adaptive and self.known):
            return 0
        return self._margin(4) - self._margin(3)

    def backed_off(self, delay: int) -> int:
        """Return the delay after a retransmission, from the delay before it."""
        return min(2 * delay, self.most)

    def _margin(self, deviations: int) -> int:
        return max(self.scaled_deviation * deviations >> DEVIATION_SHIFT, self.mean >> 3)

    def _limited(self, cycles: int) -> int:
        return min(self.most, max(self.least, cycles))
