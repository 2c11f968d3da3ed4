"""How long an AllReduce through the aggregating switch takes: what ``allreduce`` simulates, without loss."""

from __future__ import annotations

from dataclasses import dataclass, field

from fanin.p4.aggregation import ProgramConfig
from fanin.sim.network import SWITCH_NS, LinkConfig
from fanin.wire.aggregation import frame_length
from fanin.wire.ethernet import AROUND_FRAME


@dataclass(frozen=True, kw_only=True)
class SwitchTime:
    """The time of one AllReduce of ``count`` integers, in nanoseconds.

    With acknowledgements an operation takes two round trips, of which the second is one of an ACK as long as
    the AGG. What binds is that, behind the packets of a window, or the link, which carries both of all of them.
    """

    program: ProgramConfig
    count: int
    link: LinkConfig = field(default_factory=LinkConfig)
    switch_ns: float = SWITCH_NS

    @property
    def operations(self) -> int:
        """Packets that a worker begins an operation with."""
        return -(-self.count // self.program.values)

    @property
    def wire_bytes(self) -> int:
        """Bytes that a worker's link carries towards the switch, preambles and gaps among them."""
        return self._trips * self.operations * (self._frame + AROUND_FRAME)

    @property
    def total(self) -> float:
        """Until the last worker has all sums, and its slots are free."""
        gap = self.link.duration(self._frame + AROUND_FRAME) / 1000
        wire = self.link.wire_time(self._frame) / 1000
        round_trip = 2 * (wire + self.link.delay_ns + self.link.host_ns) + self.switch_ns
        window = self.program.slots // self.program.protocol.slots_per_operation
        rounds, last = divmod(self.operations - 1, window)
        trips = self._trips
        waits = (rounds + 1) * trips * round_trip + last * gap
        sent = (trips * self.operations - 1) * gap + round_trip
        # A window that has but begun follows those before, which the link carries, with round trips of its own.
        begun = trips * rounds * window * gap + trips * round_trip + last * gap
        return max(waits, sent, begun)

    @property
    def _trips(self) -> int:
        return 2 if self.program.protocol.acknowledges else 1

    @property
    def _frame(self) -> int:
        return max(frame_length(self.program.encap, self.program.values), self.link.frame_bytes)
