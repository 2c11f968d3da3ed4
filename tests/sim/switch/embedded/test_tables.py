"""Match kinds, priorities, entries of the program and of the control plane, and what is refused of these."""

import random
import sys

import pytest

from fanin.p4.control import Exact, Lpm, Range, TableEntry, Ternary
from fanin.sim.switch.embedded import P4Error, Refused
from tests.support import new_seed, slow

from .programs import one, send, v1model

TABLE = """action mark(bit<8> v) {{ hdr.h.a = v; }}
    table t {{ key = {{ {keys} }} actions = {{ mark; NoAction; }} {more} }}"""


def running(keys, more=""):
    return v1model(locals=TABLE.format(keys=keys, more=more), apply="t.apply();").switch()


def mark(match, value, priority=0):
    return TableEntry("I.t", match, "I.mark", {"v": value}, priority)


def test_the_longest_prefix_wins():
    switch = running("hdr.h.b: lpm;")
    for value, length in ((0x80, 1), (0xC0, 2), (0, 0), (0xC1, 8)):
        switch.insert(mark({"hdr.h.b": Lpm(value, length)}, length + 0x10))
    sent = [send(switch, f"00{b:02x}0000")[0][1][:2] for b in (0x00, 0x81, 0xC0, 0xC1)]
    assert sent == ["10", "11", "12", "18"]


def test_the_larger_priority_wins_whatever_the_order():
    for order in (1, -1):
        switch = running("hdr.h.b: ternary;")
        entries = [mark({"hdr.h.b": Ternary(1, 1)}, 1, 10), mark({"hdr.h.b": Ternary(3, 3)}, 2, 20)]
        for entry in entries[::order]:
            switch.insert(entry)
        assert [send(switch, f"00{b:02x}0000")[0][1][:2] for b in (1, 2, 3)] == ["01", "00", "02"]


def test_two_entries_of_one_priority_that_match_leave_the_answer_open():
    switch = running("hdr.h.b: ternary;")
    switch.insert(mark({"hdr.h.b": Ternary(1, 1)}, 1, 10))
    switch.insert(mark({"hdr.h.b": Ternary(2, 2)}, 2, 10))
    assert send(switch, "00010000")[0][1][:2] == "01"
    with pytest.raises(Refused, match="two entries of one priority"):
        send(switch, "00030000")


def test_ranges_include_both_ends():
    switch = running("hdr.h.b: range;")
    switch.insert(mark({"hdr.h.b": Range(2, 4)}, 9, 1))
    assert [send(switch, f"00{b:02x}0000")[0][1][:2] for b in range(1, 6)] == ["00", "09", "09", "09", "00"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("const entries = { 0 &&& 0: mark(1); 3: mark(2); }", "01"),
        ("entries = { priority = 5: 0 &&& 0: mark(1); priority = 6: 3: mark(2); }", "02"),
        (
            "largest_priority_wins = false; entries = { priority = 5: _: mark(1); priority = 6: 3: mark(2); }",
            "01",
        ),
        ("priority_delta = 10; entries = { priority = 5: _: mark(1); 3: mark(2); }", "01"),
        ("entries = { 3 &&& 1: mark(1); priority = 7: 3: mark(2); }", "02"),
    ],
)
def test_priorities_of_entries_in_the_program(more, expected):
    assert (
        one("00030000", locals=TABLE.format(keys="hdr.h.b: ternary;", more=more), apply="t.apply();")[:2]
        == expected
    )


@pytest.mark.parametrize(
    ("keys", "entries"),
    [
        ("hdr.h.b: exact;", "const entries = { 1: mark(1);\n2: mark(1);\n1: mark(2); }"),
        ("hdr.h.b: lpm;", "const entries = { 0xf0 &&& 0xf0: mark(1);\n_: mark(1);\n0xff &&& 0xf0: mark(2); }"),
        (
            "hdr.h.b: range;",
            "entries = { priority = 3: 1 .. 2: mark(1);\npriority = 4: 1 .. 2: mark(1);\n"
            "priority = 3: 1 .. 2: mark(2); }",
        ),
    ],
)
def test_an_entry_that_the_program_has_twice_is_named_with_both_places(keys, entries):
    with pytest.raises(
        P4Error, match=r"^test.p4:(\d+):\d+: table t has this entry already, at test.p4:"
    ) as found:
        v1model(locals=TABLE.format(keys=keys, more=entries), apply="t.apply();")
    first = int(str(found.value).rsplit(":", 2)[1])
    assert found.value.position.line == first + 2


def test_tables_against_a_search_through_all_entries():
    rng = random.Random(new_seed())
    switch = running("hdr.h.b: ternary; hdr.h.c: range; hdr.h.d: exact;")
    entries: list[tuple[int, int, int, int, int, int]] = []
    for number in range(200):
        mask, low, exact = rng.randrange(8), rng.randrange(8), rng.randrange(3)
        row = (rng.randrange(8) & mask, mask, low, rng.randrange(low, 8), exact, number + 1)
        match = {"hdr.h.b": Ternary(row[0], mask), "hdr.h.c": Range(low, row[3]), "hdr.h.d": Exact(exact)}
        entry = mark(match, number % 250 + 1, number + 1)
        switch.insert(entry)
        entries.append(row)
        if rng.random() < 0.2:
            switch.delete(entry)
            entries.pop()
        b, c, d = rng.randrange(8), rng.randrange(8), rng.randrange(3)
        fitting = [r for r in entries if b & r[1] == r[0] and r[2] <= c <= r[3] and d == r[4]]
        expected = max((r[5] for r in fitting), default=0)
        assert send(switch, f"00{b:02x}{c:02x}{d:02x}") == [(0, f"{expected:02x}{b:02x}{c:02x}{d:02x}")]


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (TableEntry("I.u", {}, "I.mark"), "no table I.u"),
        (TableEntry("I.t", {"hdr.h.b": Exact(1)}, "I.other"), "no action I.other"),
        (TableEntry("I.t", {"hdr.h.x": Exact(1), "hdr.h.b": Exact(1)}, "NoAction"), "no key hdr.h.x"),
        (TableEntry("I.t", {}, "NoAction"), "the exact key hdr.h.b is missing"),
        (mark({"hdr.h.b": Exact(256)}, 1), "256 does not fit in 8 bits"),
        (mark({"hdr.h.b": Exact(1)}, 256), "v: 256 does not fit in 8 bits"),
        (TableEntry("I.t", {"hdr.h.b": Exact(1)}, "I.mark", {"w": 1}), "takes the parameters v, not w"),
        (mark({"hdr.h.b": Ternary(1, 1)}, 1), "is matched exact, not ternary"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused_by_name(entry, what):
    with pytest.raises(ValueError, match=what):
        running("hdr.h.b: exact;").insert(entry)


def test_an_entry_comes_once_and_goes_once():
    switch = running("hdr.h.b: exact;")
    entry = mark({"hdr.h.b": Exact(2)}, 9)
    switch.insert(entry)
    with pytest.raises(ValueError, match="already"):
        switch.insert(entry)
    assert send(switch, "00020000")[0][1] == "09020000"
    switch.delete(entry)
    assert send(switch, "00020000")[0][1] == "00020000"
    with pytest.raises(ValueError, match="no such entry"):
        switch.delete(entry)


def test_a_default_action_is_replaced_unless_it_is_constant():
    switch = running("hdr.h.b: exact;")
    switch.set_default("I.t", "I.mark", {"v": 5})
    assert send(switch, "00020000")[0][1][:2] == "05"
    with pytest.raises(ValueError, match="default action is constant"):
        running("hdr.h.b: exact;", "const default_action = mark(3);").set_default("I.t", "NoAction")


def test_names_are_those_of_annotations():
    locals_ = """@name("first") action mark(bit<8> v) { hdr.h.a = v; }
        @name(".second") table t { key = { hdr.h.b: exact @name("key"); } actions = { mark; } }"""
    program = v1model(locals=locals_, apply="t.apply();")
    assert list(program.tables) == ["second"]
    table = program.tables["second"]
    assert [(key.name, key.kind, key.width) for key in table.keys] == [("key", "exact", 8)]
    assert table.actions["I.first"].parameters == {"v": 8}


def test_entries_that_come_and_go_leave_nothing_behind():
    switch = running("hdr.h.b: ternary;")
    table = switch.table("I.t")
    for number in range(200):
        entry = TableEntry("I.t", {"hdr.h.b": Ternary(number % 256, 1 << number % 8)}, "I.mark", {"v": 1}, 1)
        switch.insert(entry)
        assert len(table) == 1
        switch.delete(entry)
    assert (len(table), table._groups) == (0, [])


def _work(action):
    """How many times ``action`` calls or resumes a Python function, or calls one of C."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


FORMS = {
    "masks": ("ternary", "{n} &&& {mask}"),
    "values": ("ternary", "{mask} &&& 0xffff"),
    "ranges": ("range", "{n} .. {mask}"),
    "exact": ("exact", "{mask}"),
}


def _with_entries(form, count):
    kind, match = FORMS[form]
    rows = "\n".join(f"{match.format(n=n, mask=256 + n)}: mark(1);" for n in range(count))
    more = f"const entries = {{ {rows} }}"
    table = TABLE.format(keys=f"hdr.h.b ++ hdr.h.c: {kind};", more=more)
    return v1model(locals=table, apply="t.apply();")


@pytest.mark.parametrize("form", FORMS)
def test_the_work_of_constant_entries_grows_with_their_number_and_not_with_its_square(form):
    few, many = (_work(_with_entries(form, count).switch) for count in (30, 120))
    assert many < 4.5 * few


@pytest.mark.parametrize("form", slow(*FORMS))
def test_the_work_of_reading_constant_entries_grows_with_their_number_and_not_with_its_square(form):
    _with_entries(form, 1)  # what is made once
    none, few, many = (_work(lambda count=count: _with_entries(form, count)) for count in (0, 200, 800))
    assert many - none < 4.2 * (few - none)


def test_the_work_of_an_update_does_not_grow_with_the_masks():
    switch = running("hdr.h.b ++ hdr.h.c: ternary;")
    key = "key"

    def change():
        entry = mark({key: Ternary(0, 0xFFFF)}, 1, 7)
        switch.insert(entry)
        switch.delete(entry)

    change()
    few = _work(change)
    for mask in range(1, 400):
        switch.insert(mark({key: Ternary(0, mask)}, 1, mask % 13))
    assert _work(change) < few + 40  # comparisons of a binary search, twice
