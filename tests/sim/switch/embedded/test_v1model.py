"""What simple_switch does around a program: where packets go, copies of them, checksums, counters."""

import zlib

import pytest

from fanin.p4.control import Exact, MulticastGroup, Replica, TableEntry
from fanin.sim.switch.embedded import P4Error, Refused
from fanin.sim.switch.embedded.trace import Tracer
from fanin.wire.ethernet import internet_checksum

from .programs import PARTS, one, send, v1model

FRAME = "01020304"


def test_an_unset_egress_port_is_port_0():
    assert send(v1model().switch(), FRAME) == [(0, FRAME)]


def test_a_frame_to_a_port_that_is_not_there_is_lost():
    assert send(v1model(apply="std.egress_spec = 9;").switch(ports=range(8)), FRAME) == []


def test_a_dropped_packet_may_be_forwarded_after_all():
    assert send(v1model(apply="mark_to_drop(std);").switch(), FRAME) == []
    assert send(v1model(apply="mark_to_drop(std); std.egress_spec = 3;").switch(), FRAME) == [(3, FRAME)]
    assert send(v1model(egress="mark_to_drop(std);").switch(), FRAME) == []


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ({"apply": "truncate(3);"}, "010203"),
        ({"apply": "truncate(5);", "egress": "truncate(2); truncate(4);"}, "0102"),
        ({"egress": "truncate(9); hdr.h.a = 7;"}, "070203040506"),
        ({"apply": "truncate(0);"}, ""),
    ],
)
def test_a_truncated_packet_leaves_with_the_smallest_length(parts, left):
    assert send(v1model(**parts).switch(), FRAME + "0506") == [(0, left)]


@pytest.mark.parametrize(
    "parts",
    [
        {"apply": "truncate(3); clone(CloneType.I2E, 3);"},
        {"apply": "truncate(3); std.mcast_grp = 1;"},
        {"apply": "truncate(3); resubmit_preserving_field_list(1);"},
        {"apply": "truncate(3);", "egress": "clone(CloneType.E2E, 3);"},
        {"egress": "truncate(3); recirculate_preserving_field_list(1);"},
    ],
)
def test_a_copy_of_a_truncated_packet_is_refused(parts):
    with pytest.raises(Refused, match="a clone, replica or second pass of a packet that was truncated"):
        send(v1model(**parts).switch(), FRAME)


def test_random_numbers_cover_their_range_and_repeat_in_another_switch():
    program = v1model(apply="random(hdr.h.a, 3, 9); random<bit<8>>(hdr.h.b, 0, hdr.h.b);")
    one, other = (
        [send(switch, FRAME)[0][1] for _ in range(200)] for switch in (program.switch(), program.switch())
    )
    assert one == other
    assert {frame[:2] for frame in one} == {f"{number:02x}" for number in range(3, 10)}
    assert {frame[2:4] for frame in one} == {"00", "01", "02"}
    with pytest.raises(Refused, match="undefined"):
        send(v1model(apply="random(hdr.h.a, 9, 3);").switch(), FRAME)


class TestMulticast:
    GROUP = MulticastGroup(5, (Replica(2, 7), Replica(3, 8)))

    def test_each_replica_has_its_id_and_a_packet_of_its_own(self):
        egress = "hdr.h.a = hdr.h.a + (bit<8>)std.egress_rid; hdr.h.b = (bit<8>)std.egress_port;"
        switch = v1model(apply="std.mcast_grp = 5;", egress=egress).switch()
        switch.set_multicast_group(self.GROUP)
        assert send(switch, FRAME) == [(2, "08020304"), (3, "09030304")]

    def test_a_group_beats_a_drop_by_egress_spec(self):
        switch = v1model(apply="std.mcast_grp = 5; std.egress_spec = 511;").switch()
        switch.set_multicast_group(self.GROUP)
        assert len(send(switch, FRAME)) == 2

    def test_mark_to_drop_forgets_the_group(self):
        switch = v1model(apply="std.mcast_grp = 5; mark_to_drop(std);").switch()
        switch.set_multicast_group(self.GROUP)
        assert send(switch, FRAME) == []

    @pytest.mark.parametrize(
        ("group", "message"),
        [
            (MulticastGroup(70000, ()), "multicast group 70000: 70000 does not fit in 16 bits"),
            (MulticastGroup(-1, ()), "multicast group -1: -1 does not fit in 16 bits"),
            (MulticastGroup(1, (Replica(1, 65536),)), "multicast group 1: replica id: 65536 does not fit"),
            (MulticastGroup(1, (Replica(1, -1),)), "multicast group 1: replica id: -1 does not fit"),
            (MulticastGroup(1, (Replica(1, exclusion=1),)), "port 1: only TNA has an exclusion id"),
        ],
    )
    def test_ids_that_no_packet_can_have_are_refused(self, group, message):
        with pytest.raises(ValueError, match=message):
            v1model().switch().set_multicast_group(group)

    def test_a_clone_has_no_replica_id_of_17_bits(self):
        with pytest.raises(ValueError, match="clone session 3: replica id: 65536 does not fit in 16 bits"):
            v1model().switch().set_clone_session(3, replicas=[Replica(1, 65536)])

    def test_an_unknown_group_has_no_members(self):
        switch = v1model(apply="std.mcast_grp = 5;").switch()
        assert send(switch, FRAME) == []
        with pytest.raises(ValueError, match="no multicast group 5"):
            switch.delete_multicast_group(5)


class TestCopies:
    def test_a_clone_from_ingress_is_the_frame_that_came(self):
        parts = {
            "apply": "hdr.h.a = 9; meta.m = 5; meta.kept = 6; "
            "clone_preserving_field_list(CloneType.I2E, 3, 1);",
            "egress": "if (std.instance_type == 1) { hdr.h.c = meta.m; hdr.h.d = meta.kept; }",
        }
        switch = v1model(**parts).switch()
        switch.set_clone_session(3, port=4)
        assert sorted(send(switch, FRAME)) == [(0, "09020304"), (4, "01020006")]

    def test_a_field_list_may_have_the_name_of_a_member_of_an_enum(self):
        parts = {
            "declarations": PARTS["declarations"] + "enum bit<8> Lists { one = 1, five = 5 }",
            "metadata": "bit<8> m; @field_list(Lists.one, Lists.five) bit<8> kept;",
            "apply": "meta.m = 5; meta.kept = 6; clone_preserving_field_list(CloneType.I2E, 3, Lists.five);",
            "egress": "if (std.instance_type == 1) { hdr.h.c = meta.m; hdr.h.d = meta.kept; }",
        }
        switch = v1model(**parts).switch()
        switch.set_clone_session(3, port=4)
        assert (4, "01020006") in send(switch, FRAME)
        with pytest.raises(P4Error, match=r"@field_list: Lists\.none is not a known number"):
            v1model(**parts | {"metadata": "bit<8> m; @field_list(Lists.none) bit<8> kept;"})

    def test_a_field_list_may_have_the_name_of_a_constant(self):
        parts = {
            "declarations": PARTS["declarations"] + "const bit<8> LIST = 1;",
            "metadata": "bit<8> m; @field_list(2, LIST) bit<8> kept;",
            "apply": "meta.m = 5; meta.kept = 6; clone_preserving_field_list(CloneType.I2E, 3, LIST);",
            "egress": "if (std.instance_type == 1) { hdr.h.c = meta.m; hdr.h.d = meta.kept; }",
        }
        switch = v1model(**parts).switch()
        switch.set_clone_session(3, port=4)
        assert (4, "01020006") in send(switch, FRAME)
        with pytest.raises(P4Error, match="@field_list: NONE is not a known number"):
            v1model(**parts | {"metadata": "bit<8> m; @field_list(NONE) bit<8> kept;"})

    @pytest.mark.parametrize("place", ["apply", "egress"])
    def test_a_clone_to_a_session_that_nobody_configured_is_counted(self, place):
        lines = []
        kind = "I2E" if place == "apply" else "E2E"
        clone = f"if (std.instance_type == 0) {{ clone(CloneType.{kind}, 3); }}"
        switch = v1model(**{place: clone}).switch(tracer=Tracer(lines.append))
        assert [len(send(switch, FRAME)) for _ in range(2)] == [1, 1]
        assert switch.lost_clones == {3: 2}
        assert lines.count("  dropped: a clone: nobody has configured clone session 3") == 2
        switch.set_clone_session(3, port=4)
        assert len(send(switch, FRAME)) == 2
        switch.delete_clone_session(3)
        send(switch, FRAME)
        assert switch.lost_clones == {3: 3}

    def test_a_clone_from_egress_is_the_packet_as_it_leaves_egress(self):
        egress = """if (std.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, 3, 1); hdr.h.a = 9; meta.kept = 6;
        } else { hdr.h.d = meta.kept; }"""
        switch = v1model(egress=egress).switch()
        switch.set_clone_session(3, port=4)
        assert sorted(send(switch, FRAME)) == [(0, "09020304"), (4, "09020306")]

    def test_what_a_clone_forgets_is_undefined(self):
        switch = v1model(
            apply="clone(CloneType.I2E, 3);", egress="hdr.h.a = (bit<8>)std.ingress_port;"
        ).switch()
        switch.set_clone_session(3, port=4)
        with pytest.raises(Refused, match="undefined"):
            send(switch, FRAME)

    def test_resubmit_begins_again_with_the_frame_and_the_preserved_fields(self):
        apply = """if (std.instance_type == 6) { hdr.h.b = meta.kept; hdr.h.c = meta.m; }
            else { hdr.h.a = 9; meta.kept = 7; meta.m = 8; resubmit_preserving_field_list(1); }"""
        assert one(FRAME, apply=apply) == "01070004"

    def test_recirculate_begins_again_with_the_frame_that_would_leave(self):
        egress = """if (std.instance_type == 0 && hdr.h.a < 4) {
            hdr.h.a = hdr.h.a + 1; meta.kept = hdr.h.a; recirculate_preserving_field_list(1); }"""
        apply = "if (std.instance_type == 4) { hdr.h.b = meta.kept; }"
        assert one(FRAME, egress=egress, apply=apply) == "04040304"

    @pytest.mark.parametrize("function", ["resubmit", "recirculate"])
    def test_going_round_without_end_is_refused(self, function):
        place = "apply" if function == "resubmit" else "egress"
        with pytest.raises(Refused, match="passes of one frame"):
            send(v1model(**{place: f"{function}_preserving_field_list(1);"}).switch(), FRAME)


IPV4 = {
    "declarations": """header h_t { bit<8> version; bit<8> tos; bit<16> length; bit<32> id; bit<8> ttl;
        bit<8> kind; bit<16> sum; bit<32> source; bit<32> target; }""",
    "headers": "h_t h;",
}
ALL = "{hdr.h.version, hdr.h.tos, hdr.h.length, hdr.h.id, hdr.h.ttl, hdr.h.kind, hdr.h.source, hdr.h.target}"
HEADER = bytes.fromhex("450000730000400040110000c0a80001c0a800c7")
SUM = internet_checksum(HEADER)


def test_an_ipv4_checksum_is_updated():
    compute = f"update_checksum(hdr.h.isValid(), {ALL}, hdr.h.sum, HashAlgorithm.csum16);"
    frame = HEADER.hex() + "aa"
    assert one(frame, compute=compute, **IPV4) == frame[:20] + f"{SUM:04x}" + frame[24:]


@pytest.mark.parametrize(("checksum", "ttl"), [(SUM, 0x40), (SUM ^ 1, 0)])
def test_an_ipv4_checksum_is_verified(checksum, ttl):
    verify = f"verify_checksum(true, {ALL}, hdr.h.sum, HashAlgorithm.csum16);"
    frame = HEADER[:10].hex() + f"{checksum:04x}" + HEADER[12:].hex()
    data = one(frame, verify=verify, apply="if (std.checksum_error == 1) { hdr.h.ttl = 0; }", **IPV4)
    assert int(data[16:18], 16) == ttl


def test_hashes():
    declarations = PARTS["declarations"] + "header o_t { bit<32> x; }"
    for algorithm, expected in (
        ("crc32", zlib.crc32(bytes.fromhex(FRAME))),
        ("identity", 0x01020304),
        ("xor16", 0x0206),
    ):
        apply = f"hdr.o.setValid(); hash(hdr.o.x, HashAlgorithm.{algorithm}, 32w0, {{hdr.h}}, 64w0x100000000);"
        data = one(FRAME, declarations=declarations, headers="h_t h; o_t o;", apply=apply)
        assert int(data[8:], 16) == expected, algorithm
    with pytest.raises(Refused, match="the hash crc32_custom"):
        one(FRAME, apply="hash(hdr.h.a, HashAlgorithm.crc32_custom, 8w0, {hdr.h.b}, 8w9);")


def test_crc16_is_arc():
    """The check value of CRC-16/ARC over 123456789."""
    parts = {
        "declarations": "header h_t { bit<72> text; bit<16> x; }",
        "headers": "h_t h;",
        "apply": "hash(hdr.h.x, HashAlgorithm.crc16, 16w0, {hdr.h.text}, 32w0x10000);",
    }
    assert one(b"123456789".hex() + "0000", **parts)[-4:] == "bb3d"


class TestCounters:
    LOCALS = """counter(2, CounterType.packets_and_bytes) c;
        direct_counter(CounterType.packets_and_bytes) d;
        action act() {}
        table t { key = { hdr.h.a: exact; } actions = { act; NoAction; } counters = d; }"""

    def test_indexed_counters_count_frames_and_their_bytes(self):
        switch = v1model(locals=self.LOCALS, apply="c.count((bit<32>)hdr.h.a);").switch()
        for frame in (FRAME, FRAME + "0506", "02020202"):
            send(switch, frame)
        assert (switch.counter("I.c", 0), switch.counter("I.c", 1)) == ((0, 0), (2, 10))
        with pytest.raises(ValueError, match="no index 2"):
            switch.counter("I.c", 2)

    def test_direct_counters_count_hits(self):
        switch = v1model(locals=self.LOCALS, apply="t.apply();").switch()
        entry = TableEntry("I.t", {"hdr.h.a": Exact(1)}, "I.act")
        switch.insert(entry)
        for frame in (FRAME, "02020202", FRAME):
            send(switch, frame)
        assert switch.direct_counter(entry) == (2, 8)


def test_meters_are_green():
    locals_ = "meter(4, MeterType.bytes) m;"
    assert one("09020304", locals=locals_, apply="m.execute_meter(0, hdr.h.a);") == "00020304"


def test_a_failed_assertion_stops_the_run():
    with pytest.raises(Refused, match="assertion"):
        one(FRAME, apply="assert(hdr.h.a == 2);")


def test_clocks_are_undefined():
    with pytest.raises(Refused, match="undefined"):
        one(FRAME, apply="hdr.h.a = (bit<8>)std.ingress_global_timestamp;")


def test_two_switches_of_one_program_share_nothing():
    program = v1model(locals="register<bit<8>>(1) r;", apply="r.write(0, hdr.h.a);")
    one_switch, other = program.switch(), program.switch()
    send(one_switch, FRAME)
    assert (one_switch.registers["I.r"][0], other.registers["I.r"][0]) == (1, 0)


def test_a_clock_gives_times_and_empty_queues():
    times = iter(range(1000, 2000, 7))
    apply = "hdr.h.a = (bit<8>) std.ingress_global_timestamp;"
    egress = "hdr.h.b = (bit<8>) std.egress_global_timestamp; hdr.h.c = (bit<8>) std.deq_qdepth;"
    program = v1model(apply=apply, egress=egress)
    assert send(program.switch(clock=lambda: next(times)), FRAME)[0][1] == "e8ef0004"


def test_an_annotated_state_and_arguments_by_name():
    """As p4c's own test programs have them."""
    body = "packet.extract(hdr = hdr.h); packet.advance(sizeInBits = 8); transition accept;"
    parser = f'@name("begin") state start {{ {body} }}'
    assert one("0102030405", parser=parser, deparser="packet.emit(hdr = hdr);") == "01020304"


def test_metadata_and_registers_of_every_type_begin_at_0():
    kinds = "struct pair { bit<8> low; bool high; } enum colour { red, green }"
    parts = {
        "declarations": PARTS["declarations"] + kinds,
        "metadata": "tuple<bit<8>, bool, pair> t; varbit<16> v; error e; colour c; pair p; h_t[2] s;",
        "locals": "register<tuple<bit<8>, bool>>(4) r; register<bool>(4) b;",
        "apply": "tuple<bit<8>, bool> x; bool y; r.read(x, 1); b.read(y, 1); "
        "hdr.h.a = meta.t[0] + x[0]; hdr.h.b = 1; hdr.h.c = meta.t[2].low + meta.p.low; "
        "if (meta.t[1] || meta.t[2].high || x[1] || y || meta.p.high || meta.s[0].isValid()) { hdr.h.b = 9; } "
        "if (meta.e != error.NoError || meta.c != colour.red) { hdr.h.b = 8; } r.write(1, {5, true});",
    }
    switch = v1model(**parts).switch()
    assert send(switch, FRAME) == [(0, "00010004")]
    assert switch.registers["I.r"][1] == (5, True)
    assert send(switch, FRAME) == [(0, "05090004")]
    with pytest.raises(ValueError, match="a value of tuple<bit<8>, bool> has 2 parts, not 5"):
        switch.registers["I.r"][1] = 5
    with pytest.raises(ValueError, match=r"I.r\[1\], part 0: 256 does not fit in bit<8>"):
        switch.registers["I.r"][1] = (256, False)
    switch.registers["I.r"][1] = (7, False)
    assert send(switch, FRAME) == [(0, "07010004")]
