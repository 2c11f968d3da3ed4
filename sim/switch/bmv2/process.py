"""``simple_switch_grpc`` as a child process: started, watched, and ended with its owner.

With ``veth`` it runs in an unnamed network namespace, which ends with the switch and removes its interfaces.
The kernel kills the switch when the thread that started it ends, for whatever reason. Only a temporary folder
can therefore outlive a crash, and the next start removes it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fanin.base.errors import InputError, ToolFailed
from fanin.base.plain import read_plain
from fanin.base.scratch import is_alive, machine
from fanin.base.tools import program
from fanin.host.lab import in_namespace
from fanin.p4.aggregation import Target
from fanin.p4.compiler import COMPILERS, find_compiler
from fanin.sim.switch.bmv2.thrift import connect_thrift

T = TypeVar("T")
SWITCH = "simple_switch_grpc"
INSTALL = "install BMv2 (p4lang's package p4lang-bmv2, or from source; docs/reference/bmv2.md)"
_UTIL_LINUX = "install util-linux"
_IPROUTE = "install iproute2"
_PREFIX = "fanin-bmv2-"
_OWNER = "owner"  # file with the machine of the folder's process
_SOCKET_PATH = 107  # most bytes of a path, without the terminating 0
_QUOTED_LINES = 3  # lines quoted from its log, and from its output
_SYSTEM_TIMEOUT = 5.0  # seconds, for the operating system
_RETRY_DELAY = 0.05  # seconds between attempts
MTU = 9000

# If the parent died before the kernel registered the death signal, PPID is no longer the parent.
_ORPHAN = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'

# In the namespace: no traffic but BMv2's, so neither IPv6 nor ARP; BMv2 reads /sys to see whether its ports are
# up. Arguments: MTU, the ports, then the command.
_NAMESPACE = r"""
mount -t sysfs sysfs /sys || true
if [ -d /proc/sys/net/ipv6 ]; then echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true; fi
ip link set lo up
mtu=$1 ports=$2; shift 2
for port in $ports; do
    ip link add "host$port" type veth peer name "switch$port"
    for end in "host$port" "switch$port"; do ip link set "$end" mtu $mtu arp off addrgenmode none up; done
done
exec "$@"
"""


def check_tools() -> None:
    """Raise InputError unless p4c and BMv2 are installed."""
    if find_compiler(Target.V1MODEL) is None:
        raise InputError(
            f"{COMPILERS[Target.V1MODEL]} is missing: install p4c (p4lang's package p4lang-p4c; "
            "docs/reference/bmv2.md)"
        )
    program(SWITCH, INSTALL)


def host_end(port: int) -> str:
    """Return the name of the host's end of a port's veth pair."""
    return f"host{port}"


class BmvProcess:
    """A running ``simple_switch_grpc`` without a program, for ``ports``.

    - ``folder``: folder of its sockets and log.
    - ``p4runtime``: address of its P4Runtime server.
    - ``dataplane``: address of its gRPC data plane; absent with ``veth``.
    - ``thrift_port``: port of its Thrift server; with ``veth`` it is in the namespace, which ``thrift_socket``
      and ``run_in_namespace`` reach.

    Raises InputError if a program is missing.
    """

    def __init__(self, ports: Sequence[int], *, veth: bool):
        _remove_stale()
        switch = program(SWITCH, INSTALL)
        guard = [program("setpriv", _UTIL_LINUX), "--pdeathsig", "KILL", "--"]
        guard += ["sh", "-c", _ORPHAN, "sh", str(os.getpid())]
        self.veth = veth
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_home()))
        (self.folder / _OWNER).write_text(machine())
        self._output, log = self.folder / "output", self.folder / "log"
        self._logs = (log.with_suffix(".txt"), self._output)  # BMv2 adds the suffix
        self.p4runtime = f"unix:{self.folder}/p4runtime"
        self.dataplane = f"unix:{self.folder}/dataplane"
        self.thrift_port = 9090 if veth else _free_port()
        command = [switch, "--no-p4", "--log-file", str(log), "--log-flush", "--log-level", "info"]
        command += ["--device-id", "0", "--thrift-port", str(self.thrift_port)]
        target = ["--", "--grpc-server-addr", self.p4runtime]
        if veth:
            program("ip", _IPROUTE)
            for port in ports:
                command += ["-i", f"{port}@switch{port}"]
            guard += [program("unshare", _UTIL_LINUX), "--net", "--mount", "--"]
            command = ["sh", "-ec", _NAMESPACE, "sh", str(MTU), " ".join(map(str, ports)), *command]
        else:
            target += ["--dp-grpc-server-addr", self.dataplane]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*guard, *command, *target],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        self.pid = self._process.pid
        self._finalizer = weakref.finalize(self, _kill, self._process, self.folder)  # runs at exit at last

    def check(self, timeout: float = 0.0) -> None:
        """Raise ToolFailed with the log's last lines if the switch has died, or dies within ``timeout`` s."""
        if not self._finalizer.alive:
            raise ToolFailed("simple_switch_grpc was stopped")
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(timeout)
            cause = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise ToolFailed(f"simple_switch_grpc died ({cause}); {self.last_lines()}")

    def last_lines(self) -> str:
        """Return the last lines of the logs, on one line."""
        texts = [log.read_text(errors="replace") for log in self._logs if log.exists()]
        lines = [
            [line.strip() for line in text.splitlines() if line.strip()][-_QUOTED_LINES:] for text in texts
        ]
        last = " | ".join(itertools.chain.from_iterable(lines))
        return f"its last lines: {last}" if last else "it logged nothing"

    def thrift_socket(self) -> socket.socket:
        """Return a connection to the Thrift server, which starts late and listens only in the namespace."""
        end = time.monotonic() + _SYSTEM_TIMEOUT
        while True:
            self.check()
            try:
                return self.run_in_namespace(lambda: connect_thrift(("127.0.0.1", self.thrift_port)))
            except ToolFailed:
                if time.monotonic() > end:
                    raise
            time.sleep(_RETRY_DELAY)

    def run_in_namespace(self, action: Callable[[], T]) -> T:
        """Call ``action`` in the switch's network namespace; sockets opened there stay usable."""
        if not self.veth:
            return action()
        return in_namespace(self.pid, action)

    def close(self) -> None:
        """Kill the switch, which removes its namespace and interfaces, and remove its folder."""
        self._finalizer()


def _kill(process: subprocess.Popen[bytes], folder: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SYSTEM_TIMEOUT)
    shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _home() -> Path:
    """Return the folder for temporary folders: $TMPDIR, or /tmp if socket paths in it would be too long."""
    home = Path(tempfile.gettempdir())
    longest = home / f"{_PREFIX}{'9' * 7}-{'x' * 8}" / "p4runtime"  # largest pid, and mkdtemp's suffix
    return home if len(os.fsencode(longest)) <= _SOCKET_PATH else Path("/tmp")


def _remove_stale() -> None:
    """Remove this user's folders of killed owners, whose switches died with them.

    Folders of other machines and containers stay, since their process numbers mean nothing here.
    """
    for folder in _home().glob(f"{_PREFIX}*"):
        owner = re.match(rf"{_PREFIX}(\d+)-", folder.name)
        if owner and _is_own_folder(folder) and _is_of_this_machine(folder) and not is_alive(int(owner[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_of_this_machine(folder: Path) -> bool:
    """Whether a process of this machine, in the same namespace of processes, has made a folder."""
    try:
        return read_plain(folder / _OWNER, 1024).decode(errors="replace") == machine()
    except OSError:
        return False


def _is_own_folder(path: Path) -> bool:
    """Return whether a path is a folder of this user, and no link."""
    try:
        status = path.lstat()
    except OSError:  # another start has just removed it
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
