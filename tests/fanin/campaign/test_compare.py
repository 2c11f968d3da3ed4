"""``fanin campaign compare``: pairs by options and seeds, intervals, and words."""

import json

import pytest
from pyarrow import parquet

from fanin.campaign.figures import figures_of
from fanin.campaign.results import _table
from fanin.cli.main import main
from tests.fanin.cli.json_page import documented


@pytest.fixture
def write(tmp_path):
    """Writes a campaign's table of the figure ``y``: the values of each seed for each value of option ``x``."""

    def write(name, points, *, seeds=True, renamed=False, **more):
        rows = []
        for x, values in points.items():
            for seed, y in enumerate(values):
                rows.append({"run": f"{x} {seed}", "status": "done", "x": x, "y": y, **more})
                if seeds:
                    rows[-1]["seed"] = seed
        options = ["x", *(["seed"] if seeds else []), *more]
        if renamed:  # x is no option of theirs
            options[0] = "z"
            rows = [{("z" if name == "x" else name): value for name, value in row.items()} for row in rows]
        folder = tmp_path / name
        folder.mkdir()
        parquet.write_table(_table(rows, options, ["y"]), folder / "results.parquet")
        return str(folder)

    return write


def compare(capsys, *arguments):
    assert main(["campaign", "compare", *arguments, "--json"]) == 0
    return documented("campaign compare", capsys.readouterr().out)


def test_seeds_pair_and_the_interval_is_of_their_differences(write, capsys):
    a = write("a", {1: [1.0, 5.0, 9.0], 2: [1.0, 5.0, 9.0], 3: [1.0, 2.0, 3.0]})
    b = write("b", {1: [2.0, 6.1, 9.9], 2: [0.0, 7.0, 8.0], 3: [1.0, 2.0, 3.0], 4: [0.0]})
    found = compare(capsys, a, b)
    assert found["options"] == ["x"]
    verdicts = {
        each["point"]["x"]: (each["verdict"], each["paired"], each["count"]) for each in found["differences"]
    }
    assert verdicts == {1: ("higher", True, 3), 2: ("not shown", True, 3), 3: ("same", True, 3)}
    one = found["differences"][0]
    assert (one["before"], one["after"], one["difference"]) == pytest.approx((5, 6, 1))
    assert (one["low"], one["high"]) == pytest.approx((1 - 0.2484, 1 + 0.2484), abs=1e-4)


def test_without_seeds_the_samples_are_compared(write, capsys):
    a, b = write("a", {1: [1.0, 1.1, 0.9]}, seeds=False), write("b", {1: [0.1, 0.2, 0.3]}, seeds=False)
    (found,) = compare(capsys, a, b)["differences"]
    assert (found["verdict"], found["paired"], found["count"]) == ("lower", False, 3)


def test_what_is_constant_in_both_is_what_differs(write, capsys):
    a, b = write("a", {1: [1.0], 2: [1.0]}, p="old"), write("b", {1: [2.0], 2: [2.0]}, p="new")
    found = compare(capsys, a, b)
    assert found["options"] == ["x"]
    assert [(each["difference"], each["low"], each["verdict"]) for each in found["differences"]] == [
        (1.0, None, "not shown")
    ] * 2


def test_an_option_of_one_campaign_alone_is_not_averaged_over(write, capsys):
    a, b = write("a", {1: [1.0, 2.0], 2: [5.0, 6.0]}), write("b", {1: [1.0, 2.0]}, renamed=True)
    assert main(["campaign", "compare", a, b]) == 2
    line = f"fanin: error: {b}: its runs have no x, which varies in {a}: they do not pair\n"
    assert capsys.readouterr().err == line
    assert main(["campaign", "compare", b, a]) == 2
    assert capsys.readouterr().err == line


def test_the_help_says_95_percent(capsys):
    with pytest.raises(SystemExit):
        main(["campaign", "compare", "--help"])
    assert "its 95 % confidence" in " ".join(capsys.readouterr().out.split())


def test_the_table_for_people(write, capsys):
    a, b = write("a", {1: [1.0, 2.0], 2: [3.0, 4.0]}), write("b", {1: [1.0, 2.0], 2: [4.0, 5.0]})
    assert main(["campaign", "compare", a, b, "--figure", "y"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["1", "y", "1.5", "1.5", "+0", "+0", "to", "+0", "2", "same"]
    assert lines[2] == ["2", "y", "3.5", "4.5", "+1", "+1", "to", "+1", "2", "higher"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--figure", "z"], "--figure z: "),
        (["none"], "holds no results.parquet of fanin campaign"),
        (["other"], "have no runs in common"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_what_cannot_be_compared_takes_one_line(write, capsys, options, words, tmp_path):
    a = write("a", {1: [1.0], 2: [1.0]})
    other = write("b", {3: [1.0], 4: [1.0]}) if options == ["other"] else a
    if options == ["none"]:
        other = str(tmp_path)
    rest = options if options[0].startswith("--") else []
    assert main(["campaign", "compare", a, other, *rest]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


RESULT = json.loads("""{"a": 1, "ok": true, "text": "t", "none": null,
    "options": {"lr": 1}, "in": {"b": 2.5, "list": [1, {"c": 3}]},
    "named": [{"name": "x", "value": 4}, {"name": "y", "value": 5}]}""")


def test_figures_are_numbers_outside_lists_by_their_path():
    assert figures_of(RESULT, ()) == {"a": 1, "ok": True, "in.b": 2.5, "named.x.value": 4, "named.y.value": 5}


def test_figures_that_are_chosen_may_be_anything():
    chosen = ("text", "in.list.0", "in.list.1.c", "named.y.value", "options.lr", "absent")
    found = {"text": "t", "in.list.0": 1, "in.list.1.c": 3, "named.y.value": 5, "options.lr": 1}
    assert figures_of(RESULT, chosen) == found
    assert figures_of(None, ()) == {}


def test_a_table_of_more_values_than_are_read_takes_one_line(write, capsys, monkeypatch):
    before, after = write("before", {1: [1.0]}), write("after", {1: [2.0]})
    monkeypatch.setattr("fanin.campaign.table.MAX_CELLS", 3)
    assert main(["campaign", "compare", before, after]) == 2
    assert "values; at most 3 are read" in capsys.readouterr().err
