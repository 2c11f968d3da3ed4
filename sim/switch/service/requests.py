"""P4Runtime of a running embedded switch (P4Runtime 1.4): its calls, as steps between batches of frames.

The switch was started with the program (:mod:`fanin.sim.switch.service.pipeline`). Controllers reach it by the
front (:mod:`fanin.sim.switch.service.front`), which is another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from finsy.proto import p4r, rpc_code
from google.protobuf.message import DecodeError, Message

from fanin.base.errors import InputError
from fanin.sim.switch.embedded import Program, Switch
from fanin.sim.switch.service.calls import Call, Method, Order, Steps
from fanin.sim.switch.service.controllers import Controllers, Stream, check_role
from fanin.sim.switch.service.faults import Fault, invalid, unimplemented
from fanin.sim.switch.service.forwarding import Forwarding
from fanin.sim.switch.service.link import FRAGMENT_BYTES
from fanin.sim.switch.service.pipeline import Config, Pipelines
from fanin.sim.switch.service.protobuf import join, prefix

M = TypeVar("M", bound=Message)
VERSION = "1.4.1"
MAX_CONTROLLERS = 16  #: maximum simultaneous streams
MAX_READS = 16  #: maximum simultaneous calls that change nothing
MAX_WRITES = 8  #: maximum simultaneous calls that change the switch; one of them runs, the others wait


class P4RuntimeService:
    """P4Runtime's methods of the device with the id ``device``.

    - ``program``: the program that the switch executes.
    - ``forwarding``: the loop that owns the switch.
    - ``make_switch``: returns a new switch in its initial state.
    """

    def __init__(
        self, program: Program, forwarding: Forwarding[Switch], make_switch: Callable[[], Switch], device: int
    ):
        self.program = program
        self.forwarding = forwarding
        self.controllers = Controllers(device)
        self._pipelines = Pipelines(program, forwarding, make_switch, self.controllers.send)
        self._order = Order()  # of bids and writes: a bid waits for the write in progress
        forwarding.controller = self._packet_in

    @property
    def methods(self) -> Mapping[str, Method]:
        """P4Runtime's methods, by name."""
        reads = {
            "Read": self._read,
            "GetForwardingPipelineConfig": self._get_pipeline,
            "Capabilities": self._capabilities,
        }
        writes = {"Write": self._write, "SetForwardingPipelineConfig": self._set_pipeline}
        return {
            "StreamChannel": Method(self._stream, "streams", MAX_CONTROLLERS),
            **{name: Method(steps, "reads", MAX_READS) for name, steps in reads.items()},
            **{name: Method(steps, "writes", MAX_WRITES) for name, steps in writes.items()},
        }

    def keep(self, call: Call) -> bool:
        """Return whether no other client may end ``call``: a write, or the stream of the primary controller."""
        return call.method.group == "writes" or self.controllers.is_of_primary(call)

    # the pipeline

    def _set_pipeline(self, call: Call) -> Steps[None]:
        request = yield from _first_part(call, p4r.SetForwardingPipelineConfigRequest)
        yield from self._order.run_in_turn(call, self._configure(call, request))
        yield from call.answer(b"")

    def _configure(self, call: Call, request: p4r.SetForwardingPipelineConfigRequest) -> Steps[None]:
        """Carry out a request; the front has checked its P4Info before sending it."""
        self.controllers.check(request.device_id, request.election_id, request.role)
        self._pipelines.check(request)
        config = Config()
        while (part := (yield from call.next_part())) is not None:
            config.add(part)
        self._pipelines.configure(request.action, config)

    def _get_pipeline(self, call: Call) -> Steps[None]:
        request = yield from _first_part(call, p4r.GetForwardingPipelineConfigRequest)
        self._check_device(request.device_id)
        size, fragments = self._pipelines.config_fragments(request.response_type)
        yield from call.answer(prefix(1, size), last=not fragments)
        for number, fragment in enumerate(fragments, 1):
            yield from call.answer(fragment, last=number == len(fragments))

    def _capabilities(self, call: Call) -> Steps[None]:
        yield from _first_part(call, p4r.CapabilitiesRequest)
        yield from call.answer(p4r.CapabilitiesResponse(p4runtime_api_version=VERSION).SerializeToString())

    # entities

    def _write(self, call: Call) -> Steps[None]:
        request = yield from _first_part(call, p4r.WriteRequest)
        yield from self._order.run_in_turn(call, self._updates(call, request))

    def _updates(self, call: Call, request: p4r.WriteRequest) -> Steps[None]:
        self.controllers.check(request.device_id, request.election_id, request.role)
        if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
            raise unimplemented(f"{_atomicity_name(request.atomicity)} is not implemented")
        entities = self._pipelines.entities
        while (part := (yield from call.next_part())) is not None:
            statuses = []
            for update in _parse(p4r.WriteRequest, part).updates:
                statuses.append((yield from self._status_of(entities.write(update))))
                yield True
            call.report(join(statuses))

    def _read(self, call: Call) -> Steps[None]:
        request = yield from _first_part(call, p4r.ReadRequest)
        self._check_device(request.device_id)
        check_role(request.role)
        while (part := (yield from call.next_part())) is not None:
            statuses = []
            for entity in _parse(p4r.ReadRequest, part).entities:
                statuses.append((yield from self._status_of(self._read_entity(call, entity))))
            call.report(join(statuses))

    def _read_entity(self, call: Call, query: p4r.Entity) -> Steps[None]:
        """Send the entities that ``query`` matches, in messages of bounded size."""
        answer = bytearray()
        for entity in self._pipelines.entities.read(query):
            if entity is not None:
                data = entity.SerializeToString()
                answer += prefix(1, len(data)) + data
            if len(answer) >= FRAGMENT_BYTES:
                yield from call.answer(bytes(answer))
                answer.clear()
            yield True
        if answer:
            yield from call.answer(bytes(answer))

    def _status_of(self, steps: Iterator[bool]) -> Steps[bytes]:
        """Carry out one part of a batch; return its ``p4.Error``, which is empty after success."""
        try:
            yield from steps
        except Exception as error:  # not kept in a variable, which would make a cycle
            return _encode_status(self._as_fault("a part of a batch", error))
        return b""

    # the stream

    def _stream(self, call: Call) -> Steps[None]:
        stream = Stream(call)
        try:
            while (part := (yield from call.next_part())) is not None:
                yield from self._handle_message(call, stream, _parse(p4r.StreamMessageRequest, part))
        finally:
            self.controllers.remove(stream)

    def _handle_message(self, call: Call, stream: Stream, request: p4r.StreamMessageRequest) -> Steps[None]:
        """Carry out a stream message; answer a fault, and end the stream after a fault of a bid."""
        kind = request.WhichOneof("update")
        try:
            if kind == "arbitration":
                yield from self._order.run_in_turn(call, self._bid(stream, request.arbitration))
            elif kind == "packet":
                self._packet_out(stream, request.packet)
            elif kind == "digest_ack":
                self._acknowledge(stream, request.digest_ack)
            else:
                raise unimplemented(f"{kind} on the stream is not implemented")
        except Exception as error:  # not kept in a variable, which would make a cycle
            if kind == "arbitration":  # the specification demands the end of the stream
                raise self._as_fault("a stream message", error) from None
            stream.put(_stream_error(request, self._as_fault("a stream message", error)))

    def _bid(self, stream: Stream, update: p4r.MasterArbitrationUpdate) -> Steps[None]:
        self.controllers.bid(stream, update)
        yield True

    def _packet_out(self, stream: Stream, packet: p4r.PacketOut) -> None:
        if not self.controllers.is_primary(stream):
            raise Fault(rpc_code.PERMISSION_DENIED, "only the primary controller sends packets")
        if self.forwarding.cpu is None:
            raise Fault(rpc_code.FAILED_PRECONDITION, "the switch has no CPU port: fanin p4 serve --cpu-port")
        frame = self._pipelines.packets.frame_of(packet)
        try:
            self.forwarding.inject(frame)
        except InputError as error:  # the interface has disappeared; the loop finds it as well
            raise Fault(rpc_code.UNAVAILABLE, str(error)) from error

    def _acknowledge(self, stream: Stream, message: p4r.DigestListAck) -> None:
        if not self.controllers.is_primary(stream):
            raise Fault(rpc_code.PERMISSION_DENIED, "only the primary controller acknowledges digests")
        self._pipelines.active.entities.digests.acknowledge(message)

    def _packet_in(self, frame: bytes) -> None:
        packet = self._pipelines.packets.packet_of(frame)
        if packet is None or not self.controllers.send(p4r.StreamMessageResponse(packet=packet)):
            self.forwarding.no_controller += 1

    # answers

    def _check_device(self, device: int) -> None:
        if device != self.controllers.device:
            raise Fault(rpc_code.NOT_FOUND, f"there is no device {device}; there is {self.controllers.device}")

    def _as_fault(self, activity: str, error: Exception) -> Fault:
        """Return ``error`` if it is a Fault; count and report any other exception, and return INTERNAL."""
        if isinstance(error, Fault):
            return error
        return Fault(rpc_code.INTERNAL, self.forwarding.fail(activity, error))


def _first_part(call: Call, kind: type[M]) -> Steps[M]:
    """Return the first part of a request: all of it, or all except the fields of further parts."""
    return _parse(kind, (yield from call.next_part()) or b"")


def _parse(kind: type[M], data: bytes) -> M:
    """Return the message in ``data``. Raises Fault.

    Unknown fields are removed: they would stay in stored messages, where no limit counts them.
    """
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise invalid(f"the bytes are not a valid {kind.DESCRIPTOR.name}") from error
    message.DiscardUnknownFields()
    return message


def _atomicity_name(number: int) -> str:
    kinds = p4r.WriteRequest.Atomicity
    return str(kinds.Name(number)) if number in kinds.values() else f"atomicity {number}"


def _encode_status(fault: Fault) -> bytes:
    """Return a serialized ``p4.Error``."""
    return p4r.Error(canonical_code=fault.code, message=fault.message).SerializeToString()


def _stream_error(request: p4r.StreamMessageRequest, fault: Fault) -> p4r.StreamMessageResponse:
    """Return the answer to a failed stream message; it contains the message."""
    error = p4r.StreamError(canonical_code=fault.code, message=fault.message)
    match request.WhichOneof("update"):
        case "packet":
            error.packet_out.packet_out.CopyFrom(request.packet)
        case "digest_ack":
            error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
        case _:
            error.other.other.CopyFrom(request.other)
    return p4r.StreamMessageResponse(error=error)
