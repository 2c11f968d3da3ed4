"""P4Info beside p4c's: ids, aliases, scopes, types."""

import os
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from fanin.sim.switch.embedded import load
from fanin.sim.switch.embedded.errors import P4Error
from fanin.sim.switch.service.p4info import aliases, as_bytes, ids_of, p4info
from tests.sim.switch.service.served import TEXT

LISTS = (
    "tables", "actions", "action_profiles", "counters", "direct_counters", "meters", "direct_meters",
    "registers", "controller_packet_metadata",
)  # fmt: skip


def test_ids_are_p4cs():
    """Names and ids from P4Info that p4c wrote, for programs of its own tests and of p4lang's tutorials."""
    assert ids_of(p4i.P4Ids.TABLE, {"MyIngress.ipv4_lpm": None}) == {"MyIngress.ipv4_lpm": 37375156}
    assert ids_of(p4i.P4Ids.ACTION, {"NoAction": None}) == {"NoAction": 21257015}
    assert ids_of(p4i.P4Ids.ACTION_PROFILE, {"IngressI.ap_ws": None}) == {"IngressI.ap_ws": 285903678}
    assert ids_of(p4i.P4Ids.CONTROLLER_HEADER, {"packet_out_t": None}) == {"packet_out_t": 75327753}


def test_an_id_of_the_program_counts_and_others_step_aside():
    (free,) = ids_of(2, {"a": None}).values()
    assert ids_of(2, {"a": None, "b": free}) == {"b": free, "a": free + 1}
    assert ids_of(2, {"a": 5}) == {"a": 0x2000005}


def test_an_alias_is_the_shortest_end_that_is_nobody_elses():
    assert aliases(["d.a.c", "e.b.c", "x"]) == {"d.a.c": "a.c", "e.b.c": "b.c", "x": "x"}
    assert aliases(["a.b", "b"]) == {"a.b": "a.b", "b": "b"}


def test_numbers_take_no_more_bytes_than_they_need():
    assert [as_bytes(n, 32) for n in (0, 255, 256)] == [b"\0", b"\xff", b"\1\0"]


def test_a_program_with_one_of_everything():
    info = p4info(load(TEXT))
    named = {m.preamble.name: m for kind in LISTS for m in getattr(info, kind)}
    stations = named["I.stations"]
    scopes = {
        next(a.preamble.name for a in info.actions if a.preamble.id == r.id): r.scope
        for r in stations.action_refs
    }
    assert (stations.size, scopes["I.drop"], scopes["I.forward"]) == (4, p4i.ActionRef.DEFAULT_ONLY, 0)
    assert stations.direct_resource_ids == [named["I.hits"].preamble.id]
    assert named["I.hits"].direct_table_id == stations.preamble.id
    assert [(f.name, f.match_type) for f in named["I.filter"].match_fields] == [
        ("hdr.ethernet.source", p4i.MatchField.TERNARY),
        ("hdr.ethernet.kind", p4i.MatchField.RANGE),
        ("hdr.ethernet.$valid$", p4i.MatchField.EXACT),
    ]
    assert (named["I.by_port"].size, named["I.by_port"].spec.unit) == (4, p4i.CounterSpec.PACKETS)
    assert (named["I.last"].size, named["I.last"].type_spec.bitstring.bit.bitwidth) == (8, 48)
    assert [m.name for m in info.type_info.structs["Pair"].members] == ["small", "signed"]
    assert info.type_info.structs["Pair"].members[1].type_spec.bitstring.int.bitwidth == 16
    assert named["I.flags"].type_spec.HasField("bool")
    assert [(m.name, m.bitwidth) for m in named["packet_in"].metadata] == [("port", 9), ("reason", 7)]
    assert named["I.fixed"].is_const_table
    assert named["I.fixed"].has_initial_entries
    assert named["I.route"].action_refs[1].scope == p4i.ActionRef.TABLE_ONLY


@pytest.mark.p4c
def test_the_same_as_p4cs_own_for_its_tests():
    """All of p4c's v1model programs that we take: but for what is named, the same objects, ids and fields."""
    folder = os.environ.get("P4C_TESTDATA")
    if not folder:
        pytest.skip("P4C_TESTDATA does not name p4c's testdata/p4_16_samples")
    same, other = 0, {}
    for path in sorted(Path(f"{folder}_outputs").glob("*.p4info.txtpb")):
        source = Path(folder) / path.name.removesuffix(".p4info.txtpb")
        wanted = text_format.Parse(path.read_text(), p4i.P4Info())
        if wanted.pkg_info.arch != "v1model" or not source.exists():
            continue
        try:
            found = _compared(p4info(load(source)))
        except P4Error:
            continue
        differ = [name for name, of in _compared(wanted).items() if found.get(name) != of]
        differ = [name for name in differ if name[0] != "actions" or name in found]  # of no table
        same += not differ
        if differ:
            other[path.name] = differ
    assert same >= 400, other
    assert len(other) <= 12, other


def _compared(info):
    """By kind and name, without annotations and the types' own names, which ids and values do not need."""
    result = {}
    for kind in LISTS:
        for message in getattr(info, kind):
            for part in (message.preamble, *_parts(message)):
                for field in ("annotations", "structured_annotations", "doc", "type_name"):
                    if field in part.DESCRIPTOR.fields_by_name:
                        part.ClearField(field)
            if kind == "tables":
                message.ClearField("idle_timeout_behavior")
                for argument in message.initial_default_action.arguments:
                    argument.value = argument.value.lstrip(b"\0") or b"\0"
            result[kind, message.preamble.name] = message
    return result


def _parts(message):
    names = ("match_fields", "action_refs", "params", "metadata")
    return [
        part for name in names if name in message.DESCRIPTOR.fields_by_name for part in getattr(message, name)
    ]
