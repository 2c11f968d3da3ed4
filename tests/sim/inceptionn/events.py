"""Hosts on a network without simulated hardware: the golden NIC stages stand where the RTL does."""

import heapq
import itertools

from fanin.codec.golden import packet
from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.sim.network import Network
from fanin.sim.switch.forward import Forwarder


class EventBoard:
    """As :class:`fanin.sim.cosim.live.Board`; events happen one by one, and NICs take no time."""

    def __init__(self, nodes, link=None, codec=None, seed=0, capture=None):
        self.now, self._order, self._events = 0, itertools.count(), []
        self._codec, self._hosts = codec, {}
        switch = Forwarder.of([worker_endpoint(node).mac for node in range(nodes)])
        self.network = Network(
            switch=switch, ports=nodes, link=link or LinkConfig(gbps=10), seed=seed, capture=capture
        )

    def at(self, time_ps, then):
        heapq.heappush(self._events, (max(time_ps, self.now), next(self._order), then))

    def send(self, node, frame):
        wire = packet.transmit(frame, self._codec) if self._codec else frame
        self.network.send(node, wire, self.now)

    def on_frame(self, node, then):
        self._hosts[node] = then

    def cut(self, node):
        self.network.cut(node)

    def run(self, until, limit_ps=10**13):
        """Until ``until`` says so; AssertionError if nothing is left to happen, or after ``limit_ps``."""
        while not until():
            times = [time for time in (self._next_event, self.network.next_time) if time is not None]
            assert min(times, default=limit_ps) < limit_ps, f"nothing happens any more at {self.now} ps"
            if self._next_event == min(times):
                self.now, _, then = heapq.heappop(self._events)
                then()
            else:
                self._receive(min(times))

    @property
    def _next_event(self):
        return self._events[0][0] if self._events else None

    def _receive(self, time):
        for reception in self.network.advance(time):
            port, arrival = reception.port, reception.arrival
            if not arrival.error:
                frame = packet.receive(arrival.frame, self._codec) if self._codec else arrival.frame
                if frame is not None:
                    self.at(arrival.time, lambda port=port, frame=frame: self._hosts[port](frame))
