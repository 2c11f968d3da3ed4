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
from fanin.sim.switch.service.link import Kind, Link, Message, ending, pieces

T = TypeVar("T")
Steps = Generator[bool, None, T]
WINDOW = 1 << 18  #: bytes of answers that a call may have in flight to its client
STREAM_WINDOW = 1 << 20  #: bytes in flight on a controller's stream; further messages are lost
STALL = 10.0  #: seconds that a client may do nothing while its call waits for it
_AT_ONCE = 64  # messages of the front per visit, before calls have their turn


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

    - ``number``: its number between the two processes.
    - ``method``: the P4Runtime method.
    - ``peer``: address of the client, without its port.
    - ``waiting``: bytes of answers that the client has not yet taken.
    - ``patient``: True for a stream that may be silent because its controller has made a bid.
    """

    def __init__(self, link: Link, number: int, method: Method, peer: str, wake: Callable[[Call], None]):
        self.number = number
        self.method = method
        self.peer = peer
        self.waiting = 0
        self.patient = False
        self.steps: Steps[None] = method.carry_out(self)
        self._link = link
        self._wake = wake
        self._parts: deque[bytes] = deque()
        self._complete = False
        self._asked = False
        self._heard = self._taken = time.monotonic()  # times of the client's last message, and last taking

    def next_part(self) -> Steps[bytes | None]:
        """Return the next part of the request; None after the last."""
        self._asked = True
        self._link.send(self.number, Kind.MORE)
        while not self._parts and not self._complete:
            yield False
        self._asked = False
        return self._parts.popleft() if self._parts else None

    def answer(self, data: bytes, *, last: bool = True) -> Steps[None]:
        """Send an answer, or a piece of one, when the client has room for it."""
        for kind, piece in pieces(data):
            while self.waiting >= WINDOW:
                yield False
            self._send(kind if last else Kind.PIECE, piece)

    def put(self, data: bytes) -> bool:
        """Send an answer at once; return False if the client has too many bytes to take."""
        if self.waiting + len(data) > STREAM_WINDOW:
            return False
        for kind, piece in pieces(data):
            self._send(kind, piece)
        return True

    def report(self, statuses: bytes) -> None:
        """Send the statuses of a part."""
        self._link.send(self.number, Kind.STATUS, statuses)

    def wake(self) -> None:
        """Let the call continue after it has yielded False."""
        self._wake(self)

    def _send(self, kind: Kind, piece: bytes) -> None:
        if not self.waiting:
            self._taken = time.monotonic()
        self.waiting += len(piece)
        self._link.send(self.number, kind, piece)

    def take(self, message: Message) -> None:
        """Take in a message of the front."""
        now = time.monotonic()
        if message.kind is Kind.TAKEN:
            self._taken = now
            self.waiting -= int(message.payload)
        else:
            self._heard = now
            self._complete = message.kind is Kind.LAST
            if message.kind is Kind.PART:
                self._parts.append(message.payload)
        self.wake()

    def complaint(self, now: float) -> Fault | None:
        """Return the reason to end the call if its client does nothing, else None."""
        if self.waiting and now - self._taken >= STALL:
            return Fault(rpc_code.DEADLINE_EXCEEDED, f"the client has taken no answer for {STALL:g} seconds")
        if self._asked and not self.patient and now - self._heard >= STALL:
            return Fault(rpc_code.DEADLINE_EXCEEDED, f"the client has sent nothing for {STALL:g} seconds")
        return None


class Order:
    """Lets calls that change the switch run one after the other, in the order of their arrival."""

    def __init__(self) -> None:
        self._queue: deque[Call] = deque()

    def turn(self, call: Call, steps: Steps[T]) -> Steps[T]:
        """Carry out ``steps`` when all earlier calls have ended."""
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
        """True if a call need not wait for the front."""
        return bool(self._ready)

    def work(self, end: float) -> bool:
        """Take messages of the front and let calls take steps, until ``end`` or until all wait.

        ``end`` is of the monotonic clock. Returns False if the front has gone.
        """
        while True:
            for _ in range(_AT_ONCE):
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

    def look(self, now: float) -> None:
        """End the calls whose clients do nothing."""
        for call in list(self._calls.values()):
            fault = call.complaint(now)
            if fault is not None:
                self.end(call, fault)

    def end(self, call: Call, fault: Fault) -> None:
        """End a call at once."""
        if self._close(call):
            self._link.send(call.number, Kind.KILL, ending(fault.code, fault.message))

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
        others = [other for other in self._calls.values() if other.method.group == method.group]
        if len(others) >= method.limit:
            victim = self._victim(others, peer)
            if victim is None:
                text = f"there are {method.limit} {method.group} at a time at most"
                fault = Fault(rpc_code.RESOURCE_EXHAUSTED, text)
                self._link.send(call.number, Kind.KILL, ending(fault.code, fault.message))
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
            end = ending(rpc_code.OK, "")
        except Fault as error:
            end = ending(error.code, error.message)
        except Exception as error:
            end = ending(rpc_code.INTERNAL, self._fail("a call", error))
        if self._close(call):
            self._link.send(call.number, Kind.END, end)

    def _close(self, call: Call) -> bool:
        """Forget a call, and let it undo what it holds; return False if it had ended."""
        if self._calls.pop(call.number, None) is None:
            return False
        self._ready.pop(call, None)
        try:
            call.steps.close()
        except Exception as error:
            self._fail("the end of a call", error)
        return True
