"""A P4Runtime client by gRPC alone, for tests that send what other clients do not."""

import queue
import threading

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from tests.sim.switch.service.served import TEXT

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
DEVICE = 7
INVALID, RANGE, DENIED = rpc_code.INVALID_ARGUMENT, rpc_code.OUT_OF_RANGE, rpc_code.PERMISSION_DENIED
NOT_FOUND, MISSING, PRECONDITION = rpc_code.NOT_FOUND, rpc_code.UNIMPLEMENTED, rpc_code.FAILED_PRECONDITION
Set = p4r.SetForwardingPipelineConfigRequest
LIMIT = 20  # seconds

DIRECT = "direct_meter<bit<2>>(MeterType.bytes) own;"
#: TEXT with a meter of three cells, and a direct meter of I.route.
METERED = (
    TEXT.replace("register<bool>(2) flags;", "meter(3, MeterType.packets) rate; " + DIRECT)
    .replace("actions = { forward; @tableonly spread; NoAction; }", "actions = { metered; } meters = own;")
    .replace("action drop()", "action metered() { own.read(meta.color); } action drop()")
    .replace("struct Metadata {}", "struct Metadata { bit<2> color; }")
)  # fmt: skip


class Bidder:
    """A controller's stream, by gRPC alone; the answers are read in a thread."""

    def __init__(self, address, options=()):
        self._channel = grpc.insecure_channel(address, options=options)
        self.stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests = queue.SimpleQueue()
        self._answers = queue.Queue()
        self._call = self.stub.StreamChannel(iter(self._requests.get, None))
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        try:
            for answer in self._call:
                self._answers.put(answer)
        except grpc.RpcError as error:
            self._answers.put(error)

    def send(self, **message):
        """Send a stream message."""
        self._requests.put(p4r.StreamMessageRequest(**message))

    def receive(self):
        """The next answer, or the error that ended the stream."""
        return self._answers.get(timeout=LIMIT)

    def bid(self, election=None, device=DEVICE, **more):
        """Send an arbitration update."""
        update = p4r.MasterArbitrationUpdate(device_id=device, **more)
        if election is not None:
            update.election_id.CopyFrom(wide(election))
        self.send(arbitration=update)

    def told(self):
        """(election id or None, status code) of the next answer."""
        answer = self.receive().arbitration
        assert answer.device_id == DEVICE
        election = (
            answer.election_id.high << 64 | answer.election_id.low if answer.HasField("election_id") else None
        )
        return election, answer.status.code

    def close(self):
        """Hang up."""
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()


def wide(number):
    return p4r.Uint128(high=number >> 64, low=number & 2**64 - 1)


class Client(Bidder):
    """The primary controller; what it writes has election id 1, whatever its own ``election`` is."""

    def __init__(self, served, options=(), election=1):
        super().__init__(served.address, options)
        self.bid(election)
        assert self.told() == (election, rpc_code.OK)
        self.refresh()

    def refresh(self):
        """Learn the ids."""
        request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE)
        self.info = self.stub.GetForwardingPipelineConfig(request).config.p4info

    def id(self, name):
        """The id of a table, an action, a counter, ..."""
        kinds = ("tables", "actions", "counters", "registers", "meters", "digests")
        objects = [message for kind in kinds for message in getattr(self.info, kind)]
        return next(message.preamble.id for message in objects if message.preamble.name == name)

    def write(self, kind, **entity):
        """The code of one update's fault; 0 without one."""
        update = p4r.Update(type=kind, entity=p4r.Entity(**entity))
        return statuses_of(self.stub.Write, write_request([update]))[-1]

    def read(self, *entities):
        """What a read finds, and the codes of its batch."""
        request = p4r.ReadRequest(device_id=DEVICE, entities=entities)
        found = []
        extend = lambda asked: found.extend(e for r in self.stub.Read(asked) for e in r.entities)  # noqa: E731
        return found, statuses_of(extend, request)

    def entries(self, **fields):
        """The table entries that a read finds."""
        found, codes = self.read(p4r.Entity(table_entry=p4r.TableEntry(**fields)))
        assert codes == [0]
        return [entity.table_entry for entity in found]

    def configure(self, action, **fields):
        """The code that SetForwardingPipelineConfig ends with."""
        request = Set(device_id=DEVICE, election_id=wide(1), action=action, **fields)
        return status_of(self.stub.SetForwardingPipelineConfig, request)

    def call(self, name, *values):
        """An action with its parameters."""
        params = [p4r.Action.Param(param_id=n, value=value) for n, value in enumerate(values, 1)]
        return p4r.TableAction(action=p4r.Action(action_id=self.id(name), params=params))

    def station(self, mac, port=b"\x01", **fields):
        """An entry of I.stations."""
        match = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=mac))]
        fields.setdefault("action", self.call("I.forward", port))
        return p4r.TableEntry(table_id=self.id("I.stations"), match=match, **fields)

    def filter(self, *match, valid=True, **fields):
        """An entry of I.filter: source ternary (1), kind range (2), validity exact (3)."""
        exact = [p4r.FieldMatch(field_id=3, exact=p4r.FieldMatch.Exact(value=b"\x01"))] if valid else []
        fields.setdefault("priority", 1)
        fields.setdefault("action", self.call("I.drop"))
        return p4r.TableEntry(table_id=self.id("I.filter"), match=[*exact, *match], **fields)


def write_request(updates, **fields):
    fields = {"device_id": DEVICE, "election_id": wide(1)} | fields
    return p4r.WriteRequest(updates=updates, **fields)


def status_of(call, request):
    """The status code of a call."""
    try:
        call(request)
    except grpc.RpcError as error:
        return error.code().value[0]
    return 0


def statuses_of(call, request):
    """The code of each part of a batch; [0] if all went well."""
    try:
        call(request)
    except grpc.RpcError as error:
        packed = dict(error.trailing_metadata()).get("grpc-status-details-bin")
        if packed is None or error.code() != grpc.StatusCode.UNKNOWN:
            return [error.code().value[0]]
        codes = []
        for detail in rpc_status.Status.FromString(packed).details:
            part = p4r.Error()
            detail.Unpack(part)
            codes.append(part.canonical_code)
        return codes
    return [0]
