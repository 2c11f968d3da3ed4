"""Network of Linux namespaces: hosts with their own network stacks, connected by veth pairs.

Documentation: docs/reference/interfaces.md. Each namespace lives as long as a child process that waits for the
end of its input. The namespace and its interfaces therefore disappear when the lab is closed, and also when
this process is killed.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fanin.base.errors import InputError, ToolFailed
from fanin.base.tools import program

T = TypeVar("T")
_CAPABILITIES = 1 << 12 | 1 << 13 | 1 << 21  # CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN
_CLONE_NEWNET = 0x4000_0000
_LIMIT = 30.0  # seconds per command
_DISABLE_IPV6 = (
    "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"
)


def may_have_namespace() -> bool:
    """Return whether this process may create a network namespace; root in a container may not."""
    status = Path("/proc/self/status").read_text()
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return capabilities is not None and int(capabilities[1], 16) & _CAPABILITIES == _CAPABILITIES


def in_namespace(pid: int, action: Callable[[], T]) -> T:
    """Run ``action`` in a process's network namespace; return its result. Its sockets stay usable outside."""

    def run_inside() -> T:
        with open(f"/proc/{pid}/ns/net") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns failed")
        return action()

    future: Future[T] = Future()

    def carry_out() -> None:
        try:
            future.set_result(run_inside())
        except BaseException as error:  # raised in the caller's thread
            future.set_exception(error)

    # Only the thread enters the namespace, and leaves it by ending.
    threading.Thread(target=carry_out, daemon=True).start()
    try:
        return future.result(_LIMIT)
    except FutureTimeout as error:
        raise ToolFailed(f"namespace of process {pid}: no answer in {_LIMIT:g} s") from error


class Lab:
    """Network namespaces by name, each with only a loopback. Raises InputError if they cannot be created.

    IPv6 is off in them, so that hosts send no unrequested frames.
    """

    def __init__(self, names: Sequence[str]):
        unshare = program("unshare", "util-linux")
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name in names:
                # ``cat`` confirms that the namespace exists, and waits until we kill it or close its input.
                holder = subprocess.Popen(
                    [unshare, "--net", "--", "cat"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                self._holders[name] = holder
                assert holder.stdin is not None
                assert holder.stdout is not None
                try:
                    holder.stdin.write(b"\n")
                    holder.stdin.flush()
                    confirmation = holder.stdout.read(1)
                except BrokenPipeError:
                    confirmation = b""
                if not confirmation:
                    raise InputError("network namespaces may not be made here: that needs CAP_SYS_ADMIN (root)")
                self.run(name, ["ip", "link", "set", "lo", "up"])
                self.run(name, ["sh", "-c", _DISABLE_IPV6], check=False)  # a kernel may have no IPv6
        except BaseException:
            self.close()
            raise

    def inside(self, name: str, command: Sequence[str | Path]) -> list[str]:
        """Return ``command`` with the prefix that runs it in a namespace."""
        net = f"--net=/proc/{self._holders[name].pid}/ns/net"
        return [program("nsenter", "util-linux"), net, "--", *map(str, command)]

    def run(
        self, name: str, command: Sequence[str | Path], *, check: bool = True, limit: float = _LIMIT
    ) -> str:
        """Run a command; return its output. Raises ToolFailed if it fails or exceeds ``limit`` seconds."""
        try:
            process = subprocess.run(
                self.inside(name, command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"{name}: {command[0]} did not end in {limit:g} s") from error
        if check and process.returncode:
            raise ToolFailed(f"{name}: {' '.join(map(str, command))}: {' '.join(process.stdout.split())}")
        return process.stdout

    def start(self, name: str, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start a command; ``options`` as for Popen. The caller must end it."""
        return subprocess.Popen(self.inside(name, command), **options)

    def opened(self, name: str, action: Callable[[], T]) -> T:
        """Run ``action`` in a namespace; return its result. Its sockets stay usable outside."""
        return in_namespace(self._holders[name].pid, action)

    def wire(self, first: str, interface: str, second: str, peer: str) -> None:
        """Add a veth pair, both ends up: ``interface`` in namespace ``first``, ``peer`` in ``second``."""
        pid = str(self._holders[second].pid)
        self.run(
            first, ["ip", "link", "add", "name", interface, "type", "veth", "peer", "name", peer, "netns", pid]
        )
        for name, end in ((first, interface), (second, peer)):
            self.run(name, ["ip", "link", "set", end, "up"])

    def address(
        self,
        name: str,
        interface: str,
        ip: str,
        *,
        mac: str | None = None,
        gateway: str | None = None,
        neighbours: Mapping[str, str] | None = None,
    ) -> None:
        """Configure an interface.

        - ``ip``: address with prefix length.
        - ``mac``: MAC address; by default unchanged.
        - ``gateway``: default route, if any.
        - ``neighbours``: MAC by IP address of hosts that need no ARP.
        """
        if mac:
            self.run(name, ["ip", "link", "set", interface, "address", mac])
        self.run(name, ["ip", "address", "add", ip, "dev", interface])
        for neighbour, neighbour_mac in (neighbours or {}).items():
            self.run(name, ["ip", "neighbour", "replace", neighbour, "lladdr", neighbour_mac, "dev", interface])
        if gateway:
            self.run(name, ["ip", "route", "add", "default", "via", gateway])

    def close(self) -> None:
        """Remove the namespaces; a process that still runs in one keeps it until it ends."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
            for pipe in (holder.stdin, holder.stdout):
                if pipe is not None:
                    pipe.close()
        self._holders.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
