"""The page of a run that has not come to its end."""

from fanin.report.failure import failure_page


def test_the_page_has_the_cause_and_every_value_of_the_run():
    run = {
        "error": "node 1 gives up: <no> answer",
        "steps": 1234,
        "resumed": None,
        "configuration": {"network": {"drop": 0.5}},
        "counters": [{"frames_sent": 7}],
        "traffic": [],
    }
    page = failure_page("Training over a ring", run)
    assert "<h1>Training over a ring</h1>" in page
    assert '<p class="verdict bad">node 1 gives up: &lt;no&gt; answer</p>' in page
    for name, value in (
        ("steps", "1,234"),
        ("resumed", "none"),
        ("network drop", "0.5"),
        ("0 frames sent", "7"),
    ):
        assert f"<tr><td>{name}</td><td>{value}</td></tr>" in page
    assert "traffic" not in page


def test_a_long_list_is_cut():
    assert failure_page("", {"error": "", "links": list(range(10_000))}).count("<tr>") == 200
