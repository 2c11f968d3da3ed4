"""Backend of INCEPTIONN's training: hosts add up over sockets, their NICs have the codec."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from statistics import fmean

from fanin.base.errors import CheckFailed
from fanin.link import LinkConfig
from fanin.ring.page.inceptionn_trace import inceptionn_trace
from fanin.ring.run.backend import Outputs, Progress, Result
from fanin.sim.inceptionn.hosts import Plan
from fanin.sim.learning.references import References
from fanin.sim.learning.replica import DataParallel, Dataset, State, train
from fanin.sim.link_log import LinkLog

PARTS = ("compute", "sum", "update", "communicate")


@dataclass(frozen=True)
class InceptionnRtl:
    """Backend of INCEPTIONN's NICs in Verilator; weights are compared with the golden model's in every step."""

    training: DataParallel
    plan: Plan
    link: LinkConfig

    @property
    def nodes(self) -> int:
        """Number of nodes: those that train, and aggregators."""
        return self.plan.topology.nodes

    @property
    def exchanges(self) -> int:
        """Exchanges per step: one, of all layers together."""
        return 1

    def references(self, data: Dataset) -> References:
        """Train in NumPy with the exchange's arithmetic."""
        from fanin.sim.inceptionn.training import references  # Amaranth takes a second to load

        return references(self.training, data, self.plan)

    def golden(self, data: Dataset, epochs: int, state: State) -> State:
        """Train the golden model with the exchange's arithmetic."""
        from fanin.sim.inceptionn.training import reducer

        job = replace(self.training, epochs=epochs)
        return train(job, data, reducer(self.plan), state=state, single_vector=True)

    def run(self, data: Dataset, state: State, outputs: Outputs, progress: Progress) -> Result:
        """Run the job; counters are those of the hosts' transport, traffic is that of each leg."""
        from fanin.sim.cosim.simulator import SimulationFailed
        from fanin.sim.inceptionn.training import run

        job, plan, link = self.training, self.plan, self.link
        try:
            training_result = run(
                job,
                data,
                plan,
                state=state,
                link=link,
                progress=progress,
                quiet=False,
                **vars(outputs),
            )
        except SimulationFailed as failure:
            raise CheckFailed(" ".join(str(failure).split())) from failure
        iteration = {part: fmean(getattr(step, part) for step in training_result.iterations) for part in PARTS}
        counters = [asdict(node) for node in training_result.transport]
        legs = [
            {"leg": leg.label, **asdict(traffic), "header_share": traffic.header_share}
            for leg, traffic in training_result.legs.items()
        ]
        return Result(
            epochs=training_result.epochs,
            state=training_result.state,
            seconds=training_result.seconds,
            iteration=iteration,
            counters=counters,
            traffic=legs,
            timelines=training_result.timelines,
        )

    def trace(self, state: State, result: Result | None, log: LinkLog) -> str:
        """Return the timeline of the hosts' work and waits, and of frames."""
        return inceptionn_trace(result.timelines if result else (), log, nodes=self.nodes)
