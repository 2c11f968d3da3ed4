"""Host end of a board's control port: register batches and memories over UDP, with exactly-once requests.

Protocol: docs/systems/boards.md, "Control". A client controls one board and waits for each reply. To control
several boards in parallel, use several clients in threads.

A host first takes a lease with HELLO: the board's reply offers a lease number, and the host's first request
with this number takes the lease. Every request has the lease and the next sequence number. A request without a
reply is sent again unchanged. A board that has already carried it out only repeats the reply, so no access
happens twice.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from types import TracebackType
from typing import Protocol, Self, TypeVar

from fanin.base.errors import InputError
from fanin.hdl.bus.register_map import RegisterMap
from fanin.host.driver import Batch, Operation, Value
from fanin.wire.control import (
    ABOUT,
    ABOUT_WORDS,
    CONTROL_PORT,
    FIRST_SEQUENCE,
    MAX_DUMP,
    MAX_LOAD,
    MAX_OPERATIONS,
    VERSION,
    VERSION_AT,
    WORD_BYTES,
    WRITE_BIT,
    ControlFrame,
    Kind,
    Status,
    decode_control,
    encode_control,
    hello_request,
    memory_bytes,
    pack_words,
)
from fanin.wire.fields import unpack_fields

TIMEOUT = 0.05  # seconds until a request is sent again
TRIES = 20
OFFERS = 20  # offers that a client tries to take before it gives up
_SEQUENCES = 1 << 32  # sequence numbers are modulo this
_CHECKSUM_WORDS = 4096  # words per checksum; a simulated board must read them before the host gives up
POLL_INTERVAL = 0.002  # seconds
_MAX_DATAGRAM = 65536  # bytes of any datagram, at most

Item = TypeVar("Item")


class BoardError(InputError):
    """A board cannot do what was requested; the message is one line that names the board."""


class BoardLost(BoardError):
    """The board does not answer, or has dropped our lease."""


class LeaseUnknown(BoardLost):
    """The board does not know our lease, or no longer offers it."""


class BoardHeld(BoardError):
    """Another host holds the board."""


class WrongBoard(BoardError):
    """The board has another kind, build or version than expected."""


class BusFault(BoardError):
    """The board's bus answered an access with an error."""


@dataclass(frozen=True)
class BoardDescription:
    """Description of a board, which it sends to any host."""

    holder: IPv4Address | None  #: the host that holds it
    board: int  #: kind of board
    version: int  #: version of its registers
    build: int  #: number of the build
    uptime: int  #: seconds since reset
    state: int  #: value of the register ``state``
    offer: int  #: next lease; only this host may take it, until any host's next hello


class Channel(Protocol):
    """Transport of datagrams to and from one board."""

    @property
    def local_host(self) -> str:
        """Address of this host on the path to the board."""

    @property
    def remote_host(self) -> str:
        """Numeric address of the board."""

    def exchange(self, payload: bytes, timeout: float) -> Iterator[bytes]:
        """Send a datagram; yield those from the board until ``timeout`` seconds have passed."""

    def close(self) -> None:
        """Close the channel."""


class UdpChannel:
    """Channel over a UDP socket. Raises InputError for an unknown host."""

    def __init__(self, host: str, port: int):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.connect((host, port))
        except (OSError, TypeError) as error:  # TypeError: the text cannot be a host name
            self._socket.close()
            raise InputError(f"board {host}: {getattr(error, 'strerror', None) or error}") from error

    @property
    def local_host(self) -> str:
        """Address of this host on the path to the board."""
        local: str = self._socket.getsockname()[0]
        return local

    @property
    def remote_host(self) -> str:
        """Numeric address of the board."""
        remote: str = self._socket.getpeername()[0]
        return remote

    def exchange(self, payload: bytes, timeout: float) -> Iterator[bytes]:
        """Send a datagram; yield those that arrive in time. Without a listener, none does."""
        end = time.monotonic() + timeout
        try:
            self._socket.send(payload)
            while (remaining := end - time.monotonic()) > 0:
                self._socket.settimeout(remaining)
                yield self._socket.recv(_MAX_DATAGRAM)
        except TimeoutError:
            return
        except OSError:  # no listener (yet), or the network is down: equivalent to no answer
            time.sleep(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class BoardClient:
    """Client of the board at ``host``, which may be used as a context manager.

    The client holds the board from :meth:`acquire`, or its first request, to :meth:`release`.

    - ``timeout``: seconds until a request is sent again.
    - ``tries``: transmissions of a request until the board counts as lost.
    - ``board``, ``build``, ``version``: if given, the values that the board must report when it is acquired.
    - ``channel``: transport; UDP by default. Errors name ``host`` in any case.

    All methods raise BoardLost if the board does not answer or has dropped the lease, and BoardHeld if another
    host holds it. After a request without an answer, each request is sent only once until the board answers
    again.
    """

    def __init__(
        self,
        host: str,
        port: int = CONTROL_PORT,
        *,
        timeout: float = TIMEOUT,
        tries: int = TRIES,
        board: int | None = None,
        build: int | None = None,
        version: int | None = None,
        channel: Channel | None = None,
    ):
        if tries < 1 or timeout <= 0:
            raise ValueError(f"tries and timeout must be above 0, not {tries!r} and {timeout!r}")
        self.host = host
        self.port = port
        self.timeout = timeout
        self.tries = tries
        self.resent = 0  #: number of retransmissions
        self._expected = {"board": board, "version": version, "build": build}
        self._lease = 0
        self._sequence = 0
        self._hellos = 0
        self._lost = False  # the last request had no answer
        self._channel = channel or UdpChannel(host, port)

    def __enter__(self) -> Self:
        try:
            self.acquire()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Release the board. After an error, further errors of the board are suppressed."""
        try:
            self.release()
        except BoardError:
            if error is None:
                raise
        finally:
            self.close()

    @property
    def local_host(self) -> str:
        """Address of this host on the path to the board."""
        return self._channel.local_host

    @property
    def remote_host(self) -> str:
        """Numeric address of the board."""
        return self._channel.remote_host

    def close(self) -> None:
        """Close the channel; without a release the lease ends after a minute of silence."""
        self._channel.close()

    def hello(self) -> BoardDescription:
        """Return the board's description and holder; possible for any host."""
        self._hellos = (self._hellos + 1) % _SEQUENCES
        return _description_of(self._exchange(hello_request(self._hellos, lease=self._lease)))

    def acquire(self) -> BoardDescription:
        """Take a new lease of the board; an earlier lease of this client ends first.

        Another host's hello before our first request invalidates our offer; the client then tries again after a
        random delay. Raises WrongBoard, and BoardHeld, which names the other host.
        """
        with contextlib.suppress(BoardError):  # after a reset of the board the lease no longer exists
            self.release()
        for _ in range(OFFERS):
            description = self.hello()
            self._check_expected(description)
            if self._accept_offer(description.offer):
                return description
            time.sleep(random.uniform(0, self.timeout))
        raise BoardLost(
            f"board {self.host}: other hosts' hellos ended its {OFFERS} offers to us; try again later"
        )

    def _check_expected(self, description: BoardDescription) -> None:
        for name, expected in self._expected.items():
            actual = getattr(description, name)
            if expected is not None and actual != expected:
                raise WrongBoard(f"board {self.host}: its {name} must be {expected:#x}, not {actual:#x}")

    def _accept_offer(self, offer: int) -> bool:
        """Make the first request with the offered lease; return False if the offer is no longer valid."""
        if not offer:  # no lease has this number
            return False
        self._lease, self._sequence = offer, FIRST_SEQUENCE - 1
        try:
            self.operate([])
        except LeaseUnknown:
            self._lease = 0
            return False
        except BoardError:
            self._lease = 0
            raise
        return True

    def release(self) -> None:
        """Release the board if this client holds it."""
        if self._lease:
            try:
                self._request(Kind.RELEASE)
            finally:
                self._lease = 0

    def run(self, batch: Batch) -> list[Value]:
        """Run a batch; return the values of its reads. Raises BusFault at the first access that fails."""
        return batch.results(self.operate(batch.operations))

    def operate(self, operations: Sequence[Operation]) -> list[int]:
        """Perform any number of accesses in order; return the words that were read."""
        read: list[int] = []
        for part in _parts(operations, MAX_OPERATIONS):
            pairs = [(address, 0) if data is None else (address | WRITE_BIT, data) for address, data in part]
            words = tuple(word for pair in pairs for word in pair)
            read += self._request(Kind.ACCESS, len(part), words, reads=sum(data is None for _, data in part))
        return read

    def read32(self, address: int) -> int:
        """Read a word."""
        return self.operate([Operation(address)])[0]

    def write32(self, address: int, data: int) -> None:
        """Write a word."""
        self.operate([Operation(address, data)])

    def load(self, address: int, words: Sequence[int]) -> None:
        """Write consecutive words, then compare a checksum on the board. Raises BoardError if it differs."""
        for n, part in enumerate(_parts(words, MAX_LOAD)):
            start = address + n * MAX_LOAD * WORD_BYTES
            self._request(Kind.LOAD, len(part), (start, *map(int, part)))
        for n, part in enumerate(_parts(words, _CHECKSUM_WORDS)):
            start = address + n * _CHECKSUM_WORDS * WORD_BYTES
            if self._checksum(start, len(part)) != zlib.crc32(memory_bytes(part)):
                end = start + len(part) * WORD_BYTES
                raise BoardError(f"board {self.host}: {start:#x} to {end:#x} does not hold what was loaded")

    def dump(self, address: int, count: int) -> list[int]:
        """Read ``count`` consecutive words."""
        read: list[int] = []
        while len(read) < count:
            part_words = min(MAX_DUMP, count - len(read))
            read += self._request(Kind.DUMP, part_words, (address + len(read) * WORD_BYTES,), reads=part_words)
        return read

    def _checksum(self, address: int, count: int) -> int:
        return self._request(Kind.CHECKSUM, 0, (address, count), reads=1)[0]

    def _request(
        self, kind: Kind, count: int = 0, words: tuple[int, ...] = (), *, reads: int = 0
    ) -> tuple[int, ...]:
        """Send the next request with our lease; return its ``reads`` words."""
        if not self._lease:
            self.acquire()
        self._sequence = (self._sequence + 1) % _SEQUENCES
        reply = self._exchange(ControlFrame(kind, self._lease, self._sequence, count, words))
        if len(reply.words) != reads:
            raise BoardError(f"board {self.host}: it answered {len(reply.words)} words, not {reads}")
        return reply.words

    def _exchange(self, request: ControlFrame) -> ControlFrame:
        """Send a request until it is answered; return the reply, whose status is DONE."""
        payload = encode_control(request)
        transmissions = 1 if self._lost else self.tries
        for attempt in range(transmissions):
            self.resent += attempt > 0
            reply = self._send(payload, request)
            if reply is not None:
                self._lost = False
                self._check(reply)
                return reply
        self._lost = True
        seconds = transmissions * self.timeout
        raise BoardLost(f"board {self.host}: no answer to {transmissions} requests in {seconds:g} s")

    def _send(self, payload: bytes, request: ControlFrame) -> ControlFrame | None:
        """Send once and wait; return the reply, or None after the timeout. Late earlier replies are ignored."""
        for data in self._channel.exchange(payload, self.timeout):
            reply = decode_control(data)
            if reply is not None and _answers(reply, request):
                return reply
        return None

    def _check(self, reply: ControlFrame) -> None:
        match reply.status:
            case Status.DONE:
                return
            case Status.HELD:
                holder = None if reply.kind == Kind.HELLO else self.hello().holder  # a hello is never refused
                raise BoardHeld(f"board {self.host}: {holder or 'another host'} holds it")
            case Status.UNKNOWN:
                raise LeaseUnknown(f"board {self.host}: it was reset, or heard nothing for too long")
            case Status.BUS:
                raise BusFault(f"board {self.host}: its bus refuses address {reply.words[0]:#010x}")
        if reply.version != VERSION:
            raise BoardError(
                f"board {self.host}: speaks version {reply.version} of the control protocol, this host version "
                f"{VERSION}; build and flash the board anew, or use the fanin that built it"
            )
        raise BoardError(f"board {self.host}: it reports a malformed request")


def _answers(reply: ControlFrame, request: ControlFrame) -> bool:
    """Return whether a frame is a complete reply to this request, with the words that its status implies."""
    if reply.status == Status.REQUEST or reply.count != len(reply.words):
        return False
    if reply.status == Status.DONE:
        complete = reply.kind != Kind.HELLO or reply.count == ABOUT_WORDS
    else:
        complete = reply.count == (reply.status == Status.BUS)
    return complete and all(
        getattr(reply, name) == getattr(request, name) for name in ("kind", "lease", "sequence")
    )


def _description_of(reply: ControlFrame) -> BoardDescription:
    fields = unpack_fields(ABOUT, pack_words(reply.words))
    holder = IPv4Address(fields["holder"]) if fields["holder"] else None
    version, board = divmod(fields["board"], 1 << VERSION_AT)
    return BoardDescription(
        holder, board, version, *(fields[name] for name in ("build", "uptime", "state", "offer"))
    )


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield ``items`` in parts of at most ``size``; one empty part if there are none."""
    yield items[:size]
    for start in range(size, len(items), size):
        yield items[start : start + size]


def poll_field(
    board: BoardClient,
    registers: RegisterMap,
    name: str,
    field: str,
    value: int,
    *,
    timeout: float,
    base: int = 0,
) -> None:
    """Wait until a field of the register ``name`` has a value. Raises BoardError after ``timeout`` seconds."""
    end = time.monotonic() + timeout
    while True:
        (actual,) = board.run(Batch(registers, base=base).read(name))
        actual = actual[field] if isinstance(actual, dict) else actual
        if actual == value:
            return
        if time.monotonic() >= end:
            raise BoardError(f"board {board.host}: {field} is still {actual}, not {value}, after {timeout:g} s")
        time.sleep(POLL_INTERVAL)
