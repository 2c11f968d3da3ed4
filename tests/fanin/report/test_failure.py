"""The page of a run that has not come to its end."""

from fanin.report.failure import failure_page

RUN = {
    "error": "node 1 gives up: <no> answer",
    "steps": 1234,
    "resumed": None,
    "configuration": {"network": {"drop": 0.5, "ports": ()}, "compact": False},
    "counters": [{"frames_sent": 7, "lost": {"up": 1}}, {"frames_sent": 8}],
    "traffic": [],
    "jobs": {1: {"stale": 9}},  # not yet JSON, whose names are texts
}


def test_the_page_says_what_failed_where_and_what_to_do():
    page = failure_page(
        "Training over a ring", RUN, ["node 1", "  RESULT never"], "fanin rerun x runs it again"
    )
    assert "<h1>Training over a ring</h1>" in page
    assert '<p class="verdict bad">failed</p>' in page
    assert "<p>node 1 gives up: &lt;no&gt; answer</p>" in page
    assert "node 1\n  RESULT never</pre>" in page
    assert "<p>fanin rerun x runs it again</p>" in page


def test_without_them_there_is_no_section():
    page = failure_page("", RUN)
    assert "<h2>Where</h2>" not in page
    assert "<h2>What to do</h2>" not in page


def test_the_page_has_every_value_of_the_run():
    page = failure_page("Training over a ring", RUN)
    for name, value in (("steps", "1,234"), ("resumed", "none"), ("drop", "0.5"), ("compact", "no")):
        assert f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' in page
    assert '<tr><th scope="row">frames sent</th><td>7</td><td>8</td></tr>' in page
    assert '<tr><th scope="row">lost up</th><td>1</td><td></td></tr>' in page
    for name in ("run", "configuration", "network", "jobs 1"):
        assert f"<caption>{name}</caption>" in page
    assert "traffic" not in page
    assert "ports" not in page


def test_long_lists_are_cut():
    assert failure_page("", {"error": "", "links": list(range(10_000))}).count("<tr>") == 200
    page = failure_page("", {"error": "", "links": [{"up": 3}] * 1000})
    assert page.count("<td>3</td>") == 8
    assert "links: the first 8 of 1,000" in page
