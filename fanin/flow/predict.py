"""When frames come and go in a build: what the timed model predicts."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.cnn import Network
from fanin.flow.coarse import coarse
from fanin.flow.execute import Execution, Times, execute
from fanin.flow.node import NodeGraph, Sizes
from fanin.flow.verdict import frames_that_tell


@dataclass(frozen=True)
class Prediction:
    """In cycles. ``results``: of each frame, when its last word is given, after the job's start."""

    batch: int  #: frames of one, in what was executed
    results: Times
    period: float  #: from frame to frame, in a batch's second half
    exposed: float  #: by which the frames of a batch take longer than so many periods
    drain: float  #: from a batch's last frame, all of it in, until its gradient has come through all layers
    update: float  #: from then until every layer that learns may go on
    job: float  #: from start to end

    def frames_per_cycle(self, batch: int) -> float:
        """Of a long job in batches of so many frames; more than are under way at once."""
        return batch / (batch * self.period + self.exposed)


def predict(
    network: Network, sizes: Sizes, *, batch: int = 0, batches: int = 2, period: float = 0, groups: int = 0
) -> Prediction:
    """Of a job of whole batches; of as many frames as tell what happens unless given.

    ``period``: cycles from image to image at least, where something that the model does not see limits.
    ``groups``: of an actor's firings in a frame, where the graph is a coarse one.
    """
    batch = batch or frames_that_tell(sizes)
    node = NodeGraph(network, sizes, batch, period)
    graph = coarse(node.graph, groups) if groups else node.graph
    execution = execute(graph, batch * batches, timed=True)
    if not execution.ended:
        raise ValueError(f"{network.name} stops")
    assert node.results is not None
    results = execution.times(node.results.index).reshape(batch * batches, -1)[:, -1]
    half = results[batch // 2 : batch]
    apart = (half[-1] - half[0]) / max(len(half) - 1, 1)
    took = results[-1] - results[-1 - batch] if batches > 1 else 0.0
    learnt = [execution.times(actor.index)[-1] + late for actor, late, _ in node.ends]
    renewed = [came + updates for came, (_, _, updates) in zip(learnt, node.ends, strict=True)]
    return Prediction(
        batch=batch,
        results=results,
        period=float(apart),
        exposed=float(took - batch * apart),
        drain=float(max(learnt) - _last_in(node, execution)),
        update=float(max(renewed) - max(learnt)),
        job=float(max(renewed)),
    )


def _last_in(node: NodeGraph, execution: Execution) -> float:
    """When the last word of the last frame was taken from what memory has given."""
    images = node.flows[node.network.images].output
    takers = [port.actor for port in execution.graph.ports if port.source is images]
    return float(max(execution.times(actor)[-1] for actor in takers))
