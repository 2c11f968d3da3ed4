"""The front of a served switch: speaks gRPC with controllers, and passes their calls to the forwarding process.

The front is a separate process, because parsing a large request holds Python's lock for longer than a frame may
wait. It divides requests into parts of bounded size, and sends a part when the forwarding process asks for it
(NEXT). It passes answers on at once. Each answer that the client has taken is a *credit* (CREDIT, a number of
bytes): the forwarding process has a bounded number of bytes without credit in flight on a call.

``python -m fanin.sim.switch.service.front SOCKET SECONDS`` serves the link at file number ``SOCKET``, after a
delay of ``SECONDS``, until the other end closes the link.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
from finsy.proto import p4i, rpc_code
from google.protobuf.message import DecodeError

from fanin.sim.switch.service import protobuf
from fanin.sim.switch.service.faults import Fault, invalid
from fanin.sim.switch.service.link import (
    BARE_P4INFO,
    COOKIE,
    DEVICE,
    FRAGMENT_BYTES,
    MAX_PART_BYTES,
    P4INFO,
    Kind,
    Message,
    decode_end,
    encode_end,
    pack,
    receive,
)
from fanin.sim.switch.service.statuses import abort, finish_batch
from fanin.sim.switch.service.verify import Verifier, bare_p4info

SERVICE = "/p4.v1.P4Runtime/"
MAX_REQUEST_BYTES = 1 << 24  #: maximum bytes of a request
MAX_P4INFO_BYTES = 1 << 22  #: maximum bytes of P4Info in a request
MAX_UPDATES = 1 << 18  #: maximum updates of a Write
MAX_ENTITIES = 1 << 13  #: maximum entities of a Read
MAX_CALLS = 48  #: maximum simultaneous calls, including those to be refused
_MAX_FIELDS = 1 << 10  # of SetForwardingPipelineConfigRequest and its configuration, which have seven and three
_ELEMENTS_PER_PART = 64  # most updates or entities in a part: forwarding waits for one part at most
# Numbers of protobuf fields in requests.
_UPDATES = 4  # of WriteRequest
_ENTITIES = 2  # of ReadRequest
_CONFIG = 5  # of SetForwardingPipelineConfigRequest
_NICE = 5  # lower priority than forwarding, for machines with few processors
_GRACE = 1.0  # seconds that calls have to end
_SWITCH_ENDED = Message(0, Kind.END, encode_end(rpc_code.UNAVAILABLE, "the switch ends"))
_OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_concurrent_streams", MAX_CALLS),  # per connection, which the channels of a process share
    ("grpc.max_allowed_incoming_connections", 256),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),  # without a call
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # applies beside keepalive_timeout_ms; default 60 s
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.bdp_probe", 0),  # windows keep their size
]


class _Call:
    """A call of a client, and the messages of the forwarding process on it."""

    def __init__(self, front: Front, number: int, context: grpc.ServicerContext):
        self.context = context
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._front = front
        self.number = number

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a message on this call."""
        self._front.send(pack(self.number, kind, payload))

    def answers(self, send_part: Callable[[], None], statuses: list[bytes] | None = None) -> Iterator[bytes]:
        """Yield the answers as serialized messages. Raises Fault if the call ends with one.

        A fragment is credited when it arrives, and the last one when the client has taken the whole answer.

        - ``send_part``: sends the next part of the request; called for each NEXT.
        - ``statuses``: list to which the statuses of a batch's parts are appended.
        """
        fragments: list[bytes] = []
        while True:
            message = self.messages.get()  # waits until the call ends; the switch ends inactive calls
            if message.kind is Kind.NEXT:
                send_part()
            elif message.kind in (Kind.FRAGMENT, Kind.DATA):
                fragments.append(message.payload)
                if message.kind is Kind.DATA:
                    yield b"".join(fragments)  # until the client has room for it
                    fragments.clear()
                self.send(Kind.CREDIT, str(len(message.payload)).encode())
            elif message.kind is Kind.STATUS and statuses is not None:
                statuses += protobuf.split(message.payload)
            elif message.kind is Kind.END:
                code, text = decode_end(message.payload)
                if code:
                    raise Fault(code, text)
                return

    def part_of(self, parts: Iterator[bytes]) -> Callable[[], None]:
        """Return a function that sends the next of ``parts``, or LAST after them."""

        def send() -> None:
            part = next(parts, None)
            self.send(*((Kind.LAST,) if part is None else (Kind.PART, part)))

        return send


class Front(grpc.GenericRpcHandler):
    """Calls of clients to any P4Runtime method, at the front's end of a link."""

    def __init__(self, end: socket.socket, verifier: Verifier):
        self._end = end
        self._verifier = verifier
        self._sending = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._call_numbers = itertools.count(1)
        self._ended = False
        self._methods: dict[str, Callable[[_Call, Iterator[bytes]], Iterator[bytes]]] = {
            "StreamChannel": self._stream,
            "Write": self._write,
            "Read": self._read,
            "SetForwardingPipelineConfig": self._configure,
            "GetForwardingPipelineConfig": self._single,
            "Capabilities": self._single,
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a method: bytes in, bytes out."""
        name = details.method.removeprefix(SERVICE)
        if name not in self._methods:
            return None
        method = self._methods[name]

        def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._handle(name, method, requests, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    def send(self, data: bytes) -> None:
        """Send a datagram; nothing once the forwarding process has gone."""
        with self._sending, contextlib.suppress(OSError):
            self._end.send(data)

    def run(self) -> None:
        """Pass the messages of the forwarding process to their calls until it ends the link."""
        while (message := receive(self._end)) is not None:
            call = self._calls.get(message.call)
            if call is None:  # it has ended meanwhile
                continue
            if message.kind is Kind.KILL:
                call.messages.put(message._replace(kind=Kind.END))
                timer = threading.Timer(_GRACE, self._cancel, (call,))  # its thread may wait for the client
                timer.daemon = True
                timer.start()
            else:
                call.messages.put(message)
        self._ended = True
        for call in list(self._calls.values()):
            call.messages.put(_SWITCH_ENDED)

    def _cancel(self, call: _Call) -> None:
        """Cancel a call that has not ended yet."""
        if call.number in self._calls:
            call.context.cancel()

    def _handle(
        self,
        name: str,
        method: Callable[[_Call, Iterator[bytes]], Iterator[bytes]],
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> Iterator[bytes]:
        """Announce a call to the forwarding process, yield its answers, and end it.

        The callback wakes ``method``, which waits for messages, when the client's call ends. ``add_callback``
        returns False if the call has already ended; nothing would then wake it.
        """
        number = next(self._call_numbers)
        call = self._calls[number] = _Call(self, number, context)
        try:
            # The text of _SWITCH_ENDED does not matter if the client has ended the call.
            if self._ended or not context.add_callback(lambda: call.messages.put(_SWITCH_ENDED)):
                call.messages.put(_SWITCH_ENDED)
            call.send(Kind.OPEN, f"{name} {_address(context.peer())}".encode())
            yield from method(call, requests)
        except grpc.RpcError:  # the client has gone
            pass
        except Fault as fault:
            abort(context, fault)
        except protobuf.LimitError as error:
            abort(context, Fault(rpc_code.RESOURCE_EXHAUSTED, str(error)))
        except protobuf.MalformedError as error:
            abort(context, invalid(f"{name}: {error}"))
        finally:
            del self._calls[number]
            call.send(Kind.CANCEL)

    # methods

    def _single(self, call: _Call, requests: Iterator[bytes]) -> Iterator[bytes]:
        yield from call.answers(call.part_of(map(_check_size, requests)))

    def _write(self, call: _Call, requests: Iterator[bytes]) -> Iterator[bytes]:
        statuses: list[bytes] = []
        parts = _split_request(requests, _UPDATES, MAX_UPDATES, "updates")
        yield from call.answers(call.part_of(parts), statuses)
        finish_batch(call.context, statuses)
        yield b""

    def _read(self, call: _Call, requests: Iterator[bytes]) -> Iterator[bytes]:
        statuses: list[bytes] = []
        parts = _split_request(requests, _ENTITIES, MAX_ENTITIES, "entities")
        yield from call.answers(call.part_of(parts), statuses)
        finish_batch(call.context, statuses)

    def _configure(self, call: _Call, requests: Iterator[bytes]) -> Iterator[bytes]:
        yield from call.answers(call.part_of(self._config(requests)))

    def _config(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the parts of SetForwardingPipelineConfig. Raises Fault if its P4Info does not fit the program.

        1. The request with an empty configuration, which says whether it had one, and whether that had P4Info.
        2. The P4Info without its documentation, in fragments.
        3. The fields P4Info, device configuration and cookie as the controller sent them, in fragments.

        This generator parses and checks the P4Info, which may be large, only when the second part is requested.
        The forwarding process requests it only from the primary controller, and for one call at a time.
        """
        request = _single_request(requests)
        config = protobuf.field_value(request, _CONFIG, count=_MAX_FIELDS)
        remainder = protobuf.remove_fields(request, _CONFIG, "configurations", count=_MAX_FIELDS)
        if config is None:
            yield remainder
            return
        info = protobuf.field_value(config, P4INFO, count=_MAX_FIELDS)
        presence = b"" if info is None else protobuf.prefix(P4INFO, 0)
        yield _check_size(remainder + protobuf.prefix(_CONFIG, len(presence)) + presence)
        yield from _config_fragments(BARE_P4INFO, self._bare_p4info(info or b""))
        for number in (P4INFO, DEVICE, COOKIE):
            value = protobuf.field_value(config, number, count=_MAX_FIELDS)
            if value is not None:
                yield from _config_fragments(number, value)

    def _bare_p4info(self, data: bytes) -> bytes:
        """Return serialized P4Info without its documentation. Raises Fault."""
        if len(data) > MAX_P4INFO_BYTES:
            raise _size_fault(f"P4Info of {len(data)} bytes", MAX_P4INFO_BYTES)
        try:
            info = p4i.P4Info.FromString(data)
        except DecodeError as error:
            raise invalid("the bytes are not valid P4Info") from error
        self._verifier.check(info)
        return bare_p4info(info).SerializeToString()

    def _stream(self, call: _Call, requests: Iterator[bytes]) -> Iterator[bytes]:
        """Read requests in a separate thread, each after the previous one has been carried out."""
        permits = threading.Semaphore(0)
        ended = threading.Event()

        def read() -> None:
            try:
                for request in requests:
                    permits.acquire()
                    if ended.is_set():  # a thread that still waited would keep its request
                        return
                    call.send(Kind.PART, _check_size(request))
                call.send(Kind.LAST)
            except grpc.RpcError:  # the client has gone
                pass
            except Fault as fault:
                call.messages.put(Message(call.number, Kind.END, encode_end(fault.code, fault.message)))

        threading.Thread(target=read, daemon=True).start()
        try:
            yield from call.answers(permits.release)
        finally:
            ended.set()
            permits.release()


def _single_request(requests: Iterator[bytes]) -> bytes:
    """Return the request of a call that has exactly one. Raises Fault."""
    request = next(requests, None)
    if request is None:
        raise invalid("a call without a request")
    return request


def _split_request(requests: Iterator[bytes], field: int, limit: int, noun: str) -> Iterator[bytes]:
    """Yield a request without the elements of ``field``, then these elements in parts. Raises Fault."""
    request = _single_request(requests)
    yield protobuf.remove_fields(request, field, noun, count=limit, size=MAX_PART_BYTES)
    yield from protobuf.batches(request, field, count=_ELEMENTS_PER_PART, size=FRAGMENT_BYTES)


def _check_size(request: bytes) -> bytes:
    """Return a request that stays in one part. Raises Fault if it is too large."""
    if len(request) > MAX_PART_BYTES:
        raise _size_fault(f"a message of {len(request)} bytes", MAX_PART_BYTES)
    return request


def _size_fault(subject: str, limit: int) -> Fault:
    return Fault(rpc_code.RESOURCE_EXHAUSTED, f"{subject}; the limit is {limit}")


def _config_fragments(number: int, value: bytes) -> Iterator[bytes]:
    """Yield a field of a configuration, in fragments that begin with its number."""
    for begin in range(0, max(len(value), 1), FRAGMENT_BYTES):
        yield bytes([number]) + value[begin : begin + FRAGMENT_BYTES]


def _address(peer: str) -> str:
    """Return the address of a peer without its port; gRPC's form is ``ipv4:127.0.0.1:5000``."""
    return peer.rpartition(":")[0].replace(" ", "") or "unknown"


def main() -> None:
    """Serve a link until the forwarding process ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the end of the link ends the front, too
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    end = socket.socket(fileno=int(sys.argv[1]))
    time.sleep(float(sys.argv[2]))
    start = receive(end)
    if start is None:
        return
    address, name = (part.decode() for part in protobuf.split(start.payload))
    info = bytearray()
    while (fragment := receive(end)) is not None:
        info += fragment.payload
        if fragment.kind is Kind.DATA:
            break
    front = Front(end, Verifier(p4i.P4Info.FromString(bytes(info)), name))
    server = grpc.server(
        futures.ThreadPoolExecutor(MAX_CALLS), (front,), options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS
    )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port:
        server.start()
    front.send(pack(0, Kind.READY, str(port).encode()))
    if not port:  # the forwarding process starts another front, or asks its user for another address
        return
    front.run()
    server.stop(_GRACE).wait(2 * _GRACE)
    os._exit(0)  # does not wait for threads that wait for clients


if __name__ == "__main__":
    main()
