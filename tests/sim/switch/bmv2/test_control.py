"""P4Runtime and Thrift without BMv2: P4Info that the test builds, servers that keep what they hear."""

import socket
import struct

import pytest
from finsy import p4entity
from finsy.p4schema import P4Schema

from fanin.base.errors import ToolFailed
from fanin.job import SWITCH, Job, Member, worker_endpoint
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.control import Exact, Lpm, MulticastGroup, Range, Replica, TableEntry, Ternary
from fanin.p4.deployment import default_deployment
from fanin.p4.installation import job_installation, station_installation, switch_installation
from fanin.p4.readback import RunningJob, program_config, running_jobs
from fanin.sim.switch.bmv2.p4runtime import P4Runtime, Unreachable, decode_entry, encode_entry
from fanin.sim.switch.bmv2.thrift import Registers, connect_thrift
from fanin.wire.aggregation import Encap, Protocol
from tests.sim.switch.bmv2.fake import FakeSwitch, compiled, p4info
from tests.sim.switch.traffic import JOBS, PORTS

CONFIGS = [
    ProgramConfig(slots=32, encap=encap, protocol=protocol, workers=workers, values=values)
    for encap, protocol, workers, values in (
        (Encap.L2, Protocol.P4SGD, 4, 8),
        (Encap.UDP, Protocol.SWITCHML, 4, 1),
        (Encap.UDP, Protocol.P4SGD, 32, 32),
    )
]


@pytest.fixture
def fake():
    switch = FakeSwitch()
    yield switch
    switch.close()


def _schema(config):
    return P4Schema(p4info(config))


def _returned(schema, entry):
    """As it comes back from a switch."""
    message = encode_entry(schema, entry).encode(schema)
    return decode_entry(schema, p4entity.P4TableEntry.decode(message, schema))


@pytest.mark.parametrize("config", CONFIGS)
def test_every_entry_of_the_program_survives_p4runtime(config):
    schema = _schema(config)
    everything = [switch_installation(config, range(PORTS)), station_installation(0x0200_0000_0001, 3)]
    everything += [job_installation(config, job, place, SWITCH) for place, job in enumerate(JOBS)]
    for entry in (entry for installation in everything for entry in installation.entries):
        assert _returned(schema, entry) == entry


@pytest.mark.parametrize(
    ("key", "match", "expected"),
    [
        ("lpm", Lpm(0xC0A8FFFF, 16), Lpm(0xC0A80000, 16)),  # bits that do not matter are 0 in P4Runtime
        ("lpm", Lpm(5, 0), None),
        ("range", Range(3, 9), Range(3, 9)),
        ("range", Range(0, 0xFFFF_FFFF), None),
    ],
)
def test_matches_are_sent_in_p4runtimes_canonical_form(key, match, expected):
    entry = TableEntry("Extra.every", {key: match}, "Extra.nothing", priority=7)
    assert _returned(_schema(CONFIGS[0]), entry).match == ({key: expected} if expected else {})


def test_a_ternary_value_is_masked():
    entry = TableEntry("Aggregation.forward", {"port": Ternary(0b111, 0b101)}, "Aggregation.stay", priority=1)
    assert _returned(_schema(CONFIGS[0]), entry).match == {"port": Ternary(0b101, 0b101)}


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        (TableEntry("Aggregation.nothing", {}, "Aggregation.stay"), "no table Aggregation.nothing"),
        (TableEntry("Aggregation.forward", {"colour": Exact(1)}, "Aggregation.stay"), "no key colour"),
        (TableEntry("Aggregation.forward", {"port": Ternary(512, 512)}, "Aggregation.stay"), "bitwidth 9"),
    ],
)
def test_what_p4info_does_not_have_is_refused(entry, wrong):
    schema = _schema(CONFIGS[0])
    with pytest.raises(ValueError, match=wrong):
        encode_entry(schema, entry).encode(schema)


@pytest.mark.parametrize("config", CONFIGS)
def test_configuration_and_jobs_are_read_back(config):
    schema = _schema(config)
    names = (
        {register.name: register.size for register in schema.registers},
        {table.name: table.size for table in schema.tables},
        {action.name: [parameter.name for parameter in action.params] for action in schema.actions},
    )
    assert program_config(*names) == config
    entries = [
        e for place, job in enumerate(JOBS) for e in job_installation(config, job, 5 - place, SWITCH).entries
    ]
    found = running_jobs(config, [_returned(schema, entry) for entry in entries])
    assert [(running.job.id, running.place) for running in found] == [(77, 3), (200, 4), (3, 5)]
    for running, job in zip(found, reversed(JOBS), strict=True):
        assert (running.job.base, running.job.slots, running.job.bitmap) == (job.base, job.slots, job.bitmap)
        assert (running.job.uplink is None) == (job.uplink is None)
        if config.encap is Encap.UDP:
            assert running == RunningJob(job, running.place, SWITCH)


def test_a_job_with_all_slots_there_are_is_read_back():
    config = ProgramConfig(slots=65536, workers=1)
    (job,) = default_deployment(config).jobs
    entries = job_installation(config, job, 0, SWITCH).entries
    (found,) = running_jobs(config, [_returned(_schema(config), entry) for entry in entries])
    assert (found.job.base, found.job.slots) == (0, 65536)


def test_another_program_is_not_taken_for_ours():
    with pytest.raises(ValueError, match="another program"):
        program_config({}, {}, {})
    schema = _schema(CONFIGS[0])
    registers = {register.name: register.size for register in schema.registers}
    tables = {table.name: table.size for table in schema.tables}
    with pytest.raises(ValueError, match="another program"):
        program_config(registers | {"Aggregation.ack_state": 8}, tables, {"Delivery.address": ["mac"]})


def test_groups_are_added_changed_and_removed(fake, tmp_path):
    control = P4Runtime(fake.address, program=compiled(CONFIGS[0], tmp_path))
    for replicas in ((Replica(0, 1),), (Replica(1, 2), Replica(3))):
        control.set_multicast_group(MulticastGroup(9, replicas))
        assert control.multicast_groups() == [MulticastGroup(9, replicas)]
    control.delete_multicast_group(9)
    assert control.multicast_groups() == []
    control.close()


def test_what_the_switch_refuses_is_one_line(fake, tmp_path):
    control = P4Runtime(fake.address, program=compiled(CONFIGS[0], tmp_path))
    with pytest.raises(ToolFailed) as refused:
        control.delete_multicast_group(1)
    assert str(refused.value) == f"{fake.address}: UNKNOWN: code 5"
    fake.close()
    with pytest.raises(ToolFailed, match=fake.address):
        control.multicast_groups()
    control.close()


def test_nobody_there_is_said_at_once():
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1: no P4Runtime server answers"):
        P4Runtime("127.0.0.1:1")
    with pytest.raises(ToolFailed, match=r"127\.0\.0\.1:1: no Thrift server answers"):
        connect_thrift(("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        (b"\x0b\0\0\x7f\xff\xff\xff", "an answer of more than 65,536 bytes"),  # a text of 2 GiB
        (b"\x0c\0\0" * 2000, "a value of the unexpected type 12"),  # structs in structs
    ],
)
def test_a_thrift_server_cannot_answer_without_end(result, cause):
    own, peer = socket.socketpair()
    with own, peer:
        peer.sendall(struct.pack(">IIxxxx", 0x8001_0002, 0) + result)
        with pytest.raises(ToolFailed, match=cause):
            Registers(own).read("r", 0)


def test_registers_are_written_and_read_through_thrift(fake):
    host, _, port = fake.thrift.partition(":")
    registers = Registers(connect_thrift((host, int(port))))
    registers.write_range("Aggregation.current_round", 4, 8, 0)
    assert fake.registers == [("Aggregation.current_round", 4, 8, 0)]
    assert registers.read("Aggregation.current_round", 3) == 0xFFFF_FFFF_FFFF_FFFF  # unsigned
    with pytest.raises(ToolFailed, match="bm_register_read: no such register"):
        registers.read("nowhere", 3)
    registers.close()


def test_members_on_one_port_are_read_back():
    config = ProgramConfig(slots=32, workers=4, encap=Encap.UDP)
    job = Job(9, 0, 4, tuple(Member(7, 1 << w, worker_endpoint(w)) for w in range(3)))
    entries = job_installation(config, job, 7, SWITCH).entries
    assert running_jobs(config, entries) == [RunningJob(job, 7, SWITCH)]
