"""Time model of an AllReduce through the aggregating switch: the time of ``allreduce`` without loss."""

from __future__ import annotations

from dataclasses import dataclass, field

from fanin.link import LinkConfig
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.network import SWITCH_NS
from fanin.wire.aggregation import frame_length
from fanin.wire.ethernet import AROUND_FRAME


@dataclass(frozen=True, kw_only=True)
class SwitchTime:
    """Time of one AllReduce of ``count`` integers, in nanoseconds.

    With acknowledgements, an operation takes two round trips; the ACK of the second one is as long as the AGG.
    The bottleneck is either an operation's time after the packets of a window, or the link, which carries both
    frames of all operations.
    """

    program: ProgramConfig
    count: int
    link: LinkConfig = field(default_factory=LinkConfig)
    switch_ns: float = SWITCH_NS

    @property
    def operations(self) -> int:
        """Number of packets that begin an operation, per worker."""
        return -(-self.count // self.program.values)

    @property
    def wire_bytes(self) -> int:
        """Bytes on a worker's link towards the switch, with preambles and gaps."""
        return self._trips * self.operations * (self._frame + AROUND_FRAME)

    @property
    def total(self) -> float:
        """Time until the last worker has all sums, and its slots are free."""
        gap = self.link.duration(self._frame + AROUND_FRAME) / 1000
        wire = self.link.wire_time(self._frame) / 1000
        round_trip = 2 * (wire + self.link.delay_ns + self.link.host_ns) + self.switch_ns
        window = self.program.slots // self.program.protocol.slots_per_operation
        rounds, last = divmod(self.operations - 1, window)
        trips = self._trips
        window_bound = (rounds + 1) * trips * round_trip + last * gap
        link_bound = (trips * self.operations - 1) * gap + round_trip
        # The last, partial window follows the previous ones, which the link carries, with its own round trips.
        last_window_bound = trips * rounds * window * gap + trips * round_trip + last * gap
        return max(window_bound, link_bound, last_window_bound)

    @property
    def _trips(self) -> int:
        return 2 if self.program.protocol.acknowledges else 1

    @property
    def _frame(self) -> int:
        return max(frame_length(self.program.encap, self.program.values), self.link.frame_bytes)
