"""The front of a running embedded switch: the process that speaks P4Runtime with controllers."""

from __future__ import annotations

import re
import selectors
import subprocess
import time

from finsy.proto import rpc_code

from fanin.base.errors import InputError
from fanin.base.limits import is_number
from fanin.base.tools import python_module
from fanin.sim.switch.service.calls import Calls
from fanin.sim.switch.service.faults import Fault
from fanin.sim.switch.service.link import Kind, Link, answer_fragments, pair
from fanin.sim.switch.service.p4info import p4info
from fanin.sim.switch.service.protobuf import join
from fanin.sim.switch.service.requests import P4RuntimeService

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]")
_SCHEMES = ("unix", "unix-abstract", "vsock", "dns", "ipv4", "ipv6")  # of gRPC; such an address is no TCP port
_MAX_PORT = 65_535
_START_TIMEOUT = 60.0  # seconds that the front may take until it listens
_STOP_TIMEOUT = 5.0  # seconds that the front may take until it ends


class P4RuntimeServer:
    """P4Runtime server at ``address``, until :meth:`close`. Raises InputError if the address is unavailable.

    If the front ends while the switch runs, it starts again at the same port.

    ``port``: the TCP port of the address.
    """

    def __init__(self, service: P4RuntimeService, address: str):
        _check_address(address)
        self._service = service
        self._forwarding = service.forwarding
        self._info = p4info(service.program).SerializeToString()
        self._finished = False
        self._start(address, delay=0)
        self.port = self._await_port()
        if not self.port:
            self.close()
            raise InputError(f"--grpc {address}: the address is in use, or not this machine's")
        self._address = f"{address.rpartition(':')[0]}:{self.port}"
        self._forwarding.attach(self)

    # what the loop calls

    def fileno(self) -> int:
        """Return the file number of the link to the front."""
        return self._link.fileno()

    @property
    def blocked(self) -> bool:
        """True if the front has to read first."""
        return self._link.has_backlog

    @property
    def ready(self) -> bool:
        """True if a call can take a step without a message of the front."""
        return self._calls.ready

    def work(self, end: float) -> None:
        """Carry out calls until ``end``."""
        self._link.flush()
        if not self._calls.work(end) and not self._finished:  # the loop may be in its last round
            self._restart()

    def check_clocks(self) -> None:
        """End the calls whose clients do nothing."""
        self._calls.end_stalled(time.monotonic())

    def finish(self) -> None:
        """End all calls, and the front."""
        self._calls.end_all(Fault(rpc_code.UNAVAILABLE, "the switch ends"))
        self._finished = True
        self._link.shut()

    # the front

    def close(self) -> None:
        """End all calls, and wait for the front to end."""
        if self._forwarding.running:
            self._forwarding.run_in_loop(self._detach)
        else:
            self._detach()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._link.close()

    def _detach(self) -> None:
        if not self._finished:
            self.finish()
        self._forwarding.detach(self)

    def _start(self, address: str, *, delay: int) -> None:
        """Start a front that listens at ``address`` after ``delay`` seconds."""
        link_end, front_end = pair()
        with front_end:
            number = front_end.fileno()
            command = python_module("fanin.sim.switch.service.front", str(number), str(delay))
            self._process = subprocess.Popen(
                command, pass_fds=[number], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        self._link = Link(link_end)
        self._calls = Calls(self._link, self._service.methods, self._forwarding.fail, self._service.keep)
        self._link.send(0, Kind.START, join([address.encode(), self._service.program.name.encode()]))
        for kind, fragment in answer_fragments(self._info):
            self._link.send(0, kind, fragment)

    def _await_port(self) -> int:
        """Wait for the port at which the front listens; return 0 if it does not listen."""
        end = time.monotonic() + _START_TIMEOUT
        with selectors.DefaultSelector() as selector:
            selector.register(self._link, selectors.EVENT_READ)
            while time.monotonic() < end:
                self._link.flush()
                if selector.select(0.1):
                    message = self._link.receive()
                    return int(message.payload) if message is not None else 0
        return 0

    def _restart(self) -> None:
        """Replace a front that has ended."""
        self._forwarding.detach(self)
        self._calls.end_all(Fault(rpc_code.UNAVAILABLE, "the front has ended"))
        self._link.close()
        self._process.kill()
        self._process.wait()
        error = RuntimeError(f"exit status {self._process.returncode}; it is started again")
        self._forwarding.fail("the process that speaks gRPC", error)
        self._start(self._address, delay=1)  # the delay prevents constant restarts
        self._forwarding.attach(self)


def _check_address(address: str) -> None:
    """Raise InputError unless an address is HOST:PORT. gRPC takes ports modulo 65,536, and 443 without one."""
    host, _, port = address.rpartition(":")
    is_host = _HOST.fullmatch(host) is not None and host.lower() not in _SCHEMES
    if not is_host or not is_number(port) or int(port) > _MAX_PORT:
        raise InputError(
            f"--grpc {address}: must be HOST:PORT, an IPv6 address in brackets, a port of 0 to 65535"
        )
