"""A P4Runtime server in front of a running embedded switch (P4Runtime 1.4).

The program is the one that the switch was started with (:mod:`fanin.sim.switch.service.pipeline`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from typing import Any, TypeVar

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from fanin.errors import InputError
from fanin.sim.switch.embedded import Program, Switch
from fanin.sim.switch.service.controllers import Controllers, Stream, check_role
from fanin.sim.switch.service.faults import Fault, missing
from fanin.sim.switch.service.forwarding import Forwarding
from fanin.sim.switch.service.pipeline import Pipelines

T = TypeVar("T")
VERSION = "1.4.1"
MAX_CONTROLLERS = 16  #: streams and calls at a time
_BUSY = "the switch did not get to it"
_READ_AT_ONCE = 1000  # entities in a message


class P4RuntimeService(p4r_grpc.P4RuntimeServicer):
    """The calls. ``fresh`` makes a switch as it was in the beginning."""

    def __init__(self, program: Program, forwarding: Forwarding, fresh: Callable[[], Switch], device: int):
        self._forwarding = forwarding
        self.controllers = Controllers(device)
        self._pipelines = Pipelines(program, forwarding, fresh, self.controllers.send)
        forwarding.controller = self._packet_in

    # the pipeline

    def SetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        def carry_out() -> None:
            self.controllers.check(request.device_id, request.election_id, request.role)
            self._pipelines.configure(request)

        self._answer(context, carry_out)
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        def read() -> Any:
            self._check_device(request.device_id)
            config = self._pipelines.described(request.response_type)
            return p4r.GetForwardingPipelineConfigResponse(config=config)

        return self._answer(context, read)

    # entities

    def Write(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        def carry_out() -> list[Fault | None]:
            self.controllers.check(request.device_id, request.election_id, request.role)
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise missing(f"{_atomicity(request.atomicity)} is not implemented")
            write = self._pipelines.entities.write
            return [self._fault_of(partial(write, update)) for update in request.updates]

        faults = self._answer(context, carry_out)
        _finish_batch(context, faults)
        return p4r.WriteResponse()

    def Read(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: D102
        found: list[p4r.Entity] = []

        def read() -> list[Fault | None]:
            self._check_device(request.device_id)
            check_role(request.role)
            return [self._fault_of(partial(self._read, entity, found)) for entity in request.entities]

        faults = self._answer(context, read)
        for begin in range(0, len(found), _READ_AT_ONCE):
            yield p4r.ReadResponse(entities=found[begin : begin + _READ_AT_ONCE])
        _finish_batch(context, faults)

    def _read(self, entity: p4r.Entity, found: list[p4r.Entity]) -> None:
        found.extend(self._pipelines.entities.read(entity))

    def Capabilities(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        return p4r.CapabilitiesResponse(p4runtime_api_version=VERSION)

    # the stream

    def StreamChannel(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: D102
        stream = Stream()
        context.add_callback(lambda: self.controllers.leave(stream))

        def take() -> None:
            try:
                for request in requests:
                    self._taken(stream, request, context)
            except (grpc.RpcError, futures.CancelledError):  # it has gone, or the switch has
                pass
            finally:
                self.controllers.leave(stream)

        threading.Thread(target=take, daemon=True).start()
        while (message := stream.waiting.get()) is not None:
            yield message

    def _taken(self, stream: Stream, request: p4r.StreamMessageRequest, context: grpc.ServicerContext) -> None:
        """Carry out a stream message; a fault is answered, and that of a bid ends the stream."""
        kind = request.WhichOneof("update")
        try:
            if kind == "arbitration":
                self._carried_out(lambda: self.controllers.bid(stream, request.arbitration))
            elif kind == "packet":
                self._packet_out(stream, request.packet)
            elif kind == "digest_ack":
                self._acknowledge(stream, request.digest_ack)
            else:
                raise missing(f"{kind} on the stream is not implemented")
        except futures.CancelledError:  # the switch has ended
            raise
        except Exception as error:
            fault = self._as_fault("a stream message", error)
            if kind == "arbitration":  # as the specification has it, the stream ends
                context.set_code(_status_code(fault.code))
                context.set_details(fault.message)
                stream.put(None)
            else:
                stream.put(_stream_error(request, fault))

    def _packet_out(self, stream: Stream, packet: p4r.PacketOut) -> None:
        if not self.controllers.is_primary(stream):
            raise Fault(rpc_code.PERMISSION_DENIED, "only the primary controller sends packets")
        if self._forwarding.cpu is None:
            raise Fault(rpc_code.FAILED_PRECONDITION, "the switch has no CPU port: fanin p4 serve --cpu-port")
        frame = self._pipelines.packets.frame_of(packet)
        self._carried_out(lambda: self._forwarding.inject(frame))

    def _acknowledge(self, stream: Stream, message: p4r.DigestListAck) -> None:
        if not self.controllers.is_primary(stream):
            raise Fault(rpc_code.PERMISSION_DENIED, "only the primary controller acknowledges digests")
        self._carried_out(lambda: self._pipelines.active.entities.digests.acknowledge(message))

    def _carried_out(self, action: Callable[[], None]) -> None:
        """Let the loop's thread do what a stream asks for. Raises Fault."""
        try:
            self._forwarding.ask(action)
        except futures.TimeoutError as error:
            raise Fault(rpc_code.DEADLINE_EXCEEDED, _BUSY) from error
        except InputError as error:  # an interface that is gone; the loop finds it, too
            raise Fault(rpc_code.UNAVAILABLE, str(error)) from error

    def _packet_in(self, frame: bytes) -> None:
        packet = self._pipelines.packets.packet_of(frame)
        if packet is None or not self.controllers.send(p4r.StreamMessageResponse(packet=packet)):
            self._forwarding.no_controller += 1

    # answers

    def _check_device(self, device: int) -> None:
        if device != self.controllers.device:
            raise Fault(rpc_code.NOT_FOUND, f"there is no device {device}; there is {self.controllers.device}")

    def _as_fault(self, what: str, error: Exception) -> Fault:
        """The fault to answer; another exception is counted and reported, and becomes INTERNAL."""
        if isinstance(error, Fault):
            return error
        return Fault(rpc_code.INTERNAL, self._forwarding.fail(what, error))

    def _fault_of(self, action: Callable[[], None]) -> Fault | None:
        """Carry out one part of a batch, and return its fault."""
        try:
            action()
        except Exception as error:
            return self._as_fault("a part of a batch", error)
        return None

    def _answer(self, context: grpc.ServicerContext, action: Callable[[], T]) -> T:
        """What ``action`` returns in the loop's thread; the call ends where it does not."""
        try:
            return self._forwarding.ask(action)
        except futures.CancelledError:
            fault = Fault(rpc_code.UNAVAILABLE, "the switch ends")
        except futures.TimeoutError:
            fault = Fault(rpc_code.DEADLINE_EXCEEDED, _BUSY)
        except Exception as error:
            fault = self._as_fault("a call", error)
        context.abort(_status_code(fault.code), fault.message)
        raise AssertionError  # abort raises


class P4RuntimeServer:
    """The service at ``address``, until :meth:`close`. Raises InputError where the address cannot be had."""

    def __init__(self, service: P4RuntimeService, address: str):
        self._service = service
        pool = futures.ThreadPoolExecutor(MAX_CONTROLLERS)
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 1 << 26)]
        self._server = grpc.server(pool, options=options, maximum_concurrent_rpcs=MAX_CONTROLLERS)
        p4r_grpc.add_P4RuntimeServicer_to_server(service, self._server)
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError:
            bound = 0
        if not bound:
            raise InputError(f"--grpc {address}: the address is in use, or not this machine's")
        self.port: int = bound
        self._server.start()

    def close(self) -> None:
        """End all calls."""
        self._service.controllers.end()
        self._server.stop(1.0).wait(5.0)


def _status_code(code: int) -> grpc.StatusCode:
    return next(status for status in grpc.StatusCode if status.value[0] == code)


def _atomicity(number: int) -> str:
    kinds = p4r.WriteRequest.Atomicity
    return str(kinds.Name(number)) if number in kinds.values() else f"atomicity {number}"


def _stream_error(request: p4r.StreamMessageRequest, fault: Fault) -> p4r.StreamMessageResponse:
    """The answer to a stream message that is not carried out; it has the message in it."""
    error = p4r.StreamError(canonical_code=fault.code, message=fault.message)
    match request.WhichOneof("update"):
        case "packet":
            error.packet_out.packet_out.CopyFrom(request.packet)
        case "digest_ack":
            error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
        case _:
            error.other.other.CopyFrom(request.other)
    return p4r.StreamMessageResponse(error=error)


def _finish_batch(context: grpc.ServicerContext, faults: list[Fault | None]) -> None:
    """End a batch's call; with faults the status is UNKNOWN and has an error for each part of the batch."""
    first = next((fault for fault in faults if fault is not None), None)
    if first is None:
        return
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message=first.message)
    for fault in faults:
        error = p4r.Error(canonical_code=fault.code if fault else rpc_code.OK)
        if fault is not None:
            error.message = fault.message
        status.details.add().Pack(error)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, first.message)
