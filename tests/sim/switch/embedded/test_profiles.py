"""Action profiles within the switch: handles, hashes and what a trace says."""

import zlib

import pytest

from fanin.p4.control import Exact
from fanin.sim.switch.embedded import Refused
from fanin.sim.switch.embedded.profiles import Group, Member, Share
from fanin.sim.switch.embedded.trace import Tracer
from tests.sim.switch.embedded.programs import v1model

WAYS = """
    action to(bit<9> port) { std.egress_spec = port; }
    action_selector(HashAlgorithm.crc32, 16, 16) ways;
    table t { key = { hdr.h.a: exact; hdr.h.b: selector; hdr.g.c: selector; hdr.h.c[2:0]: selector; }
        actions = { to; } implementation = ways; }
"""
LETTERS = {"a": 1, "b": 2, "c": 3, "d": 4}


def _switch(tracer=None, **parts):
    switch = v1model(locals=WAYS, apply="t.apply();", **parts).switch(tracer=tracer)
    return switch, switch.profiles["I.ways"], switch.table("I.t")


def _members(profile, letters):
    members = {letter: Member("I.to", {"port": LETTERS[letter]}, LETTERS[letter]) for letter in letters}
    for member in members.values():
        profile.add(member)
    return members


def _pointing(table, profile, shares):
    group = Group()
    profile.regroup(group, shares)
    profile.point(table, table.insert({"hdr.h.a": Exact(7)}, "", {}, 0), group)
    return group


def _chosen(group):
    """The letters of what the group's entries choose from."""
    (entry,) = group.entries
    names = {number: letter for letter, number in LETTERS.items()}
    return "".join(names[choice.arguments[0]] for choice in entry.choices)


def test_the_hash_leaves_out_invalid_headers_and_fills_up_with_zeros():
    switch, profile, table = _switch()
    members = _members(profile, "abc")
    _pointing(table, profile, [Share(member) for member in members.values()])
    for b, c in ((1, 2), (9, 250), (77, 5), (200, 0)):
        place = zlib.crc32(bytes([b, (c & 7) << 5])) % 3
        assert switch.process(1, bytes([7, b, c, 0])) == [(place + 1, bytes([7, b, c, 0]))]


def test_a_member_has_the_lowest_free_handle_and_one_for_each_of_its_weight():
    _, profile, table = _switch()
    members = _members(profile, "abcd")
    profile.drop(members.pop("b"))
    group = _pointing(table, profile, [Share(members["a"], 3), Share(members["d"]), Share(members["c"])])
    assert _chosen(group) == "aacda"
    profile.regroup(group, [Share(members["a"]), Share(members["d"], 2)])
    assert _chosen(group) == "add"
    profile.regroup(group, [Share(members["d"])])
    assert [members[letter].handles for letter in "acd"] == [[0], [2], [3]]


def test_a_group_without_a_choice_does_nothing():
    switch, profile, table = _switch()
    members = _members(profile, "a")
    group = _pointing(table, profile, [Share(members["a"], port=5)])
    profile.groups[1] = group
    assert switch.process(1, bytes(4))[0][0] == 0
    assert switch.process(1, bytes([7, 0, 0, 0]))[0][0] == 1
    profile.watch(frozenset({5}))
    assert switch.process(1, bytes([7, 0, 0, 0]))[0][0] == 0


def test_an_entry_that_goes_points_to_nothing_any_more():
    switch, profile, table = _switch()
    group = _pointing(table, profile, [])
    switch.clear("I.t")
    assert not group.entries


def test_an_undefined_key_is_refused_where_a_group_needs_it():
    program = v1model(locals=WAYS, apply="hdr.g.setValid(); t.apply(); hdr.g.setInvalid();")
    switch = program.switch()
    profile, table = switch.profiles["I.ways"], switch.table("I.t")
    members = _members(profile, "ab")
    assert switch.process(1, bytes(4))[0][0] == 0  # a miss needs no hash
    _pointing(table, profile, [Share(member) for member in members.values()])
    with pytest.raises(Refused, match="a checksum or hash over an undefined value"):
        switch.process(1, bytes([7, 0, 0, 0]))


def test_a_trace_says_which_action_was_chosen():
    lines = []
    switch, profile, table = _switch(Tracer(lines.append))
    _pointing(table, profile, [Share(_members(profile, "c")["c"])])
    switch.process(1, bytes([7, 0, 0, 0]))
    assert "  selector I.ways: 1 of 1, I.to" in lines


def test_an_action_that_no_table_has_is_no_member():
    _, profile, _ = _switch()
    with pytest.raises(ValueError, match=r"table I\.t has no action I\.from; it has I\.to"):
        profile.add(Member("I.from", {}))
