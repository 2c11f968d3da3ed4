"""Texts of changed inputs and options."""

import pytest

from fanin.runs.provenance.comparison import Change

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("was", "now", "text"),
    [
        (None, 1, "x: none then, 1 now"),
        (DIGEST, DIGEST[::-1], "x: 0123456789ab… then, fedcba987654… now"),
        (DIGEST, None, "x: 0123456789ab… then, none now"),
        (DIGEST + "0", DIGEST + "1", f"x: {DIGEST}0 then, {DIGEST}1 now"),
    ],
)
def test_long_values_are_cut_unless_they_would_look_the_same(was, now, text):
    assert str(Change("x", was, now)) == text
