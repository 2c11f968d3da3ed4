"""Time model of an epoch on nodes, dense or sparse, at one switch or at a tree of switches, without loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from fanin.base.limits import CLOCK_MHZ
from fanin.glm.facts import TrainShape
from fanin.link import LinkConfig
from fanin.sim.network import SWITCH_NS
from fanin.tree import MAX_LEVELS, passed_switches
from fanin.wire.aggregation import MAX_WORKERS, frame_length

_PIPELINE = 34  # cycles of a mini-batch in addition to words, planes and network (docs/ARCHITECTURE.md)
_SPARSE_PIPELINE = _PIPELINE + 2  # the queue of scales, and the count of missing final writes
_START = 73  # cycles from ``start`` to the first word, plus those from the last gradient to the end; measured


@dataclass(frozen=True, kw_only=True)
class EpochTime:
    """Epoch time of model-parallel nodes of the ``u280`` preset, with slots for two mini-batches.

    - ``shape``: data set on all workers of the job.
    - ``levels``: switches between a worker and the root, both ends included; 1: one switch. A sum passes
      2·``levels`` links and 2·``levels`` − 1 switches.
    - ``items``: of sparse nodes, per mini-batch of an epoch: items of the busiest of all engines; None:
      dense nodes.
    - ``trunk``: links between switches; None: as ``link``, without a host's time.

    Raises ValueError for too many levels, and for more workers than the levels hold.
    """

    shape: TrainShape
    levels: int = 1
    items: Sequence[int] | None = None
    link: LinkConfig = field(default_factory=LinkConfig)
    trunk: LinkConfig | None = None
    switch_ns: float = SWITCH_NS
    clock_mhz: float = CLOCK_MHZ

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MAX_LEVELS:
            raise ValueError(f"levels must be in 1…{MAX_LEVELS}, not {self.levels!r}")
        if self.shape.workers > (most := MAX_WORKERS**self.levels):
            raise ValueError(f"{self.levels} levels hold {most:,} workers, not {self.shape.workers:,}")

    @property
    def allreduce_ns(self) -> float:
        """Nanoseconds from the first bit of an AGG on the wire to the last bit of its RESULT."""
        trunk = self.trunk or replace(self.link, host_ns=0.0)
        hops = self._hop_ns(self.link) + (self.levels - 1) * self._hop_ns(trunk)
        return 2 * hops + passed_switches(self.levels) * self.switch_ns

    @property
    def allreduce_cycles(self) -> int:
        """Cycles from the cycle in which an AGG leaves the node to the cycle in which its RESULT arrives."""
        return ceil(self.allreduce_ns * self.clock_mhz / 1000) + 1

    @property
    def cycles(self) -> int:
        """Duration of an epoch in clock cycles."""
        shape = self.shape
        if self.items is not None:
            waiting = self.allreduce_cycles + _SPARSE_PIPELINE + shape.precision
            return _START + sum(self.items) + len(self.items) * waiting
        words = shape.micro_batches_per_epoch * shape.words_per_micro_batch
        waiting_cycles = shape.mini_batches * (self.allreduce_cycles + _PIPELINE + shape.precision)
        last_backward = (shape.chunks - 1) * shape.precision  # overlaps with no forward pass
        return _START + words + waiting_cycles + last_backward

    def _hop_ns(self, link: LinkConfig) -> float:
        frame = frame_length(self.shape.node.encap)
        return link.delay_ns + link.host_ns + link.wire_time(frame) / 1000
