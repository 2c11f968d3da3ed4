"""Forms of the language that public programs use; frames are worked out by hand."""

import pytest

from fanin.p4.control import Exact, TableEntry
from fanin.sim.switch.embedded import P4Error

from .programs import PARTS, one, send, v1model


def test_a_number_without_a_width_becomes_a_value_of_a_declared_type():
    declarations = PARTS["declarations"] + "type bit<8> vrf_t; const vrf_t DEFAULT = 0x2A;"
    apply = "vrf_t own = 7; hdr.h.a = (bit<8>) DEFAULT; hdr.h.b = (bit<8>) own;"
    assert one("01020304", declarations=declarations, apply=apply) == "2a070304"
    with pytest.raises(P4Error, match="bit<8> where vrf_t is needed"):
        v1model(declarations=declarations, apply="vrf_t own = hdr.h.a;")


def test_lookahead_of_a_struct_reads_its_parts_in_order():
    declarations = (
        PARTS["declarations"]
        + """
        header small_t { bit<4> x; bit<4> y; }
        struct ahead_t { bit<4> a; int<4> b; small_t small; bool c; bit<7> d; }
    """
    )
    parser = """state start {
        ahead_t ahead = packet.lookahead<ahead_t>(); packet.extract(hdr.h);
        hdr.h.a = (bit<8>) ahead.a; hdr.h.b = (bit<8>)(bit<4>) ahead.b; hdr.h.c = (bit<8>) ahead.small.y;
        hdr.h.d = (bit<8>) ahead.d + (bit<8>)(bit<1>) ahead.c; transition accept; }"""
    # 1f 23 85: a = 1, b = -1 (0xf), x = 2, y = 3, c = 1, d = 5
    assert one("1f238504", declarations=declarations, parser=parser) == "010f0306"


def test_a_struct_that_is_not_all_ahead_is_an_error_and_reads_nothing():
    declarations = PARTS["declarations"] + "struct ahead_t { bit<8> a; bit<32> b; }"
    parser = (
        "state start { ahead_t ahead = packet.lookahead<ahead_t>(); packet.extract(hdr.h); transition accept; }"
    )
    apply = "if (std.parser_error == error.PacketTooShort) { std.egress_spec = 5; }"
    switch = v1model(declarations=declarations, parser=parser, apply=apply).switch()
    assert send(switch, "01020304") == [(5, "01020304")]


def test_a_list_in_braces_is_the_key_of_an_entry():
    table = """action set(bit<8> x) { hdr.h.d = x; }
        table t { key = { hdr.h.a: exact; hdr.h.b: exact; } actions = { set; NoAction; }
                  const entries = { { 1, 2 }: set(9); } }
        table u { key = { hdr.h.a: exact; } actions = { set; } const entries = { {(8w3)}: set(8); } }"""
    assert one("01020304", locals=table, apply="t.apply(); u.apply();") == "01020309"
    assert one("03020304", locals=table, apply="t.apply(); u.apply();") == "03020308"


def test_a_selector_key_without_an_implementation_is_left_out():
    table = """action set() { hdr.h.d = 9; }
        table t { key = { hdr.h.a: exact; hdr.h.b: selector; } actions = { set; } }"""
    switch = v1model(locals=table, apply="t.apply();").switch()
    switch.insert(TableEntry("I.t", {"hdr.h.a": Exact(1)}, "I.set"))
    assert send(switch, "01020304") == [(0, "01020309")]


def test_static_assert_is_a_constant_and_must_hold():
    declarations = PARTS["declarations"] + 'const bool fits = static_assert(8w3 < 4, "text");'
    assert one("01020304", declarations=declarations, apply="if (fits) { hdr.h.a = 5; }") == "05020304"
    with pytest.raises(P4Error, match="static_assert does not hold"):
        v1model(declarations=PARTS["declarations"] + "const bool fits = static_assert(8w4 < 4);")


def test_an_int_of_a_constant():
    assert one("01020304", apply="const bit<8> c = 200; hdr.h.a = (bit<8>)((int) c + 60);") == "04020304"
