"""Every kind of page in headless Chromium: it draws what is in its JSON, and fetches and reports nothing."""

import csv
import json
import re

import pytest
from playwright.sync_api import sync_playwright

from fanin.api.shown import page_frame
from fanin.cnn.plan.page.page import plan_page
from fanin.report import html
from fanin.report.chart import Axis, Bar, Chart
from fanin.report.failure import failure_page
from fanin.report.palette import STYLES
from tests.fanin.campaign import test_page as campaign
from tests.fanin.cnn import test_page as cnn
from tests.fanin.evaluation.reproduce import test_page as reproduction
from tests.fanin.glm import test_page as glm
from tests.fanin.param_server import test_page as param_server
from tests.fanin.report.drawn import figures
from tests.fanin.report.plans import make_plan, make_sweep
from tests.fanin.ring import test_page as ring
from tests.needs import chromium

pytestmark = pytest.mark.needs("chromium")
PAGES = {
    "train": glm.page,
    "cluster": lambda: cnn.whole_page(cnn.run()),
    "ring": lambda: ring.whole_page(ring.run_file(), ring.host_times()),
    "ps": lambda: param_server.whole_page(
        param_server.run_file(list(map(param_server.epoch_of, (1, 2, 3)))), [param_server.outcome_of()]
    ),
    "plan": lambda: plan_page(*make_plan(6, 100)),
    "sweep": lambda: plan_page(*make_plan(6, 100), make_sweep()),
    "campaign": lambda: campaign.page(campaign.sheet(*campaign.grid(x=[1, 2, 3], p=["a", "b"]))),
    "reproduction": reproduction.reproduction,
    "campaign of words": lambda: campaign.page(campaign.sheet(*campaign.CODECS)),
    "failure": lambda: failure_page("A run", {"error": "it stopped", "steps": 3}, ["node 0"], "run it again"),
}
MOST_BYTES = 2_000_000
WAIT_MS = 20_000
#: What Plotly holds, and has drawn: bars, and points of lines.
DRAWN = """figures => JSON.stringify(figures.map(figure => ({
  name: figure.getAttribute("aria-label"),
  data: figure.querySelector("div").data.map(({ name, x, y, base }) => ({ name, x, y, base })),
  drawn: figure.querySelectorAll(".bars .point path, .scatterlayer path.point").length,
})))"""
RANGE_FROM = "document.querySelector('figure.chart div').layout.xaxis.range[0]"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"], timeout=WAIT_MS
        )
        yield launched
        launched.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page from a file; at the end it must have fetched nothing else, and the console must be empty."""
    said, asked, contexts = [], [], []

    def open_page(text, **settings):
        path = tmp_path / "report.html"
        path.write_text(text)
        contexts.append(browser.new_context(accept_downloads=True, **settings))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(WAIT_MS)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    # Pictures are drawn on a canvas from an address inside the page.
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [
        (tmp_path / "report.html").as_uri()
    ] * len(contexts)


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_draws_what_is_in_its_json(kind, opened):
    page = PAGES[kind]()
    assert len(page.encode()) < MOST_BYTES
    tab = opened(page)
    shown = json.loads(tab.eval_on_selector_all("figure.chart", DRAWN))
    expected = figures(page)
    assert [one["name"] for one in shown] == list(expected)
    for one, figure in zip(shown, expected.values(), strict=True):
        kept = ("name", "x", "y", "base")
        data = json.loads(re.sub(r"&#(\d+);", lambda mark: chr(int(mark[1])), json.dumps(one["data"])))
        assert data == [{key: series[key] for key in kept if key in series} for series in figure["data"]]
        marked = [series for series in figure["data"] if series.get("mode") != "lines"]  # an area has no points
        values = [at for series in marked for at in zip(series["x"], series["y"], strict=True)]
        assert one["drawn"] == sum(None not in at for at in values)


def test_a_name_in_a_chart_is_text_and_no_link(opened, tmp_path):
    """Names of layers, columns and devices are whatever a file says."""
    name = "<a href='https://example.net/'>conv</a> & <b>x</b><br>&lt;"
    chart = Chart("layers", Axis(name), rows=[name], row=200)
    chart.bars(name, [Bar(0, 10, name, text=name)], STYLES["run"])
    chart.mark(5, name)
    files = "plotly/plotly-basic.min.js", "charts.js"
    scripts = "".join(f"<script>{html._file(file)}</script>" for file in files)
    tab = opened(f"<meta charset='utf-8'><style>{html._file('report.css')}</style>{chart.__html__()}{scripts}")
    box = tab.locator("figure.chart .bars path").bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    tab.wait_for_selector(".hoverlayer text")
    texts = tab.eval_on_selector_all("figure.chart text", "texts => texts.map(text => text.textContent)")
    assert texts.count(name) >= 4, texts  # axis, row, mark, and the text under the pointer
    assert tab.locator("figure.chart svg a").count() == 0
    saved = _saved(tab, "layers", "Save the data as CSV", tmp_path).read_text()
    assert list(csv.reader(saved.splitlines()))[1][0] == name


#: Texts of charts that lie under a toolbar.
COVERED = """figures => figures.flatMap(figure => {
  const box = (element) => element.getBoundingClientRect();
  const over = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const bars = [...figure.querySelectorAll(".modebar-group")].map(box);
  return [...figure.querySelectorAll("text")]
    .filter(text => text.textContent && bars.some(bar => bar.width && over(bar, box(text))))
    .map(text => text.textContent);
})"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 600])
@pytest.mark.parametrize("kind", PAGES)
def test_no_toolbar_covers_a_text(kind, width, opened):
    page = PAGES[kind]()
    tab = opened(page, viewport={"width": width, "height": 900})
    assert tab.eval_on_selector_all("figure.chart .modebar-group", "bars => bars.length") == 2 * len(
        figures(page)
    )
    assert tab.eval_on_selector_all("figure.chart", COVERED) == []


def _colours(tab):
    fills = "paths => paths.map(path => getComputedStyle(path).fill)"
    return set(tab.eval_on_selector_all("figure.chart .bars path", fills))


def test_a_page_changes_its_colours_with_the_scheme(opened):
    tab = opened(PAGES["train"](), color_scheme="light")
    light = _colours(tab)
    assert "rgb(15, 95, 168)" in light
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function("() => document.querySelector('.bars path').style.fill === 'rgb(47, 134, 214)'")
    assert _colours(tab) & light == set()
    tab.emulate_media(color_scheme="dark", media="print")
    tab.wait_for_function("() => document.querySelector('.bars path').style.fill === 'rgb(15, 95, 168)'")
    assert _colours(tab) == light


def _range(tab):
    return tab.eval_on_selector("figure.chart div", "plot => plot.layout.xaxis.range")


def test_a_drag_zooms_and_a_double_click_goes_back(opened):
    tab = opened(PAGES["train"]())
    before = _range(tab)
    box = tab.locator("figure.chart .nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + box["width"] / 4, y, steps=4)
    tab.mouse.up()
    tab.wait_for_function(f"() => {RANGE_FROM} > {before[0]}")
    zoomed = _range(tab)
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    tab.mouse.dblclick(x, y)
    tab.wait_for_function(f"() => {RANGE_FROM} < {zoomed[0]}")
    assert _range(tab) == pytest.approx(before)


def _saved(tab, name, what, tmp_path):
    figure = tab.locator(f'figure.chart[aria-label="{name}"]')
    figure.hover()
    with tab.expect_download() as download:
        figure.locator(f'button[data-title="{what}"]').click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_a_chart_is_saved_as_a_picture(opened, tmp_path):
    tab = opened(PAGES["train"]())
    assert _saved(tab, "loss over epoch", "Save as SVG", tmp_path).read_text().startswith("<svg")
    assert _saved(tab, "loss over epoch", "Save as PNG", tmp_path).read_bytes().startswith(b"\x89PNG")


def test_the_data_of_a_chart_are_saved_as_csv(opened, tmp_path):
    page = PAGES["train"]()
    tab = opened(page)

    def saved(name):
        path = _saved(tab, name, "Save the data as CSV", tmp_path)
        assert path.name == f"{name}.csv"
        return list(csv.reader(path.read_text().splitlines()))

    head, *lines = saved("loss over epoch")
    assert head == ["series", "epoch", "loss", "begins at", "note"]
    drawn = figures(page)["loss over epoch"]
    assert [(series, int(x), float(y)) for series, x, y, *_ in lines] == [
        (series["name"], *at) for series in drawn["data"] for at in zip(series["x"], series["y"], strict=True)
    ]
    assert saved("Timeline of micro-batches")[2] == [
        "C communication",
        "86",
        "node 0: C",
        "4",
        "communication of micro-batch 1 of mini-batch 1: cycles 4 to 90 (86)",
    ]


def test_a_page_in_a_notebooks_frame_draws_its_charts(opened):
    tab = opened(page_frame(PAGES["ps"]()))
    charts = tab.frame_locator("iframe").locator("figure.chart .main-svg")
    charts.first.wait_for()
    assert tab.frame_locator("iframe").locator("figure.chart .plotly").count() == 9


def test_a_page_in_a_notebooks_frame_cannot_reach_the_notebook(opened):
    tab = opened(page_frame(PAGES["train"]()))
    frame = tab.frame_locator("iframe")
    frame.locator("figure.chart .main-svg").first.wait_for()
    reach = "() => { try { return Boolean(parent.document) } catch { return false } }"
    assert frame.locator("html").evaluate(reach) is False
    with tab.expect_download() as download:
        charts = frame.locator("figure.chart").first
        charts.locator('button[data-title="Save the data as CSV"]').click()
    assert download.value.suggested_filename.endswith(".csv")


def test_without_javascript_a_page_has_its_tables(opened):
    tab = opened(PAGES["train"](), java_script_enabled=False)
    assert tab.locator("td", has_text="hinge").is_visible()
    assert tab.locator("noscript").first.is_visible()
