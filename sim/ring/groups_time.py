"""Time of an exchange in groups, by the model of its rings (docs/systems/ring-groups.md, "Time")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fanin.base.limits import CLOCK_MHZ
from fanin.link import LinkConfig
from fanin.ring.driver import RingDriver, RingMember
from fanin.ring.facts import RingConfig
from fanin.ring.groups import BARRIER, Plan
from fanin.sim.network import SWITCH_NS
from fanin.sim.ring.rounds import job_program
from fanin.sim.ring.time import RingTime

_ACCESS = 4  # cycles per register access


@dataclass(frozen=True, kw_only=True)
class GroupsTime:
    """Time of an exchange of ``count`` values, with ``barrier`` in seconds; other fields as in RingTime."""

    config: RingConfig
    plan: Plan
    count: int
    barrier: float = BARRIER
    link: LinkConfig = field(default_factory=LinkConfig)
    switch_ns: float = SWITCH_NS
    clock_mhz: float = CLOCK_MHZ
    word_bytes: float | None = None
    memory_gbps: float | None = None

    @property
    def accesses(self) -> int:
        """Number of register accesses of a job."""
        member = RingMember(id=0, macs=[0, 1], rank=0)
        return len(job_program(RingDriver(self.config), member, 0, self.count))

    def _ring(self, nodes: int) -> float:
        return RingTime(
            config=self.config,
            nodes=nodes,
            count=self.count,
            link=self.link,
            switch_ns=self.switch_ns,
            clock_mhz=self.clock_mhz,
            word_bytes=self.word_bytes,
            memory_gbps=self.memory_gbps,
        ).total

    @property
    def rounds(self) -> list[float]:
        """Seconds of each round without its barrier: those of its largest ring."""
        sizes = [max(len(ring.members) for ring in plan_round.rings) for plan_round in self.plan.rounds]
        cycles = {size: self._ring(size) + _ACCESS * self.accesses for size in set(sizes)}
        return [cycles[size] / (self.clock_mhz * 1e6) for size in sizes]

    @property
    def total(self) -> float:
        """Seconds from the last worker's post until all workers have the sum."""
        return sum(self.rounds) + len(self.plan.rounds) * self.barrier


def exchange_seconds(
    config: RingConfig,
    plan: Plan,
    link: LinkConfig,
    *,
    barrier: float = BARRIER,
    memory_gbps: float | None = None,
) -> Callable[[int], float]:
    """Return the time of an exchange by its values, for ``run_model``; INCEPTIONN's words do not shrink."""

    def seconds(values: int) -> float:
        time = GroupsTime(
            config=config, plan=plan, count=values, link=link, barrier=barrier, memory_gbps=memory_gbps
        )
        return time.total

    return seconds
