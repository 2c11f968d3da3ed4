"""What goes wrong in silence, each with the answer of the language: right, or refused."""

import zlib

import pytest

from fanin.sim.switch.embedded import Refused

from .programs import PARTS, one, send, v1model

UNDEFINED = "undefined value"


def refused(frame: str, **parts: str) -> str:
    """Why a run is refused."""
    with pytest.raises(Refused) as caught:
        send(v1model(**parts).switch(), frame)
    return str(caught.value)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("hdr.h.a = hdr.h.a + 1;", "00"),
        ("hdr.h.a = hdr.h.a - 0 - hdr.h.b;", "fe"),
        ("hdr.h.a = hdr.h.a * 3;", "fd"),
        ("hdr.h.a = -hdr.h.b;", "ff"),
        ("hdr.h.a = ~hdr.h.b;", "fe"),
        ("hdr.h.a = hdr.h.a |+| 1;", "ff"),
        ("hdr.h.a = hdr.h.b |-| 2;", "00"),
        ("hdr.h.a = (bit<8>)((int<8>)(hdr.h.a >> 1) |+| 1);", "7f"),
        ("hdr.h.a = (bit<8>)((int<8>)0x81 |-| 2);", "80"),
        ("hdr.h.a = hdr.h.a << 8;", "00"),
        ("hdr.h.a = hdr.h.a << hdr.h.c;", "00"),
        ("hdr.h.a = hdr.h.a >> hdr.h.c;", "00"),
        ("hdr.h.a = (bit<8>)((int<8>)hdr.h.a >> hdr.h.c);", "ff"),
        ("hdr.h.a = (bit<8>)((int<8>)0x80 >> 3);", "f0"),
        ("hdr.h.a = (bit<8>)(int<8>)(int<4>)(bit<4>)hdr.h.a;", "ff"),
        ("hdr.h.a = (bit<8>)(bit<4>)hdr.h.a;", "0f"),
        ("hdr.h.a = hdr.h.a[3:0] ++ hdr.h.b[3:0];", "f1"),
        ("hdr.h.a[5:2] = 0;", "c3"),
        ("hdr.h.a = hdr.h.a / 16 + hdr.h.a % 16;", "1e"),
        ("hdr.h.a = (hdr.h.a > hdr.h.b) ? 8w1 : 8w2;", "01"),
        ("hdr.h.a = ((int<8>)hdr.h.a > (int<8>)hdr.h.b) ? 8w1 : 8w2;", "02"),
    ],
)
def test_widths_wrap_saturate_and_shift(statement, expected):
    assert one("ff01ff00", apply=statement)[:2] == expected


def test_division_by_zero_is_refused():
    assert "division by 0" in refused("ff010000", apply="hdr.h.a = hdr.h.a / hdr.h.c;")


class TestInvalidHeaders:
    def test_reading_one_may_not_reach_the_output(self):
        assert UNDEFINED in refused("01020304", apply="hdr.h.a = hdr.g.a;")

    def test_reading_one_may_not_decide(self):
        reason = refused("01020304", apply="if (hdr.g.a == 0) { hdr.h.a = 7; }")
        assert reason.startswith("test.p4:")
        assert UNDEFINED in reason

    def test_reading_one_may_not_be_a_key(self):
        table = "table t { key = { hdr.g.a: exact; } actions = { NoAction; } }"
        assert UNDEFINED in refused("01020304", locals=table, apply="t.apply();")

    def test_reading_one_and_not_using_it_is_fine(self):
        assert one("01020304", apply="meta.m = hdr.g.a;") == "01020304"

    def test_a_write_is_lost(self):
        assert UNDEFINED in refused("01020304", apply="hdr.g.a = 5; hdr.h.a = hdr.g.a;")

    def test_set_valid_after_set_invalid_forgets_the_fields(self):
        apply = "hdr.h.setInvalid(); hdr.h.setValid(); hdr.h.a = 1; hdr.h.b = 2; hdr.h.c = 3;"
        assert UNDEFINED in refused("01020304", apply=apply)
        assert one("01020304", apply=apply + "hdr.h.d = 4;") == "01020304"

    def test_set_valid_of_a_valid_header_keeps_the_fields(self):
        assert one("01020304", apply="hdr.h.setValid();") == "01020304"

    def test_an_invalid_one_is_copied_as_invalid(self):
        assert one("01020304ff", apply="hdr.h = hdr.g;") == "ff"

    def test_two_invalid_ones_are_equal(self):
        assert one("01020304", declarations=TWO, headers="h_t h; h_t g; h_t e;", apply=EQUAL)[:2] == "09"


TWO = "header h_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; }"
EQUAL = "if (hdr.g == hdr.e && hdr.h != hdr.g) { hdr.h.a = 9; }"


def test_a_checksum_skips_invalid_headers():
    """The words of h alone: 0x0102 + 0x0304."""
    compute = "update_checksum(true, {hdr.h, hdr.g}, meta.m16, HashAlgorithm.csum16);"
    egress = "hdr.h.a = 1;"
    data = one(
        "01020304",
        metadata="bit<16> m16;",
        compute="update_checksum(true, {hdr.h.a, hdr.h.b, hdr.g.a, hdr.g.b, hdr.g}, hdr.s.sum, "
        "HashAlgorithm.csum16);",
        declarations=TWO + "header s_t { bit<16> sum; }",
        headers="h_t h; h_t g; s_t s;",
        apply="hdr.s.setValid(); hdr.s.sum = 0;",
        egress=egress,
    )
    assert compute
    assert data == "01020304" + f"{0xFFFF - 0x0102:04x}"


def test_a_checksum_over_an_undefined_value_is_refused():
    compute = "update_checksum(true, {hdr.g.a, hdr.h.b}, hdr.s.sum, HashAlgorithm.csum16);"
    reason = refused(
        "01020304",
        declarations=TWO + "header s_t { bit<16> sum; }",
        headers="h_t h; h_t g; s_t s;",
        apply="hdr.s.setValid(); hdr.s.sum = 0; hdr.g.setValid();",
        compute=compute,
    )
    assert "undefined" in reason


SELECT = """
state start {
    packet.extract(hdr.h);
    transition select(hdr.h.a, hdr.h.b) {
        (1, _): first;
        (1 &&& 1, 0 .. 4): second;
        (8, 8): accept;
        %s
    }
}
state first { meta.m = 1; transition accept; }
state second { meta.m = 2; transition accept; }
"""
REPORT = "hdr.h.c = meta.m; hdr.h.d = (bit<8>)(std.parser_error == error.NoMatch ? 8w1 : 8w0);"


@pytest.mark.parametrize(
    ("frame", "end"), [("01020000", "0100"), ("03040000", "0200"), ("08080000", "0000"), ("03050000", "0001")]
)
def test_select_takes_the_first_match_and_rejects_without_one(frame, end):
    assert one(frame, parser=SELECT % "", apply=REPORT)[4:] == end


def test_explicit_reject_is_no_error():
    data = one("01020000", parser="state start { packet.extract(hdr.h); transition reject; }", apply=REPORT)
    assert data == "01020000"


def test_too_short_a_packet_leaves_its_header_invalid():
    parser = "state start { packet.extract(hdr.h); packet.extract(hdr.g); transition accept; }"
    apply = "if (std.parser_error == error.PacketTooShort && !hdr.g.isValid()) { hdr.h.a = 9; }"
    assert one("0102030405", parser=parser, apply=apply) == "0902030405"
    assert one("01", parser=parser) == "01"


class TestRegisters:
    LOCALS = "register<bit<8>>(4) r;"

    def test_reading_beyond_the_end_is_undefined(self):
        apply = "r.read(hdr.h.a, (bit<32>)hdr.h.b);"
        assert one("ff030000", locals=self.LOCALS, apply=apply) == "00030000"
        assert UNDEFINED in refused("ff040000", locals=self.LOCALS, apply=apply)

    def test_writing_beyond_the_end_changes_nothing(self):
        switch = v1model(locals=self.LOCALS, apply="r.write((bit<32>)hdr.h.b, hdr.h.a);").switch()
        send(switch, "ff040000")
        send(switch, "ee030000")
        assert [switch.registers["I.r"][i] for i in range(4)] == [0, 0, 0, 0xEE]


STACK = {
    "declarations": TWO + "header e_t { bit<8> v; }",
    "headers": "h_t h; e_t[2] s;",
    "parser": """state start { packet.extract(hdr.h); transition next; }
        state next {
            packet.extract(hdr.s.next);
            transition select(hdr.s.last.v) { 0: accept; default: next; }
        }""",
}


def test_a_header_stack_that_overflows_is_a_parser_error():
    apply = "if (std.parser_error == error.StackOutOfBounds) { hdr.h.a = 9; }"
    assert one("0102030405000a", apply=apply, **STACK) == "0102030405000a"
    assert one("0102030405060a", apply=apply, **STACK) == "0902030405060a"


def test_a_stack_index_beyond_the_end_is_refused():
    assert "element 2" in refused("010203040500", apply="hdr.s[hdr.h.b].v = 1;", **STACK)


def test_push_and_pop_shift_a_stack():
    assert one("010203040500", apply="hdr.s.push_front(1);", **STACK) == "0102030405"
    assert one("010203040500", apply="hdr.s.pop_front(1);", **STACK) == "0102030400"


VARBIT = {
    "declarations": TWO + "header o_t { bit<8> before; varbit<32> data; bit<8> after; }",
    "headers": "h_t h; o_t o;",
    "parser": """state start {
        packet.extract(hdr.h);
        packet.extract(hdr.o, (bit<32>)hdr.h.a);
        transition accept;
    }""",
    "apply": """if (std.parser_error == error.ParserInvalidArgument) { hdr.h.b = 1; }
        if (std.parser_error == error.HeaderTooShort) { hdr.h.b = 2; }
        if (std.parser_error == error.PacketTooShort) { hdr.h.b = 3; }""",
}


@pytest.mark.parametrize(("bits", "error"), [(0, 0), (8, 0), (32, 0), (4, 1), (40, 2), (64, 3)])
def test_varbit_lengths(bits, error):
    frame = f"{bits:02x}000000" + "aabbccddeeff99"
    assert one(frame, **VARBIT) == frame[:2] + f"{error:02x}" + frame[4:]


def test_verify_stops_the_parser_with_its_error():
    parser = """state start {
        packet.extract(hdr.h);
        verify(hdr.h.a == 1, error.NoMatch);
        meta.m = 5;
        transition accept;
    }"""
    assert one("01020000", parser=parser, apply=REPORT) == "01020500"
    assert one("02020000", parser=parser, apply=REPORT) == "02020001"


class TestCopies:
    def test_out_parameters_come_back_on_return(self):
        action = "action a(inout bit<8> x) { x = 9; if (hdr.h.b == 2) { return; } x = 8; }"
        assert one("01020304", locals=action, apply="a(hdr.h.a);") == "09020304"

    def test_out_parameters_come_back_on_exit(self):
        action = "action a(inout bit<8> x) { x = 9; exit; }"
        apply = "a(hdr.h.a); hdr.h.b = 7;"
        assert one("01020304", locals=action, apply=apply) == "09020304"

    def test_what_is_copied_in_does_not_change_with_the_original(self):
        action = "action a(in bit<8> x, out bit<8> y) { hdr.h.a = 5; y = x; }"
        assert one("01020304", locals=action, apply="a(hdr.h.a, hdr.h.b);") == "05010304"

    def test_a_record_given_twice_is_copied(self):
        control = "control C(inout h_t x, inout h_t y) { apply { x.a = 5; y.b = x.a; } }"
        data = one("01020304", declarations=TWO + control, locals="C() c;", apply="c.apply(hdr.h, hdr.h);")
        assert data == "01050304"  # the last one copied back wins, and its a was 1

    def test_out_parameters_begin_undefined(self):
        action = "action a(out bit<8> x) { meta.m = x; }"
        assert UNDEFINED in refused("01020304", locals=action, apply="a(hdr.h.a);")

    def test_copies_come_back_from_left_to_right(self):
        action = "action a(out bit<8> x, out bit<8> y) { x = 1; y = 2; }"
        assert one("09020304", locals=action, apply="a(hdr.h.a, hdr.h.a);") == "02020304"

    def test_exit_leaves_the_control_and_egress_still_runs(self):
        assert one("01020304", apply="exit;", egress="hdr.h.a = 9;") == "09020304"


EFFECTS = (
    TWO
    + """
bit<8> bump(inout bit<8> x) { x = x + 1; return x; }
bool yes(inout bit<8> x) { x = x + 1; return true; }
"""
)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("hdr.h.b = hdr.h.a + bump(hdr.h.a);", "02030304"),
        ("hdr.h.b = bump(hdr.h.a) + hdr.h.a;", "02040304"),
        ("hdr.h.b = bump(hdr.h.a) - bump(hdr.h.a);", "03ff0304"),
        ("if (hdr.h.c == 3 || yes(hdr.h.a)) { hdr.h.b = 0; }", "01000304"),
        ("if (hdr.h.c == 4 && yes(hdr.h.a)) { hdr.h.b = 0; }", "01020304"),
        ("if (hdr.h.c == 3 && yes(hdr.h.a)) { hdr.h.b = 0; }", "02000304"),
        ("hdr.h.b = hdr.h.c == 3 ? hdr.h.d : bump(hdr.h.a);", "01040304"),
        ("hdr.h.a += bump(hdr.h.b);", "04030304"),
    ],
)
def test_evaluation_goes_from_left_to_right_and_no_further_than_needed(statement, expected):
    assert one("01020304", declarations=EFFECTS, apply=statement) == expected


def test_a_place_with_effects_is_evaluated_once():
    parts = dict(STACK)
    parts["declarations"] += "bit<8> bump(inout bit<8> x) { x = x + 1; return x; }"
    apply = "hdr.s[bump(hdr.h.a)].v += 3;"
    assert one("000203040500", apply=apply, **parts) == "010203040503"


def test_swapping_by_a_list_reads_before_it_writes():
    declarations = "header h_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; }"
    assert one(
        "01020304", declarations=declarations, apply="hdr.h = {hdr.h.b, hdr.h.a, hdr.h.d, hdr.h.c};"
    ) == ("02010403")


def test_is_valid_is_a_key():
    table = """action mark(bit<8> v) { hdr.h.a = v; }
    table t {
        key = { hdr.g.isValid(): exact; hdr.h.b: ternary; }
        actions = { mark; NoAction; }
        const entries = { (true, _): mark(1); (false, 2): mark(2); (false, _): mark(3); }
    }"""
    assert one("00020000", locals=table, apply="t.apply();")[:2] == "02"
    assert one("00030000", locals=table, apply="t.apply();")[:2] == "03"
    assert one("00030000", locals=table, apply="hdr.g.setValid(); t.apply(); hdr.g.setInvalid();")[:2] == "01"


class TestUnions:
    PARTS = {  # noqa: RUF012
        "declarations": TWO
        + "header x_t { bit<8> x; } header y_t { bit<8> y; } header_union u_t { x_t x; y_t y; }",
        "headers": "h_t h; u_t u;",
    }

    def test_one_member_valid_makes_the_other_invalid(self):
        apply = "hdr.u.x.setValid(); hdr.u.x.x = 7; hdr.u.y.setValid(); hdr.u.y.y = 8;"
        assert one("01020304", apply=apply, **self.PARTS) == "0102030408"

    def test_assigning_a_valid_member_makes_the_other_invalid(self):
        apply = "hdr.u.x.setValid(); hdr.u.x.x = 7; hdr.u.y = {8};"
        assert one("01020304", apply=apply, **self.PARTS) == "0102030408"


def test_a_switch_falls_through_to_the_next_block():
    locals_ = """action a() {} action b() {} action c() {}
    table t { key = { hdr.h.a: exact; } actions = { a; b; c; } default_action = c;
        const entries = { 1: a(); 2: b(); } }"""
    apply = "switch (t.apply().action_run) { a: b: { hdr.h.b = 1; } default: { hdr.h.b = 2; } }"
    assert [one(f"0{n}000000", locals=locals_, apply=apply)[2:4] for n in (1, 2, 3)] == ["01", "01", "02"]


def test_hit_and_miss():
    locals_ = "table t { key = { hdr.h.a: exact; } actions = { NoAction; } const entries = { 1: NoAction(); } }"
    apply = "if (t.apply().hit) { hdr.h.b = 1; } else { hdr.h.b = 2; } if (t.apply().miss) { hdr.h.c = 3; }"
    assert one("01000000", locals=locals_, apply=apply) == "01010000"
    assert one("02000000", locals=locals_, apply=apply) == "02020300"


def test_a_parser_loop_without_end_is_refused():
    parser = "state start { transition start; }"
    assert "parser states" in refused("01020304", parser=parser)


class TestArgumentsOfExterns:
    """They are evaluated from left to right, as those of functions are."""

    BUMP = PARTS["declarations"] + "bit<8> bump(inout bit<8> x) { x = x + 1; return x; }"

    def bumped(self, frame: str, apply: str) -> str:
        return one(frame, declarations=self.BUMP, locals="register<bit<8>>(16) r;", apply=apply)

    def test_the_data_of_a_hash_is_read_before_a_later_part_of_it_changes_it(self):
        apply = "hash(hdr.h.b, HashAlgorithm.xor16, 8w0, { 8w0, hdr.h.a, bump(hdr.h.a), 8w0 }, 32w65536);"
        assert self.bumped("07000000", apply)[:4] == "0807"

    def test_the_base_of_a_hash_is_read_before_its_data_changes_it(self):
        apply = "hash(hdr.h.b, HashAlgorithm.identity, hdr.h.a, { bump(hdr.h.a) }, 32w65536);"
        assert self.bumped("07000000", apply)[:4] == "080f"

    def test_an_index_is_read_before_the_value_changes_it(self):
        apply = "r.write((bit<32>)hdr.h.a, bump(hdr.h.a)); r.read(hdr.h.b, 7); r.read(hdr.h.c, 8);"
        assert self.bumped("07000000", apply)[:6] == "080800"


def test_a_checksum_wider_than_its_field_is_cut_to_it():
    compute = "update_checksum(true, { hdr.h.a }, hdr.h.c, HashAlgorithm.crc32);"
    assert one("31010203", compute=compute) == f"3101{zlib.crc32(b'1') & 0xFF:02x}03"
