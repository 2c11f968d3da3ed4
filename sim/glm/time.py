"""Time model of an epoch on nodes at a switch, or at two levels of switches, without loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from fanin.base.limits import CLOCK_MHZ
from fanin.glm.facts import TrainShape
from fanin.sim.network import SWITCH_NS, LinkConfig
from fanin.wire.aggregation import frame_length

_PIPELINE = 34  # cycles of a mini-batch in addition to words, planes and network (docs/ARCHITECTURE.md)
_START = 73  # cycles from ``start`` to the first word, plus those from the last gradient to the end; measured


@dataclass(frozen=True, kw_only=True)
class EpochTime:
    """Epoch time of model-parallel nodes of the ``u280`` preset, with slots for two mini-batches.

    - ``shape``: the workers of one switch.
    - ``switches``: number of such switches, each for other columns. If there are several, one switch above them
      adds up their sums, and a sum passes three switches and four links.
    """

    shape: TrainShape
    switches: int = 1
    link: LinkConfig = field(default_factory=LinkConfig)
    switch_ns: float = SWITCH_NS
    clock_mhz: float = CLOCK_MHZ

    @property
    def allreduce_cycles(self) -> int:
        """Cycles from the cycle in which an AGG leaves the node to the cycle in which its RESULT arrives."""
        hop = self.link.delay_ns + self.link.host_ns + self.link.wire_time(self._frame) / 1000
        levels = 1 if self.switches == 1 else 2
        nanoseconds = 2 * levels * hop + (2 * levels - 1) * self.switch_ns
        return ceil(nanoseconds * self.clock_mhz / 1000) + 1

    @property
    def cycles(self) -> int:
        """Duration of an epoch in clock cycles."""
        shape = self.shape
        words = shape.micro_batches_per_epoch * shape.words_per_micro_batch
        waiting_cycles = shape.mini_batches * (self.allreduce_cycles + _PIPELINE + shape.precision)
        return _START + words + waiting_cycles

    @property
    def _frame(self) -> int:
        return frame_length(self.shape.node.encap)
