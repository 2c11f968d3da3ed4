"""Client of a node of one-sided writes that runs at a Linux interface.

``fanin nic run --kind rdma --control SOCKET`` serves the socket; docs/reference/nic.md describes the requests.
"""

from __future__ import annotations

import json
import os
import socket
import time
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
        self._pending: set[int] = set()  # requests without an answer
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
        match self.info():
            case {"memory": str(path), "bytes": int(size)} if size > 0:
                return np.memmap(path, np.uint8, "r+", shape=(size,))
        raise self._wrong_answer("info")

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
        match self._answer(posted):
            case {"ending": str(name)} if name.upper() in Ending.__members__:
                return Ending[name.upper()]
        raise self._wrong_answer("write")

    def arrival(self, seconds: float = 0.0) -> dict[str, int] | None:
        """Return the next message with immediate data as ``pair``, ``immediate``, ``length``; None after
        ``seconds``.
        """
        answer = self._answer(self._send("arrival", seconds=seconds), self._seconds + seconds)
        if "arrival" not in answer:
            raise self._wrong_answer("arrival")
        arrival: dict[str, int] | None = answer["arrival"]
        return arrival

    def counters(self) -> dict[str, int]:
        """Return the node's counters by the names of its registers."""
        match self.ask("counters"):
            case {"counters": dict(counters)} if all(isinstance(count, int) for count in counters.values()):
                return counters
        raise self._wrong_answer("counters")

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send the request ``do`` with ``fields``; return its answer."""
        return self._answer(self._send(do, **fields))

    def close(self) -> None:
        """Close the connection; posted writes are still carried out."""
        self._socket.close()

    def _send(self, do: str, **fields: Any) -> int:
        self._last += 1
        self._pending.add(self._last)
        try:
            self._socket.settimeout(self._seconds)
            self._socket.sendall(json.dumps({"id": self._last, "do": do, **fields}).encode() + b"\n")
        except OSError as error:
            raise ToolFailed(f"{self._name}: the node has ended") from error
        return self._last

    def _answer(self, number: int, seconds: float | None = None) -> dict[str, Any]:
        """Return the answer to a request, after at most ``seconds`` without an answer to any request."""
        limit = self._seconds if seconds is None else seconds
        while number not in self._answers:
            try:
                line = self._line(time.monotonic() + limit)
            except TimeoutError as error:
                raise ToolFailed(f"{self._name}: no answer in {limit:g} s") from error
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
        """Store an answer under its request's number. Raises ToolFailed for a line that answers no request."""
        try:
            answer = parse_json(line)
        except ValueError:
            answer = None
        number = answer.pop("id", None) if isinstance(answer, dict) else None
        if not isinstance(number, int) or number not in self._pending:
            raise ToolFailed(f"{self._name}: not an answer of fanin nic run: {line[:40]!r}")
        self._pending.remove(number)
        self._answers[number] = answer

    def _line(self, deadline: float) -> bytes:
        """Return the next line; empty if the node has ended. Bytes received before a timeout are kept.

        Raises TimeoutError if the line is not complete at ``deadline``, a time of the monotonic clock.
        """
        while b"\n" not in self._unparsed:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining)
            chunk = self._socket.recv(_READ_BYTES)
            if not chunk:
                return b""
            self._unparsed += chunk
            if len(self._unparsed) > _MAX_LINE:
                break
        line, _, self._unparsed = self._unparsed.partition(b"\n")
        return line

    def _wrong_answer(self, request: str) -> ToolFailed:
        return ToolFailed(f"{self._name}: its answer to {request} is not that of fanin nic run")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
