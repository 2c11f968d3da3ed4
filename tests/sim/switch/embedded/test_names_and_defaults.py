"""Legal P4_16 that looks unusual: names that are types elsewhere, ``{#}``, ``...``, structs in headers.

Frames are worked out by hand from the language's specification, version 1.2.5.
"""

import pytest

from fanin.sim.switch.embedded import P4Error

from .programs import PARTS, one, v1model

PAIR = PARTS["declarations"] + "struct pair { bit<8> x; bool y; } struct outer { pair p; bit<8> z; h_t h; }"
FLAGS = "struct flags_t { bool p; bool q; } header f_t { flags_t flags; bit<6> rest; bit<8> next; }"


@pytest.mark.parametrize(
    ("locals", "apply", "frame"),
    [
        ("", "meta.counter = 4; if (meta.counter < 5) hdr.h.a = 7;", "07"),
        ("", "meta.register = 4; if (meta.register < 5) hdr.h.a = 7;", "07"),
        ("bit<8> meter = 3;", "if (meter < 5) hdr.h.a = 7;", "07"),
        ("action a(bit<8> register) { if (register < 5) hdr.h.a = 7; }", "a(4);", "07"),
        ("action a(inout bit<8> counter) { counter = counter + 1; }", "a(hdr.h.a);", "02"),
        ("register<bit<8>>(1) counter;", "counter.write(0, 9); counter.read(hdr.h.a, 0);", "09"),
    ],
)
def test_a_name_may_be_that_of_a_type_of_the_architecture(locals, apply, frame):
    metadata = "bit<8> counter; bit<8> register;"
    assert one("01020304", metadata=metadata, locals=locals, apply=apply)[:2] == frame


def test_a_parameter_hides_a_type_in_its_block_only():
    locals = "action a(bit<8> counter) { hdr.h.a = counter; } counter(4, CounterType.packets) seen;"
    assert one("01020304", locals=locals, apply="a(6); seen.count(0);") == "06020304"


@pytest.mark.parametrize(
    ("apply", "frame"),
    [
        ("hdr.h = {#};", ""),
        ("hdr.h = (h_t) {#};", ""),
        ("if (hdr.g == {#}) hdr.h.a = 7;", "07020304"),
        ("hdr.h = ...;", ""),
        ("hdr.h = {1, ...};", "01000000"),
        ("hdr.h = {b = 5, ...};", "00050000"),
        ("hdr.h = {1, 2, 3, 4, ...};", "01020304"),
        ("bit<8> v = ...; hdr.h.a = v + 1;", "01020304"),
        ("outer o = {...}; hdr.h.a = o.p.y || o.h.isValid() ? 8w9 : o.p.x + o.z;", "00020304"),
        ("outer o = {z = 6, ...}; hdr.h.a = o.p.x + o.z;", "06020304"),
        ("pair o = {3, ...}; hdr.h.a = o.y ? 8w9 : o.x;", "03020304"),
    ],
)
def test_invalid_and_default_values(apply, frame):
    assert one("01020304", declarations=PAIR, apply=apply) == frame


@pytest.mark.parametrize(
    ("apply", "cause"),
    [
        ("pair o = {#};", r"\{#\} where pair is needed"),
        ("hdr.h = {..., 1};", "h_t has 4 parts, not 2"),
        ("hdr.h = {1, 2, 3, 4, 5, ...};", "h_t has 4 parts, not 5"),
        ("hdr.h = {e = 5, ...};", "h_t has the fields a, b, c, d"),
        ("hdr.h = {a = 5, a = 6, b = 1, c = 1, d = 1};", "a field is named twice"),
        ("hdr.h.a = {#};", r"\{#\} where bit<8> is needed"),
    ],
)
def test_what_they_are_not(apply, cause):
    with pytest.raises(P4Error, match=cause):
        one("01020304", declarations=PAIR, apply=apply)


def test_a_struct_of_bools_within_a_header_takes_a_bit_each():
    parts = {"declarations": FLAGS, "headers": "f_t h;", "apply": "hdr.h.flags.q = true; hdr.h.rest = 3;"}
    assert one("81ff", **parts) == "c3ff"
    assert one("01ff", **parts) == "43ff"


def test_a_function_outside_of_blocks_counts_at_an_outermost_counter():
    declarations = PARTS["declarations"] + (
        "register<bit<8>>(4) kept; counter(4, CounterType.packets) seen; bit<8> twice(in bit<8> v) {"
        "bit<8> old; kept.read(old, 1); kept.write(1, v); seen.count(1); return old + v; }"
    )
    apply = "kept.write(1, 5); hdr.h.a = twice(hdr.h.a); kept.read(hdr.h.b, 1);"
    assert one("01020304", declarations=declarations, apply=apply) == "06010304"


@pytest.mark.parametrize("number", ["1", "8w1", "0x1", "0b1", "4s1"])
def test_a_number_of_any_form_in_a_field_list(number):
    metadata = f"@field_list({number}) bit<8> kept;"
    again = "meta.kept = 7; resubmit_preserving_field_list(1);"
    apply = f"if (std.instance_type == 0) {{ {again} }} else hdr.h.a = meta.kept;"
    assert one("01020304", metadata=metadata, apply=apply) == "07020304"


def test_a_name_with_a_dot_in_front_is_the_whole_name():
    """As p4c's P4Info has it for programs that were translated from P4_14."""
    parts = {
        "declarations": 'header h_t { @name(".own.a") bit<8> a; bit<8> b; bit<8> c; bit<8> d; }'
        '@name(".seen") counter(4, CounterType.packets) c;',
        "locals": '@name(".t") table t { key = { hdr.h.a: exact; hdr.h.b: exact; } actions = { NoAction; } }',
        "apply": "t.apply(); c.count(1);",
    }
    program = v1model(**parts)
    assert [key.name for key in program.tables["t"].keys] == ["own.a", "hdr.h.b"]
    assert program.counters == ["seen"]
