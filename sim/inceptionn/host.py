"""A host: runs a program over its connections, and models the time of its processor."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

import numpy as np

from fanin.codec.facts import TOS_COMPRESSIBLE
from fanin.inceptionn.facts import HEADER_BYTES, VALUE_BYTES, Leg, TransportConfig
from fanin.job import worker_endpoint
from fanin.sim.inceptionn.exchange import Drain, Phase, Program, Receive, Send, Spend, Step, Work
from fanin.sim.inceptionn.transport import Connection, Counters, Scheduler
from fanin.sim.spans import FirstSpans
from fanin.wire.tcp import decode_tcp

_PS = 10**12  # picoseconds per second


@dataclass(frozen=True)
class HostCosts:
    """Times of a host, in seconds. Raises ValueError for a negative one.

    - ``packet``: of the network core, per segment with payload that it sends or receives, for transport and
      driver.
    - ``sum``: of the other cores, per byte of a gradient that is added or settled.
    - ``update``: of the other cores, per byte of weights that are updated.
    - ``compute``: of forward and backward pass.
    """

    packet: float = 1e-6
    sum: float = 0.122e-9
    update: float = 0.0
    compute: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0 s, not {value!r}")

    def seconds(self, spend: Spend) -> float:
        """Return the time of a piece of work."""
        of_byte = {Work.SUM: self.sum, Work.UPDATE: self.update, Work.COMPUTE: 0.0}
        return spend.seconds + spend.size * of_byte[spend.work]


class Activity(StrEnum):
    """Kinds of activity in a host's timeline."""

    STEP = "step"
    WORK = "work"
    WAIT = "wait"
    PHASE = "phase"


@dataclass(frozen=True)
class Span:
    """An activity or wait of a host, with times in ps."""

    activity: Activity
    name: str
    begin: int
    end: int


class Board(Scheduler, Protocol):
    """The part of :class:`fanin.sim.cosim.live.Board` that a host uses."""

    def send(self, node: int, frame: bytes) -> None:
        """Send a frame to a node's host port."""

    def on_frame(self, node: int, then: Callable[[bytes], None]) -> None:
        """Call ``then`` for each frame from a node's host port."""


class Host:
    """A node's host: connections to others by leg, and one program at a time.

    - ``compresses``: mark segments with gradients for the NIC's codec.
    - ``dead``: nodes whose links are cut.
    """

    def __init__(
        self,
        board: Board,
        node: int,
        *,
        transport: TransportConfig,
        costs: HostCosts,
        compresses: bool,
        dead: Container[int] = (),
    ):
        self.board, self.node, self.costs = board, node, costs
        self._transport, self._compresses, self._dead = transport, compresses, dead
        self._connections: dict[tuple[int, Leg], Connection] = {}
        self._core_free = 0
        self.seconds: defaultdict[Work, float] = defaultdict(float)
        self.waits_for = "nothing"
        self.timeline: FirstSpans[Span] = FirstSpans()
        self._phase, self._phase_began = "", 0
        board.on_frame(node, self._arrived)

    def run(self, program: Program[Any], then: Callable[[Any], None]) -> None:
        """Carry out a program; call ``then`` with its return value."""
        self._advance(program, then)

    def _advance(self, program: Program[Any], then: Callable[[Any], None], data: bytes | None = None) -> None:
        """Continue the program until it waits; ``data`` is the message that it has waited for."""
        try:
            step = program.send(None if data is None else np.frombuffer(data, "<f4"))
            while isinstance(step, Send | Phase):
                if isinstance(step, Send):
                    self._connection(step.to, step.leg).send(step.values.astype("<f4").tobytes())
                else:
                    self._begin_phase(step.name)
                step = program.send(None)
        except StopIteration as end:
            self.waits_for = "nothing"
            then(end.value)
            return
        self._begin(step, partial(self._advance, program, then))

    def note(self, activity: Activity, name: str, began: int) -> None:
        """Note an activity that began at ``began`` and ends now."""
        self.timeline.note(Span(activity, name, began, self.board.now))

    def _begin_phase(self, name: str) -> None:
        if self._phase:
            self.note(Activity.PHASE, self._phase, self._phase_began)
        self._phase, self._phase_began = name, self.board.now

    def _begin(self, step: Step, go_on: Callable[[Any], None]) -> None:
        began = self.board.now

        def then(data: bytes | None = None) -> None:
            if isinstance(step, Spend):
                self.note(Activity.WORK, step.work, began)
            else:
                self.note(Activity.WAIT, self.waits_for, began)
            go_on(data)

        if isinstance(step, Receive):
            self.waits_for = f"{step.count} values of node {step.source}, {step.leg.label}"
            connection = self._connection(step.source, step.leg)
            connection.read(VALUE_BYTES * step.count, partial(self._soon, then))
        elif isinstance(step, Drain):
            self.waits_for = f"node {step.to} to acknowledge, {step.leg.label}"
            self._connection(step.to, step.leg).drain(partial(self._soon, then))
        elif isinstance(step, Spend):
            self.waits_for = f"itself: {step.work}"
            seconds = self.costs.seconds(step)
            self.seconds[step.work] += seconds
            self.board.at(self.board.now + round(seconds * _PS), partial(then, None))

    def _soon(self, then: Callable[[Any], None], data: bytes | None = None) -> None:
        """Continue a moment later: a program must not continue inside the call that it has made."""
        self.board.at(self.board.now, partial(then, data))

    @property
    def idle(self) -> bool:
        """Whether everything sent has been acknowledged."""
        return all(connection.idle for connection in self._connections.values())

    @property
    def counters(self) -> Counters:
        """Counters of all its connections together."""
        total: Counter[str] = Counter()
        for connection in self._connections.values():
            total.update(asdict(connection.counters))
        return Counters(**total)

    def _connection(self, peer: int, leg: Leg) -> Connection:
        if (peer, leg) not in self._connections:
            own, other = (replace(worker_endpoint(node), port=leg.port) for node in (self.node, peer))
            self._connections[peer, leg] = Connection(
                own,
                other,
                self._transport,
                scheduler=self.board,
                transmit=self._transmit,
                tos=TOS_COMPRESSIBLE if leg.gradients and self._compresses else 0,
                names=(f"node {self.node}", f"node {peer}"),
                cut=lambda: self.node in self._dead,
            )
        return self._connections[peer, leg]

    # ---- the network core: one frame after the other ----

    def _transmit(self, frame: bytes) -> None:
        self._process(len(frame), partial(self.board.send, self.node, frame))

    def _arrived(self, frame: bytes) -> None:
        """Receive a frame from the NIC; drop it if it is damaged or no segment for this host."""
        segment = decode_tcp(frame)
        if segment is None or segment.destination.ip != worker_endpoint(self.node).ip:
            return
        leg = next((leg for leg in Leg if leg.port == segment.destination.port), None)
        if leg is None:
            return
        peer = segment.source.ip - worker_endpoint(0).ip
        receive = partial(self._connection(peer, leg).receive, segment)
        self._process(HEADER_BYTES + len(segment.payload), receive)

    def _process(self, size: int, then: Callable[[], None]) -> None:
        """Call ``then`` when the core has processed a frame."""
        now = self.board.now
        cost = round(self.costs.packet * _PS) if size > HEADER_BYTES else 0
        self._core_free = max(self._core_free, now) + cost
        if self._core_free == now:
            then()
        else:
            self.board.at(self._core_free, then)
