"""The page of a campaign: which option is which axis, and the statistics, beside SciPy's own."""

import random

import pytest
from scipy import stats

from fanin.campaign.page.charts import roles_of, table_of
from fanin.campaign.page.page import campaign_page
from fanin.campaign.page.sheet import Sheet
from fanin.campaign.page.statistics import mean_of, welch
from tests.fanin.report.drawn import figures
from tests.support import new_seed

CODECS = (
    {"codec": "none"},
    *({"codec": "inceptionn", "bound": bound} for bound in ("2^-10", "2^-6")),
    *({"codec": "bfp", "mantissa": mantissa} for mantissa in (7, 3)),
)


def sheet(*points, seeds=3):
    """A sheet of these points, seed by seed; ``y`` is the point's number and a tenth of the seed."""
    rows = [
        {**point, "seed": seed, "y": number + seed / 10}
        for seed in range(seeds)
        for number, point in enumerate(points)
    ]
    options = list(dict.fromkeys(name for point in points for name in point))
    return Sheet(rows, [*options, "seed"], ["y"])


def page(found, **more):
    options = {"counts": {"done": len(found.rows)}, "failures": [], "figure_names": ["y"], "log": []} | more
    return campaign_page("A campaign", found, **options)


def grid(**values):
    found = [{}]
    for name, each in values.items():
        found = [point | {name: value} for point in found for value in each]
    return found


@pytest.mark.parametrize(
    ("values", "roles"),
    [
        ({"workers": [2, 4, 8]}, ("workers", None, (), True)),
        ({"workers": [2, 4, 8], "drop": [0.0, 0.1]}, ("workers", "drop", (), True)),
        ({"workers": [2, 4], "protocol": ["a", "b", "c"]}, ("protocol", "workers", (), False)),
        ({"w": [2, 4, 8], "drop": [0, 1, 2, 3], "p": ["a", "b"]}, ("drop", "p", ("w",), True)),
        ({"model": ["a", "b"], "codec": list("uvwxyz")}, ("codec", "model", (), False)),
        ({"n": [1, 2, 3], "word": list("abcdefgh")}, ("n", None, ("word",), True)),
        ({"workers": [2]}, None),
    ],
    ids=str,
)
def test_what_varies_chooses_the_axes(values, roles):
    found = roles_of(sheet(*grid(**values)))
    assert (found and (found.x, found.series, found.facets, found.numeric)) == roles


def test_options_that_depend_on_another_make_one_with_it():
    points = [point | {"model": model} for point in CODECS for model in ("small", "large")]
    joined = sheet(*points).join_options()
    name = "codec, bound, mantissa"
    assert joined.varying == ["model", name]
    assert joined.values(name) == ["none", "inceptionn 2^-10", "inceptionn 2^-6", "bfp 7", "bfp 3"]


def test_figures_that_are_not_drawn_are_named():
    found = sheet({"n": 1}, {"n": 2})
    rows = [row | {f"z{k}": row["y"] + k for k in range(14)} for row in found.rows]
    html = page(Sheet(rows, ["n", "seed"], [f"z{k}" for k in range(14)]), figure_names=[])
    assert "Not drawn: z12, z13." in html
    assert "Not drawn" not in page(found)


def test_an_option_that_nothing_decides_stays_alone():
    found = sheet({"a": 1, "b": 1}, {"a": 1}, {"a": 2, "b": 1}, {"a": 2})
    assert found.join_options() is found


def test_lines_have_a_band_of_their_confidence_interval():
    (figure,) = figures(page(sheet(*grid(workers=[2, 4, 8], protocol=["a", "b"])))).values()
    by_name = {series["name"]: series for series in figure["data"]}
    line, band = by_name["protocol b"], by_name["protocol b, 95 %"]
    assert (line["x"], line["y"]) == ([2, 4, 8], pytest.approx([1.1, 3.1, 5.1]))
    reach = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert band["y"] == pytest.approx(
        [1.1 + reach, 3.1 + reach, 5.1 + reach, 5.1 - reach, 3.1 - reach, 1.1 - reach]
    )


def test_bars_have_whiskers():
    (figure,) = figures(page(sheet(*CODECS))).values()
    (series,) = figure["data"]
    assert figure["layout"]["xaxis"]["ticktext"][1] == "inceptionn 2^-10"
    assert series["y"] == pytest.approx([0.1, 1.1, 2.1, 3.1, 4.1])
    assert series["error_y"]["array"] == pytest.approx([stats.t.ppf(0.975, 2) * 0.1 / 3**0.5] * 5)


def test_facets_are_charts_and_too_many_are_counted():
    html = page(sheet(*grid(x=[1, 2, 3, 4], p=["a", "b"], other=list("abcdefghijklmn"), w=[1, 2]), seeds=1))
    assert len(figures(html)) == 12
    assert "16 more combinations of options are not drawn" in html


def test_one_run_a_point_has_no_interval_and_a_point_that_failed_no_value():
    found = sheet(*grid(x=[1, 2, 3]), seeds=1)
    found.rows[1]["y"] = None
    (figure,) = figures(page(found)).values()
    assert [series["x"] for series in figure["data"]][-1] == [1, 3]
    assert [row[-1] for row in table_of(found, roles_of(found), ["y"])] == ["y", "0", "2"]


def test_without_anything_that_varies_there_is_a_table_alone():
    html = page(sheet({"x": 1}))
    assert figures(html) == {}
    assert "0.1 ± 0.25" in html


def test_failures_are_named_and_not_taken_for_markup():
    assert "&lt;b&gt;" in page(sheet({"x": 1}), failures=[("run", "<b>")])


def test_intervals_are_those_of_scipy():
    source = random.Random(new_seed())
    for _ in range(20):
        one, other = ([source.gauss(3, 2) for _ in range(source.randrange(2, 9))] for _ in range(2))
        mean = mean_of(one)
        low, high = stats.ttest_1samp(one, 0).confidence_interval(0.95)
        assert (mean.low, mean.high) == pytest.approx((low, high))
        low, high = stats.ttest_ind(other, one, equal_var=False).confidence_interval(0.95)
        found = welch(one, other)
        assert (found.low, found.high) == pytest.approx((low, high))


def test_samples_without_any_spread():
    assert (mean_of([2.0, 2.0]).ends, welch([1.0, 1.0], [3.0, 3.0]).ends) == ((2.0, 2.0), (2.0, 2.0))
    assert mean_of([2.0]).low is None
    assert welch([1.0], [3.0, 4.0]).low is None


def test_an_infinite_value_is_a_word_of_an_axis():
    (figure,) = figures(page(sheet(*grid(gbps=[1.0, 10.0, float("inf")])))).values()
    (bars,) = (series for series in figure["data"] if series["type"] == "bar")
    assert bars["y"] == pytest.approx([0.1, 1.1, 2.1])
    assert "inf" in page(sheet(*grid(gbps=[1.0, float("inf")])))
