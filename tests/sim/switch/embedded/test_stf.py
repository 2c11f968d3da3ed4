"""The packet-test format, on a program of our own; and p4c's tests themselves, where they are."""

import os
import time
from pathlib import Path

import pytest

from fanin.sim.switch.embedded import P4Error, Refused, load, stf
from fanin.sim.switch.embedded.stf import StfTest, matches

from .programs import PARTS, v1model

LOCALS = """register<bit<8>>(4) r; counter(4, CounterType.packets) c;
    action forward(bit<9> to, bit<8> mark) { std.egress_spec = to; hdr.h.d = mark; }
    action group(bit<16> id) { std.mcast_grp = id; }
    table exact_match { key = { hdr.h.a: exact; hdr.h.b: ternary; } actions = { forward; group; NoAction; } }
    table prefixes { key = { hdr.h.c: lpm; } actions = { forward; NoAction; } }"""
APPLY = "if (!exact_match.apply().hit) { prefixes.apply(); } c.count(1); r.read(hdr.h.c, 0);"


def wrong(text: str) -> list[str]:
    return StfTest(v1model(locals=LOCALS, apply=APPLY), text, "test.stf").run()


def test_what_is_expected_comes():
    assert not wrong("""
        # an entry by the ends of names, a priority, and one whose mask is its digits'
        add exact_match 10 h.a:0x01 h.b:0x** I.forward(to:2, mark:0x0a)
        add I.exact_match 20 hdr.h.a:1 b:0x0* forward(to:3, mark:11)
        add prefixes hdr.h.c:0x80/1 forward(to:1, mark:1)
        register_write r 0 0x7f
        packet 0 01 22 00 00 EE
        expect 2 0122 7f0a
        packet 0 01020000ee
        expect 3 0102**0bee $
        packet 0 05000000
        expect 0
        packet 0 050090ff
        expect 1 05007f01
        check_counter c(1) packets == 4
        wait
    """)


def test_a_group_and_a_default():
    assert not wrong("""
        mc_mgrp_create 7
        mc_node_create 3 2 1
        mc_node_associate 7 0
        setdefault exact_match group(id:7)
        packet 0 01020304
        expect 1 0102
        expect 2 0102
    """)


@pytest.mark.parametrize(
    ("line", "must"),
    [
        ("add exact_match " + "a" * 100_000, "add TABLE"),
        ("add exact_match h.a:1 " + " " * 100_000 + "b forward(to:2", "add TABLE"),
        ("add exact_match " + "a" + " " * 100_000 + "b forward(to:2, mark:1)", "has no key"),
        ("setdefault exact_match " + "1" * 100_000, "setdefault TABLE"),
    ],
)
def test_a_long_line_takes_time_in_proportion(line, must):
    began = time.process_time()
    with pytest.raises(P4Error, match=must):
        wrong(line)
    assert time.process_time() - began < 5


def test_a_group_is_bounded(monkeypatch):
    monkeypatch.setattr(stf, "_REPLICAS", 3)
    node = "mc_node_create 1 1 2\nmc_node_associate 7 {}\n"
    assert not wrong("mc_mgrp_create 7\n" + node.format(0))
    with pytest.raises(P4Error, match=r"test\.stf:5:1: .*a group of more than 3 replicas"):
        wrong("mc_mgrp_create 7\n" + node.format(0) + node.format(1))
    with pytest.raises(P4Error, match=r"test\.stf:6:1: .*a group of more than 3 replicas"):
        wrong("mc_mgrp_create 7\nmc_node_create 1\n" + "mc_node_associate 7 0\n" * 4)


STRUCTS = {
    "declarations": PARTS["declarations"] + "struct pair { bit<8> low; bit<8> high; }",
    "locals": "register<pair>(4) r;",
    "apply": "pair p; r.read(p, 0); hdr.h.b = p.low; hdr.h.c = p.high; p.low = p.low + 1; r.write(0, p);",
}


def test_a_register_of_structs_is_reset_and_takes_no_number():
    def run(text):
        return StfTest(v1model(**STRUCTS), text, "test.stf").run()

    assert not run("""
        packet 0 01020304
        packet 0 01020304
        register_reset r
        packet 0 01020304
        expect 0 01000004
        expect 0 01010004
        expect 0 01000004
    """)
    with pytest.raises(P4Error, match=r"^test.stf:1:1: .*I\.r\[0\]: a value of pair has 2 parts, not 5$"):
        run("register_write r 0 5")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("packet 0 01020304\nexpect 0 02", "test.stf:2: port 0 sent 01020004, not 02"),
        ("packet 0 01020304\nexpect 0 01020004ff", "port 0 sent 01020004, not 01020004FF"),
        ("packet 0 01020304\nexpect 0 0102$", "port 0 sent 01020004, not 0102$"),
        ("packet 0 01020304", "port 0 sent 1 frames, not 0"),
        ("packet 0 01020304\nexpect 0 01\nexpect 0 01", "port 0 sent 1 frames, not 2"),
        ("packet 0 01020304\nexpect 0 01\ncheck_counter c(1) packets == 2", "counter I.c is 1"),
    ],
)
def test_what_is_not_as_expected_is_told(text, what):
    assert what in "\n".join(wrong(text))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("add nothing h.a:1 forward(to:1, mark:1)", "table nothing is not there"),
        ("add exact_match 1 h.x:1 forward(to:1, mark:1)", "has no key h.x"),
        ("add exact_match 1 h.a:1 forward(to:1)", "takes the parameters to, mark, not to"),
        ("add exact_match 1 h.a:0x1ff forward(to:1, mark:1)", "511 does not fit in 8 bits"),
        ("packet 0 0102030", "non-hexadecimal"),
        ("packet x 01", "packet without a port"),
        (f"packet {'9' * 5000} 01", "packet without a port"),
    ],
)
def test_a_malformed_test_is_refused_with_its_line(text, what):
    with pytest.raises(P4Error, match=r"^test\.stf:1:1: ") as caught:
        wrong(text)
    assert what in str(caught.value)


def test_an_unknown_command_is_refused():
    with pytest.raises(Refused, match=r"test\.stf:2:1: command teleport"):
        wrong("wait\nteleport 3")


def test_a_star_is_any_nibble():
    assert matches("0*", b"\x0f")
    assert not matches("0*", b"\x1f")
    assert not matches("0*$", b"\x0f\x00")
    assert matches("", b"\x0f")


@pytest.mark.p4c
@pytest.mark.needs("P4C_TESTDATA")
def test_p4c_tests_are_never_answered_wrongly():
    """All of p4c's v1model tests: none wrong, and no more than a few refused."""
    folder = os.environ["P4C_TESTDATA"]
    passed, refused, failed = 0, [], []
    for test in sorted(Path(folder).rglob("*.stf")):
        program = test.with_suffix(".p4")
        text = program.read_text() if program.exists() else ""
        if "v1model.p4" not in text or "psa.p4" in text:
            continue
        try:
            problems = StfTest(load(program), test.read_text(), test.name).run()
        except Refused as error:
            refused.append(str(error))
            continue
        passed += not problems
        failed += problems
    assert not failed
    assert passed >= 180, f"{passed} pass, refused: {refused}"
