"""Retransmission timeout from round trips (docs/systems/aggregation.md, "Timers"), with the RTL's integers.

The RTL is :mod:`fanin.hdl.net.round_trip`. All times are in cycles.
"""

from __future__ import annotations

from dataclasses import dataclass

from fanin.wire.link import FLOOR_CYCLES

RTT_BITS = 18  #: bits of a round trip; a longer one counts as the longest
MEAN_SHIFT = 3  #: a sample moves the mean by 1/8 of its distance
DEVIATION_SHIFT = 4  #: a sample moves the deviation by 1/16 of its distance
MISSES = 64  #: retransmissions without a sample after which the estimate is forgotten
FIRST_SHIFT = 3  #: without an estimate the timeout is ``ceiling`` / 8, after misses ``ceiling``


@dataclass
class RoundTrip:
    """Estimator of the round trips from AGG to RESULT.

    As in TCP (RFC 6298), the timeout is the smoothed mean plus four times the smoothed deviation. Only packets
    that were sent once are samples, since the answer to a retransmitted packet may belong to any transmission.

    - ``ceiling``: longest timeout, in cycles.
    - ``floor``: least distance of the timeout from the mean.
    - ``adaptive``: follow the samples; else the timeout is ``ceiling``.
    """

    ceiling: int
    floor: int = FLOOR_CYCLES
    adaptive: bool = True
    known: bool = False  #: a sample has been taken
    scaled_mean: int = 0  #: the mean, times 2^MEAN_SHIFT
    scaled_deviation: int = 0  #: the mean deviation, times 2^DEVIATION_SHIFT
    misses: int = 0  #: retransmissions since the last sample
    gave_up: bool = False  #: MISSES retransmissions have had no sample; False again after the next sample

    @property
    def mean(self) -> int:
        """Smoothed round trip, 0 without an estimate."""
        return self.scaled_mean >> MEAN_SHIFT

    @property
    def deviation(self) -> int:
        """Smoothed mean deviation, 0 without an estimate."""
        return self.scaled_deviation >> DEVIATION_SHIFT

    @property
    def timeout(self) -> int:
        """Timeout of a first transmission: mean + max(4 deviations, floor), at most ``ceiling``."""
        if not self.adaptive or self.gave_up:
            return self.ceiling
        if not self.known:
            return self._limited(self.ceiling >> FIRST_SHIFT)
        return self._limited(self.mean + max(self.scaled_deviation >> DEVIATION_SHIFT - 2, self.floor))

    def sample(self, cycles: int) -> None:
        """Take the round trip of a packet that was sent once; the first one sets mean and deviation."""
        error = min(cycles, (1 << RTT_BITS) - 1) - self.mean
        change = (error if error >= 0 else ~error) - self.deviation  # ~error is one less than -error
        self.scaled_mean += error if self.known else error << MEAN_SHIFT
        self.scaled_deviation += change if self.known else change << DEVIATION_SHIFT - 1
        self.known, self.misses, self.gave_up = True, 0, False

    def retransmission(self) -> None:
        """Count a retransmission. Round trips that have grown give no sample, so the estimate is forgotten."""
        self.misses += 1
        if self.misses == MISSES:
            self.known, self.scaled_mean, self.scaled_deviation = False, 0, 0
            self.misses, self.gave_up = 0, True

    def backed_off(self, delay: int) -> int:
        """Return the delay after a retransmission, from the delay before it."""
        return self._limited(2 * delay)

    def _limited(self, cycles: int) -> int:
        """Return ``cycles``, or the ceiling where they reach it or exceed the RTL's RTT_BITS."""
        return cycles if cycles < min(self.ceiling, 1 << RTT_BITS) else self.ceiling
