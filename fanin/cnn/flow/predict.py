"""When frames come and go in a build: what the timed model predicts."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.cnn.facts import Network
from fanin.cnn.flow.coarse import bounded, is_large
from fanin.cnn.flow.execute import Execution, Times, execute
from fanin.cnn.flow.graph import Graph
from fanin.cnn.flow.node import NodeGraph, Sizes
from fanin.cnn.flow.verdict import frames_that_tell, how_it_stops, would_stop


@dataclass(frozen=True)
class Prediction:
    """In cycles. ``results``: of each frame, when its last word is given, after the job's start."""

    batch: int  #: frames of one, in what was executed
    results: Times
    period: float  #: from frame to frame in a batch's second half, or from gradient to gradient; 0 of one frame
    exposed: float  #: by which the frames of a batch take longer than so many periods
    drain: float  #: from a batch's last image, all of it taken, until its gradient has come through all layers
    update: float  #: from then until every layer that learns may go on
    job: float  #: from start to end

    def frames_per_cycle(self, batch: int) -> float:
        """Of a long job in batches of so many frames; more than are under way at once."""
        return batch / (batch * self.period + self.exposed)


def predict(network: Network, sizes: Sizes, *, batch: int = 0, batches: int = 2, pace: float = 0) -> Prediction:
    """Of a job of whole batches, word by word; of as many frames as tell what happens unless given.

    ``pace``: cycles from frame to frame at least, where something that is no actor limits, as memory.
    """
    node = NodeGraph(network, sizes, batch or frames_that_tell(sizes), pace=pace)
    return prediction(node, node.graph, batches)


def predict_long(network: Network, sizes: Sizes, batch: int, pace: float, period: float) -> Prediction:
    """Of two batches, coarsely where the network is large.

    ``pace`` is that of ``predict``; ``period``: cycles from frame to frame that are planned, at which images
    come into a coarse graph.
    """
    rows = max(stage.layer.output.h for stage in network.stages)
    node = NodeGraph(network, sizes, batch, pace=pace)
    if is_large(node.graph):
        node = NodeGraph(network, sizes, batch, max(pace, period))
    return prediction(node, bounded(node.graph, rows), 2)


def prediction(node: NodeGraph, graph: Graph, batches: int) -> Prediction:
    """Of a job of whole batches; ``graph`` is the node's, perhaps a coarse one.

    Raises InputError of one line, with the circle, for a build that would stop.
    """
    batch, frames = node.batch, node.batch * batches
    execution = execute(graph, frames, timed=True)
    if not execution.ended:
        raise would_stop(node.network, how_it_stops(node, execution))
    assert node.results is not None
    results = execution.times(node.results.index).reshape(frames, -1)[:, -1]
    learnt = (execution.times(actor.index).reshape(frames, -1)[:, -1] for actor, _, _ in node.ends)
    halves = [times[batch // 2 : batch] for times in (results, *learnt)]
    apart = max((half[-1] - half[0]) / max(len(half) - 1, 1) for half in halves)
    took = results[-1] - results[-1 - batch] if batches > 1 else 0.0
    drained, renewed = _ends(node, execution, batch)
    return Prediction(
        batch=batch,
        results=results,
        period=float(apart),
        exposed=float(took - batch * apart),
        drain=drained - _taken(node, execution, batch),
        update=renewed - drained,
        job=_ends(node, execution, frames)[1],
    )


def _ends(node: NodeGraph, execution: Execution, frames: int) -> tuple[float, float]:
    """When the gradients of so many frames, whole batches, have come, and parameters have been renewed."""
    assert node.results is not None
    ends = node.ends or [(node.results, 0, 0)]  # of what learns nothing
    learnt = [_ended(execution, actor.index, frames) + late for actor, late, _ in ends]
    renewed = [came + updates for came, (_, _, updates) in zip(learnt, ends, strict=True)]
    return max(learnt), max(renewed)


def _taken(node: NodeGraph, execution: Execution, frames: int) -> float:
    """When the first layers have taken the images of so many frames."""
    ports, images = execution.graph.ports, [channel.index for channel in node.images]
    return max(_ended(execution, port.actor, frames) for port in ports if port.reads and port.channel in images)


def _ended(execution: Execution, actor: int, frames: int) -> float:
    """When an actor has fired for so many frames."""
    return float(execution.times(actor)[execution.graph.actors[actor].firings * frames - 1])
