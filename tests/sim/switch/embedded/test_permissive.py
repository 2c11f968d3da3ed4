"""What P4 leaves undefined, as BMv2 has it; each place that depends on it is told once."""

import pytest

from fanin.sim.switch.embedded import Refused, load

from .programs import PARTS, V1MODEL, one, send

LOCALS = """
    counter(256, CounterType.packets) c;
    register<bit<8>>(4) r;
    action to(bit<9> port) { std.egress_spec = port; }
    table t { key = { hdr.h.a: exact; } actions = { to; } const entries = { 7: to(3); } }
"""


def permissive(**parts):
    """A switch, and the places that it tells of."""
    program = load(V1MODEL.format(**{**PARTS, "locals": LOCALS, **parts}), "test.p4", permissive=True)
    places = []
    return program.switch(unset=places.append), places


@pytest.mark.parametrize(
    ("apply", "answer"),
    [
        ("hdr.g.setValid(); hdr.g.a = 9; hdr.g.setInvalid(); hdr.h.b = hdr.g.a + 1;", "070a0000"),
        ("hdr.h.b = hdr.g.c | 4;", "07040000"),  # nobody has set it
        ("hdr.g.setValid(); hdr.g.a = 9; hdr.g.setInvalid(); hdr.g.setValid(); hdr.h.b = hdr.g.a + 1; "
         "hdr.g.setInvalid();", "07010000"),  # made valid, it is clear
        ("hdr.g.b = 5; hdr.h.b = hdr.g.b << 1;", "070a0000"),  # written while it is invalid
        ("bit<8> x; hdr.h.b = x ^ 3;", "07030000"),
        ("if (hdr.g.a == 0) { hdr.h.b = 1; }", "07010000"),
    ],
)  # fmt: skip
def test_what_nobody_has_set_is_what_it_was_or_0(apply, answer):
    switch, places = permissive(apply=apply)
    for _ in range(2):
        assert send(switch, "07000000") == [(0, answer)]
    assert len(places) == 1
    with pytest.raises(Refused, match="undefined"):
        one("07000000", apply=apply)


def test_the_place_is_where_it_decides():
    switch, places = permissive(apply="hdr.h.setInvalid();\n c.count((bit<32>) hdr.h.a);\n t.apply();")
    assert send(switch, "07000000ff") == [(3, "ff")]
    assert switch.counter("I.c", 7)[0] == 1
    lines = [place.line for place in places]
    assert lines[0] + 1 == lines[1] or lines[1] < lines[0]  # the count; the table's key, where it is declared
    assert len(places) == 2


def test_a_copy_of_it_is_no_use_of_it():
    switch, places = permissive(apply="bit<8> x; bit<8> y = x; r.write(0, y); if (false) { hdr.h.b = y; }")
    assert send(switch, "07000000") == [(0, "07000000")]
    assert places == []
    assert switch.registers["I.r"][0] == 0


def test_what_is_sent_is_told_of_too():
    switch, places = permissive(apply="hdr.g.setValid();")
    assert send(switch, "07000000") == [(0, "0700000000000000")]
    assert len(places) == 1
