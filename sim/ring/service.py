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
from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.ring.golden.random_bits import RandomBits
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.ring.cosim import RingCosim
from fanin.sim.ring.served import ServedHosts, ServedSum, Vector

_MIN_BYTES = 1 << 22  # least memory of a node: longer vectors, which need a new simulation, are rare
_END_SECONDS = 10.0
_PROCESS_ENDED = "the process that simulates the nodes has ended"
_TIMED_OUT = "the nodes have not added up in time"


@dataclass(frozen=True)
class Nodes:
    """Nodes to simulate, with ``size`` bytes of memory each; ``bits``: random bits of their job."""

    config: RingConfig
    nodes: int
    link: LinkConfig = field(default_factory=LinkConfig)
    clock_mhz: float = CLOCK_MHZ
    size: int = _MIN_BYTES
    bits: RandomBits = field(default_factory=RandomBits)


class RingService:
    """Nodes that add up vectors: built at the first call, simulated until ``close``.

    A watcher process builds and watches the simulator; both end with this process, however it ends. A vector
    longer than the nodes' memory starts a new simulation with more memory, whose random bits continue those of
    the earlier one. ``seconds``: limit of each call.
    """

    def __init__(self, nodes: Nodes, *, seconds: float):
        self._nodes, self._seconds = nodes, seconds
        self._simulation: _Simulation | None = None

    def all_reduce(self, vectors: Sequence[Vector]) -> ServedSum:
        """Return the sum of the vectors, which are one per node and of one length.

        Raises InputError for a missing tool, and SimulationFailed if the nodes fail or exceed the time limit.
        """
        deadline = time.monotonic() + self._seconds
        if self._simulation and vectors[0].nbytes > self._nodes.size:
            self.close()
        if not self._simulation:
            size = max(_MIN_BYTES, 1 << (vectors[0].nbytes - 1).bit_length())
            self._nodes = replace(self._nodes, size=size)
            self._simulation = _Simulation(self._nodes, deadline)
        try:
            result = self._simulation.all_reduce(vectors, deadline)
        except BaseException:
            self.close()
            raise
        nodes = self._nodes
        nodes.bits.values += nodes.config.padded_values(vectors[0].size, nodes.nodes)
        return result

    def close(self) -> None:
        """End the simulation."""
        if running := self._simulation:
            self._simulation = None
            running.close()


class _Simulation:
    """A simulation in a child process, and the process that watches it."""

    def __init__(self, nodes: Nodes, deadline: float):
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
                    start_new_session=True,  # the terminal's Ctrl-C is for this program only
                )
                self._watcher = _accept(listener, self._process, deadline)
                self._watcher.send(nodes)
                self._hosts = _accept(listener, self._watcher, deadline)
        except BaseException:
            self.close()
            raise

    def all_reduce(self, vectors: Sequence[Vector], deadline: float) -> ServedSum:
        """Return the sum by ``deadline``, a time of the monotonic clock; raises as ``RingService``."""
        assert self._hosts
        assert self._watcher
        _limit_send_time(self._hosts, deadline)
        try:
            self._hosts.send(list(vectors))
        except BlockingIOError:  # the peer has stopped reading
            raise SimulationFailed(_TIMED_OUT) from None
        except ConnectionError:  # the watcher reports the cause below
            pass
        ready = wait([self._hosts, self._watcher], max(0.0, deadline - time.monotonic()))
        if self._hosts in ready:
            try:
                return self._hosts.recv()
            except (EOFError, ConnectionError):  # the watcher reports the cause
                ready = wait([self._watcher], max(0.0, deadline - time.monotonic()))
        if self._watcher in ready:
            raise _failure(self._watcher)
        raise SimulationFailed(_TIMED_OUT)

    def close(self) -> None:
        """End both processes, and remove the folder of the sockets."""
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


def _limit_send_time(connection: Connection, deadline: float) -> None:
    """Set a send timeout: a peer that reads nothing until ``deadline`` causes BlockingIOError."""
    seconds, fraction = divmod(max(deadline - time.monotonic(), 1e-3), 1)
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(fraction * 1e6))
        )


def _accept(listener: socket.socket, peer: Connection | subprocess.Popen[bytes], deadline: float) -> Connection:
    """Accept a connection, unless ``peer`` ends or sends something earlier.

    Raises the watcher's error if it sends one, and SimulationFailed if it ends, or on timeout.
    """
    with contextlib.ExitStack() as resources:
        watched: Connection | int
        if isinstance(peer, subprocess.Popen):
            watched = os.pidfd_open(peer.pid)
            resources.callback(os.close, watched)
        else:
            watched = peer
        ready = wait([listener, watched], max(0.0, deadline - time.monotonic()))
    if listener in ready:
        return Connection(listener.accept()[0].detach())
    if not ready:
        raise SimulationFailed("the nodes have not been built in time")
    if isinstance(peer, subprocess.Popen):
        raise SimulationFailed(_PROCESS_ENDED)
    raise _failure(peer)


def _failure(watcher: Connection) -> Exception:
    try:
        failure: Exception = watcher.recv()
    except (EOFError, ConnectionError):
        return SimulationFailed(_PROCESS_ENDED)
    return failure


def _watch(address: str) -> None:
    """Build and simulate the nodes that the peer requests, until it disconnects; report errors to it."""
    with contextlib.suppress(EOFError, OSError), Client(address, "AF_UNIX") as peer:
        nodes: Nodes = peer.recv()  # raises EOFError if the peer ends
        try:
            cosim = RingCosim(nodes.config, nodes=nodes.nodes, clock_mhz=nodes.clock_mhz)
            hosts = functools.partial(ServedHosts, address=address, config=nodes.config, nodes=nodes.nodes)
            cosim.serve(hosts, size=nodes.size, link=nodes.link, bits=nodes.bits)
        except (InputError, ToolFailed) as error:
            failure: Exception = error
        except (SimulationFailed, OSError) as error:
            failure = SimulationFailed(str(error))
        else:
            return
        finally:
            shutil.rmtree(Path(address).parent, ignore_errors=True)
        peer.send(failure)


if __name__ == "__main__":
    _watch(sys.argv[1])
