"""Tofino's architecture: parser errors, drops, copies, registers, checksums."""

import pytest

from fanin.p4.control import Exact, MulticastGroup, Replica, TableEntry
from fanin.sim.switch.embedded import P4Error, Program, Refused, load
from fanin.wire.ethernet import internet_checksum

from .programs import send

TNA = """
#include <core.p4>
#include <tna.p4>
{declarations}
struct headers_t {{ {headers} }}
struct pair_t {{ bit<8> low; bit<8> high; }}
struct metadata_t {{ bit<8> m; }}
parser IP(packet_in packet, out headers_t hdr, out metadata_t meta,
          out ingress_intrinsic_metadata_t intrinsic) {{
    {parser_locals}
    state start {{
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta.m = 0;
        packet.extract(hdr.h);
        {parser}
        transition accept;
    }}
}}
control I(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
          in ingress_intrinsic_metadata_from_parser_t from_parser,
          inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
          inout ingress_intrinsic_metadata_for_tm_t to_manager) {{
    {locals}
    apply {{ {apply} }}
}}
control ID(packet_out packet, inout headers_t hdr, in metadata_t meta,
           in ingress_intrinsic_metadata_for_deparser_t to_deparser) {{
    {deparser_locals}
    apply {{ {deparser} packet.emit(hdr); }}
}}
parser EP(packet_in packet, out headers_t hdr, out metadata_t meta,
          out egress_intrinsic_metadata_t intrinsic) {{
    state start {{ packet.extract(intrinsic); packet.extract(hdr.h); transition accept; }}
}}
control E(inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t intrinsic,
          in egress_intrinsic_metadata_from_parser_t from_parser,
          inout egress_intrinsic_metadata_for_deparser_t to_deparser,
          inout egress_intrinsic_metadata_for_output_port_t to_port) {{
    apply {{ {egress} }}
}}
control ED(packet_out packet, inout headers_t hdr, in metadata_t meta,
           in egress_intrinsic_metadata_for_deparser_t to_deparser) {{
    apply {{ packet.emit(hdr); }}
}}
Pipeline(IP(), I(), ID(), EP(), E(), ED()) pipe;
Switch(pipe) main;
"""
PARTS = {
    "declarations": "header h_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; }",
    "headers": "h_t h;",
    "locals": "",
    "apply": "",
    "egress": "",
    "parser": "",
    "parser_locals": "",
    "deparser": "",
    "deparser_locals": "",
}
TO_3 = "to_manager.ucast_egress_port = 3;"
FRAME = "01020304aa"


def tna(**parts: str) -> Program:
    return load(TNA.format(**{**PARTS, **parts}), "test.p4")


def test_the_payload_follows_what_was_parsed():
    assert send(tna(apply=TO_3, egress="hdr.h.a = 9;").switch(), FRAME) == [(3, "09020304aa")]
    assert tna().architecture == "tna"


def test_an_unset_egress_port_is_a_drop():
    assert send(tna().switch(), FRAME) == []


def test_the_ingress_port_is_known():
    assert (
        send(tna(apply=TO_3 + "hdr.h.a = (bit<8>)intrinsic.ingress_port;").switch(), FRAME, 5)[0][1][:2] == "05"
    )


@pytest.mark.parametrize("where", ["apply", "egress"])
def test_a_drop_beats_everything(where):
    parts = {"apply": TO_3 + "to_manager.mcast_grp_a = 1;", "egress": ""}
    parts[where] += "to_deparser.drop_ctl = 1;"
    switch = tna(**parts).switch()
    switch.set_multicast_group(MulticastGroup(1, (Replica(1),)))
    assert send(switch, FRAME) == []


class TestTooShort:
    def test_a_frame_is_dropped_by_the_parser(self):
        assert send(tna(apply=TO_3).switch(), "0102") == []

    def test_unless_ingress_looks_at_the_error(self):
        apply = TO_3 + "if (from_parser.parser_err == PARSER_ERROR_PARTIAL_HDR) { hdr.h = {7, 7, 7, 7}; }"
        assert send(tna(apply=apply).switch(), "0102") == [(3, "070707070102")]


class TestCopies:
    GROUP = MulticastGroup(1, (Replica(1, 10), Replica(2, 11, exclusion=2), Replica(4, 12, exclusion=4)))

    def test_each_goes_through_egress_with_its_replica_id(self):
        egress = "hdr.h.a = (bit<8>)intrinsic.egress_rid; hdr.h.b = (bit<8>)intrinsic.egress_port;"
        switch = tna(apply="to_manager.mcast_grp_a = 1;", egress=egress).switch()
        switch.set_multicast_group(self.GROUP)
        assert [(port, data[:4]) for port, data in send(switch, FRAME)] == [
            (1, "0a01"),
            (2, "0b02"),
            (4, "0c04"),
        ]

    def test_the_exclusion_id_leaves_one_out(self):
        apply = "to_manager.mcast_grp_b = 1; to_manager.level1_exclusion_id = (bit<16>)intrinsic.ingress_port;"
        switch = tna(apply=apply).switch()
        switch.set_multicast_group(self.GROUP)
        assert [port for port, _ in send(switch, FRAME, 2)] == [1, 4]

    def test_bypassing_egress(self):
        assert send(
            tna(apply=TO_3 + "to_manager.bypass_egress = 1;", egress="hdr.h.a = 9;").switch(), FRAME
        ) == [(3, FRAME)]


ACTION = """Register<{kind}, bit<8>>(4{initial}) r;
RegisterAction<{kind}, bit<8>, bit<8>>(r) act = {{
    void apply(inout {kind} value, out bit<8> result) {{ {body} }}
}};"""


class TestRegisters:
    def test_an_action_reads_changes_and_writes(self):
        locals_ = ACTION.format(kind="bit<8>", initial="", body="result = value; value = value + hdr.h.b;")
        switch = tna(locals=locals_, apply=TO_3 + "hdr.h.a = act.execute(hdr.h.c);").switch()
        assert [send(switch, FRAME)[0][1][:2] for _ in range(3)] == ["00", "02", "04"]
        assert switch.registers["I.r"][3] == 6

    def test_a_pair_is_one_value(self):
        body = "result = value.high; value.high = value.low; value.low = hdr.h.a;"
        locals_ = ACTION.format(kind="pair_t", initial="", body=body)
        switch = tna(locals=locals_, apply=TO_3 + "hdr.h.b = act.execute(0);").switch()
        assert [send(switch, f"{n:02x}00000000")[0][1][2:4] for n in (1, 2, 3)] == ["00", "00", "01"]
        assert switch.registers["I.r"][0] == (3, 2)
        switch.registers["I.r"][0] = (8, 9)
        assert send(switch, FRAME)[0][1][2:4] == "09"

    def test_they_begin_with_their_initial_value(self):
        locals_ = ACTION.format(kind="bit<8>", initial=", 7", body="result = value;")
        switch = tna(locals=locals_, apply=TO_3 + "hdr.h.a = act.execute(0);").switch()
        assert send(switch, FRAME)[0][1][:2] == "07"

    def test_an_index_beyond_the_end_is_refused(self):
        locals_ = ACTION.format(kind="bit<8>", initial="", body="result = value;")
        switch = tna(locals=locals_, apply=TO_3 + "hdr.h.a = act.execute(4);").switch()
        with pytest.raises(Refused, match=r"test\.p4:.*index 4 of register I\.r"):
            send(switch, FRAME)

    def test_a_result_that_is_not_set_is_undefined(self):
        locals_ = ACTION.format(kind="bit<8>", initial="", body="if (value == 1) { result = 0; }")
        switch = tna(locals=locals_, apply=TO_3 + "hdr.h.a = act.execute(0);").switch()
        with pytest.raises(Refused, match="undefined"):
            send(switch, FRAME)

    def test_an_action_has_the_parameters_of_its_extern(self):
        locals_ = ACTION.format(kind="bit<8>", initial="", body="result = 0;").replace("inout", "in")
        with pytest.raises(P4Error, match="does not have the parameters"):
            tna(locals=locals_)


def test_a_direct_counter_counts_where_the_program_says_but_not_in_a_default_action():
    locals_ = """DirectCounter<bit<32>>(CounterType_t.PACKETS) c;
        action act() { c.count(); }
        table t { key = { hdr.h.a: exact; } actions = { act; } default_action = act; counters = c; }"""
    switch = tna(locals=locals_, apply=TO_3 + "t.apply();").switch()
    entry = TableEntry("I.t", {"hdr.h.a": Exact(1)}, "I.act")
    switch.insert(entry)
    for frame in (FRAME, "02020202", FRAME):
        send(switch, frame)
    assert switch.direct_counter(entry)[0] == 2


IPV4 = {
    "declarations": "header h_t { bit<80> before; bit<16> sum; bit<64> after; }",
    "apply": TO_3,
}
HEADER = bytes.fromhex("450000730000400040110000c0a80001c0a800c7")


class TestChecksums:
    def test_an_error_is_reported_for_each_packet_anew(self):
        switch = tna(
            parser_locals="Checksum() c;",
            parser="c.add(hdr.h); meta.m = (bit<8>)(bit<1>)c.verify();",
            declarations=IPV4["declarations"],
            apply=TO_3 + "hdr.h.before[7:0] = meta.m;",
        ).switch()
        good = HEADER[:10] + internet_checksum(HEADER).to_bytes(2, "big") + HEADER[12:]
        bad = good[:12] + b"\1" + good[13:]
        assert [send(switch, frame.hex())[0][1][18:20] for frame in (good, bad, good)] == ["00", "01", "00"]

    def test_update(self):
        program = tna(
            deparser_locals="Checksum() c;",
            deparser="hdr.h.sum = c.update({hdr.h.before, hdr.h.after});",
            **IPV4,
        )
        assert send(program.switch(), HEADER.hex())[0][1][20:24] == f"{internet_checksum(HEADER):04x}"

    def test_an_incremental_update(self):
        """RFC 1624: what was subtracted in the parser and what replaces it make the new checksum."""
        program = tna(
            declarations="header h_t { bit<16> x; bit<16> sum; bit<16> y; }",
            headers="h_t h;",
            parser_locals="Checksum() c;",
            parser="c.subtract({hdr.h.x, hdr.h.sum}); hdr.h.y = c.get();",
            apply=TO_3 + "hdr.h.x = 0x1234;",
            deparser_locals="Checksum() c;",
            deparser="hdr.h.sum = c.update({hdr.h.x, hdr.h.y});",
        )
        rest, old = 0xBEEF, 0xFFEE
        before = internet_checksum(rest.to_bytes(2, "big") + old.to_bytes(2, "big"))
        data = send(program.switch(), f"{old:04x}{before:04x}0000")[0][1]
        assert int(data[4:8], 16) == internet_checksum(rest.to_bytes(2, "big") + (0x1234).to_bytes(2, "big"))


@pytest.mark.parametrize(
    "parts",
    [
        {"locals": "Mirror() m;"},
        {"locals": "Random<bit<8>>() r;"},
        {"locals": "Hash<bit<8>>(HashAlgorithm_t.CRC64) h;"},
        {"apply": TO_3 + "to_manager.copy_to_cpu = 1;"},
        {"apply": TO_3 + "to_deparser.digest_type = 1;"},
        {"apply": TO_3 + "to_manager.level2_exclusion_id = 1;"},
        {"apply": TO_3, "egress": "hdr.h.a = (bit<8>)intrinsic.deq_qdepth;"},
        {"apply": TO_3 + "hdr.h.a = (bit<8>)intrinsic.ingress_mac_tstamp;"},
    ],
)
def test_what_is_not_here_is_refused(parts):
    with pytest.raises(Refused, match=r"test\.p4:\d+:\d+: "):
        send(tna(**parts).switch(), FRAME)
