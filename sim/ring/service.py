"""Ring nodes in RTL that stay alive between all-reduces, in their own processes."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path

from fanin.base.errors import InputError, ToolFailed
from fanin.base.limits import CLOCK_MHZ
from fanin.base.tools import python_module
from fanin.ring.facts import RingConfig
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.network import LinkConfig
from fanin.sim.ring.cosim import RingCosim
from fanin.sim.ring.served import Float32, Served, ServedHosts

_LEAST_BYTES = 1 << 22  # least memory of a node, so that a new simulation is rarely needed
_END_SECONDS = 10.0
_ENDED = "the process that simulates the nodes has ended"
_LATE = "the nodes have not added up in time"


@dataclass(frozen=True)
class Nodes:
    """Nodes to simulate, with ``size`` bytes of memory each."""

    config: RingConfig
    nodes: int
    link: LinkConfig = field(default_factory=LinkConfig)
    clock_mhz: float = CLOCK_MHZ
    size: int = _LEAST_BYTES


class RingService:
    """Nodes that add up vectors: built at the first call, simulated until ``close``.

    A watcher process builds and watches the simulator; both end with this process, however it ends. A vector
    longer than the nodes' memory starts a new simulation with more memory. ``seconds`` limits each call.
    """

    def __init__(self, nodes: Nodes, *, seconds: float):
        self._nodes, self._seconds = nodes, seconds
        self._running: _Running | None = None

    def all_reduce(self, vectors: Sequence[Float32]) -> Served:
        """Return the sum of the vectors, which are one per node and of one length.

        Raises InputError for a missing tool, and SimulationFailed if the nodes fail or exceed the time limit.
        """
        until = time.monotonic() + self._seconds
        if self._running and vectors[0].nbytes > self._nodes.size:
            self.close()
        if not self._running:
            size = max(_LEAST_BYTES, 1 << (vectors[0].nbytes - 1).bit_length())
            self._nodes = replace(self._nodes, size=size)
            self._running = _Running(self._nodes, until)
        try:
            return self._running.all_reduce(vectors, until)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the simulation."""
        if running := self._running:
            self._running = None
            running.close()


class _Running:
    """A simulation, and the process that watches it."""

    def __init__(self, nodes: Nodes, until: float):
        self._folder = tempfile.mkdtemp(prefix="fanin-")
        address = str(Path(self._folder) / "socket")
        self._hosts: Connection | None = None
        self._watcher: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(address)
                listener.listen()
                self._process = subprocess.Popen(
                    python_module(__name__, address),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # only this program gets the terminal's Ctrl-C, and then hangs up
                )
                self._watcher = _accepted(listener, self._process, until)
                self._watcher.send(nodes)
                self._hosts = _accepted(listener, self._watcher, until)
        except BaseException:
            self.close()
            raise

    def all_reduce(self, vectors: Sequence[Float32], until: float) -> Served:
        assert self._hosts
        assert self._watcher
        _bound_sending(self._hosts, until)
        try:
            self._hosts.send(list(vectors))
        except BlockingIOError:  # the peer has stopped reading
            raise SimulationFailed(_LATE) from None
        except ConnectionError:  # the watcher reports the cause below
            pass
        ready = wait([self._hosts, self._watcher], max(0.0, until - time.monotonic()))
        if self._hosts in ready:
            try:
                return self._hosts.recv()
            except (EOFError, ConnectionError):  # the watcher reports the cause
                ready = wait([self._watcher], max(0.0, until - time.monotonic()))
        if self._watcher in ready:
            raise _failure(self._watcher)
        raise SimulationFailed(_LATE)

    def close(self) -> None:
        for connection in (self._hosts, self._watcher):
            if connection:
                connection.close()
        if self._process:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)  # the simulator, too
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _bound_sending(connection: Connection, until: float) -> None:
    """Set a send timeout: a peer that reads nothing until ``until`` causes BlockingIOError."""
    seconds, rest = divmod(max(until - time.monotonic(), 1e-3), 1)
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(rest * 1e6)))


def _accepted(listener: socket.socket, peer: Connection | subprocess.Popen[bytes], until: float) -> Connection:
    """Return the next connection, unless ``peer`` ends or sends something earlier.

    Raises the watcher's error if it sends one, and SimulationFailed if it ends, or on timeout.
    """
    with contextlib.ExitStack() as opened:
        watched: Connection | int
        if isinstance(peer, subprocess.Popen):
            watched = os.pidfd_open(peer.pid)
            opened.callback(os.close, watched)
        else:
            watched = peer
        ready = wait([listener, watched], max(0.0, until - time.monotonic()))
    if listener in ready:
        return Connection(listener.accept()[0].detach())
    if not ready:
        raise SimulationFailed("the nodes have not been built in time")
    if isinstance(peer, subprocess.Popen):
        raise SimulationFailed(_ENDED)
    raise _failure(peer)


def _failure(watcher: Connection) -> Exception:
    try:
        failure: Exception = watcher.recv()
    except (EOFError, ConnectionError):
        return SimulationFailed(_ENDED)
    return failure


def _watch(address: str) -> None:
    """Build and simulate the nodes that the peer requests, until it disconnects; report errors to it."""
    with contextlib.suppress(EOFError, OSError), Client(address, "AF_UNIX") as peer:
        nodes: Nodes = peer.recv()  # raises EOFError if the peer ends
        try:
            cosim = RingCosim(nodes.config, nodes=nodes.nodes, clock_mhz=nodes.clock_mhz)
            hosts = functools.partial(ServedHosts, address=address, config=nodes.config, nodes=nodes.nodes)
            cosim.serve(hosts, size=nodes.size, link=nodes.link)
        except (InputError, ToolFailed) as error:
            answer: Exception = error
        except (SimulationFailed, OSError) as error:
            answer = SimulationFailed(str(error))
        else:
            return
        finally:
            shutil.rmtree(Path(address).parent, ignore_errors=True)
        peer.send(answer)


if __name__ == "__main__":
    _watch(sys.argv[1])
