"""Run shards of all tests and record those that pass: ``make shards``.

    python -m tests.shards [--jobs 2] [--minutes 60] [--by-tree]

A shard is a part of ``make test-all``; all take the same time by ``tests/durations.json``. As many run as fit
into the minutes: those that passed longest ago first, or, with ``--by-tree``, in an order that derives from the
tree's content, so that two runs on one tree are the same. ``tests/shards.json`` gets commit and date of each
shard that passes, from which ``docs/reference/shards.md`` is made. Exit status 1 if a shard fails.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.lanes import ROOT, draw, load_durations

COUNT = 24
RECORD = ROOT / "tests" / "shards.json"
#: Wall-clock seconds of a shard over its share of recorded processor time: start, collection, uneven ends.
OVERHEAD, MARGIN = 60, 1.15
LATE = 1.2  # of the minutes: the shard that runs then is stopped, and counts neither as passed nor as failed


def load_record(path: Path = RECORD) -> dict[str, dict[str, str]]:
    """Per shard that has passed, by its number: ``commit``, ``date``, ``tests``."""
    return json.loads(path.read_text()) if path.exists() else {}


def save_record(record: dict[str, dict[str, str]], path: Path = RECORD) -> None:
    """Write the record, by number."""
    ordered = dict(sorted(record.items(), key=lambda item: int(item[0])))
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def order(record: dict[str, dict[str, str]], *, by_tree: bool) -> list[int]:
    """All shards in the order in which they are to run."""
    numbers = range(1, COUNT + 1)
    if by_tree:
        return sorted(numbers, key=lambda number: draw("shard", number))
    return sorted(numbers, key=lambda number: record.get(str(number), {}).get("date", ""))


def fitting(minutes: float, jobs: int) -> int:
    """How many shards fit into so many minutes on ``jobs`` processors; at least one."""
    seconds = sum(load_durations().values()) / COUNT / jobs * MARGIN + OVERHEAD
    return min(COUNT, max(1, int(minutes * 60 / seconds)))


@dataclass(frozen=True)
class Result:
    """Result of a shard: whether all of it passed, whether a test failed, and pytest's last line.

    Neither holds for a shard that was stopped at its deadline.
    """

    passed: bool
    failed: bool
    summary: str


def run(command: list[str], seconds: float) -> Result:
    """Run pytest, and interrupt it after so many seconds; it then still reports the tests that failed."""
    summary = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(seconds, process.send_signal, [signal.SIGINT])
        timer.start()
        for line in process.stdout or ():
            print(line, end="", flush=True)
            summary = line.strip(" =\n") or summary
        stopped = not timer.is_alive()
        timer.cancel()
    failed = bool(re.search(r"\d+ (failed|error)", summary)) if stopped else process.returncode != 0
    return Result(process.returncode == 0, failed, summary)


def _head() -> str:
    """Commit of the tree; with ``+`` if tracked files differ from it."""
    describe = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run the shards; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="test processes")
    parser.add_argument(
        "--minutes", type=float, default=60, help="wall-clock time that is estimated for all shards"
    )
    parser.add_argument("--by-tree", action="store_true", help="order by the tree's content, not by age")
    args = parser.parse_args()
    record, failed, commit = load_record(), [], _head()
    chosen = order(record, by_tree=args.by_tree)[: fitting(args.minutes, args.jobs)]
    print(f"shards: {', '.join(map(str, chosen))} of {COUNT}", flush=True)
    deadline = time.monotonic() + args.minutes * 60 * LATE
    for number in chosen:
        started = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-n", str(args.jobs), "--dist", "worksteal"]
        result = run([*command, "--shard", f"{number}/{COUNT}"], deadline - started)
        word = "passed" if result.passed else "FAILED" if result.failed else "stopped, out of time,"
        minutes = (time.monotonic() - started) / 60
        print(f"shard {number}/{COUNT}: {word} after {minutes:.1f} minutes", flush=True)
        if result.failed:
            failed.append(number)
        elif result.passed:
            date = datetime.now(UTC).isoformat(timespec="minutes")
            record[str(number)] = {"commit": commit, "date": date, "tests": result.summary}
            save_record(record)
            # At once: a test of a later shard compares the page with the record.
            subprocess.run([sys.executable, "docs/generate.py", "shards.md"], cwd=ROOT, check=True)
        else:
            break
    if failed:
        print(f"shards failed: {', '.join(map(str, failed))}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
