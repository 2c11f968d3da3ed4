"""The page of ``fanin watch`` in headless Chromium: it shows a run, has no error, and becomes the report."""

import json
import re
import subprocess

import pytest

from fanin.base.scratch import LIVE_FILE
from fanin.runs import live
from fanin.runs.live import LiveFile
from tests.fanin.cli.watch.served import serving
from tests.needs import chromium

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--virtual-time-budget=2500",
    "--enable-logging=stderr",
)
SECONDS = 60

pytestmark = pytest.mark.needs("chromium")


def _opened(url):
    """The document after the first answers; nothing is said on the console."""
    done = subprocess.run(
        [chromium(), *OPTIONS, "--dump-dom", url], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


def test_a_run_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "MIN_SECONDS_BETWEEN_WRITES", 0.0)
    with serving(tmp_path) as url, LiveFile(tmp_path, "train", title="<b>iris</b>", unit="steps") as run:
        run.stage("training <i>now</i>")
        run.expect(100)
        for step in range(1, 26):
            run.losses("class a", step, 1 / step)
            run.losses("class b", step, 2 / step)
            run.advance(step, epoch=f"{step}/100")
        page = _opened(url)
    assert "fanin train: &lt;b&gt;iris&lt;/b&gt;" in page
    assert "<title>25 %, fanin train" in page
    assert "<dd>25 / 100</dd>" in page
    assert "training &lt;i&gt;now&lt;/i&gt;" in page
    assert len(re.findall("<polyline", page)) == 3  # two losses and the rate
    assert "steps a second" in page
    assert "not known yet" in page  # the time left


def test_a_page_that_waits_says_so(tmp_path):
    with serving(tmp_path / "none") as url:
        assert "none has no run yet." in _opened(url)


def test_a_run_that_has_ended_shows_its_report(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "report.html").write_text("<title>of a run</title><p>it went well</p>")
    with serving(tmp_path) as url:
        assert "it went well" in _opened(url)


def test_a_run_without_a_report_says_why(tmp_path):
    (tmp_path / "run.json").write_text('{"error": "node 0: <TIMEOUT>"}')
    with serving(tmp_path) as url:
        assert "node 0: &lt;TIMEOUT&gt;" in _opened(url)


@pytest.mark.parametrize(
    ("damage", "shown"),
    [
        ({}, "live file is damaged"),
        ({"total": "many"}, "live file is damaged"),
        ({"losses": {"<b>": [[n, n] for n in range(150_000)]}}, "&lt;b&gt;"),  # more than a call's arguments
    ],
    ids=["empty", "text", "long"],
)
def test_a_damaged_live_file_does_not_stop_the_page(tmp_path, damage, shown):
    whole = dict.fromkeys(("title", "stage", "unit", "command"), "x") | {"now": {}, "losses": {}, "counts": []}
    whole |= dict.fromkeys(("total", "done", "began", "written", "seconds_left"), 1)
    content = {"format": live.FORMAT} | (whole | damage if damage else {})
    (tmp_path / LIVE_FILE).write_text(json.dumps(content))
    with serving(tmp_path) as url:
        assert shown in _opened(url)
