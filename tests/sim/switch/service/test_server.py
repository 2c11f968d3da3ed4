"""The P4Runtime server, driven by finsy's client: entities, faults, arbitration, pipelines, packets."""

import contextlib
import time

import grpc
import pytest
from finsy import p4entity
from finsy.proto import p4d, p4i, p4r, p4r_grpc, rpc_code, rpc_status

from fanin.base.errors import InputError, ToolFailed
from fanin.p4.control import Exact, Lpm, MulticastGroup, Range, Replica, TableEntry, Ternary
from fanin.sim.switch.bmv2.p4runtime import CompiledProgram, P4Runtime
from fanin.sim.switch.service.p4info import p4info
from fanin.sim.switch.service.requests import MAX_CONTROLLERS
from fanin.sim.switch.service.server import P4RuntimeServer
from tests.sim.switch.service.served import TEXT, Served, frame_to

STATIONS = "I.stations"


@pytest.fixture
def served():
    served = Served()
    yield served
    served.close()


@pytest.fixture
def control(served):
    with contextlib.closing(P4Runtime(served.address, device=7)) as control:
        yield control


def _station(mac, action="I.forward", **parameters):
    return TableEntry(STATIONS, {"hdr.ethernet.destination": Exact(mac)}, action, parameters)


def test_entries_forward_count_and_read_back(served, control):
    control.insert(_station(0x10, port=1))
    served.send(0, frame_to(0x10))
    served.send(0, frame_to(0x11))
    served.send(0, frame_to(0x10, payload=b"second"))
    assert served.receive(1) == frame_to(0x10)
    assert served.receive(1) == frame_to(0x10, payload=b"second")
    assert [(e.action, dict(e.parameters)) for e in control.entries(STATIONS)] == [("I.forward", {"port": 1})]
    assert control.direct_counter(_station(0x10, port=1)) == (2, 14 + 7 + 14 + 6)
    control.delete(_station(0x10, port=1))
    assert control.entries(STATIONS) == []


@pytest.mark.parametrize(
    "entry",
    [
        TableEntry(
            "I.filter",
            {
                "hdr.ethernet.source": Ternary(0x40, 0xF0),
                "hdr.ethernet.kind": Range(5, 9),
                "hdr.ethernet.$valid$": Exact(1),
            },
            "I.drop",
            {},
            3,
        ),
        TableEntry("I.filter", {"hdr.ethernet.$valid$": Exact(0)}, "NoAction", {}, 1),
        TableEntry("I.route", {"hdr.ethernet.source": Lpm(0xAB0000000000, 8)}, "I.spread", {"group": 9}),
        TableEntry("I.route", {}, "NoAction", {}),
    ],
)
def test_every_kind_of_match_survives(control, entry):
    control.insert(entry)
    assert control.entries(entry.table) == [entry]
    control.delete(entry)
    assert control.entries(entry.table) == []


def test_an_optional_key_and_the_programs_own_entries(control):
    entry = p4entity.P4TableEntry(
        "I.choose",
        match=p4entity.P4TableMatch({"kind": 5}),
        action=p4entity.P4TableAction("I.drop"),
        priority=2,
    )
    control._write(p4r.Update.INSERT, entry)
    (found,) = control._read(p4entity.P4TableEntry("I.choose"))
    assert (found.match, found.priority) == (p4entity.P4TableMatch({"kind": 5}), 2)
    assert [e.match["hdr.ethernet.kind"] for e in control.entries("I.fixed")] == [Exact(0xDEAD)]


def test_a_default_action_is_changed_and_goes_back(served, control):
    action = p4entity.P4TableAction("I.forward", port=2)
    control._write(p4r.Update.MODIFY, p4entity.P4TableEntry(STATIONS, action=action, is_default_action=True))
    served.send(0, frame_to(0x99))
    assert served.receive(2) == frame_to(0x99)
    control._write(p4r.Update.MODIFY, p4entity.P4TableEntry(STATIONS, is_default_action=True))
    (found,) = control._read(p4entity.P4TableEntry(STATIONS, is_default_action=True))
    assert found.action.name == "drop"


def test_modifying_keeps_what_was_counted(served, control):
    control.insert(_station(0x10, port=1))
    served.send(0, frame_to(0x10))
    served.receive(1)
    again = p4entity.P4TableEntry(
        STATIONS,
        match=p4entity.P4TableMatch({"destination": 0x10}),
        action=p4entity.P4TableAction("I.forward", port=2),
    )
    again.metadata = b"mine"
    control._write(p4r.Update.MODIFY, again)
    served.send(0, frame_to(0x10))
    assert served.receive(2) == frame_to(0x10)
    (found,) = control._read(p4entity.P4TableEntry(STATIONS, counter_data=p4entity.P4CounterData()))
    assert (found.counter_data.packet_count, found.metadata) == (2, b"mine")


def test_groups_and_clone_sessions(served, control):
    control.set_multicast_group(MulticastGroup(3, (Replica(1, 4), Replica(2))))
    assert control.multicast_groups() == [MulticastGroup(3, (Replica(1, 4), Replica(2)))]
    for group in (MulticastGroup(70_000, (Replica(1),)), MulticastGroup(4, (Replica(1, 70_000),))):
        with pytest.raises(ToolFailed, match=r"INVALID_ARGUMENT: .*70000 does not fit in 16 bits"):
            control.set_multicast_group(group)
    session = p4entity.P4CloneSessionEntry(5, class_of_service=0, packet_length_bytes=0, replicas=[1, 2])
    control._write(p4r.Update.INSERT, session)
    control.insert(_station(0x20, "I.spread", group=3))
    control.insert(_station(0x21, "I.copy", port=0))
    served.send(0, frame_to(0x20))
    assert served.receive(1) == served.receive(2) == frame_to(0x20)
    served.send(0, frame_to(0x21))
    assert served.receive(0) == served.receive(1) == served.receive(2) == frame_to(0x21)
    (found,) = control._read(p4entity.P4CloneSessionEntry(0))
    assert (found.session_id, list(found.replicas)) == (5, [1, 2])
    control._write(p4r.Update.DELETE, session)
    control.delete_multicast_group(3)
    served.send(0, frame_to(0x20))
    served.send(0, frame_to(0x21, payload=b"alone"))
    assert served.receive(0) == frame_to(0x21, payload=b"alone")
    with pytest.raises(ToolFailed, match="NOT_FOUND: there is no multicast group 3"):
        control.delete_multicast_group(3)


def test_counters_and_registers(served, control):
    control.insert(_station(0x10, port=1))
    served.send(2, frame_to(0x10, source=0x0A0B))
    served.receive(1)
    counters = control._read(p4entity.P4CounterEntry("I.by_port"))
    assert [c.data.packet_count for c in counters] == [0, 0, 1, 0]
    control._write(
        p4r.Update.MODIFY,
        p4entity.P4CounterEntry("I.by_port", index=2, data=p4entity.P4CounterData(packet_count=41)),
    )
    served.send(2, frame_to(0x10))
    served.receive(1)
    (counter,) = control._read(p4entity.P4CounterEntry("I.by_port", index=2))
    assert counter.data.packet_count == 42
    assert control.has_registers("I.last")
    assert control.read("I.last", 2) == 2
    control.write_range("I.last", 0, 8, 2**48 - 1)
    assert [control.read("I.last", i) for i in range(8)] == [2**48 - 1] * 8
    with pytest.raises(ToolFailed, match="OUT_OF_RANGE: index 8 of 8"):
        control.read("I.last", 8)


@pytest.mark.parametrize(("small", "signed"), [(127, -(2**15)), (0, -1), (1, 128), (5, 2**15 - 1), (3, 0)])
def test_a_register_of_structs_keeps_signs(control, small, signed):
    name = next(r for r in control.schema.registers if r.name == "I.pairs")
    size = 2
    data = p4d.P4Data(
        struct=p4d.P4StructLike(
            members=[
                p4d.P4Data(bitstring=bytes([small])),
                p4d.P4Data(bitstring=signed.to_bytes(size, "big", signed=True)),
            ]
        )
    )
    entry = p4r.RegisterEntry(register_id=name.id, index=p4r.Index(index=1), data=data)
    update = p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=entry))
    control._run(control._client.request(p4r.WriteRequest(device_id=7, updates=[update])))
    cells = control._read(p4entity.P4RegisterEntry("I.pairs"))
    assert [cell.data for cell in cells] == [{"small": 0, "signed": 0}, {"small": small, "signed": signed}]


def _twice(control):
    control.insert(_station(1, port=1))
    control.insert(_station(1, port=2))


def _five(control):
    for mac in range(5):
        control.insert(_station(mac, port=1))


def _timeout(control):
    match = p4entity.P4TableMatch({"destination": 1})
    action = p4entity.P4TableAction("I.forward", port=1)
    entry = p4entity.P4TableEntry(STATIONS, match=match, action=action, idle_timeout_ns=5)
    control._write(p4r.Update.INSERT, entry)


def _constant(control):
    control.insert(TableEntry("I.fixed", {"hdr.ethernet.kind": Exact(1)}, "I.drop"))


def _no_priority(control):
    control.insert(TableEntry("I.filter", {"hdr.ethernet.$valid$": Exact(1)}, "I.drop", {}, 0))


def _new_counter(control):
    data = p4entity.P4CounterData(packet_count=1)
    control._write(p4r.Update.INSERT, p4entity.P4CounterEntry("I.by_port", index=0, data=data))


def _entity(**entity):
    """Writes an entity of P4Runtime's own."""

    def write(control):
        update = p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(**entity))
        control._run(control._client.request(p4r.WriteRequest(device_id=7, updates=[update])))

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_twice, "ALREADY_EXISTS: table I.stations has this entry"),
        (_five, "RESOURCE_EXHAUSTED: table I.stations is full: 4 entries"),
        (lambda c: c.delete(_station(1, port=1)), "NOT_FOUND: table I.stations has no such entry"),
        (lambda c: c.insert(_station(1, "I.drop")), "PERMISSION_DENIED: table I.stations: I.drop is the def"),
        (_constant, "PERMISSION_DENIED: table I.fixed: its entries are constant"),
        (_no_priority, "INVALID_ARGUMENT: table I.filter: its entries have a priority above 0"),
        (_timeout, "INVALID_ARGUMENT: table I.stations: its entries have no idle timeout"),
        (_new_counter, "INVALID_ARGUMENT: a counter is modified"),
        (_entity(digest_entry=p4r.DigestEntry()), "NOT_FOUND: there is nothing of digests with the id 0"),
        (_entity(table_entry=p4r.TableEntry(table_id=1)), "NOT_FOUND: there is no table with the id 1"),
    ],
)
def test_what_is_refused_says_why(control, write, message):
    with pytest.raises(ToolFailed, match=message):
        write(control)


def test_a_batch_goes_on_and_names_each_fault(served, control):
    entities = [_station(1, port=1), _station(1, port=1), _station(2, port=1)]
    from fanin.sim.switch.bmv2.p4runtime import encode_entry

    with pytest.raises(ToolFailed, match="ALREADY_EXISTS"):
        control._write(p4r.Update.INSERT, *(encode_entry(control.schema, e) for e in entities))
    assert len(control.entries(STATIONS)) == 2
    stub = p4r_grpc.P4RuntimeStub(grpc.insecure_channel(served.address))
    updates = [
        p4r.Update(type=p4r.Update.INSERT, entity=encode_entry(control.schema, e).encode(control.schema))
        for e in entities
    ]
    request = p4r.WriteRequest(device_id=7, updates=updates, election_id=control._election)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Write(request)
    details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    codes = []
    for packed in rpc_status.Status.FromString(details).details:
        error = p4r.Error()
        packed.Unpack(error)
        codes.append(error.canonical_code)
    assert codes == [rpc_code.ALREADY_EXISTS] * 3


def test_only_the_primary_writes_and_the_next_takes_over(served):
    first = P4Runtime(served.address, device=7)
    second = P4Runtime(served.address, device=7)  # comes later: a higher election id
    with pytest.raises(ToolFailed, match="PERMISSION_DENIED: this is not the primary"):
        first.insert(_station(1, port=1))
    assert first.entries(STATIONS) == []  # reading needs no primary
    second.insert(_station(1, port=1))
    second.close()
    with pytest.raises(ToolFailed, match="PERMISSION_DENIED"):  # as the specification has it
        first.insert(_station(2, port=1))
    first.close()
    third = P4Runtime(served.address, device=7)
    third.insert(_station(2, port=1))
    third.close()
    with pytest.raises(ToolFailed, match="there is no device 1; there is 7"):
        P4Runtime(served.address, device=1)


def test_a_pipeline_makes_a_fresh_switch_and_its_ids_count(served, control, tmp_path):
    control.insert(_station(0x10, port=1))
    info = p4info(served.program)
    for table in info.tables:
        table.preamble.id += 1
    for counter in info.direct_counters:
        counter.direct_table_id += 1
    (tmp_path / "info.txtpb").write_text(str(info))
    (tmp_path / "config.json").write_text("{}")
    control.set_pipeline(CompiledProgram(tmp_path / "config.json", tmp_path / "info.txtpb"))
    assert control.entries(STATIONS) == []
    control.insert(_station(0x10, port=2))
    served.send(0, frame_to(0x10))
    assert served.receive(2) == frame_to(0x10)
    answer = control._run(control._client.request(p4r.GetForwardingPipelineConfigRequest(device_id=7)))
    assert answer.config.p4info == info
    assert answer.config.p4_device_config == b"{}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda info: setattr(info.tables[0].preamble, "name", "I.other"), "no I.other in tables"),
        (lambda info: setattr(info.tables[0].match_fields[0], "bitwidth", 3), "the keys of table I.stations"),
        (lambda info: info.actions.pop(0), "it has table I.stations, but not its action I.forward"),
        (lambda info: setattr(info.actions[0].params[0], "bitwidth", 3), "the parameters of I.forward"),
    ],
)  # fmt: skip
def test_a_pipeline_of_another_program_is_refused(served, control, change, message):
    info = p4info(served.program)
    change(info)
    config = p4r.ForwardingPipelineConfig(p4info=info)
    action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
    request = p4r.SetForwardingPipelineConfigRequest(device_id=7, action=action, config=config)
    with pytest.raises(ToolFailed, match=message):
        control._run(control._client.request(request))


def test_packets_to_and_from_the_controller(served, control):
    control.insert(_station(0x30, "I.to_controller"))
    served.send(2, frame_to(0x30))
    answer = control._run(control._client.receive())
    assert answer.packet.payload == frame_to(0x30)
    assert [m.value for m in answer.packet.metadata] == [b"\x02", b"\x03"]
    out = p4r.PacketOut(payload=frame_to(0x77))
    out.metadata.add(metadata_id=1, value=b"\x01")
    out.metadata.add(metadata_id=2, value=b"\x00")
    control._run(control._client.send(p4r.StreamMessageRequest(packet=out)))
    assert served.receive(1) == frame_to(0x77)
    del out.metadata[1]
    control._run(control._client.send(p4r.StreamMessageRequest(packet=out)))
    answer = control._run(control._client.receive())
    assert answer.error.canonical_code == rpc_code.INVALID_ARGUMENT
    assert "has the metadata ['port', 'unused']" in answer.error.message


def test_without_a_cpu_port_the_controllers_packets_are_refused():
    with contextlib.closing(Served(cpu=None)) as served:
        with contextlib.closing(P4Runtime(served.address, device=7)) as control:
            out = p4r.PacketOut(payload=frame_to(0x77))
            control._run(control._client.send(p4r.StreamMessageRequest(packet=out)))
            error = control._run(control._client.receive()).error
        assert error.canonical_code == rpc_code.FAILED_PRECONDITION
        assert error.message == "the switch has no CPU port: fanin p4 serve --cpu-port"
        assert error.packet_out.packet_out == out
        assert served.forwarding.from_controller == 0


def test_a_packet_without_a_controller_is_counted(served):
    with contextlib.closing(P4Runtime(served.address, device=7)) as control:
        control.insert(_station(0x30, "I.to_controller"))
        control.insert(_station(0x10, port=1))
    limit = time.monotonic() + 20
    while served.service.controllers._streams:  # the server hears of the end later than the controller
        assert time.monotonic() < limit
        time.sleep(0.01)
    served.send(2, frame_to(0x30))
    served.send(2, frame_to(0x10))
    served.receive(1)
    assert (served.forwarding.no_controller, served.forwarding.to_controller) == (1, 1)


def test_too_many_controllers_are_turned_away(served):
    with contextlib.ExitStack() as opened:
        for _ in range(MAX_CONTROLLERS):
            opened.enter_context(contextlib.closing(P4Runtime(served.address, device=7)))
        # Seen once, among 17 event loops: gRPC's client lost the status and reported an error of its own.
        with pytest.raises(ToolFailed, match=r"RESOURCE_EXHAUSTED|Internal error from Core"):
            P4Runtime(served.address, device=7)


def test_a_second_server_on_one_address_is_refused(served):
    with pytest.raises(InputError, match=f"--grpc {served.address}: the address is in use"):
        P4RuntimeServer(served.service, served.address)


def test_a_front_that_was_ended_is_not_started_again(served, monkeypatch):
    """The loop may see the closed link before it sees that it has to stop."""
    started = []
    monkeypatch.setattr("subprocess.Popen", lambda *words, **options: started.append(words))

    def end_and_go_on():
        served.server.finish()
        served.server.work(time.monotonic() + 0.2)

    served.forwarding.run_in_loop(end_and_go_on)
    assert started == []


LOOPBACK = "127.0.0.1"


@pytest.mark.parametrize(
    "address",
    [LOOPBACK, *(f"{LOOPBACK}:{port}" for port in ("70000", "-1", "x")), ":0", "::1:0", "unix:0", "unix:/x:0"],
)
def test_an_address_is_a_host_and_a_port(served, address):
    """gRPC would listen at port 443 without a port, at 4464 for 70000, and at a Unix socket for a path."""
    with pytest.raises(InputError, match="must be HOST:PORT, an IPv6 address in brackets, a port of 0"):
        P4RuntimeServer(served.service, address)


def test_p4info_of_the_test_is_what_the_client_sees(served, control):
    assert {t.name for t in control.schema.tables} == {
        f"I.{n}" for n in ("stations", "filter", "route", "choose", "fixed")
    }
    assert control.schema.p4info.pkg_info == p4i.PkgInfo(arch="v1model")
    assert "V1Switch" in TEXT


def test_a_controller_that_sends_while_the_switch_ends_gets_no_answer_and_no_traceback(served, control, capfd):
    served.forwarding.stop()
    out = p4r.PacketOut(payload=frame_to(0x77))
    out.metadata.add(metadata_id=1, value=b"\x01")
    out.metadata.add(metadata_id=2, value=b"\x00")
    with contextlib.suppress(ToolFailed):
        control._run(control._client.send(p4r.StreamMessageRequest(packet=out)))
    with pytest.raises(ToolFailed):
        control.entries(STATIONS)
    assert "Traceback" not in capfd.readouterr().err
