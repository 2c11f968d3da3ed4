# amaranth: UnusedElaboratable=no
"""Vanilla model parallelism: the golden model's bits, and nothing that overlaps."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from fanin.glm.facts import PRESETS
from fanin.hdl.glm.node_registers import Failure
from fanin.hdl.glm.vanilla import VanillaPhases
from fanin.wire.aggregation import Kind, Protocol
from tests.hdl.glm.cluster import Cluster
from tests.hdl.glm.training import Job
from tests.support import new_seed, slow

TINY = replace(PRESETS["tiny"], vanilla=True)


@dataclass
class Watched(Cluster):
    """Notes the cycles of worker 0's events, by name."""

    cycles: dict[str, list[int]] = field(default_factory=dict)

    def processes(self):
        return [*super().processes(), self._watch]

    async def _watch(self, ctx):
        cycle = 0
        async for _, _, events in ctx.tick().sample(self.bench.part[0].events):
            for name in ("forward_first", "forward_last", "fa", "backward_first", "backward_last"):
                if events[name]:
                    self.cycles.setdefault(name, []).append(cycle)
            cycle += 1

    def of_mini_batches(self, cycles):
        """The first and the last of each mini-batch, of a number for each micro-batch."""
        per_epoch, size = self.job.shape.micro_batches_per_epoch, self.job.shape.micro_batches
        assert len(cycles) == self.job.epochs * per_epoch
        parts = [
            cycles[epoch + first : epoch + min(first + size, per_epoch)]
            for epoch in range(0, len(cycles), per_epoch)
            for first in range(0, per_epoch, size)
        ]
        return [(part[0], part[-1]) for part in parts]


@pytest.mark.parametrize(
    ("workers", "epochs", "changes"),
    [
        (1, 1, {}),
        *slow(
            (2, 2, {"engines": 2}), (2, 2, {"protocol": Protocol.SWITCHML, "slots": 8}), (1, 2, {"l2": True})
        ),
    ],
)
def test_forward_all_reduce_and_backward_of_a_mini_batch_follow_one_another(workers, epochs, changes):
    """With stalls everywhere, and a short last mini-batch."""
    node, shape = replace(TINY, **changes), {"samples": 40, "columns": 32, "batch": 24, "epochs": epochs}
    job = Job(seed=new_seed(), node=node, workers=workers, vanilla=True, **shape)
    cluster = Watched(job).run()
    assert cluster.model == job.golden.model.tolist()
    assert [status.cause for status in cluster.status] == [Failure.NONE] * workers
    starts, ends, results, begins, done = (
        cluster.of_mini_batches(cycles)
        for cycles in (
            cluster.cycles["forward_first"],
            cluster.cycles["forward_last"],
            cluster.links.times[False, Kind.RESULT],
            cluster.cycles["backward_first"],
            cluster.cycles["backward_last"],
        )
    )
    for (_, taken), (_, last_result), (begin, _) in zip(ends, results, begins, strict=True):
        assert taken < last_result < begin
    for (_, end), (following, _) in zip(done[:-1], starts[1:], strict=True):
        assert end < following


@pytest.mark.slow
def test_a_node_that_can_do_without_overlap_overlaps_when_it_may():
    """To the cycle what a node does that cannot."""
    costs = []
    for node in TINY, replace(TINY, vanilla=False):
        cluster = Watched(Job(seed=7, node=node, samples=96, batch=32, epochs=1), stall=0).run()
        assert cluster.model == cluster.job.golden.model.tolist()
        costs.append([after - before for before, after in pairwise(cluster.cycles["forward_first"])])
    assert costs[0] == costs[1]


@pytest.mark.slow
def test_a_mini_batch_costs_its_words_twice_the_network_and_the_pipeline():
    node = replace(TINY, mac_width=512, sample_fifo=128)
    job = Job(seed=new_seed(), node=node, samples=96, batch=32, epochs=1, vanilla=True)
    cluster = Watched(job, stall=0).run()
    assert cluster.model == job.golden.model.tolist()
    shape = job.shape
    words = shape.micro_batches * shape.words_per_micro_batch
    starts, ends, begins = (
        cluster.of_mini_batches(cluster.cycles[name])
        for name in ("forward_first", "forward_last", "backward_first")
    )
    for (start, _), (_, end), (begin, _), (following, _) in zip(
        starts[:-1], ends[:-1], begins[:-1], starts[1:], strict=True
    ):
        assert end - start == words - 1
        assert 0 < following - begin - words <= 8


def test_a_bad_number_of_micro_batches_is_named():
    with pytest.raises(ValueError, match="micro_batches must be at least 1, not 0"):
        VanillaPhases(micro_batches=0)
