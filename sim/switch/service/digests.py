"""Digests for the controller: P4Runtime's lists of distinct messages, and their acknowledgement.

All calls come from the thread of the forwarding loop; times are seconds of the monotonic clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from finsy.proto import p4d, p4r, rpc_code

from fanin.sim.switch.embedded import Program
from fanin.sim.switch.service.data import encode
from fanin.sim.switch.service.faults import Fault, invalid, unknown
from fanin.sim.switch.service.names import Names

_INSERT, _DELETE = p4r.Update.INSERT, p4r.Update.DELETE
MAX_LIST = 4096  #: maximum messages in a list, whatever its configuration says
_REMEMBERED = 1 << 16  # maximum messages of one digest that wait for acknowledgement
_NS = 1e-9


class _Digest:
    """A digest: its configuration, pending messages, and lists that the controller has not acknowledged."""

    def __init__(self, config: p4r.DigestEntry.Config):
        self.config = config
        self.pending: dict[bytes, p4d.P4Data] = {}
        self.oldest_arrival = math.inf  # arrival of the first pending message
        self.sent: dict[int, tuple[float, list[bytes]]] = {}  # time and messages, by list
        self.unacknowledged: set[bytes] = set()  # messages in ``sent``
        self.list_count = 0

    @property
    def full(self) -> bool:
        limit = self.config.max_list_size or MAX_LIST
        return len(self.pending) >= min(limit, MAX_LIST) or not self.config.max_timeout_ns

    @property
    def due(self) -> float:
        """Time of the next action: a list to send, or to forget without acknowledgement."""
        sent_at = next(iter(self.sent.values()), (math.inf, []))[0]
        return min(
            self.oldest_arrival + self.config.max_timeout_ns * _NS, sent_at + self.config.ack_timeout_ns * _NS
        )

    def forget(self, number: int) -> None:
        """Remove a list that is acknowledged or too old."""
        _, messages = self.sent.pop(number, (0, []))
        self.unacknowledged.difference_update(messages)


class Digests:
    """Digests of ``program`` for its controller, by the ids of ``names``.

    - ``send``: sends a message to the primary controller; returns False if there is none.
    - ``wake``: called with the time at which :meth:`run` is due.
    """

    def __init__(
        self,
        program: Program,
        names: Names,
        send: Callable[[p4r.StreamMessageResponse], bool],
        wake: Callable[[float], None],
    ):
        self._program = program
        self._names = names
        self._send = send
        self._wake = wake
        self._numbers = {info.preamble.name: info.preamble.id for info in names.externs("digests")}
        self._digests: dict[int, _Digest] = {}

    # the controller's side

    def write(self, kind: int, message: p4r.DigestEntry) -> None:
        """Configure a digest, change its configuration, or end it. Raises Fault."""
        name = self._names.extern("digests", message.digest_id).preamble.name
        digest = self._digests.get(message.digest_id)
        if kind == _INSERT and digest is not None:
            raise Fault(rpc_code.ALREADY_EXISTS, f"digest {name} is configured")
        if kind != _INSERT and digest is None:
            raise unknown(f"digest {name} is not configured")
        config = message.config
        if kind == _DELETE:
            del self._digests[message.digest_id]
        elif min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
            raise invalid(f"digest {name}: a timeout or a size below 0")
        elif digest is None:
            self._digests[message.digest_id] = _Digest(config)
        else:
            digest.config = config
            self._wake(time.monotonic())

    def read(self, query: p4r.DigestEntry) -> Iterator[p4r.Entity]:
        """Yield the configuration of one digest, or of all configured ones. Raises Fault."""
        if query.digest_id:
            self._names.extern("digests", query.digest_id)
        for number, digest in list(self._digests.items()):
            if query.digest_id in (0, number):
                yield p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number, config=digest.config))

    def acknowledge(self, message: p4r.DigestListAck) -> None:
        """Handle the controller's acknowledgement of a list. Raises Fault if there is no such digest."""
        if message.digest_id not in self._numbers.values():
            raise invalid(f"there is no digest with the id {message.digest_id}")
        if message.digest_id in self._digests:
            self._digests[message.digest_id].forget(message.list_id)

    # the switch's side

    def receive(self, name: str, values: Any) -> None:
        """Queue a message that a packet has caused, unless it is pending or unacknowledged."""
        number = self._numbers.get(name, 0)
        digest = self._digests.get(number)
        if digest is None:
            return
        data = encode(values, self._program.digests[name].type, self._program.errors)
        message = data.SerializeToString(deterministic=True)
        if message in digest.pending or message in digest.unacknowledged:
            return
        now = time.monotonic()
        if not digest.pending:
            digest.oldest_arrival = now
        digest.pending[message] = data
        if digest.full:
            self._emit(number, digest, now)
        self._wake(digest.due)

    def run(self) -> float:
        """Carry out the actions that are due; return the time of the next one."""
        now = time.monotonic()
        for number, digest in self._digests.items():
            if digest.pending and (
                digest.full or digest.oldest_arrival + digest.config.max_timeout_ns * _NS <= now
            ):
                self._emit(number, digest, now)
            while digest.sent:
                oldest, (sent_at, _) = next(iter(digest.sent.items()))
                if sent_at + digest.config.ack_timeout_ns * _NS > now:
                    break
                digest.forget(oldest)
        return min((digest.due for digest in self._digests.values()), default=math.inf)

    def _emit(self, number: int, digest: _Digest, now: float) -> None:
        digest.list_count += 1
        message = p4r.DigestList(
            digest_id=number, list_id=digest.list_count, data=digest.pending.values(), timestamp=time.time_ns()
        )
        if self._send(p4r.StreamMessageResponse(digest=message)) and digest.config.ack_timeout_ns:
            digest.sent[digest.list_count] = now, list(digest.pending)
            digest.unacknowledged.update(digest.pending)
            while len(digest.unacknowledged) > _REMEMBERED:
                digest.forget(next(iter(digest.sent)))
        digest.pending.clear()
        digest.oldest_arrival = math.inf
