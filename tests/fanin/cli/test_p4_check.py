"""``fanin p4 check``: what it prints, and how it ends."""

import json
import re

import pytest

from fanin.sim.checker.finish import FinishCheck, OutOfTime
from tests.fanin.cli.command import refused, run


def test_a_broken_invariant_is_drawn_and_exits_with_1(capsys):
    bounds = ["--losses", 0, "--duplicates", 0, "--reorder", 0]
    status, out, err = run(capsys, "p4", "check", "--protocol", "published", *bounds)
    assert status == 1
    assert err == "fanin: error: published breaks 2 of 4 invariants\n"
    assert "the FA of slot 0, round 1, is delivered twice" in out
    assert "timeout: AGG s0 r1 again" in out
    assert "BROKEN: every worker gets every FA exactly once, and in order (the shortest way)" in out
    assert "unknown" not in out
    status, out, _ = run(capsys, "p4", "check", *bounds, "--json")
    found = json.loads(out)
    assert (status, found["exhausted"], set(found["invariants"].values())) == (0, True, {True})
    assert found["status"] == "holds"
    status, out, _ = run(capsys, "p4", "check", "--protocol", "published", *bounds, "--json")
    assert (status, json.loads(out)["status"]) == (1, "broken")


def test_a_search_that_was_cut_proves_nothing_and_exits_with_1(capsys):
    bounds = ["--workers", 3, "--slots", 2, "--seconds", 0.2]
    status, out, err = run(capsys, "p4", "check", *bounds)
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("fanin: error: p4sgd is not proved: the search was cut")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["unknown"] * 4 + ["unknown:"]
    assert re.search(r"cut at [\d,]+ states, \d+ events from the start: .*; raise --seconds", out)
    status, out, _ = run(capsys, "p4", "check", *bounds, "--json")
    found = json.loads(out)
    assert (status, found["status"], set(found["invariants"].values())) == (1, "not proved", {None})
    assert found["depth"] > 0


def test_what_a_search_to_the_first_broken_invariant_leaves_unknown_is_explained(capsys):
    _, out, _ = run(capsys, "p4", "check", "--protocol", "published", "--first")
    assert out.splitlines()[-1] == (
        "unknown: the search ended at the first invariant that is broken; without --first it continues"
    )


def test_a_search_whose_time_is_over_before_all_were_asked_for_their_end_says_so(capsys, monkeypatch):
    def late(finish):
        raise OutOfTime

    monkeypatch.setattr(FinishCheck, "stuck", late)
    status, out, err = run(capsys, "p4", "check", "--losses", 0, "--duplicates", 0, "--reorder", 0)
    assert (status, err.split(":")[2]) == (1, " p4sgd is not proved")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["holds"] * 3 + ["unknown", "unknown:"]
    assert out.splitlines()[-1].endswith("the time limit ended the check that each can finish: raise --seconds")


def test_a_full_search_puts_no_event_off(capsys):
    bounds = ["--workers", 1, "--slots", 2, "--rounds", 1, "--json"]
    reduced, full = (
        json.loads(run(capsys, "p4", "check", *bounds, *more)[1])["states"] for more in ([], ["--full"])
    )
    assert reduced < full


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--workers 6", "workers must be in 1…5"),
        ("--slots 3", "slots must be a power of two"),
        ("--losses -1", "losses must not be negative"),
        ("--faults -1", "together must not be negative"),
        ("--seconds nan", "seconds must be positive"),
    ],
)
def test_bounds_that_cannot_be_searched_are_named(capsys, arguments, cause):
    assert cause in refused(capsys, "p4", "check", *arguments.split())
