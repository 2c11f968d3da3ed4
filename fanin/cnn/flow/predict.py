"""Prediction of a build's timing: execution of the flow model with times."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.cnn.facts import Network
from fanin.cnn.flow.coarse import coarse_if_large, is_large
from fanin.cnn.flow.execute import Execution, Times, execute
from fanin.cnn.flow.graph import Graph
from fanin.cnn.flow.node import NodeGraph, Sizes
from fanin.cnn.flow.verdict import conclusive_frames, deadlock_error, find_deadlock


@dataclass(frozen=True)
class Prediction:
    """Predicted times of a job, in cycles."""

    batch: int  #: frames of a batch in the executed job
    results: Times  #: cycle in which each frame's last result is given
    period: float  #: cycles between frames' results or gradients in a batch's second half; 0 for one frame
    exposed: float  #: cycles of a batch minus ``period`` times its frames
    drain: float  #: cycles from the end of a batch's last image until its gradient has passed all layers
    update: float  #: cycles from the end of the drain until every trained layer has updated its parameters
    job: float  #: cycles of the whole job

    def frames_per_cycle(self, batch: int) -> float:
        """Return a long job's throughput. ``batch``: frames of a batch; more than may be in flight at once."""
        return batch / (batch * self.period + self.exposed)


def predict(network: Network, sizes: Sizes, *, batch: int = 0, batches: int = 2, pace: float = 0) -> Prediction:
    """Return the prediction for a job of whole batches, word by word.

    ``batch``: frames of a batch; 0 for ``conclusive_frames``.
    ``pace``: minimum cycles from frame to frame, for limits outside the graph such as memory.
    """
    node = NodeGraph(network, sizes, batch or conclusive_frames(sizes), pace=pace)
    return prediction(node, node.graph, batches)


def predict_long(network: Network, sizes: Sizes, batch: int, pace: float, period: float) -> Prediction:
    """Return the prediction for two batches, on a coarse graph if the network is large.

    ``pace``: minimum cycles from frame to frame, for limits outside the graph such as memory.
    ``period``: planned cycles from frame to frame, at which images enter a coarse graph.
    """
    rows = max(stage.layer.output.h for stage in network.stages)
    node = NodeGraph(network, sizes, batch, pace=pace)
    if is_large(node.graph):
        node = NodeGraph(network, sizes, batch, max(pace, period))
    return prediction(node, coarse_if_large(node.graph, rows), 2)


def prediction(node: NodeGraph, graph: Graph, batches: int) -> Prediction:
    """Return the prediction for a job of whole batches. ``graph``: the node's graph or a coarse version.

    Raises InputError of one line, with the cycle of waits, for a build that would deadlock.
    """
    batch, frames = node.batch, node.batch * batches
    execution = execute(graph, frames, timed=True)
    if not execution.is_complete:
        raise deadlock_error(node.network, find_deadlock(node, execution))
    assert node.results is not None
    results = execution.times(node.results.index).reshape(frames, -1)[:, -1]
    gradient_times = (
        execution.times(actor.index).reshape(frames, -1)[:, -1] for actor, _, _ in node.gradient_ends
    )
    second_halves = [times[batch // 2 : batch] for times in (results, *gradient_times)]
    period = max((half[-1] - half[0]) / max(len(half) - 1, 1) for half in second_halves)
    batch_cycles = results[-1] - results[-1 - batch] if batches > 1 else 0.0
    drained, updated = _batch_ends(node, execution, batch)
    return Prediction(
        batch=batch,
        results=results,
        period=float(period),
        exposed=float(batch_cycles - batch * period),
        drain=drained - _images_taken(node, execution, batch),
        update=updated - drained,
        job=_batch_ends(node, execution, frames)[1],
    )


def _batch_ends(node: NodeGraph, execution: Execution, frames: int) -> tuple[float, float]:
    """Return the cycles in which the first ``frames`` frames' gradients are complete and parameters updated."""
    assert node.results is not None
    ends = node.gradient_ends or [(node.results, 0, 0)]  # a network without parameters
    gradient_times = [_last_firing(execution, actor.index, frames) + latency for actor, latency, _ in ends]
    update_times = [complete + updates for complete, (_, _, updates) in zip(gradient_times, ends, strict=True)]
    return max(gradient_times), max(update_times)


def _images_taken(node: NodeGraph, execution: Execution, frames: int) -> float:
    """Return the cycle in which the first layers have taken the first ``frames`` images."""
    ports, images = execution.graph.ports, [channel.index for channel in node.images]
    return max(
        _last_firing(execution, port.actor, frames) for port in ports if port.reads and port.channel in images
    )


def _last_firing(execution: Execution, actor: int, frames: int) -> float:
    """Return the cycle of an actor's last firing for the first ``frames`` frames."""
    return float(execution.times(actor)[execution.graph.actors[actor].firings * frames - 1])
