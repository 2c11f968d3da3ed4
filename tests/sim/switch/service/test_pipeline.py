"""P4Runtime: pipeline configuration and stream messages (docs/reference/p4runtime.md)."""

import contextlib

import pytest
from finsy.proto import p4i, p4r

from tests.sim.switch.service.client import (
    DENIED,
    DEVICE,
    INSERT,
    INVALID,
    MISSING,
    NOT_FOUND,
    Bidder,
    Client,
    Set,
    status_of,
    wide,
)
from tests.sim.switch.service.served import TEXT, Served, frame_to

# pipelines


@pytest.mark.parametrize("action", [Set.VERIFY, Set.VERIFY_AND_SAVE, Set.VERIFY_AND_COMMIT])
def test_a_pipeline_needs_p4info_of_the_program(shared, action):
    assert shared.configure(action) == INVALID
    assert shared.configure(action, config={"p4_device_config": b"x"}) == INVALID
    other = p4i.P4Info()
    other.tables.add().preamble.CopyFrom(p4i.Preamble(id=1, name="I.other"))
    assert shared.configure(action, config={"p4info": other}) == INVALID


@pytest.mark.parametrize(
    "change",
    [
        lambda info: setattr(info.tables[0].preamble, "id", 0),
        lambda info: setattr(info.tables[0].preamble, "id", info.tables[1].preamble.id),
        lambda info: setattr(info.controller_packet_metadata[0].metadata[0], "bitwidth", 8),
    ],
)
def test_p4info_has_an_id_for_each_object_and_the_programs_headers(shared, change):
    info = p4i.P4Info.FromString(shared.info.SerializeToString())
    change(info)
    assert shared.configure(Set.VERIFY, config={"p4info": info}) == INVALID


def test_verifying_changes_nothing(client):
    assert client.write(INSERT, table_entry=client.station(b"\x05")) == 0
    assert client.configure(Set.VERIFY, config={"p4info": client.info}) == 0
    assert len(client.entries(table_id=client.id("I.stations"))) == 1
    assert client.configure(Set.COMMIT) == NOT_FOUND


def test_a_saved_pipeline_takes_writes_and_comes_with_the_commit(served, client):
    assert client.write(INSERT, table_entry=client.station(b"\x05", b"\x01")) == 0
    old = client.id("I.stations")
    info = p4i.P4Info.FromString(client.info.SerializeToString())
    info.tables[0].preamble.id += 1
    for counter in info.direct_counters:
        counter.direct_table_id += 1
    assert client.configure(Set.VERIFY_AND_SAVE, config={"p4info": info, "cookie": {"cookie": 9}}) == 0
    client.refresh()
    assert client.info == info
    assert client.id("I.stations") == old + 1
    assert client.entries(table_id=old + 1) == []
    assert client.write(INSERT, table_entry=client.station(b"\x06", b"\x02")) == 0
    served.send(0, frame_to(5))
    served.send(0, frame_to(6))  # no entry yet: dropped
    assert served.receive(1) == frame_to(5)
    assert client.configure(Set.COMMIT, config={"p4info": info}) == INVALID
    assert client.configure(Set.COMMIT) == 0
    served.send(0, frame_to(6, payload=b"committed"))
    assert served.receive(2) == frame_to(6, payload=b"committed")
    assert client.configure(Set.COMMIT) == NOT_FOUND


@pytest.mark.parametrize(
    ("action", "code"), [(Set.UNSPECIFIED, INVALID), (77, INVALID), (Set.RECONCILE_AND_COMMIT, MISSING)]
)
def test_another_action_is_refused(shared, action, code):
    assert shared.configure(action, config={"p4info": shared.info}) == code


def test_a_pipeline_is_the_primarys_alone(shared):
    request = Set(device_id=8, action=Set.COMMIT)
    assert status_of(shared.stub.SetForwardingPipelineConfig, request) == NOT_FOUND
    request = Set(device_id=DEVICE, election_id=wide(2), action=Set.COMMIT)
    assert status_of(shared.stub.SetForwardingPipelineConfig, request) == DENIED


def test_the_configuration_is_returned_in_the_parts_that_are_asked_for(client):
    config = p4r.ForwardingPipelineConfig(p4info=client.info, p4_device_config=b"json", cookie={"cookie": 0})
    Get = p4r.GetForwardingPipelineConfigRequest

    def get(kind):
        return client.stub.GetForwardingPipelineConfig(Get(device_id=DEVICE, response_type=kind)).config

    assert not get(Get.ALL).HasField("cookie")
    assert client.configure(Set.VERIFY_AND_COMMIT, config=config) == 0
    assert get(Get.ALL) == config
    assert get(Get.COOKIE_ONLY) == p4r.ForwardingPipelineConfig(cookie=config.cookie)
    assert get(Get.P4INFO_AND_COOKIE).p4_device_config == b""
    assert not get(Get.DEVICE_CONFIG_AND_COOKIE).HasField("p4info")
    assert status_of(client.stub.GetForwardingPipelineConfig, Get(device_id=8)) == NOT_FOUND


# the stream


def _out(*metadata):
    items = [p4r.PacketMetadata(metadata_id=number, value=value) for number, value in metadata]
    return p4r.PacketOut(payload=frame_to(0x77), metadata=items)


@pytest.mark.parametrize(
    "metadata",
    [
        [(1, b"\x01")],
        [(1, b"\x01"), (2, b"\x00"), (2, b"\x00")],
        [(1, b"\x01"), (2, b"")],
        [(1, b"\x02\x00"), (2, b"\x00")],
        [(1, b"\x01"), (7, b"\x00")],
    ],
)
def test_a_packet_has_each_metadata_field_once(shared, metadata):
    shared.send(packet=_out(*metadata))
    error = shared.receive().error
    assert (error.canonical_code, error.packet_out.packet_out) == (INVALID, _out(*metadata))


def test_only_the_primary_sends_packets(served, client):
    with contextlib.closing(Bidder(served.address)) as backup:
        backup.send(packet=_out((1, b"\x01"), (2, b"\x00")))
        assert backup.receive().error.canonical_code == DENIED
    client.send(packet=_out((1, b"\x00\x01"), (2, b"\x00")))
    assert served.receive(1) == frame_to(0x77)


def test_a_header_field_with_a_translated_width_keeps_the_programs_layout():
    text = (
        TEXT.replace(
            "typedef bit<48> Mac;",
            'typedef bit<48> Mac; @p4runtime_translation("p", 32) type bit<9> Port;',
        )
        .replace("header out_t { bit<9> port;", "header out_t { Port port;")
        .replace("std.egress_spec = hdr.outer.port", "std.egress_spec = (bit<9>) hdr.outer.port")
    )
    with contextlib.closing(Served(text)) as served, contextlib.closing(Client(served)) as client:
        assert client.info.controller_packet_metadata[1].metadata[0].bitwidth == 32
        client.send(packet=_out((1, b"\x02"), (2, b"\x00")))
        assert served.receive(2) == frame_to(0x77)
        client.send(packet=_out((1, b"\x02\x00"), (2, b"\x00")))  # fits in 32 bits, not in the program's 9
        assert client.receive().error.canonical_code == INVALID


def test_capabilities_name_the_version(shared):
    assert shared.stub.Capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version == "1.4.1"
