"""Lanes of the tests, as a plugin of pytest: which tests a run holds, by the time that each took.

``--lane quick`` is ``make test``: tests that are not slow, and of each function the cases that fit into its
allowance. ``--shard K/N`` is ``make test-all``: part K of N parts of equal time. ``--record`` writes processor
times to ``tests/durations.json``, by which both choose. The cases of the quick lane derive from the tree's
content (:func:`tree_digest`), so two runs on one tree are the same. docs/reference/tests.md.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import needs

ROOT = Path(__file__).parent.parent
DURATIONS = ROOT / "tests" / "durations.json"
TREE = "FANIN_TREE"  # environment variable: the tree's digest, computed once for all processes of a run
LEAST = 0.1  # seconds of processor time that are recorded; a faster test counts as UNRECORDED
UNRECORDED, SLOW_UNRECORDED = 0.02, 20.0  # seconds of a test that has no record
PROPERTY = "processor_seconds"  # of a test's last report: seconds by name in the record
LONG = 5.0  # seconds of a test of the quick lane that the summary names
LIMIT = 0.7  # seconds of a test in the quick lane, unless it is marked end_to_end
ALLOWANCE = 0.05  # seconds of a function's cases in the quick lane; its first case always fits
#: Files whose content decides neither cases nor seeds: words, and what tests write about themselves.
IGNORED = ("docs/", "tests/durations.json", "tests/shards.json")


@cache
def tree_digest() -> str:
    """Digest of all tracked files but words, as the working tree holds them; empty outside a clone."""
    if known := os.environ.get(TREE):
        return known
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    hasher = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
        path = ROOT / name
        if not name.startswith(IGNORED) and not name.endswith(".md") and path.is_file():
            hasher.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    os.environ[TREE] = digest = hasher.hexdigest() if listed.stdout else ""
    return digest


def draw(*parts: object) -> bytes:
    """A random-looking key that the tree and ``parts`` decide, to order by."""
    return hashlib.sha256("\0".join((tree_digest(), *map(str, parts))).encode()).digest()


def load_durations(path: Path = DURATIONS) -> dict[str, float]:
    """Seconds of processor time by test id; empty without the file."""
    try:
        files = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return {f"{file}::{test}": seconds for file, tests in files.items() for test, seconds in tests.items()}


def save_durations(durations: dict[str, float], path: Path = DURATIONS) -> None:
    """Write the durations of at least ``LEAST`` seconds, two digits each, by file and test."""
    files: dict[str, dict[str, float]] = defaultdict(dict)
    for test, seconds in sorted(durations.items()):
        if seconds >= LEAST:
            file, _, name = test.partition("::")
            files[file][name] = float(f"{seconds:.2g}")
    path.write_text(json.dumps(files, indent=0, ensure_ascii=False) + "\n")


def update_durations(known: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Durations after a measurement. A shared fixture keeps its longest: a cached simulator hides its build."""
    fixtures = {name: known[name] for name in measured if "::fixture " in name and name in known}
    return {
        **known,
        **{name: max(seconds, fixtures.get(name, 0.0)) for name, seconds in measured.items()},
    }


@dataclass(frozen=True)
class Case:
    """A test as the lanes see it.

    ``test``: its id.
    ``seconds``: processor time, without fixtures that it shares with others.
    ``slow``, ``end_to_end``: whether it has the marker.
    ``shared``: seconds of each shared fixture that it uses, by the fixture's name in the record.
    """

    test: str
    seconds: float
    slow: bool = False
    end_to_end: bool = False
    shared: Mapping[str, float] = field(default_factory=dict)

    @property
    def function(self) -> str:
        """The id without parameters."""
        return self.test.partition("[")[0]


def quick(cases: Sequence[Case]) -> set[str]:
    """Ids of the quick lane's cases: of each function those drawn until its allowance is spent.

    A case over the limit, its shared fixtures included, is left out. Fixtures of an end-to-end run
    count for that run only.
    """
    functions: dict[str, list[Case]] = defaultdict(list)
    chosen = {case.test for case in cases if case.end_to_end}
    paid = {fixture for case in cases if case.end_to_end for fixture in case.shared}
    for case in cases:
        extra = sum(seconds for fixture, seconds in case.shared.items() if fixture not in paid)
        if not case.slow and not case.end_to_end and case.seconds + extra <= LIMIT:
            functions[case.function].append(case)
    for of_function in functions.values():
        left = ALLOWANCE
        for case in sorted(of_function, key=lambda case: draw(case.test)):
            if left == ALLOWANCE or case.seconds <= left:
                chosen.add(case.test)
                left -= case.seconds
    return chosen


def shard(cases: Sequence[Case], number: int, count: int) -> set[str]:
    """Ids of part ``number`` (from 1) of ``count``: the longest test first, to the part with least time."""
    parts = [(0.0, part) for part in range(1, count + 1)]
    chosen = set()
    for case in sorted(cases, key=lambda case: (-case.seconds, case.test)):
        seconds, part = heapq.heappop(parts)
        heapq.heappush(parts, (seconds + case.seconds, part))
        if part == number:
            chosen.add(case.test)
    return chosen


def parse_shard(text: str) -> tuple[int, int]:
    """``"2/8"`` as (2, 8). Raises UsageError of pytest for anything else."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--shard {text}: must be K/N with 1 <= K <= N, like 2/8")
    return int(number), int(count)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the lanes."""
    group = parser.getgroup("fanin")
    group.addoption("--lane", choices=("quick", "all"), default="all", help="quick: the tests of `make test`")
    group.addoption("--shard", metavar="K/N", help="part K of N parts of equal time")
    group.addoption("--record", action="store_true", help="write processor times to tests/durations.json")


def pytest_configure(config: pytest.Config) -> None:
    """Compute the digest once, before workers start; check the options."""
    tree_digest()
    if config.option.shard:
        parse_shard(config.option.shard)
    config.pluginmanager.register(Times(config), "fanin-times")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the lane and of the shard that the options name."""
    if config.option.lane == "all" and not config.option.shard:
        return
    known = load_durations()
    cases = [_case(item, known) for item in items]
    kept = {case.test for case in cases}
    if config.option.lane == "quick":
        kept &= quick(cases)
    if config.option.shard:
        kept &= shard([case for case in cases if case.test in kept], *parse_shard(config.option.shard))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def _fixture(test: str, name: str) -> str:
    """Name of a shared fixture in the record, as the file of ``test`` uses it."""
    return f"{test.partition('::')[0]}::fixture {name}"


def _case(item: pytest.Item, known: Mapping[str, float]) -> Case:
    slow, end_to_end = (item.get_closest_marker(name) is not None for name in ("slow", "end_to_end"))
    fixtures = [_fixture(item.nodeid, name) for name in getattr(item, "fixturenames", ())]
    shared = {fixture: known[fixture] for fixture in fixtures if fixture in known}
    seconds = known.get(item.nodeid, SLOW_UNRECORDED if slow else UNRECORDED)
    return Case(item.nodeid, seconds, slow, end_to_end, shared)


def _spent() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Times:
    """Measures processor time in the process that runs a test; sums and records it in the process that reports.

    The time of a fixture that several tests share is recorded on its own.
    """

    def __init__(self, config: pytest.Config):
        self.config = config
        self.seconds: dict[str, float] = {}
        self._start = 0.0
        self._shared: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Start of a test."""
        self._start, self._shared = _spent(), {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Measure fixtures of a scope beyond the test."""
        before = _spent()
        result = yield
        if fixturedef.scope != "function":
            name = _fixture(request.node.nodeid or fixturedef.baseid, fixturedef.argname)
            self._shared[name] = _spent() - before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Iterator[None]:
        """Add the time to the test's last report, which xdist carries to the main process."""
        report: Any = yield
        if call.when == "teardown":
            own = _spent() - self._start - sum(self._shared.values())
            report.user_properties.append((PROPERTY, {report.nodeid: own, **self._shared}))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the times of a test that has ended."""
        for name, value in report.user_properties:
            if name == PROPERTY and report.when == "teardown":
                self.seconds.update(value)  # type: ignore[call-overload]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name what was skipped for a missing need, and tests of the quick lane that take too long."""
        skipped = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
        lines = needs.summary(reason.removeprefix("Skipped: ") for reason in skipped)
        if self.config.option.lane == "quick":
            long = sorted((-seconds, test) for test, seconds in self.seconds.items() if seconds > LONG)
            lines += [f"{-seconds:5.1f} s of processor time: {test}" for seconds, test in long]
        lines.append(f"{sum(self.seconds.values()) / 60:.1f} minutes of processor time in tests")
        terminalreporter.section("fanin")
        for line in lines:
            terminalreporter.write_line(line)

    def pytest_sessionfinish(self) -> None:
        """Write the times of tests that ran, and keep those of the others."""
        if self.config.option.record and "PYTEST_XDIST_WORKER" not in os.environ:
            save_durations(update_durations(load_durations(), self.seconds))
