"""Verdict on a build's deadlock, with the cycle of waits if it can deadlock."""

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
    """Stream that leaves a stage: its outputs, or the gradients of its input ``port``."""

    stage: int
    backward: bool = False
    port: int = 0


@dataclass(frozen=True)
class Verdict:
    """Verdict of an execution of two batches, ``frames`` frames in all."""

    frames: int
    stop: Stop | None  #: deadlock of the build; None if it never deadlocks


@dataclass(frozen=True)
class Stop:
    """Deadlock of a build.

    ``circle``: waits, each for the next one's actor, the last for the first one's.
    ``stream``: first stream by stage that is offered and not taken; the node's status names it.
    """

    circle: tuple[Wait, ...]
    full: tuple[str, ...]  #: channels of the circle without room
    empty: tuple[str, ...]  #: stages and edges of the circle's channels without tokens
    stream: Stream | None

    def __str__(self) -> str:
        are = "is" if len(self.full) == 1 else "are"
        return f"{', '.join(self.full)} {are} full while words are awaited from {', '.join(self.empty)}"


def frames_that_tell(sizes: Sizes) -> int:
    """Return the frames of a batch that show every deadlock: more than any ring holds."""
    return max(sizes.rings.values(), default=0) + 2


def verdict_of(network: Network, sizes: Sizes) -> Verdict:
    """Execute two batches with a build's sizes and links. A build that does not stop by then never stops.

    Rings of one frame are tried first: they need fewer frames, and more room causes no deadlock.
    """
    least = replace(sizes, rings={stage: min(frames, 1) for stage, frames in sizes.rings.items()})
    found = _executed(network, least)
    return _executed(network, sizes) if found.stop else found


def _executed(network: Network, sizes: Sizes) -> Verdict:
    batch = frames_that_tell(sizes)
    node = NodeGraph(network, sizes, batch)
    execution = execute(node.graph, 2 * batch, timed=False)
    return Verdict(2 * batch, None if execution.ended else how_it_stops(node, execution))


def would_stop(network: Network, stop: Stop) -> InputError:
    """Return an InputError of one line with the cycle of waits."""
    return InputError(f"{network.name} would stop: {stop}")


def check_liveness(network: Network, sizes: Sizes) -> Verdict:
    """Return the verdict. Raises InputError of one line, with the cycle of waits, for a deadlock."""
    found = verdict_of(network, sizes)
    if found.stop is not None:
        raise would_stop(network, found.stop)
    return found


def how_it_stops(node: NodeGraph, execution: Execution) -> Stop:
    """Return the deadlock of an execution that has not ended."""
    channels, circle = execution.graph.channels, _circle(execution.waits)
    places = {
        reads: [channels[w.port.channel] for w in circle if w.port.reads is reads] for reads in (False, True)
    }
    full = tuple(dict.fromkeys(f"{place.what} of {place.owner}" for place in places[False]))
    empty = tuple(dict.fromkeys(place.owner for place in places[True]))
    return Stop(circle, full, empty, next(_waiting(node, execution), None))


def _circle(waits: dict[int, Wait]) -> tuple[Wait, ...]:
    """Return a cycle of waits. Every stopped actor waits for another stopped actor, so one exists."""
    way: list[int] = [min(waits)]
    while (following := waits[way[-1]].on) not in way:
        way.append(following)
    return tuple(waits[actor] for actor in way[way.index(following) :])


def _waiting(node: NodeGraph, execution: Execution) -> Iterator[Stream]:
    """Yield streams that are offered and not taken, in the order of stages, forward before backward."""
    for index in range(len(node.network.stages)):
        flows = node.flows[index]
        if flows.output is not None and _offered(execution, flows.output):
            yield Stream(index)
        for port, source in enumerate(flows.gradients):
            if _offered(execution, source):
                yield Stream(index, True, port)


def _offered(execution: Execution, source: Source) -> bool:
    """Return True if the channel's next token waits for a reader of this stream."""
    tables, channel = execution.tables, source.channel
    *_, writer, first, last = tables.channels[channel.index]
    readers = tables.readers[first:last]
    head = min(execution.done[readers])
    mine = [reader for reader in readers if tables.graph_ports[reader].source is source]
    return bool(execution.done[writer] > head and any(execution.done[reader] == head for reader in mine))
