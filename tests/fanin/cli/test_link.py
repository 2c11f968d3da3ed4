"""``fanin link check``: what is said of what was found."""

import json

import pytest

from fanin.cli.main import main


def run(capsys, *arguments):
    status = main(["link", "check", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_a_link_that_holds_exits_with_0(capsys):
    bounds = ["--window", 1, "--buffer", 1, "--in-flight", 1]
    status, out, err = run(capsys, *bounds)
    assert (status, err) == (0, "")
    assert out.startswith("342 states in ")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["holds"] * 5
    status, out, _ = run(capsys, *bounds, "--json")
    found = json.loads(out)
    assert (found["status"], found["window"], found["overtaking"]) == ("holds", 1, None)


def test_what_breaks_the_link_is_drawn_and_exits_with_1(capsys):
    """With as many sequence numbers as two buffers, room looks like none."""
    bounds = ["--window", 1, "--buffer", 1, "--sequences", 2, "--overtaking", 0]
    status, out, err = run(capsys, *bounds)
    assert (status, err) == (1, "fanin: error: the link breaks 1 of 5 invariants\n")
    assert "(the shortest way)" in out
    assert "     sender                      receiver\n" in out
    assert "●                           │  takes a frame from its user\n" in out
    status, out, _ = run(capsys, *bounds, "--json")
    ((_, events),) = json.loads(out)["counterexamples"].items()
    assert events == [{"event": "offer", "packet": None, "freed": 0}]


def test_a_search_that_was_cut_proves_nothing(capsys):
    status, out, err = run(capsys, "--window", 4, "--buffer", 4, "--in-flight", 4, "--seconds", 0.01)
    assert status == 1
    assert err.startswith("fanin: error: the link is not proved: the search was cut")
    assert "take fewer --window, --buffer or --in-flight" in out


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--window 0", "window must be in 1…255, not 0"),
        ("--sequences 7", "sequences must be even and in 2…2^32, not 7"),
        ("--sequences 8", "sequences below 2^32 need a bound on overtaking"),
        ("--overtaking -1", "overtaking must not be negative, not -1"),
        ("--retries 0", "retries must be at least 1, not 0"),
        ("--seconds nan", "seconds must be positive, not nan"),
    ],
)
def test_bounds_that_cannot_be_searched_are_named(capsys, arguments, cause):
    status, out, err = run(capsys, *arguments.split())
    assert (status, out, err) == (2, "", f"fanin: error: {cause}\n")
