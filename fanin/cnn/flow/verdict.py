"""Liveness of a build: whether it can deadlock, and the cycle of waits if it can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fanin.base.errors import InputError
from fanin.cnn.facts import Network
from fanin.cnn.flow.execute import Execution, Wait, execute
from fanin.cnn.flow.graph import Source
from fanin.cnn.flow.node import NodeGraph, Sizes


@dataclass(frozen=True)
class Stream:
    """Stream that leaves a stage."""

    stage: int  #: index of the stage
    backward: bool = False  #: true for the gradients of an input, false for the outputs
    port: int = 0  #: index of that input


@dataclass(frozen=True)
class Liveness:
    """Result of an execution of two batches."""

    frames: int  #: frames of both batches
    deadlock: Deadlock | None  #: deadlock of the build; None if it never deadlocks


@dataclass(frozen=True)
class Deadlock:
    """Deadlock of a build: a cycle of waits."""

    waits: tuple[Wait, ...]  #: each waits for the actor of the next one, the last for the first one's
    full: tuple[str, ...]  #: names of the cycle's channels without room
    empty: tuple[str, ...]  #: stages and edges of the cycle's channels without tokens
    stream: Stream | None  #: first blocked stream, by stage; the node's status names it

    def __str__(self) -> str:
        are = "is" if len(self.full) == 1 else "are"
        return f"{', '.join(self.full)} {are} full while words are awaited from {', '.join(self.empty)}"


def conclusive_frames(sizes: Sizes) -> int:
    """Return the frames of a batch with which every deadlock occurs: more than any ring holds."""
    return max(sizes.rings.values(), default=0) + 2


def determine_liveness(network: Network, sizes: Sizes) -> Liveness:
    """Return the liveness of a build, from two batches with its sizes and links.

    A build that does not deadlock in two batches of ``conclusive_frames`` never does. Rings of one frame are
    tried first, since they need fewer frames and larger rings cause no deadlock.
    """
    small_rings = replace(sizes, rings={stage: min(frames, 1) for stage, frames in sizes.rings.items()})
    liveness = _execute_batches(network, small_rings)
    return _execute_batches(network, sizes) if liveness.deadlock else liveness


def _execute_batches(network: Network, sizes: Sizes) -> Liveness:
    batch = conclusive_frames(sizes)
    node = NodeGraph(network, sizes, batch)
    execution = execute(node.graph, 2 * batch, timed=False)
    return Liveness(2 * batch, None if execution.is_complete else find_deadlock(node, execution))


def deadlock_error(network: Network, deadlock: Deadlock) -> InputError:
    """Return an InputError of one line that names the cycle of waits."""
    return InputError(f"{network.name} would stop: {deadlock}")


def check_liveness(network: Network, sizes: Sizes) -> Liveness:
    """Return the liveness of a build. Raises InputError for a deadlock, with the cycle of waits in one line."""
    liveness = determine_liveness(network, sizes)
    if liveness.deadlock is not None:
        raise deadlock_error(network, liveness.deadlock)
    return liveness


def find_deadlock(node: NodeGraph, execution: Execution) -> Deadlock:
    """Return the deadlock of an execution that is not complete."""
    channels, cycle = execution.graph.channels, _wait_cycle(execution.waits)
    channels_by_side = {
        reads: [channels[wait.port.channel] for wait in cycle if wait.port.reads is reads]
        for reads in (False, True)
    }
    full = tuple(dict.fromkeys(f"{channel.name} of {channel.owner}" for channel in channels_by_side[False]))
    empty = tuple(dict.fromkeys(channel.owner for channel in channels_by_side[True]))
    return Deadlock(cycle, full, empty, next(_offered_streams(node, execution), None))


def _wait_cycle(waits: dict[int, Wait]) -> tuple[Wait, ...]:
    """Return a cycle of waits. It exists, since every blocked actor waits for another blocked actor."""
    path: list[int] = [min(waits)]
    while (blocker := waits[path[-1]].blocker) not in path:
        path.append(blocker)
    return tuple(waits[actor] for actor in path[path.index(blocker) :])


def _offered_streams(node: NodeGraph, execution: Execution) -> Iterator[Stream]:
    """Yield the streams with a transfer that no reader takes, by stage, outputs before gradients."""
    for index in range(len(node.network.stages)):
        flows = node.flows[index]
        if flows.output is not None and _is_offered(execution, flows.output):
            yield Stream(index)
        for port, source in enumerate(flows.input_gradients):
            if _is_offered(execution, source):
                yield Stream(index, True, port)


def _is_offered(execution: Execution, source: Source) -> bool:
    """Return True if the channel's oldest token waits for a reader of this stream."""
    tables, channel = execution.tables, source.channel
    *_, writer, first, last = tables.channels[channel.index]
    readers = tables.readers[first:last]
    oldest = min(execution.done[readers])
    stream_readers = [reader for reader in readers if tables.graph_ports[reader].source is source]
    return bool(
        execution.done[writer] > oldest and any(execution.done[reader] == oldest for reader in stream_readers)
    )
