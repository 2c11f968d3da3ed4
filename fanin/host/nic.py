"""Client of a node of one-sided writes that runs at a Linux interface.

``fanin nic run --kind rdma --control SOCKET`` serves the socket; docs/reference/nic.md describes the requests.
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

_READ_BYTES = 1 << 16  # bytes
_MAX_LINE = 1 << 20  # bytes of an answer


class RdmaNic:
    """Client of the node at a control socket, used as a context manager from one thread.

    ``seconds``: longest wait for an answer, not counting waits for messages. Raises InputError if no node
    serves the socket. Each call raises InputError with the node's message if the node refuses the request, and
    ToolFailed if the node has ended or does not answer in time. After a timeout :meth:`wait` may be called
    again.
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
        self._unparsed = b""  # received bytes not yet processed

    def info(self) -> dict[str, Any]:
        """Return the node's addresses, sizes, connected queue pairs, regions, and memory file."""
        return self.ask("info")

    def memory(self) -> npt.NDArray[np.uint8]:
        """Map the node's memory, shared with the node, for reading and writing."""
        info = self.info()
        return np.memmap(info["memory"], np.uint8, "r+", shape=(info["bytes"],))

    def connect(self, pair: int, ip: str, **fields: Any) -> None:
        """Connect a queue pair anew with one at ``ip``.

        Optional ``fields``:

        - ``peer``: number of the other queue pair; 256.
        - ``send_psn``, ``receive_psn``: first sequence numbers; 0.
        - ``mtu``, ``window``, ``retries``: as in ``Connection``.
        - ``mac``: of the other end; by default found by ARP.
        """
        self.ask("connect", pair=pair, ip=ip, **fields)

    def set_regions(self, *regions: dict[str, Any]) -> None:
        """Allow peers to write these regions and no others.

        Each region has an ``rkey``. By default its ``base`` and ``length`` cover the whole memory, and its
        ``pairs`` are all queue pairs.
        """
        self.ask("regions", regions=list(regions))

    def write(self, length: int, **fields: int) -> Ending:
        """Write ``length`` bytes from ``local`` to the peer's ``remote``; return the result.

        ``fields``, with defaults: ``local``, ``remote`` and ``pair`` (0), key ``rkey`` (1), ``immediate`` data
        (none).
        """
        return self.wait(self.post(length, **fields))

    def post(self, length: int, **fields: int) -> int:
        """Begin a write without waiting; return its number for :meth:`wait`."""
        return self._send("write", length=length, **fields)

    def wait(self, posted: int) -> Ending:
        """Wait for the result of a posted write; once per write."""
        return Ending[self._answer(posted)["ending"].upper()]

    def arrival(self, seconds: float = 0.0) -> dict[str, int] | None:
        """Return the next message with immediate data as ``pair``, ``immediate``, ``length``; None after
        ``seconds``.
        """
        self._socket.settimeout(self._seconds + seconds)
        try:
            return self.ask("arrival", seconds=seconds)["arrival"]
        finally:
            self._socket.settimeout(self._seconds)

    def counters(self) -> dict[str, int]:
        """Return the node's counters by the names of its registers."""
        return self.ask("counters")["counters"]

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send the request ``do`` with ``fields``; return its answer."""
        return self._answer(self._send(do, **fields))

    def close(self) -> None:
        """Close the connection; posted writes are still carried out."""
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
            self._store(line)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise InputError(f"{self._name}: {answer['error']}")
        return answer

    def _store(self, line: bytes) -> None:
        """Store an answer under its request's number. Raises ToolFailed for a line that is not an answer."""
        try:
            answer = parse_json(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            raise ToolFailed(f"{self._name}: not an answer of fanin nic run: {line[:40]!r}")
        self._answers[answer.pop("id")] = answer

    def _line(self) -> bytes:
        """Return the next line; empty if the node has ended. Bytes received before a timeout are kept."""
        while b"\n" not in self._unparsed:
            chunk = self._socket.recv(_READ_BYTES)
            if not chunk:
                return b""
            self._unparsed += chunk
            if len(self._unparsed) > _MAX_LINE:
                break
        line, _, self._unparsed = self._unparsed.partition(b"\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
