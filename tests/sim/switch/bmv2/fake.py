"""What stands in for BMv2: a P4Runtime server that keeps what it is told, Thrift's registers, and P4Info."""

import socket
import socketserver
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from finsy.proto import p4i, p4r, p4r_grpc, rpc_code

from fanin.p4.aggregation import controls, register_words
from fanin.sim.switch.bmv2.p4runtime import CompiledProgram

WIDTHS = {"kind": 4, "job": 8, "port": 9, "bitmap": 32, "slot": 16, "opened": 32, "seen": 32, "values": 1}
WIDTHS |= {"destination": 48, "replica": 16, "bad_checksum": 1, "answered": 1}
PARAMETERS = {"answer": 4, "members": 32, "to": 16, "mac": 48, "own_mac": 48, "ip": 32, "own_ip": 32}
PARAMETERS |= {"udp_port": 16, "own_udp_port": 16}
PREFIXES = {
    p4i.Action: p4i.P4Ids.ACTION,
    p4i.Table: p4i.P4Ids.TABLE,
    p4i.DirectCounter: p4i.P4Ids.DIRECT_COUNTER,
    p4i.Register: p4i.P4Ids.REGISTER,
}
EXTRA = {"lpm": p4i.MatchField.LPM, "range": p4i.MatchField.RANGE}


def p4info(config):
    """P4Info of the program, as p4c writes it, and a table ``Extra.every`` with an LPM and a range key."""
    info, number = p4i.P4Info(), iter(range(1, 10_000))

    def named(place, name):
        identifier = PREFIXES[type(place)] << 24 | next(number)
        place.preamble.id, place.preamble.name, place.preamble.alias = identifier, name, name
        return place

    for control in controls(config)[1:]:
        for table in control.tables:
            made = named(info.tables.add(size=table.size or 1024), f"{control.name}.{table.name}")
            for place, key in enumerate(table.keys, 1):
                kind = p4i.MatchField.EXACT if key.name == "replica" else p4i.MatchField.TERNARY
                made.match_fields.add(id=place, name=key.name, bitwidth=WIDTHS[key.name], match_type=kind)
            for action in table.actions:
                parameters = [name for name, _ in action.parameters]
                known = named(info.actions.add(), f"{control.name}.{action.name}")
                for place, name in enumerate(parameters, 1):
                    known.params.add(id=place, name=name, bitwidth=PARAMETERS[name])
                made.action_refs.add(id=known.preamble.id)
            if table.counted:
                counter = named(info.direct_counters.add(), f"{control.name}.{table.name}_counter")
                counter.direct_table_id = made.preamble.id
                counter.spec.unit = p4i.CounterSpec.PACKETS
                made.direct_resource_ids.append(counter.preamble.id)
    for name, words in register_words(config).items():
        register = named(info.registers.add(size=config.slots), name)
        register.type_spec.bitstring.bit.bitwidth = 32 * words
    extra, nothing = named(info.tables.add(size=8), "Extra.every"), named(info.actions.add(), "Extra.nothing")
    for place, (name, kind) in enumerate(EXTRA.items(), 1):
        extra.match_fields.add(id=place, name=name, bitwidth=32, match_type=kind)
    extra.action_refs.add(id=nothing.preamble.id)
    return info


def compiled(config, folder):
    """Files like those of p4c; the configuration is none."""
    program = CompiledProgram(folder / "aggregation.json", folder / "aggregation.p4info.txtpb")
    program.config.write_text("{}")
    program.p4info.write_text(str(p4info(config)))
    return program


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    """A P4Runtime server at ``address`` and a Thrift server at ``thrift``, in threads of this process."""

    def __init__(self):
        self.config = None
        self.entities = {}  # key: serialized entity without its action → entity
        self.packets = {}  # the same key → what its counter says
        self.registers = []  # (name, start, end, value) as written
        self.refuse = None  # called with the context of a request for the program
        self.extra = None  # called with a request to read: answers that follow the right one
        self._server = grpc.server(ThreadPoolExecutor(4))
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        self._thrift = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        self._thrift.daemon_threads = True
        self.thrift = f"127.0.0.1:{self._thrift.server_address[1]}"
        threading.Thread(target=self._thrift.serve_forever, daemon=True).start()

    def close(self):
        self._server.stop(None).wait(5)
        self._thrift.shutdown()
        self._thrift.server_close()

    def StreamChannel(self, requests, context):
        for request in requests:
            answer = p4r.StreamMessageResponse()
            answer.arbitration.CopyFrom(request.arbitration)
            yield answer

    def SetForwardingPipelineConfig(self, request, context):
        self.config, self.entities = request.config, {}
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request, context):
        if self.refuse:
            self.refuse(context)
        if self.config is None:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device."
            )
        return p4r.GetForwardingPipelineConfigResponse(
            config=p4r.ForwardingPipelineConfig(p4info=self.config.p4info)
        )

    def Write(self, request, context):
        for update in request.updates:
            key = self._key(update.entity)
            if (key in self.entities) == (update.type == p4r.Update.INSERT):
                code = rpc_code.ALREADY_EXISTS if key in self.entities else rpc_code.NOT_FOUND
                context.abort(grpc.StatusCode.UNKNOWN, f"code {code}")
            if update.type == p4r.Update.DELETE:
                del self.entities[key]
            else:
                self.entities[key] = update.entity
        return p4r.WriteResponse()

    def Read(self, request, context):
        answer = p4r.ReadResponse()
        if any(wanted.HasField("register_entry") for wanted in request.entities):  # as BMv2 has it
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Register reads are not supported yet")
        for wanted in request.entities:
            for key, entity in self.entities.items():
                if wanted.HasField("direct_counter_entry"):
                    if self._is_counted(wanted.direct_counter_entry.table_entry, entity.table_entry):
                        made = answer.entities.add().direct_counter_entry
                        made.table_entry.CopyFrom(entity.table_entry)
                        made.data.packet_count = self.packets.get(key, 0)
                elif wanted.table_entry.table_id == entity.table_entry.table_id:  # both 0 for groups
                    answer.entities.add().CopyFrom(entity)
        yield answer
        if self.extra:
            yield from self.extra(request)

    def count(self, table, packets):
        """Let the counter of every entry of a table say ``packets``."""
        number = next(t.preamble.id for t in self.config.p4info.tables if t.preamble.name == table)
        self.packets |= {
            key: packets for key, entity in self.entities.items() if entity.table_entry.table_id == number
        }

    def _is_counted(self, asked, found):
        same = [self._key(p4r.Entity(table_entry=entry)) for entry in (asked, found)]
        return asked.table_id == found.table_id and (not asked.match or same[0] == same[1])

    @staticmethod
    def _key(entity):
        key = p4r.Entity()
        key.CopyFrom(entity)
        if key.HasField("table_entry"):
            key.table_entry.ClearField("action")
        else:
            key.packet_replication_engine_entry.multicast_group_entry.ClearField("replicas")
        return key.SerializeToString(deterministic=True)

    def _handler(self):
        fake = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while call := self._call():
                    name, arguments = call
                    head = struct.pack(">IiI", 0x80010002, 0, 0)
                    if name == "standard:bm_register_write_range":
                        fake.registers.append(arguments[1:])
                        self.request.sendall(head + b"\0")
                    elif arguments[1] == "nowhere":  # an exception of type InvalidRegisterOperation, code 1
                        self.request.sendall(head + struct.pack(">bhbhi", 12, 1, 8, 1, 1) + b"\0\0")
                    else:
                        self.request.sendall(head + struct.pack(">bhq", 10, 0, -1) + b"\0")

            def _call(self):
                if not (start := self.request.recv(4, socket.MSG_WAITALL)):
                    return None
                assert start == struct.pack(">I", 0x80010001)
                name = self._string()
                self._take(4)
                arguments = []
                while kind := self._take(1)[0]:
                    self._take(2)
                    layout = {8: ">i", 10: ">q"}.get(kind)
                    arguments.append(
                        struct.unpack(layout, self._take(4 if kind == 8 else 8))[0]
                        if layout
                        else self._string()
                    )
                return name, tuple(arguments)

            def _string(self):
                return self._take(struct.unpack(">i", self._take(4))[0]).decode()

            def _take(self, count):
                return self.request.recv(count, socket.MSG_WAITALL)

        return Handler
