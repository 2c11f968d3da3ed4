"""P4Info beside p4c's: ids, aliases, scopes, types."""

import os
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from fanin.sim.switch.embedded import load
from fanin.sim.switch.embedded.errors import P4Error
from fanin.sim.switch.service.data import as_bytes
from fanin.sim.switch.service.p4info import aliases, ids_of, p4info
from tests.sim.switch.embedded.programs import PARTS, v1model
from tests.sim.switch.service.served import TEXT

LISTS = (
    "tables", "actions", "action_profiles", "counters", "direct_counters", "meters", "direct_meters",
    "registers", "controller_packet_metadata", "digests",
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


def test_types_of_their_own_keep_their_names_and_a_controllers_widths():
    info = p4info(
        v1model(
            declarations=PARTS["declarations"]
            + """
            @p4runtime_translation("a.org/port", 32) type bit<8> port_t;
            @p4runtime_translation("a.org/name", string) type bit<8> name_t;
            type bit<8> plain_t;
            enum Side { left, right }
            enum bit<8> Code { low = 3 }
            enum bit<8> Other { one = 1 }
            struct message_t { port_t port; Side side; error what; Code code; tuple<bit<8>, bool> two; }
            """,
            locals="""
            register<Code>(2) codes;
            action a(@name("to") port_t p) { digest<message_t>(1, { p, Side.right, error.NoMatch, Code.low,
                { hdr.h.a, true } }); }
            table t { key = { (name_t) hdr.h.a: exact @name("n"); (plain_t) hdr.h.b: exact @name("b");
                hdr.h.c & 0xf0: ternary; (Other) hdr.h.d: exact @name("d"); }
                actions = { a; NoAction; } support_timeout = true; }
            """,
            apply="t.apply(); codes.write(0, Code.low);",
        )
    )
    keys = [(field.name, field.bitwidth, field.type_name.name) for field in info.tables[0].match_fields]
    assert keys == [("n", 0, "name_t"), ("b", 8, "plain_t"), ("hdr.h.c & 0xf0", 8, ""), ("d", 8, "")]
    assert info.tables[0].idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
    (param,) = next(action for action in info.actions if action.preamble.name == "I.a").params
    assert (param.name, param.bitwidth, param.type_name.name) == ("to", 32, "port_t")
    assert info.registers[0].type_spec.serializable_enum.name == "Code"
    types = info.type_info
    assert types.new_types["name_t"].translated_type.HasField("sdn_string")
    assert types.new_types["plain_t"].original_type.bitstring.bit.bitwidth == 8
    assert [(m.name, m.value) for m in types.serializable_enums["Code"].members] == [("low", b"\3")]
    assert [m.name for m in types.serializable_enums["Other"].members] == ["one"]
    assert [m.name for m in types.enums["Side"].members] == ["left", "right"]
    assert types.error.members[:3] == ["NoError", "PacketTooShort", "NoMatch"]
    kinds = [m.type_spec.WhichOneof("type_spec") for m in types.structs["message_t"].members]
    assert kinds == ["new_type", "enum", "error", "serializable_enum", "tuple"]


def test_a_selector_of_a_tables_own_has_the_annotations_of_its_property():
    info = p4info(
        v1model(
            locals="""
            table t { key = { hdr.h.a: exact; hdr.h.b: selector; } actions = { NoAction; }
                @name("ways") @max_group_size(6)
                @selector_size_semantics("sum_of_members") @max_member_weight(9)
                implementation = action_selector(HashAlgorithm.crc32, 32, 16); }
            """,
            apply="t.apply();",
        )
    )
    (profile,) = info.action_profiles
    assert (profile.preamble.name, profile.size, profile.max_group_size) == ("ways", 32, 6)
    assert profile.sum_of_members.max_member_weight == 9
    assert info.tables[0].implementation_id == profile.preamble.id
    assert [field.name for field in info.tables[0].match_fields] == ["hdr.h.a"]


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
@pytest.mark.needs("P4C_TESTDATA")
def test_the_same_as_p4cs_own_for_its_tests():
    """All of p4c's v1model programs that we take: but for what is named, the same objects, ids and fields."""
    folder = os.environ["P4C_TESTDATA"]
    same, other = 0, {}
    for path in sorted(Path(f"{folder}_outputs").glob("*.p4info.txtpb")):
        source = Path(folder) / path.name.removesuffix(".p4info.txtpb")
        wanted = text_format.Parse(path.read_text(), p4i.P4Info())
        if wanted.pkg_info.arch != "v1model" or not source.exists():
            continue
        try:
            info = p4info(load(source))
        except P4Error:
            continue
        found, wanted = _compared(info), _compared(wanted)
        differ = [name for name, of in wanted.items() if found.get(name) != of]
        differ = [name for name in differ if name[0] != "actions" or name in found]  # of no table
        same += not differ
        if differ:
            other[path.name] = differ
    assert same >= 420, other
    assert not other


def _compared(info):
    """By kind and name, without annotations, and numbers in the form that P4Runtime gives them."""
    result = {}
    for kind in LISTS:
        for message in getattr(info, kind):
            for part in (message.preamble, *_parts(message)):
                for field in ("annotations", "structured_annotations", "doc"):
                    if field in part.DESCRIPTOR.fields_by_name:
                        part.ClearField(field)
            if kind == "tables":
                for argument in message.initial_default_action.arguments:
                    argument.value = argument.value.lstrip(b"\0") or b"\0"
            result[kind, message.preamble.name] = message
    for kind in ("structs", "new_types", "enums", "serializable_enums"):
        for name, message in getattr(info.type_info, kind).items():
            if "annotations" in message.DESCRIPTOR.fields_by_name:
                message.ClearField("annotations")
            for member in message.members if kind == "serializable_enums" else ():
                member.value = member.value.lstrip(b"\0") or b"\0"
            result[kind, name] = message
    result["errors", ""] = list(info.type_info.error.members)
    return result


def _parts(message):
    names = ("match_fields", "action_refs", "params", "metadata")
    return [
        part for name in names if name in message.DESCRIPTOR.fields_by_name for part in getattr(message, name)
    ]
