"""The page of ``fanin reproduce``: rows with their commands, the paper's points over ours, models."""

from fanin.evaluation.reproduce.page import Bars, Drawing, Fact, Line, page
from tests.fanin.report import drawn


def line(figure, command, ratio=1.0, **more):
    """A row that was filled, or not (``ratio`` None)."""
    given = {
        "paper": "paper",
        "title": "A Paper",
        "section": "I",
        "origin_kind": "RTL",
        "inputs": "",
        "seconds": 3.0,
        "explanation": "",
    }
    given |= {
        "quantity": f"a number of {figure}",
        "claimed": "2 s",
        "measured": "2 s",
        "formula": f"“{figure}”",
    }
    return Line(figure=figure, command=command, ratio=ratio, **(given | more))


LINES = [
    line("1", "fanin a"),
    line("2", "fanin b", 1.3, origin_kind="derived from fitted"),
    line("3", "fanin a", None, explanation="no such"),
]
FACTS = [Fact("paper", "exchange", "fitted", "table 1: 3 s", "3 s", "3 s", "+0.0 %", "a rate")]
CURVES = Drawing(
    "paper",
    "Figure 2: speed",
    "nodes",
    "×",
    {"ring": [(1, 1.0), (6, 3.0)]},
    {"ring": [(6, 3.5)], "tree": [(6, 2.0)]},
)
BARS = Bars("paper", "Figure 1, in s", "s", [("a", 2.0, 2.5, "RTL"), ("b", 3.0, None, "derived from fitted")])


def reproduction():
    """A page with a chart of each kind."""
    return page(LINES, FACTS, [CURVES, BARS], {"quick": True, "not_here": {"paper": ["Figure 4: watts."]}})


def test_curves_have_the_papers_points_in_their_colour():
    figure = drawn.figures(reproduction())["Figure 2: speed"]
    assert drawn.names(figure) == ["ring", "the paper: ring", "the paper: tree"]
    assert drawn.points(figure, "ring") == [(1, 1.0), (6, 3.0)]
    assert drawn.points(figure, "the paper: ring") == [(6, 3.5)]
    series = {each["name"]: each for each in figure["data"]}
    assert series["the paper: ring"]["mode"] == "markers"
    assert series["the paper: ring"]["marker"]["color"] == series["ring"]["line"]["color"]
    assert series["the paper: tree"]["marker"]["color"] != series["ring"]["line"]["color"]


def test_bars_have_the_papers_points_over_them():
    figure = drawn.figures(reproduction())["Figure 1, in s"]
    assert drawn.rows(figure) == ["a", "b"]
    bars = {series["name"]: (series["y"], series["x"]) for series in figure["data"] if series["type"] == "bar"}
    assert bars == {"RTL": ([0], [2.5]), "derived from fitted": ([], [])}  # what was not measured has none
    assert drawn.points(figure, "the paper") == [(2.0, 0), (3.0, 1)]


def test_a_row_says_its_command_and_what_it_takes_of_it():
    text = drawn.own(reproduction())
    rows = [row for row in text.split("<tr>")[1:] if "a number of" in row]
    assert ["<td>1</td>" in row for row in rows] == [True, False, True]
    assert ["<td>2</td>" in row for row in rows] == [False, True, False]
    assert "“2”" in rows[1]
    assert "no such" in rows[2]
    assert "<td>fanin b</td>" in text
    assert "2 of 3 rows are filled" in text


def test_facts_of_models_and_what_has_no_row():
    text = drawn.own(reproduction())
    for cell in ("exchange", "fitted", "table 1: 3 s", "a rate", "Figure 4: watts."):
        assert cell in text
