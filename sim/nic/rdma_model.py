"""The node of one-sided writes as its golden model, at a Linux interface: the twin of ``sim/nic/rdma.py``.

``fanin.golden.rdma`` has the two halves of a queue pair; the node around them is here: which frame is whose,
when a timeout has passed, what is counted.
"""

from __future__ import annotations

import mmap
import selectors
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from fanin.clock import CLOCK_MHZ
from fanin.golden.rdma import Requester, Responder
from fanin.hdl.rdma.registers import TIMEOUT
from fanin.host.ethernet import Interface
from fanin.host.rdma import Arrived
from fanin.rdma import DROPPED, FIRST_QUEUE_PAIR, Connection, Ending, Region, Write
from fanin.sim.nic.address import Address
from fanin.sim.nic.control import ControlServer
from fanin.sim.nic.rdma_control import RdmaControl
from fanin.sim.nic.rdma_settings import RdmaSettings
from fanin.sim.nic.served import Served
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import Fault, Opcode, RdmaPacket, encode, judge

#: What the twin counts, by the node's names.
COUNTERS = ("sent", "timed_out", "failed", *DROPPED.values())
_LOOK_S = 0.02


class _Pair:
    """A queue pair: both halves, and what is to be called for each write that has not ended."""

    def __init__(self, requester: Requester, responder: Responder, peer: Endpoint):
        self.requester, self.responder, self.peer = requester, responder, peer
        self.posted: deque[Callable[[Ending], object]] = deque()
        self.since = 0.0  # the last answer, or the first packet in flight


class RdmaNicModel:
    """The node with the addresses ``own`` over ``memory``; ``send`` takes its frames.

    ``arrived`` gets each message with immediate data. ``timeout`` is in seconds of the wall clock.
    """

    def __init__(
        self,
        own: Endpoint,
        memory: bytearray,
        *,
        timeout: float,
        send: Callable[[bytes], object],
        arrived: Callable[[Arrived], None] = lambda message: None,
    ):
        self.own, self.memory, self.timeout = own, memory, timeout
        self.arrived = arrived
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._send = send
        self._pairs: dict[int, _Pair] = {}
        self._regions: list[Region] = []

    def connect(self, index: int, connection: Connection, peer: Endpoint, then: Callable[[], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        if connection.vlan is not None:
            raise ValueError(f"vlan {connection.vlan}: this node has no tags (RdmaConfig.vlan)")
        ended = self._pairs.pop(index, None)
        responder = Responder(FIRST_QUEUE_PAIR + index, connection, self.memory, self._regions)
        self._pairs[index] = _Pair(Requester(connection, self.memory), responder, peer)
        then()
        for waits in ended.posted if ended else ():
            waits(Ending.FLUSHED)

    def set_regions(self, regions: Sequence[Region], then: Callable[[], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        self._regions[:] = regions
        then()

    def post(self, index: int, write: Write, then: Callable[[Ending], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        pair = self._pairs[index]
        if pair.requester.idle:
            pair.since = time.monotonic()
        pair.posted.append(then)
        pair.requester.post(write)
        self._advance(pair)

    def read_counters(self, then: Callable[[dict[str, int]], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        then(dict(self.counters))

    def receive(self, frame: bytes) -> None:
        """Take a frame; answers and what it lets go on are sent."""
        packet = judge(frame, own=self.own)
        if isinstance(packet, Fault):
            self.counters[DROPPED[packet]] += 1
            return
        pair = self._pairs.get(packet.queue_pair - FIRST_QUEUE_PAIR)
        if pair is None or (packet.opcode != Opcode.ACKNOWLEDGE and pair.responder.failed):
            self.counters[DROPPED[Fault.UNKNOWN]] += 1
            return
        if packet.opcode == Opcode.ACKNOWLEDGE:
            pair.since = time.monotonic()
            pair.requester.receive(packet)
            self._advance(pair)
            return
        if (answer := pair.responder.receive(packet)) is not None:
            self._send_to(pair, answer)
        for message in pair.responder.arrivals:
            self.arrived(Arrived(message.queue_pair - FIRST_QUEUE_PAIR, message.immediate, message.length))
        pair.responder.arrivals.clear()

    def look(self) -> None:
        """Send again what has had no answer for the timeout."""
        now = time.monotonic()
        for pair in list(self._pairs.values()):
            if not pair.requester.idle and now > pair.since + self.timeout:
                pair.since = now
                self.counters["timed_out"] += 1
                pair.requester.timeout()
                self._advance(pair)

    def _advance(self, pair: _Pair) -> None:
        """Send what may be sent, and tell what has ended."""
        for packet in pair.requester.packets():
            self.counters["sent"] += 1
            self._send_to(pair, packet)
        completions = pair.requester.completions
        while completions:
            ending = Ending[completions.pop(0).status.name]
            self.counters["failed"] += ending not in (Ending.DONE, Ending.FLUSHED)
            pair.posted.popleft()(ending)

    def _send_to(self, pair: _Pair, packet: RdmaPacket) -> None:
        source = Endpoint(self.own.mac, self.own.ip, pair.peer.port)
        tos = pair.requester.connection.traffic_class
        self._send(encode(packet, source=source, destination=pair.peer, tos=tos))


class RdmaModelService:
    """The twin at its interface, with its control socket, until ``stop``. Use it as a context."""

    def __init__(self, settings: RdmaSettings, interface: Interface, *, slowdown: float):
        self._interface, self._address = interface, Address(settings.own)
        self._opened = ExitStack()
        self._stopped = False
        with ExitStack() as opening:
            file = opening.enter_context(settings.memory.open("r+b"))
            memory = mmap.mmap(file.fileno(), settings.size)
            self._opened.callback(memory.close)
        timeout = TIMEOUT / (CLOCK_MHZ * 1e6) * slowdown
        self._nic = RdmaNicModel(settings.own, memory, timeout=timeout, send=interface.send)  # type: ignore[arg-type]
        self._control = RdmaControl(self._nic, settings, self._address, kind="model")
        self._nic.arrived = self._control.arrived
        self._selector = self._opened.enter_context(selectors.DefaultSelector())
        self._selector.register(interface, selectors.EVENT_READ)
        self._server = None
        if settings.control:
            self._server = ControlServer(settings.control, self._control.handle)
            self._opened.callback(self._server.close)
            self._selector.register(self._server, selectors.EVENT_READ)

    def stop(self) -> None:
        """Let ``serve`` return soon; also from a signal's handler."""
        self._stopped = True

    def serve(self, seconds: float | None) -> Served:
        """Write and be written to until ``stop``, or for so long. Raises InterfaceLost."""
        began = time.monotonic()
        self._control.begin()
        while not self._stopped and (seconds is None or time.monotonic() < began + seconds):
            self._selector.select(_LOOK_S)
            for frame in self._address.received(self._interface):
                self._nic.receive(frame)
            self._nic.look()
            if self._server:
                self._server.serve()
            self._control.serve()
        lost = self._interface.overrun() + self._interface.lost + self._interface.unsent
        return Served(dict(self._nic.counters), 0, lost, time.monotonic() - began, None)

    def close(self) -> None:
        """Let go of memory and control socket; the interface is its owner's."""
        self._opened.close()
