"""Docstrings, comments and pages are plain technical English: rates of sentences that are hard to read."""

import pytest

from tests import prose

LIMITS = {"words": 0.3, "long": 3.0}  # per 1,000 words, of a top-level folder
HELD = ("docs", "fanin", "hdl", "p4", "planner", "sim")  # not yet: tests (9.4 words today)


@pytest.mark.end_to_end  # two seconds
def test_sentences_of_each_folder_are_easy_to_read():
    rates = {folder: prose.rates(folder) for folder in HELD}
    over = [folder for folder in HELD if any(rates[folder][name] > LIMITS[name] for name in LIMITS)]
    assert over == [], "\n".join([str(rates), *prose.hits(*over)])


@pytest.mark.parametrize(
    ("sentence", "rules"),
    [
        ("What a run leaves is kept.", ["words"]),
        ("The rate came round.", ["words"]),
        ("What does a run leave?", []),
        ("A node sends its own slice before it forwards.", []),
        ("word " * 28 + "ends.", ["long"]),
        ("word " * 27 + "ends.", []),
    ],
)
def test_a_sentence_breaks_the_rules_that_it_should(sentence, rules):
    assert [name for name, broken in prose.RULES.items() if broken(sentence)] == rules


def test_members_of_a_list_are_sentences_of_their_own():
    text = """A first sentence
    that continues here. `code` begins a second one.

    Members
    -------
    valid : Signal
        The first word is present.
    - ``one``: the first item,
      with a second line
    - the last item of all

    | a table | is no sentence |
    """
    assert list(prose.sentences(text)) == [
        "A first sentence that continues here.",
        "code begins a second one.",
        "valid : Signal",
        "The first word is present.",
        "one: the first item, with a second line",
        "the last item of all",
    ]


def test_texts_are_docstrings_and_comments(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(
        '"""Module."""\n# one\n# two\nx = "# none"  # three\nif x:\n    def f():\n        """Function."""\n'
    )
    assert [text for _, text in prose.texts(file)] == ["one\ntwo", "three", "Module.", "Function."]
