"""Host of an INCEPTIONN node, which runs a program over TCP and models the time of its processor."""

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
        """Return the seconds of a step's work."""
        byte_seconds = {Work.SUM: self.sum, Work.UPDATE: self.update, Work.COMPUTE: 0.0}
        return spend.seconds + spend.size * byte_seconds[spend.work]


class Activity(StrEnum):
    """Kinds of activity in a host's timeline."""

    STEP = "step"
    WORK = "work"
    WAIT = "wait"
    PHASE = "phase"


@dataclass(frozen=True)
class Span:
    """Activity or wait of a host, with times in ps."""

    activity: Activity
    name: str
    begin: int
    end: int


class Board(Scheduler, Protocol):
    """The part of :class:`fanin.sim.cosim.live.Board` that a host uses."""

    def send(self, node: int, frame: bytes) -> None:
        """Send a frame to a node's host port."""

    def on_frame(self, node: int, callback: Callable[[bytes], None], /) -> None:
        """Call ``callback`` for each frame from a node's host port."""


class Host:
    """Host of a node, with a connection per peer and leg, which runs one program at a time.

    - ``compresses``: mark segments with gradients for the NIC's codec.
    - ``cut_nodes``: nodes whose links are cut.
    """

    def __init__(
        self,
        board: Board,
        node: int,
        *,
        transport: TransportConfig,
        costs: HostCosts,
        compresses: bool,
        cut_nodes: Container[int] = (),
    ):
        self.board, self.node, self.costs = board, node, costs
        self._transport, self._compresses, self._cut_nodes = transport, compresses, cut_nodes
        self._connections: dict[tuple[int, Leg], Connection] = {}
        self._core_free = 0
        self.seconds: defaultdict[Work, float] = defaultdict(float)
        self.waits_for = "nothing"
        self.timeline: FirstSpans[Span] = FirstSpans()
        self._phase, self._phase_begin = "", 0
        board.on_frame(node, self._receive_frame)

    def run(self, program: Program[Any], callback: Callable[[Any], None]) -> None:
        """Carry out a program; call ``callback`` with its return value."""
        self._advance(program, callback)

    def _advance(
        self, program: Program[Any], callback: Callable[[Any], None], data: bytes | None = None
    ) -> None:
        """Continue the program until it waits; ``data`` is the message that it has waited for."""
        try:
            step = program.send(None if data is None else np.frombuffer(data, "<f4"))
            while isinstance(step, Send | Phase):
                if isinstance(step, Send):
                    self._connection(step.destination, step.leg).send(step.values.astype("<f4").tobytes())
                else:
                    self._begin_phase(step.name)
                step = program.send(None)
        except StopIteration as end:
            self.waits_for = "nothing"
            callback(end.value)
            return
        self._begin(step, partial(self._advance, program, callback))

    def note(self, activity: Activity, name: str, begin: int) -> None:
        """Note an activity that began at ``begin``, in ps, and ends now."""
        self.timeline.note(Span(activity, name, begin, self.board.now))

    def _begin_phase(self, name: str) -> None:
        if self._phase:
            self.note(Activity.PHASE, self._phase, self._phase_begin)
        self._phase, self._phase_begin = name, self.board.now

    def _begin(self, step: Step, resume: Callable[[Any], None]) -> None:
        begin = self.board.now

        def end_step(data: bytes | None = None) -> None:
            if isinstance(step, Spend):
                self.note(Activity.WORK, step.work, begin)
            else:
                self.note(Activity.WAIT, self.waits_for, begin)
            resume(data)

        if isinstance(step, Receive):
            self.waits_for = f"{step.count} values of node {step.source}, {step.leg.label}"
            connection = self._connection(step.source, step.leg)
            connection.read(VALUE_BYTES * step.count, partial(self._defer, end_step))
        elif isinstance(step, Drain):
            self.waits_for = f"node {step.destination} to acknowledge, {step.leg.label}"
            self._connection(step.destination, step.leg).drain(partial(self._defer, end_step))
        elif isinstance(step, Spend):
            self.waits_for = f"itself: {step.work}"
            seconds = self.costs.seconds(step)
            self.seconds[step.work] += seconds
            self.board.at(self.board.now + round(seconds * _PS), partial(end_step, None))

    def _defer(self, callback: Callable[[Any], None], data: bytes | None = None) -> None:
        """Continue a moment later: a program must not continue inside the call that it has made."""
        self.board.at(self.board.now, partial(callback, data))

    @property
    def idle(self) -> bool:
        """Whether everything sent has been acknowledged."""
        return all(connection.idle for connection in self._connections.values())

    @property
    def counters(self) -> Counters:
        """Sums of the counters of all connections."""
        total: Counter[str] = Counter()
        for connection in self._connections.values():
            total.update(asdict(connection.counters))
        return Counters(**total)

    def _connection(self, peer: int, leg: Leg) -> Connection:
        if (peer, leg) not in self._connections:
            local, remote = (replace(worker_endpoint(node), port=leg.port) for node in (self.node, peer))
            self._connections[peer, leg] = Connection(
                local,
                remote,
                self._transport,
                scheduler=self.board,
                transmit=self._transmit,
                tos=TOS_COMPRESSIBLE if leg.gradients and self._compresses else 0,
                names=(f"node {self.node}", f"node {peer}"),
                is_cut=lambda: self.node in self._cut_nodes,
            )
        return self._connections[peer, leg]

    # ---- the network core: one frame after the other ----

    def _transmit(self, frame: bytes) -> None:
        self._process(len(frame), partial(self.board.send, self.node, frame))

    def _receive_frame(self, frame: bytes) -> None:
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

    def _process(self, size: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the network core has processed a frame of ``size`` bytes."""
        now = self.board.now
        cost = round(self.costs.packet * _PS) if size > HEADER_BYTES else 0
        self._core_free = max(self._core_free, now) + cost
        if self._core_free == now:
            callback()
        else:
            self.board.at(self._core_free, callback)
