"""Prediction of a build's timing by the timed flow model."""

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
    """Predicted times of a job in cycles. ``results``: cycle in which each frame's last result is given."""

    batch: int  #: frames of a batch in the executed job
    results: Times
    period: float  #: cycles between frames' results or gradients in a batch's second half; 0 for one frame
    exposed: float  #: cycles of a batch minus ``period`` times its frames
    drain: float  #: cycles from the end of a batch's last image until its gradient has passed all layers
    update: float  #: cycles from then until every trained layer has updated its parameters
    job: float  #: cycles from start to end

    def frames_per_cycle(self, batch: int) -> float:
        """Return a long job's throughput. ``batch``: frames of a batch, more than are in flight at once."""
        return batch / (batch * self.period + self.exposed)


def predict(network: Network, sizes: Sizes, *, batch: int = 0, batches: int = 2, pace: float = 0) -> Prediction:
    """Return the prediction for a job of whole batches, word by word.

    ``batch``: frames of a batch; default: ``frames_that_tell``.
    ``pace``: least cycles from frame to frame, for limits outside the graph such as memory.
    """
    node = NodeGraph(network, sizes, batch or frames_that_tell(sizes), pace=pace)
    return prediction(node, node.graph, batches)


def predict_long(network: Network, sizes: Sizes, batch: int, pace: float, period: float) -> Prediction:
    """Return the prediction for two batches, on a coarse graph if the network is large.

    ``pace``: least cycles from frame to frame, for limits outside the graph such as memory.
    ``period``: planned cycles from frame to frame, at which images enter a coarse graph.
    """
    rows = max(stage.layer.output.h for stage in network.stages)
    node = NodeGraph(network, sizes, batch, pace=pace)
    if is_large(node.graph):
        node = NodeGraph(network, sizes, batch, max(pace, period))
    return prediction(node, bounded(node.graph, rows), 2)


def prediction(node: NodeGraph, graph: Graph, batches: int) -> Prediction:
    """Return the prediction for a job of whole batches. ``graph``: the node's graph or a coarse version.

    Raises InputError of one line, with the cycle of waits, for a build that would deadlock.
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
    """Return when the first ``frames`` frames' gradients are complete, and when parameters are updated."""
    assert node.results is not None
    ends = node.ends or [(node.results, 0, 0)]  # a network without parameters
    learnt = [_ended(execution, actor.index, frames) + late for actor, late, _ in ends]
    renewed = [came + updates for came, (_, _, updates) in zip(learnt, ends, strict=True)]
    return max(learnt), max(renewed)


def _taken(node: NodeGraph, execution: Execution, frames: int) -> float:
    """Return when the first layers have taken the images of the first ``frames`` frames."""
    ports, images = execution.graph.ports, [channel.index for channel in node.images]
    return max(_ended(execution, port.actor, frames) for port in ports if port.reads and port.channel in images)


def _ended(execution: Execution, actor: int, frames: int) -> float:
    """Return when an actor has fired for the first ``frames`` frames."""
    return float(execution.times(actor)[execution.graph.actors[actor].firings * frames - 1])
