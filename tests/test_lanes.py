"""Lanes and shards: each test in one shard, cheap tests in the quick lane, the same choice on the same tree."""

import subprocess

import pytest

from tests import lanes, shards
from tests.lanes import Case, quick, shard


@pytest.fixture
def tree(monkeypatch):
    """Set the tree's digest."""

    def choose(digest):
        lanes.tree_digest.cache_clear()
        monkeypatch.setenv(lanes.TREE, digest)

    yield choose
    lanes.tree_digest.cache_clear()


CASES = [Case(f"tests/a.py::test_{name}[{n}]", 0.2) for name in "xy" for n in range(10)]


def test_the_quick_lane_holds_what_fits_of_each_function(tree, monkeypatch):
    monkeypatch.setattr(lanes, "ALLOWANCE", 0.5)
    tree("one")
    chosen = quick(CASES)
    assert (
        sorted(case.partition("[")[0] for case in chosen)
        == ["tests/a.py::test_x"] * 2 + ["tests/a.py::test_y"] * 2
    )


def test_another_tree_draws_other_cases_and_the_same_tree_the_same(tree):
    tree("one")
    first = quick(CASES)
    tree("two")
    assert quick(CASES) != first
    tree("one")
    assert quick(CASES) == first


def test_slow_and_long_tests_are_left_out_unless_they_are_a_systems_run():
    cases = [
        Case("a::slow", 0.1, slow=True),
        Case("a::long", lanes.LIMIT + 0.1),
        Case("a::alone", lanes.LIMIT - 0.1),
        Case("a::system", 60.0, end_to_end=True),
    ]
    assert quick(cases) == {"a::alone", "a::system"}


def test_a_shared_fixture_counts_unless_an_end_to_end_run_needs_it_too():
    build = {"a::fixture built": 30.0}
    user = Case("a::user", 0.1, shared=build)
    assert quick([user]) == set()
    run = Case("a::run", 9.0, end_to_end=True, shared=build)
    assert quick([user, run]) == {"a::user", "a::run"}


def test_every_test_is_in_one_shard_and_shards_take_the_same_time():
    cases = [Case(f"a::{n}", (n % 13) ** 2 / 10) for n in range(300)]
    parts = [shard(cases, number, 7) for number in range(1, 8)]
    assert sorted(test for part in parts for test in part) == sorted(case.test for case in cases)
    times = [sum(case.seconds for case in cases if case.test in part) for part in parts]
    assert max(times) - min(times) < 0.2


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "-1/3", "1/0"])
def test_a_wrong_shard_is_refused(text):
    with pytest.raises(pytest.UsageError, match="must be K/N"):
        lanes.parse_shard(text)


def test_durations_are_kept_by_file_and_test(tmp_path):
    path = tmp_path / "durations.json"
    assert lanes.load_durations(path) == {}
    lanes.save_durations({"tests/b.py::TestX::test_y[a::b]": 1.234, "tests/a.py::test": 0.09}, path)
    assert lanes.load_durations(path) == {"tests/b.py::TestX::test_y[a::b]": 1.2}


def test_a_fixture_keeps_the_time_of_its_build():
    known = {"a::fixture cosim": 38.0, "a::test": 2.0, "b::test": 1.0}
    measured = {"a::fixture cosim": 0.1, "a::fixture other": 0.2, "a::test": 0.5}
    want = {"a::fixture cosim": 38.0, "a::fixture other": 0.2, "a::test": 0.5, "b::test": 1.0}
    assert lanes.update_durations(known, measured) == want
    assert lanes.update_durations(known, {"a::fixture cosim": 40.0})["a::fixture cosim"] == 40.0


def test_shards_run_the_oldest_first_or_as_the_tree_says(tree):
    record = {str(number): {"date": f"2026-01-{number:02}"} for number in range(1, shards.COUNT)}
    assert shards.order(record, by_tree=False) == [shards.COUNT, *range(1, shards.COUNT)]
    orders = []
    for digest in ("one", "two", "one"):
        tree(digest)
        orders.append(shards.order(record, by_tree=True))
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[1]) == list(range(1, shards.COUNT + 1))


def test_as_many_shards_run_as_fit(monkeypatch):
    monkeypatch.setattr(shards, "load_durations", lambda: {"a": 240.0 * shards.COUNT})
    seconds = 240 / 2 * shards.MARGIN + shards.OVERHEAD
    assert [shards.fitting(minutes, jobs=2) for minutes in (0, seconds / 60 * 3.01, 1e6)] == [
        1,
        3,
        shards.COUNT,
    ]


@pytest.mark.parametrize(
    ("script", "seconds", "outcome"),
    [
        ("echo '== 3 passed in 1s =='", 60, (True, False)),
        ("echo '== 1 failed, 2 passed in 1s =='; exit 1", 60, (False, True)),
        ("trap 'echo 2 passed in 9s; exit 2' INT; sleep 60 >/dev/null & wait", 1, (False, False)),
        ("trap 'echo 1 failed, 2 passed in 9s; exit 2' INT; sleep 60 >/dev/null & wait", 1, (False, True)),
    ],
    ids=["passes", "fails", "is late", "fails and is late"],
)
def test_a_shard_passes_fails_or_is_stopped(script, seconds, outcome):
    result = shards.run(["sh", "-c", script], seconds)
    assert (result.passed, result.failed) == outcome
    assert result.summary.endswith("s")


def test_the_digest_follows_sources_and_not_words(tree, monkeypatch, tmp_path):
    monkeypatch.delenv(lanes.TREE, raising=False)
    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    digests = []
    for name, text in (("a.py", "1"), ("README.md", "words"), ("a.py", "2"), ("a.py", "1")):
        (tmp_path / name).write_text(text)
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
        lanes.tree_digest.cache_clear()
        monkeypatch.delenv(lanes.TREE, raising=False)
        digests.append(lanes.tree_digest())
    assert digests[0] == digests[1] == digests[3] != digests[2]


def test_the_page_has_the_lanes_numbers():
    page = (lanes.ROOT / "docs/reference/tests.md").read_text()
    assert (
        f"at most {lanes.LIMIT:g} s, and of each function the cases that fit into {lanes.ALLOWANCE:g} s" in page
    )
    assert f"counts as {lanes.UNRECORDED:g} s, a slow one as {lanes.SLOW_UNRECORDED:g} s" in page
