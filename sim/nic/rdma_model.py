"""Node of one-sided writes as its golden model, at a Linux interface: the counterpart of ``sim/nic/rdma.py``.

The node itself is ``fanin.rdma.golden.node``. This module adds timers, and callbacks of completions and
arrivals.
"""

from __future__ import annotations

import mmap
import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.rdma.registers import TIMEOUT
from fanin.host.ethernet import Interface
from fanin.rdma.driver import Arrival
from fanin.rdma.facts import DROPPED, FIRST_QUEUE_PAIR, Connection, Ending, Region, Write
from fanin.rdma.golden.node import Node
from fanin.sim.nic.address import Address
from fanin.sim.nic.control import ControlServer
from fanin.sim.nic.rdma_control import RdmaControl
from fanin.sim.nic.rdma_settings import RdmaSettings
from fanin.sim.nic.served import NicResult
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import Opcode

#: Counters of the model, by the node's names.
COUNTERS = ("sent", "timed_out", "failed", *DROPPED.values())
_POLL_S = 0.02


@dataclass
class _Posted:
    """Callbacks of a queue pair's unfinished writes."""

    callbacks: deque[Callable[[Ending], object]] = field(default_factory=deque)
    timer_start: float = 0.0  # time of the last answer, or of the first packet in flight


class RdmaNicModel:
    """Model of a node with the addresses ``endpoint`` and a ``memory``.

    - ``timeout``: seconds of the wall clock until packets are sent again.
    - ``send``: called with each frame of the node.
    - ``on_arrival``: called with each message with immediate data.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        memory: bytearray,
        *,
        timeout: float,
        send: Callable[[bytes], object],
        on_arrival: Callable[[Arrival], None] = lambda message: None,
    ):
        self.memory, self.timeout, self.on_arrival = memory, timeout, on_arrival
        self._node = Node(endpoint, memory, tags=False)
        self.counters = self._node.counters
        self.counters.update(dict.fromkeys(COUNTERS, 0))
        self._send = send
        self._posted: dict[int, _Posted] = {}

    def connect(
        self, index: int, connection: Connection, peer: Endpoint, on_done: Callable[[], object]
    ) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        self._node.connect(index, connection, peer)
        previous = self._posted.pop(index, _Posted())
        self._posted[index] = _Posted()
        on_done()
        for callback in previous.callbacks:
            callback(Ending.FLUSHED)

    def set_regions(self, regions: Sequence[Region], on_done: Callable[[], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        self._node.regions[:] = regions
        on_done()

    def post(self, index: int, write: Write, on_done: Callable[[Ending], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        posted = self._posted[index]
        if self._node.requester(index).idle:
            posted.timer_start = time.monotonic()
        posted.callbacks.append(on_done)
        self._node.post(index, write)
        self._advance(index)

    def read_counters(self, on_done: Callable[[dict[str, int]], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        on_done(dict(self.counters))

    def receive(self, frame: bytes) -> None:
        """Receive a frame; send its answer, and packets for which it opens the window."""
        if packet := self._node.receive(frame):
            index = packet.queue_pair - FIRST_QUEUE_PAIR
            if packet.opcode == Opcode.ACKNOWLEDGE:
                self._posted[index].timer_start = time.monotonic()
            self._advance(index)

    def check_timeouts(self) -> None:
        """Resend the packets that have had no answer for ``timeout`` seconds."""
        now = time.monotonic()
        for index, posted in list(self._posted.items()):
            if not self._node.requester(index).idle and now > posted.timer_start + self.timeout:
                posted.timer_start = now
                self.counters["timed_out"] += 1
                self._node.timeout(index)
                self._advance(index)

    def _advance(self, index: int) -> None:
        """Send all allowed packets, and report a queue pair's completions and arrivals."""
        for frame in self._node.answers():
            self._send(frame)
        for frame in self._node.requests():
            self.counters["sent"] += 1
            self._send(frame)
        completions, arrivals = self._node.requester(index).completions, self._node.responder(index).arrivals
        # The present queue: a callback may reconnect the queue pair, which then has a new queue.
        callbacks = self._posted[index].callbacks
        while completions:
            ending = Ending[completions.pop(0).status.name]
            self.counters["failed"] += ending not in (Ending.DONE, Ending.FLUSHED)
            callbacks.popleft()(ending)
        while arrivals:
            message = arrivals.pop(0)
            self.on_arrival(Arrival(index, message.immediate, message.length))


class RdmaModelService:
    """Model of a node at an interface, with its control socket. Call ``close`` at the end."""

    def __init__(self, settings: RdmaSettings, interface: Interface, *, slowdown: float):
        self._interface, self._address = interface, Address(settings.endpoint)
        self._resources = ExitStack()
        self._stopped = False
        with ExitStack() as opening:
            file = opening.enter_context((settings.checked_memory or settings.memory).open("r+b"))
            memory = mmap.mmap(file.fileno(), settings.size)
            self._resources.callback(memory.close)
        timeout = TIMEOUT / (CLOCK_MHZ * 1e6) * slowdown
        self._nic = RdmaNicModel(settings.endpoint, memory, timeout=timeout, send=interface.send)  # type: ignore[arg-type]
        self._control = RdmaControl(self._nic, settings, self._address, kind="model")
        self._nic.on_arrival = self._control.add_arrival
        self._selector = self._resources.enter_context(selectors.DefaultSelector())
        self._selector.register(interface, selectors.EVENT_READ)
        self._server = None
        if settings.control:
            self._server = ControlServer(settings.control, self._control.handle)
            self._resources.callback(self._server.close)
            self._selector.register(self._server, selectors.EVENT_READ)

    def stop(self) -> None:
        """Let ``serve`` return soon; may be called from a signal handler."""
        self._stopped = True

    def serve(self, seconds: float | None) -> NicResult:
        """Serve writes in both directions until ``stop``, or for ``seconds``. Raises InterfaceLost."""
        start = time.monotonic()
        self._control.begin()
        while not self._stopped and (seconds is None or time.monotonic() < start + seconds):
            self._selector.select(_POLL_S)
            for frame in self._address.receive(self._interface):
                self._nic.receive(frame)
            self._nic.check_timeouts()
            if self._server:
                self._server.serve()
            self._control.serve()
        lost = self._interface.overrun() + self._interface.lost + self._interface.unsent
        return NicResult(dict(self._nic.counters), 0, lost, time.monotonic() - start, None)

    def close(self) -> None:
        """Release memory and control socket; the caller closes the interface."""
        self._resources.close()
