"""Forms of the language that public programs use; frames are worked out by hand."""

import pytest

from fanin.p4.control import Exact, TableEntry
from fanin.sim.switch.embedded import P4Error, Refused, load

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


@pytest.mark.parametrize(
    ("apply", "frame"),
    [
        # By hand: a = 1, b = 2, d = 4.
        ("for (bit<8> i = 0; i < hdr.h.b; i = i + 1) { hdr.h.a = hdr.h.a + 2; }", "05020304"),
        (
            "for (bit<8> i in 1 .. hdr.h.d) { if (i == 2) continue; if (i == 4) break; "
            "hdr.h.a = hdr.h.a + i; }",
            "05020304",
        ),
        ("for (bit<8> i in 3 .. 2) { hdr.h.a = 9; }", "01020304"),
        ("for (@name(\"j\") bit<8> i in 8w254 .. 255) hdr.h.a = i;", "ff020304"),
        ("bit<8> i = 0; for (; i < 4;) { i = i + 3; } hdr.h.a = i;", "06020304"),
        (
            "for (bit<8> i = 0; i < 9; i += 1) { switch (i) { 3: { break; } default: { continue; } } "
            "hdr.h.a = i; }",
            "01020304",
        ),
        # Rounds with i = 0, 2, 3, 4 count 1 each, and 0x10 for each of two inner rounds.
        (
            "bit<8> n = 0; for (bit<8> i = 0, bit<8> j = 9; i < j; i += 1, j -= 1) { if (i == 1) continue; "
            "n = n + 1; for (bit<8> k in 8w0..1) n = n + 0x10; } hdr.h.a = n;",
            "84020304",
        ),
        ("for (bit<8> i in 0 .. 9) { if (i == 5) { hdr.h.a = i; exit; } }", "05020304"),
    ],
)  # fmt: skip
def test_loops(apply, frame):
    assert one("01020304", apply=apply) == frame


def test_a_loop_over_a_stack_has_copies_of_all_its_headers():
    declarations = PARTS["declarations"] + "header s_t { bit<8> x; }"
    parts = {
        "declarations": declarations,
        "headers": "h_t h; s_t[3] s;",
        "parser": "state start { packet.extract(hdr.s.next); packet.extract(hdr.s.next); "
        "packet.extract(hdr.h); transition accept; }",
        "apply": "bit<8> n = 0; for (s_t item in hdr.s) { "
        "if (item.isValid()) { n = n + item.x; item.x = 0; } } hdr.h.a = n;",
    }
    # Emitted in the order of the struct: h, then the two headers of the stack.
    assert one("070901020304", **parts) == "100203040709"


@pytest.mark.parametrize(
    "apply",
    [
        "for (bit<8> i = 0; i < 4;) {}",
        "for (bit<32> i in 0 .. 65536) {}",
        "for (bit<16> i in 0 .. 1000) { for (bit<16> j in 0 .. 1000) {} }",
    ],
)
def test_loops_end(apply):
    with pytest.raises(Refused, match="more than 65536 rounds of loops for one frame"):
        one("01020304", apply=apply)


@pytest.mark.parametrize("apply", ["break;", "continue;", "for (bit<8> i in 0..1) {} break;"])
def test_a_jump_out_of_no_loop_is_wrong(apply):
    with pytest.raises(P4Error, match="is not allowed here"):
        one("01020304", apply=apply)


def test_a_loop_over_something_else_is_refused():
    with pytest.raises(Refused, match=r"a for loop of bit<8> over .* is not supported here"):
        one("01020304", apply="for (bit<8> i in {1, 2}) {}")
    with pytest.raises(Refused, match="a loop over an undefined range"):
        one("01020304", apply="bit<8> most; for (bit<8> i in 0 .. most) {}")


def test_a_generic_name_before_a_comparison_is_no_call():
    declarations = PARTS["declarations"] + "extern Pair { Pair(); T a<T>(in T x); }"
    apply = "if (4 + hdr.h.a < 10 && hdr.h.a > 3) { hdr.h.b = 9; }"
    assert one("04020304", declarations=declarations, apply=apply) == "04090304"
    assert one("06020304", declarations=declarations, apply=apply) == "06020304"


def test_types_of_the_outermost_scope_may_be_written_with_a_dot():
    declarations = PARTS["declarations"] + "typedef bit<8> byte_t; const .byte_t START = 5;"
    assert (
        one("01020304", declarations=declarations, apply=".byte_t x = START; hdr.h.a = (.byte_t) x;")
        == "05020304"
    )


def test_a_wildcard_in_parentheses_is_one():
    parser = "state start { packet.extract(hdr.h); transition select(hdr.h.a) { 9: reject; (_): accept; } }"
    assert one("01020304", parser=parser) == "01020304"


@pytest.mark.parametrize(
    ("declarations", "what"),
    [
        ("typedef struct p_t { bit<8> x; } q_t;", "a typedef that declares p_t"),
        ("struct s_t { bit<8>[2][2] list; }", r"an array of bit<8>"),
        ("counter(4, CounterType.packets) all[2];", r"an array of instances \(all\)"),
        ("const int a = {1, 2}[0];", "an element of a list in braces"),
    ],
)
def test_newer_forms_are_refused_in_a_sentence(declarations, what):
    with pytest.raises(Refused, match=f"{what} is not supported here"):
        v1model(declarations=PARTS["declarations"] + declarations)


def test_a_package_of_the_programs_own_is_another_architecture():
    text = "control C(); package V1Switch(C c); control D() { apply {} } V1Switch(D()) main;"
    with pytest.raises(Refused, match=r"architecture V1Switch \(package of own\.p4\) is not supported here"):
        load(text, "own.p4")
