"""A board on a real UDP socket: the golden model behind a network that loses, repeats and delays datagrams."""

import heapq
import random
import socket
import threading
import time
from contextlib import contextmanager
from ipaddress import IPv4Address

from fanin.golden.control import BoardModel
from fanin.wire.control import CONTROL_PORT
from fanin.wire.ethernet import Endpoint


class FakeBoard:
    """Answers at ``address``. ``now`` is the board's own clock: it moves only when a test moves it."""

    def __init__(
        self,
        bus,
        *,
        loss=0.0,
        twice=0.0,
        late=0.0,
        seed=0,
        about=(0x0001_0005, 7, 8, 9),
        address=("127.0.0.1", 0),
    ):
        self.model = BoardModel(bus, own=Endpoint(2, 3, CONTROL_PORT), about=lambda: about)
        self.now = 0.0
        self.silent = False
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.port = self.socket.getsockname()[1]
        self._odds = loss, twice, late
        self._rng = random.Random(seed)
        self._due = []  # (time, number, payload, from, to): datagrams under way, in both directions
        self._number = 0
        self._stop = False

    def _travel(self, payload, source, target):
        """Put a datagram on its way: once, twice or not at all, some of them late."""
        loss, twice, late = self._odds
        if self._rng.random() < loss:
            return
        for _ in range(2 if self._rng.random() < twice else 1):
            delay = self._rng.uniform(0.002, 0.02) if self._rng.random() < late else 0
            self._number += 1
            heapq.heappush(self._due, (time.monotonic() + delay, self._number, payload, source, target))

    def _arrive(self):
        _, _, payload, source, target = heapq.heappop(self._due)
        if target is not None:
            self.socket.sendto(payload, target)
            return
        reply = self.model.control(payload, Endpoint(0, int(IPv4Address(source[0]))), self.now)
        if reply is not None and not self.silent:
            self._travel(reply, None, source)

    def serve(self):
        while not self._stop:
            wait = self._due[0][0] - time.monotonic() if self._due else 0.02
            if wait <= 0:
                self._arrive()
                continue
            self.socket.settimeout(wait)
            try:
                payload, source = self.socket.recvfrom(65536)
            except TimeoutError:
                continue
            self._travel(payload, source, None)

    def reset(self):
        """Forget offer and lease, as the board's button does."""
        self.model.lease, self.model.offer, self.model._is_held = 0, None, False

    def stop(self):
        self._stop = True


@contextmanager
def fake_board(bus, **network):
    """A board that runs beside the test."""
    board = FakeBoard(bus, **network)
    thread = threading.Thread(target=board.serve)
    thread.start()
    try:
        yield board
    finally:
        board.stop()
        thread.join()
        board.socket.close()
