"""Numbers in texts of users: how many digits they may have, and what options say of longer ones."""

import pytest

from fanin.base.errors import InputError
from fanin.base.limits import is_number
from fanin.cnn.plan.options import factors
from fanin.runs.pairs import number_of

LONG = "1" * 5000  # int() refuses more than 4,300 digits


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", True), ("0123456789", True), ("", False), ("01234567890", False), ("-1", False), ("²", False)],
)
def test_a_number_has_one_to_ten_decimal_digits(text, expected):
    assert is_number(text) is expected
    assert not is_number(LONG)


def test_a_number_of_thousands_of_digits_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"workers are 0 to 3$"):
        number_of("--stop", "entry", LONG, 4)
    with pytest.raises(InputError, match=r"^--mp must be some of"):
        factors(LONG)
