"""What a traced switch tells, and that telling changes nothing."""

import pytest

from fanin.p4.control import MulticastGroup, Replica
from fanin.sim.switch.embedded.trace import Tracer

from .programs import PARTS, send, v1model
from .test_tna import TO_3, tna

FRAME = "01020304"


def traced(program, frame=FRAME, *, ports=range(8), group=None, words=None):
    """The lines of one packet, the first one apart."""
    lines = []
    tracer = Tracer(lines.append, words)
    switch, silent = program.switch(ports, tracer), program.switch(ports)
    for each in (switch, silent):
        if group:
            each.set_multicast_group(group)
    assert send(switch, frame) == send(silent, frame)
    return lines[1:], tracer


def test_states_headers_tables_and_registers_of_a_packet():
    program = v1model(
        locals="register<bit<8>>(4) r; table t { key = { hdr.h.a: exact; } actions = { NoAction; } }",
        apply="t.apply(); r.write(2, hdr.h.b); std.egress_spec = 3;",
    )
    lines, tracer = traced(program)
    assert lines == [
        "  parser P.start",
        "  header hdr.h: a=0x1, b=0x2, c=0x3, d=0x4",
        "  table I.t(hdr.h.a=0x1): miss, NoAction()",
        "  register I.r[2] = 2",
        "  -> port 3",
    ]
    assert tracer.summary() == [
        "  port 1: 1 in, 0 out",
        "  port 3: 0 in, 1 out",
        "  table I.t: 0 hits, 1 miss",
        "  register I.r: 1 written",
    ]


def test_the_first_line_counts_packets_and_says_when():
    lines = []
    switch = v1model().switch(range(4), Tracer(lines.append))
    switch.process(1, bytes(4))
    switch.process(2, bytes(5), "0.5 s")
    assert [line for line in lines if line.startswith("packet")] == [
        "packet 1: port 1, 4 bytes",
        "packet 2 at 0.5 s: port 2, 5 bytes",
    ]


@pytest.mark.parametrize(
    ("apply", "egress", "reason"),
    [
        ("mark_to_drop(std);", "", "ingress sends it to the drop port, 511"),
        ("", "mark_to_drop(std);", "egress sends it to the drop port, 511"),
        ("std.mcast_grp = 7;", "", "multicast group 7 has no members"),
        ("std.egress_spec = 9;", "", "there is no port 9"),
    ],
)
def test_why_a_packet_is_dropped(apply, egress, reason):
    lines, tracer = traced(v1model(apply=apply, egress=egress))
    assert lines[-1] == f"  dropped: {reason}"
    assert f"  dropped: 1 ({reason})" in tracer.summary()


@pytest.mark.parametrize(
    ("parts", "frame", "reason"),
    [
        ({}, FRAME, "no egress port, and no member of a multicast group"),
        ({"apply": TO_3 + "to_deparser.drop_ctl = 1;"}, FRAME, "drop_ctl of ingress"),
        ({"apply": TO_3, "egress": "to_deparser.drop_ctl = 1;"}, FRAME, "drop_ctl of egress"),
        ({"apply": TO_3}, "01", "the parser rejected it"),
    ],
)
def test_why_tofino_drops_a_packet(parts, frame, reason):
    lines, _ = traced(tna(**parts), frame)
    assert lines[-1] == f"  dropped: {reason}"


def test_copies_that_leave_and_one_that_does_not():
    group = MulticastGroup(5, (Replica(0), Replica(2), Replica(3)))
    program = v1model(apply="std.mcast_grp = 5;", egress="if (std.egress_port == 2) { mark_to_drop(std); }")
    lines, tracer = traced(program, group=group)
    assert lines[-2:] == ["  -> ports 0, 3", "  dropped: egress sends it to the drop port, 511"]
    assert "  dropped: 1 (egress sends it to the drop port, 511)" in tracer.summary()


def test_headers_of_stacks_and_structs_as_they_are():
    program = v1model(
        declarations="""header m_t { bit<48> mac; bit<8> n; } header v_t { bit<8> x; }
            struct in_t { v_t[3] v; m_t m; }""",
        headers="m_t first; in_t inner;",
        parser="""state start {
                packet.extract(hdr.first);
                transition select(hdr.first.n) { 2: two; default: accept; }
            }
            state two {
                packet.extract(hdr.inner.v.next);
                packet.extract(hdr.inner.v.next);
                transition accept;
            }""",
    )
    lines, _ = traced(program, "02000000000102" + "0708" + "99")
    assert lines[:5] == [
        "  parser P.start",
        "  parser P.two",
        "  header hdr.first: mac=02:00:00:00:00:01, n=0x2",
        "  header hdr.inner.v[0]: x=0x7",
        "  header hdr.inner.v[1]: x=0x8",
    ]


def test_headers_are_told_where_the_parser_stops_with_an_error():
    lines, _ = traced(
        v1model(parser="state start { packet.extract(hdr.h); packet.extract(hdr.g); transition accept; }")
    )
    assert "  header hdr.h: a=0x1, b=0x2, c=0x3, d=0x4" in lines
    assert not [line for line in lines if "hdr.g" in line]


def test_registers_by_field():
    struct = v1model(
        declarations=PARTS["declarations"] + "struct s_t { bit<8> low; bit<8> high; }",
        locals="register<s_t>(4) r;",
        apply="s_t s; s.low = 1; s.high = 9; r.write(0, s);",
    )
    assert "  register I.r[0]: low=1, high=9" in traced(struct)[0]
    packed = v1model(locals="register<bit<64>>(4) r;", apply="r.write(1, (bit<64>)7 << 32 | 5);")
    assert "  register I.r[1]: round=7, seen=5" in traced(packed, words={"I.r": ("round", "seen")})[0]
    assert f"  register I.r[1] = {(7 << 32) + 5}" in traced(packed)[0]
