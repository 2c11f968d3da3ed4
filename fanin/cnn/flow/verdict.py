"""Whether a build can stop, and if it can, what waits for what."""

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
    """A stream that leaves a stage: its outputs, or the gradients of its input ``port``."""

    stage: int
    backward: bool = False
    port: int = 0


@dataclass(frozen=True)
class Verdict:
    """What an execution of so many ``frames``, half of them in each of two batches, has decided."""

    frames: int
    stop: Stop | None  #: how the build stops; None: never


@dataclass(frozen=True)
class Stop:
    """How a build stops. ``circle``: each waits for the next one, and the last one for the first.

    ``stream``: the first one, by stage, that is offered and not taken: what the node's status names.
    """

    circle: tuple[Wait, ...]
    full: tuple[str, ...]  #: what in the circle has no room
    empty: tuple[str, ...]  #: stages and edges in which words are awaited, from there back
    stream: Stream | None

    def __str__(self) -> str:
        are = "is" if len(self.full) == 1 else "are"
        return f"{', '.join(self.full)} {are} full while words are awaited from {', '.join(self.empty)}"


def frames_that_tell(sizes: Sizes) -> int:
    """Frames of a batch after which nothing new can happen: more than any ring holds."""
    return max(sizes.rings.values(), default=0) + 2


def verdict_of(network: Network, sizes: Sizes) -> Verdict:
    """Whether a build of such sizes, and its links, stops within two batches; else it never does.

    With less room fewer frames tell, and more room stops nothing: rings of one frame are tried first.
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
    """One line, with the circle."""
    return InputError(f"{network.name} would stop: {stop}")


def check_liveness(network: Network, sizes: Sizes) -> Verdict:
    """The verdict. Raises InputError of one line, with the circle, for a build that would stop."""
    found = verdict_of(network, sizes)
    if found.stop is not None:
        raise would_stop(network, found.stop)
    return found


def how_it_stops(node: NodeGraph, execution: Execution) -> Stop:
    """Of an execution that has not ended."""
    channels, circle = execution.graph.channels, _circle(execution.waits)
    places = {
        reads: [channels[w.port.channel] for w in circle if w.port.reads is reads] for reads in (False, True)
    }
    full = tuple(dict.fromkeys(f"{place.what} of {place.owner}" for place in places[False]))
    empty = tuple(dict.fromkeys(place.owner for place in places[True]))
    return Stop(circle, full, empty, next(_waiting(node, execution), None))


def _circle(waits: dict[int, Wait]) -> tuple[Wait, ...]:
    """Every actor that has stopped waits for another one that has: so some wait for one another."""
    way: list[int] = [min(waits)]
    while (following := waits[way[-1]].on) not in way:
        way.append(following)
    return tuple(waits[actor] for actor in way[way.index(following) :])


def _waiting(node: NodeGraph, execution: Execution) -> Iterator[Stream]:
    """Streams that are offered and not taken, in the order of stages, forward before backward."""
    for index in range(len(node.network.stages)):
        flows = node.flows[index]
        if flows.output is not None and _offered(execution, flows.output):
            yield Stream(index)
        for port, source in enumerate(flows.gradients):
            if _offered(execution, source):
                yield Stream(index, True, port)


def _offered(execution: Execution, source: Source) -> bool:
    """Whether the next token of the channel is for a reader of this stream that has not taken it."""
    tables, channel = execution.tables, source.channel
    *_, writer, first, last = tables.channels[channel.index]
    readers = tables.readers[first:last]
    head = min(execution.done[readers])
    mine = [reader for reader in readers if tables.graph_ports[reader].source is source]
    return bool(execution.done[writer] > head and any(execution.done[reader] == head for reader in mine))
