"""A node of one-sided writes that runs at a Linux interface, asked from a program.

``fanin nic run --kind rdma --control SOCKET`` serves the socket; docs/reference/nic.md has its requests.
"""

from __future__ import annotations

import json
import os
import socket
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError, ToolFailed
from fanin.base.records import parse_json
from fanin.rdma.facts import Ending

_PIECE = 1 << 16  # bytes
_MAX_LINE = 1 << 20  # bytes of an answer


class RdmaNic:
    """The node behind a control socket. ``seconds`` bound each wait for an answer, but those for messages.

    Use it as a context, from one thread. Raises InputError where nobody serves the socket. Each call raises
    InputError with the node's words where it refuses, and ToolFailed where it has ended or does not answer in
    time; then :meth:`wait` may be called again.
    """

    def __init__(self, control: str | os.PathLike[str], *, seconds: float = 60.0):
        self._name, self._seconds = os.fspath(control), seconds
        self._answers: dict[int, dict[str, Any]] = {}
        self._last = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        try:
            self._socket.connect(self._name)
        except OSError as error:
            self._socket.close()
            raise InputError(f"{self._name}: no node serves it: {error.strerror or error}") from error
        self._rest = b""  # of the node's answers: a line that has not ended, lines that follow it

    def info(self) -> dict[str, Any]:
        """What the node is: addresses, sizes, connected queue pairs, regions, its memory's file."""
        return self.ask("info")

    def memory(self) -> npt.NDArray[np.uint8]:
        """The node's memory, shared with it, to read and to write."""
        info = self.info()
        return np.memmap(info["memory"], np.uint8, "r+", shape=(info["bytes"],))

    def connect(self, pair: int, ip: str, **fields: Any) -> None:
        """Connect a queue pair anew with one at ``ip``.

        ``fields``: its number ``peer`` (256), ``send_psn`` and ``receive_psn`` (0), ``mtu``, ``window``,
        ``retries``, and its ``mac``, which ARP finds otherwise.
        """
        self.ask("connect", pair=pair, ip=ip, **fields)

    def set_regions(self, *regions: dict[str, Any]) -> None:
        """These regions and no others may be written.

        Of each the ``rkey``, and ``base``, ``length`` and ``pairs``, which are all there is by default.
        """
        self.ask("regions", regions=list(regions))

    def write(self, length: int, **fields: int) -> Ending:
        """Write ``length`` bytes from ``local`` here to ``remote`` there; how that ended.

        ``fields``: ``local``, ``remote`` and ``pair`` (0), the key ``rkey`` (1), ``immediate`` data (none).
        """
        return self.wait(self.post(length, **fields))

    def post(self, length: int, **fields: int) -> int:
        """Begin a write, and go on; a number for :meth:`wait`."""
        return self._send("write", length=length, **fields)

    def wait(self, posted: int) -> Ending:
        """How a write that was posted has ended. Each is waited for once."""
        return Ending[self._answer(posted)["ending"].upper()]

    def arrival(self, seconds: float = 0.0) -> dict[str, int] | None:
        """The next message with immediate data, as ``pair``, ``immediate``, ``length``; None: none in time."""
        self._socket.settimeout(self._seconds + seconds)
        try:
            return self.ask("arrival", seconds=seconds)["arrival"]
        finally:
            self._socket.settimeout(self._seconds)

    def counters(self) -> dict[str, int]:
        """What the node has counted, by its registers' names."""
        return self.ask("counters")["counters"]

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Carry out any request; its answer."""
        return self._answer(self._send(do, **fields))

    def close(self) -> None:
        """Hang up; what was posted is carried out."""
        self._socket.close()

    def _send(self, do: str, **fields: Any) -> int:
        self._last += 1
        try:
            self._socket.sendall(json.dumps({"id": self._last, "do": do, **fields}).encode() + b"\n")
        except OSError as error:
            raise ToolFailed(f"{self._name}: the node has ended") from error
        return self._last

    def _answer(self, number: int) -> dict[str, Any]:
        while number not in self._answers:
            try:
                line = self._line()
            except TimeoutError as error:
                raise ToolFailed(f"{self._name}: no answer in {self._seconds:g} s") from error
            except OSError:
                line = b""
            if not line:
                raise ToolFailed(f"{self._name}: the node has ended")
            self._keep(line)
        found = self._answers.pop(number)
        if "error" in found:
            raise InputError(f"{self._name}: {found['error']}")
        return found

    def _keep(self, line: bytes) -> None:
        """Keep an answer under the number of its request. Raises ToolFailed for a line that is none."""
        try:
            answer = parse_json(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            raise ToolFailed(f"{self._name}: not an answer of fanin nic run: {line[:40]!r}")
        self._answers[answer.pop("id")] = answer

    def _line(self) -> bytes:
        """The next line; empty where the node has ended. What has come before a timeout is kept."""
        while b"\n" not in self._rest:
            more = self._socket.recv(_PIECE)
            if not more:
                return b""
            self._rest += more
            if len(self._rest) > _MAX_LINE:
                break
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
