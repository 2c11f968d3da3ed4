"""A P4Runtime server in front of a running embedded switch (P4Runtime 1.4).

The program is the one that the switch was started with. A controller that sets a pipeline gives its P4Info,
whose ids count from then on, and begins with a fresh switch; a device configuration that it sends along (BMv2's
JSON) is kept and given back, not executed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, TypeVar

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from fanin.errors import InputError
from fanin.sim.switch.embedded import Program, Switch
from fanin.sim.switch.service.controllers import Controllers, Stream
from fanin.sim.switch.service.entities import Entities
from fanin.sim.switch.service.faults import Fault, missing
from fanin.sim.switch.service.forwarding import Forwarding
from fanin.sim.switch.service.names import Names
from fanin.sim.switch.service.p4info import p4info
from fanin.sim.switch.service.packets import ControllerPackets

T = TypeVar("T")
VERSION = "1.4.1"
MAX_CONTROLLERS = 16  #: streams and calls at a time
_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest
_BUSY = "the switch did not get to it"
_READ_AT_ONCE = 1000  # entities in a message


class P4RuntimeService(p4r_grpc.P4RuntimeServicer):
    """The calls. ``fresh`` makes a switch as it was in the beginning."""

    def __init__(self, program: Program, forwarding: Forwarding, fresh: Callable[[], Switch], device: int):
        self._program = program
        self._forwarding = forwarding
        self._fresh = fresh
        self.controllers = Controllers(device)
        self._saved: p4r.ForwardingPipelineConfig | None = None
        self._install(p4r.ForwardingPipelineConfig(p4info=p4info(program)), forwarding.switch)
        forwarding.controller = self._packet_in

    # the pipeline

    def _install(self, config: p4r.ForwardingPipelineConfig, switch: Switch) -> None:
        names = Names(self._program, config.p4info)
        self._config = config
        self._forwarding.switch = switch
        self._entities = Entities(switch, names, self.controllers.send, self._forwarding.wake)
        self._forwarding.timer = self._entities.run
        self._forwarding.look_at(self._entities.profiles.watch)
        self._packets = ControllerPackets(config.p4info)

    def SetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        def carry_out() -> None:
            self.controllers.check(request.device_id, request.election_id, request.role)
            if request.action in (_Set.VERIFY, _Set.VERIFY_AND_SAVE, _Set.VERIFY_AND_COMMIT):
                Names(self._program, request.config.p4info)
                if request.action == _Set.VERIFY_AND_SAVE:
                    self._saved = request.config
                elif request.action == _Set.VERIFY_AND_COMMIT:
                    self._install(request.config, self._fresh())
            elif request.action == _Set.COMMIT:
                if self._saved is None:
                    raise Fault(rpc_code.FAILED_PRECONDITION, "no pipeline was saved")
                self._install(self._saved, self._fresh())
                self._saved = None
            else:
                raise missing(f"{_Set.Action.Name(request.action)} is not implemented")

        self._answer(context, carry_out)
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        def read() -> Any:
            self._check_device(request.device_id)
            config = p4r.ForwardingPipelineConfig()
            if self._config.HasField("cookie"):
                config.cookie.CopyFrom(self._config.cookie)
            if request.response_type in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
                config.p4info.CopyFrom(self._config.p4info)
            if request.response_type in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
                config.p4_device_config = self._config.p4_device_config
            return p4r.GetForwardingPipelineConfigResponse(config=config)

        return self._answer(context, read)

    # entities

    def Write(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        def carry_out() -> list[Fault | None]:
            self.controllers.check(request.device_id, request.election_id, request.role)
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise missing(f"{p4r.WriteRequest.Atomicity.Name(request.atomicity)} is not implemented")
            return [self._written(update) for update in request.updates]

        faults = self._answer(context, carry_out)
        if any(faults):
            _abort_batch(context, faults)
        return p4r.WriteResponse()

    def _written(self, update: p4r.Update) -> Fault | None:
        try:
            self._entities.write(update)
        except Fault as fault:
            return fault
        return None

    def Read(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: D102
        def read() -> list[p4r.Entity]:
            self._check_device(request.device_id)
            if request.role:
                raise missing("roles are not implemented")
            return [found for entity in request.entities for found in self._entities.read(entity)]

        entities = self._answer(context, read)
        for begin in range(0, len(entities), _READ_AT_ONCE):
            yield p4r.ReadResponse(entities=entities[begin : begin + _READ_AT_ONCE])

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
        kind = request.WhichOneof("update")
        try:
            if kind == "arbitration":
                self.controllers.bid(stream, request.arbitration)
            elif kind == "packet":
                self._packet_out(stream, request.packet)
            elif kind == "digest_ack":
                self._acknowledge(stream, request.digest_ack)
            else:
                raise missing(f"{kind} on the stream is not implemented")
        except Fault as fault:
            if kind == "arbitration":  # as the specification has it, the stream ends
                context.set_code(_status_code(fault.code))
                context.set_details(fault.message)
                stream.put(None)
                return
            error = p4r.StreamError(canonical_code=fault.code, message=fault.message)
            if kind == "packet":
                error.packet_out.packet_out.CopyFrom(request.packet)
            elif kind == "digest_ack":
                error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
            else:
                error.other.other.CopyFrom(request.other)
            stream.put(p4r.StreamMessageResponse(error=error))

    def _packet_out(self, stream: Stream, packet: p4r.PacketOut) -> None:
        if not self.controllers.is_primary(stream):
            raise Fault(rpc_code.PERMISSION_DENIED, "only the primary controller sends packets")
        if self._forwarding.cpu is None:
            raise Fault(rpc_code.FAILED_PRECONDITION, "the switch has no CPU port: fanin p4 serve --cpu-port")
        frame = self._packets.frame_of(packet)
        self._carried_out(lambda: self._forwarding.inject(frame))

    def _acknowledge(self, stream: Stream, message: p4r.DigestListAck) -> None:
        if not self.controllers.is_primary(stream):
            raise Fault(rpc_code.PERMISSION_DENIED, "only the primary controller acknowledges digests")
        self._carried_out(lambda: self._entities.digests.acknowledge(message))

    def _carried_out(self, action: Callable[[], None]) -> None:
        """Let the loop's thread do what a stream asks for. Raises Fault."""
        try:
            self._forwarding.ask(action)
        except futures.TimeoutError as error:
            raise Fault(rpc_code.DEADLINE_EXCEEDED, _BUSY) from error
        except InputError as error:  # an interface that is gone; the loop finds it, too
            raise Fault(rpc_code.UNAVAILABLE, str(error)) from error

    def _packet_in(self, frame: bytes) -> None:
        packet = self._packets.packet_of(frame)
        if packet is None or not self.controllers.send(p4r.StreamMessageResponse(packet=packet)):
            self._forwarding.no_controller += 1

    # answers

    def _check_device(self, device: int) -> None:
        if device != self.controllers.device:
            raise Fault(rpc_code.NOT_FOUND, f"there is no device {device}; there is {self.controllers.device}")

    def _answer(self, context: grpc.ServicerContext, action: Callable[[], T]) -> T:
        """What ``action`` returns in the loop's thread; the call ends where it does not."""
        try:
            return self._forwarding.ask(action)
        except Fault as fault:
            context.abort(_status_code(fault.code), fault.message)
        except futures.CancelledError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the switch ends")
        except futures.TimeoutError:
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, _BUSY)
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


def _abort_batch(context: grpc.ServicerContext, faults: list[Fault | None]) -> None:
    """A status with an error for each update, as the specification has it."""
    first = next(fault for fault in faults if fault is not None)
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message=first.message)
    for fault in faults:
        error = p4r.Error(canonical_code=fault.code if fault else rpc_code.OK)
        if fault is not None:
            error.message = fault.message
        status.details.add().Pack(error)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, first.message)
