"""Calls of controllers, carried out in slices between batches of frames.

A call is a generator. Each of its steps takes far less time than a slice. A step yields True if the call has
more to do, and False if it waits for the front. Everything runs in the thread of the forwarding loop.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from finsy.proto import rpc_code

from fanin.sim.switch.service.faults import Fault
from fanin.sim.switch.service.link import Kind, Link, Message, answer_fragments, encode_end

T = TypeVar("T")
Steps = Generator[bool, None, T]
WINDOW = 1 << 18  #: bytes of answers that a call may have in flight to its client
STREAM_WINDOW = 1 << 20  #: bytes that a controller's stream may have in flight; further messages are lost
STALL = 10.0  #: seconds that a client may do nothing while its call waits for it
_BATCH = 64  # messages of the front that are handled before calls take steps


@dataclass(frozen=True)
class Method:
    """A P4Runtime method.

    - ``carry_out``: returns the steps of a call. A step may raise Fault, which ends the call.
    - ``group``: name of the group of methods that share a limit.
    - ``limit``: maximum number of simultaneous calls of the group.
    """

    carry_out: Callable[[Call], Steps[None]]
    group: str
    limit: int


class Call:
    """A call of a controller.

    - ``number``: number of the call on the link between front and forwarding process.
    - ``method``: the P4Runtime method.
    - ``peer``: address of the client, without its port.
    - ``in_flight``: bytes of answers that the client has not yet read.
    - ``may_idle``: True for a stream that may be silent because its controller has made a bid.
    - ``wake``: resumes the call after it has yielded False.
    """

    def __init__(self, link: Link, number: int, method: Method, peer: str, wake: Callable[[Call], None]):
        self.number = number
        self.method = method
        self.peer = peer
        self.in_flight = 0
        self.may_idle = False
        self.steps: Steps[None] = method.carry_out(self)
        self._link = link
        self._wake = wake
        self._parts: deque[bytes] = deque()
        self._complete = False
        self._awaits_part = False
        self._last_message = self._last_credit = time.monotonic()  # times of the client's messages

    def next_part(self) -> Steps[bytes | None]:
        """Return the next part of the request; None after the last."""
        self._awaits_part = True
        self._link.send(self.number, Kind.NEXT)
        while not self._parts and not self._complete:
            yield False
        self._awaits_part = False
        return self._parts.popleft() if self._parts else None

    def answer(self, data: bytes, *, last: bool = True) -> Steps[None]:
        """Send an answer, or a fragment of one, when the client has room for it."""
        for kind, fragment in answer_fragments(data):
            while self.in_flight >= WINDOW:
                yield False
            self._send(kind if last else Kind.FRAGMENT, fragment)

    def put(self, data: bytes) -> bool:
        """Send an answer at once; return False if the client has too many bytes to take."""
        if self.in_flight + len(data) > STREAM_WINDOW:
            return False
        for kind, fragment in answer_fragments(data):
            self._send(kind, fragment)
        return True

    def report(self, statuses: bytes) -> None:
        """Send the statuses of a part."""
        self._link.send(self.number, Kind.STATUS, statuses)

    def wake(self) -> None:
        """Resume the call after it has yielded False."""
        self._wake(self)

    def _send(self, kind: Kind, fragment: bytes) -> None:
        if not self.in_flight:
            self._last_credit = time.monotonic()
        self.in_flight += len(fragment)
        self._link.send(self.number, kind, fragment)

    def take(self, message: Message) -> None:
        """Handle a message of the front: a credit, a part of the request, or its end."""
        now = time.monotonic()
        if message.kind is Kind.CREDIT:
            self._last_credit = now
            self.in_flight -= int(message.payload)
        else:
            self._last_message = now
            self._complete = message.kind is Kind.LAST
            if message.kind is Kind.PART:
                self._parts.append(message.payload)
        self.wake()

    def stall_fault(self, now: float) -> Fault | None:
        """Return the fault of a call whose client has done nothing for STALL seconds; None for any other."""
        if self.in_flight and now - self._last_credit >= STALL:
            return Fault(rpc_code.DEADLINE_EXCEEDED, f"the client has taken no answer for {STALL:g} seconds")
        if self._awaits_part and not self.may_idle and now - self._last_message >= STALL:
            return Fault(rpc_code.DEADLINE_EXCEEDED, f"the client has sent nothing for {STALL:g} seconds")
        return None


class Order:
    """Lets calls that change the switch run one after the other, in the order of their arrival."""

    def __init__(self) -> None:
        self._queue: deque[Call] = deque()

    def run_in_turn(self, call: Call, steps: Steps[T]) -> Steps[T]:
        """Carry out ``steps`` after the steps of all earlier calls have ended."""
        self._queue.append(call)
        try:
            while self._queue[0] is not call:
                yield False
            return (yield from steps)
        finally:
            self._queue.remove(call)
            if self._queue:
                self._queue[0].wake()


class Calls:
    """All calls in progress.

    - ``methods``: the P4Runtime methods, by name.
    - ``fail``: counts and reports an unexpected exception, and returns its line.
    - ``keep``: True for a call that never ends in favour of another client's call.
    """

    def __init__(
        self,
        link: Link,
        methods: Mapping[str, Method],
        fail: Callable[[str, Exception], str],
        keep: Callable[[Call], bool],
    ):
        self._link = link
        self._methods = methods
        self._fail = fail
        self._keep = keep
        self._calls: dict[int, Call] = {}
        self._ready: dict[Call, None] = {}  # in the order of their turns

    @property
    def ready(self) -> bool:
        """True if a call can take a step without a message of the front."""
        return bool(self._ready)

    def work(self, end: float) -> bool:
        """Handle messages of the front, and run steps of calls, until ``end`` or until all calls wait.

        ``end`` is of the monotonic clock. Returns False if the front has gone.
        """
        while True:
            for _ in range(_BATCH):
                try:
                    message = self._link.receive()
                except BlockingIOError:
                    break
                if message is None:
                    return False
                self._take(message)
                if time.monotonic() >= end:
                    return True
            if not self._ready:
                return True
            for _ in range(len(self._ready)):
                self._step()
                if time.monotonic() >= end:
                    return True

    def end_stalled(self, now: float) -> None:
        """End the calls whose clients do nothing."""
        for call in list(self._calls.values()):
            fault = call.stall_fault(now)
            if fault is not None:
                self.end(call, fault)

    def end(self, call: Call, fault: Fault) -> None:
        """End a call with ``fault``, without waiting for its client."""
        if self._close(call):
            self._link.send(call.number, Kind.KILL, encode_end(fault.code, fault.message))

    def end_all(self, fault: Fault) -> None:
        """End all calls at once."""
        for call in list(self._calls.values()):
            self.end(call, fault)

    def _take(self, message: Message) -> None:
        call = self._calls.get(message.call)
        if message.kind is Kind.OPEN:
            self._open(message)
        elif call is None:  # it has ended meanwhile
            pass
        elif message.kind is Kind.CANCEL:
            self._close(call)
        else:
            call.take(message)

    def _open(self, message: Message) -> None:
        name, _, peer = message.payload.decode().partition(" ")
        method = self._methods[name]
        call = Call(self._link, message.call, method, peer, self._wake)
        group_calls = [other for other in self._calls.values() if other.method.group == method.group]
        if len(group_calls) >= method.limit:
            victim = self._victim(group_calls, peer)
            if victim is None:
                text = f"there are {method.limit} {method.group} at a time at most"
                fault = Fault(rpc_code.RESOURCE_EXHAUSTED, text)
                self._link.send(call.number, Kind.KILL, encode_end(fault.code, fault.message))
                return
            self.end(victim, Fault(rpc_code.RESOURCE_EXHAUSTED, "another client had fewer calls"))
        self._calls[call.number] = call
        self._wake(call)

    def _victim(self, calls: list[Call], peer: str) -> Call | None:
        """Return the call to end in favour of ``peer``: the latest call of the busiest address, if any."""
        counts = Counter(call.peer for call in calls)
        for call in reversed(calls):
            if counts[call.peer] == max(counts.values()) > counts[peer] + 1 and not self._keep(call):
                return call
        return None

    def _wake(self, call: Call) -> None:
        if call.number in self._calls:
            self._ready.setdefault(call)

    def _step(self) -> None:
        call = next(iter(self._ready))
        del self._ready[call]
        try:
            if next(call.steps):
                self._ready[call] = None
            return
        except StopIteration:
            end = encode_end(rpc_code.OK, "")
        except Fault as error:
            end = encode_end(error.code, error.message)
        except Exception as error:
            end = encode_end(rpc_code.INTERNAL, self._fail("a call", error))
        if self._close(call):
            self._link.send(call.number, Kind.END, end)

    def _close(self, call: Call) -> bool:
        """Remove a call and run its clean-up; return False if it had already ended."""
        if self._calls.pop(call.number, None) is None:
            return False
        self._ready.pop(call, None)
        try:
            call.steps.close()
        except Exception as error:
            self._fail("the end of a call", error)
        return True
