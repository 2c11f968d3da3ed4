"""Execution of a campaign: missing runs go to the cluster, a few at a time."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from concurrent.futures import CancelledError

from distributed import Client, Future, wait
from distributed.scheduler import KilledWorker

from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.base.scratch import as_input_error
from fanin.campaign.cluster import check_cluster, connected
from fanin.campaign.file import Campaign, Run, read_campaign
from fanin.campaign.folder import Folder
from fanin.campaign.results import FAILED, MISSING, write_results
from fanin.campaign.supervisor import GRACE
from fanin.campaign.worker import carry_out
from fanin.runs.live import LiveFile, RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import make_folder
from fanin.runs.output import CAMPAIGN, check_directory, print_json

_POLL = 1.0  # s between two checks of the workers
_AHEAD = 2  # queued runs per worker
_SETTLE = GRACE + 5.0  # s for runs whose workers have ended
_DASK = ".fanin-dask"  # folder of Dask's temporary files, with the prefix of temporary names


def execute(args: argparse.Namespace) -> int:
    """Carry out the missing runs and write the results.

    Raises InputError before anything is written, and CheckFailed if a run failed or is missing.
    """
    if not args.patience > 0:
        raise InputError(f"--patience {args.patience:g}: must be above 0")
    campaign = read_campaign(args.file, args.whole)
    check_cluster(args, args.file, campaign.cluster)
    check_directory(args.output, CAMPAIGN)
    folder = Folder(args.output, campaign)
    with sole_writer(args.output):
        folder.check()
        for finished in folder.finished():
            folder.note_size(finished.run)
        folder.check_disk(len(folder.missing(failed=args.retry_failed)))
        try:
            _carry_out(args, campaign, folder)
        finally:  # also for a campaign that was stopped
            counts = write_results(campaign, folder) if folder.begun else {}
    if args.json:
        print_json({"folder": str(args.output), "command": campaign.command.name, **counts})
    else:
        print(f"{args.output}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if counts[FAILED] or counts[MISSING]:
        told = f"{counts[FAILED]:,} failed, {counts[MISSING]:,} not carried out"
        raise CheckFailed(f"{args.output}: of {sum(counts.values()):,} runs {told}; results.csv says which")
    return 0


def _carry_out(args: argparse.Namespace, campaign: Campaign, folder: Folder) -> None:
    """Carry out the missing runs; afterwards, wait for own processes and delete unfinished runs."""
    missing = folder.missing(failed=args.retry_failed)
    if not missing:
        folder.begin([])
        return
    scratch = folder.path / _DASK
    with as_input_error(scratch):
        make_folder(folder.path, _DASK)
    try:
        with connected(args, args.file, campaign.cluster, scratch) as (client, refusals):
            folder.begin(missing)
            if args.scheduler:
                print(f"dashboard: {client.dashboard_link}", file=sys.stderr)
            _Loop(client, folder, missing, args, refusals).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if folder.begun:
            folder.settle(0.0 if args.scheduler else _SETTLE)  # workers of a foreign scheduler continue


class _Loop:
    """Loop that submits missing runs to a cluster at the pace of its workers."""

    def __init__(
        self, client: Client, folder: Folder, missing: list[Run], args: argparse.Namespace, refusals: list[str]
    ):
        self._client, self._folder = client, folder
        self._refusals = refusals
        self._waiting = missing[::-1]
        self._total, self._done = len(missing), 0
        self._under_way: dict[Future, Run] = {}
        self._patience: float = args.patience
        self._seen = time.monotonic()  # time at which a worker was last present

    def run(self) -> None:
        """Run until each run has ended. Raises ToolFailed if the cluster is lost."""
        title = f"{self._folder.facts['command']}, {self._total:,} runs"
        live = LiveFile(self._folder.path, "campaign", title=title, unit="runs")
        with live, RunStatus(live) as status:
            status.stage("starting workers")
            status.expect(self._total)
            while self._waiting or self._under_way:
                self._hand_out()
                self._take_in()
                status.advance(self._done, f"{self._done:,} of {self._total:,} runs")

    def _hand_out(self) -> None:
        """Submit runs until every worker has a queue. Raises InputError if the disk is nearly full."""
        room = self._workers() * (1 + _AHEAD) - len(self._under_way)
        for _ in range(min(room, len(self._waiting))):
            self._folder.check_disk(len(self._under_way) + 1)
            run = self._waiting.pop()
            task = self._folder.task(run)
            # Other campaigns may share the scheduler, so a key must be unique: the run's folder.
            future = self._client.submit(carry_out, task, key=task.place, pure=False)
            self._under_way[future] = run

    def _take_in(self) -> None:
        """Wait for up to ``_POLL`` s, and record runs that have ended."""
        if not self._under_way:
            time.sleep(_POLL)
            return
        with contextlib.suppress(TimeoutError, CancelledError):
            wait(list(self._under_way), timeout=_POLL, return_when="FIRST_COMPLETED")
        for future in [each for each in self._under_way if each.done()]:
            run = self._under_way.pop(future)
            self._done += 1
            if self._came(future):
                self._folder.note_size(run)

    def _came(self, future: Future) -> bool:
        """Whether a run is recorded; False if its workers died. Raises ToolFailed if the cluster fails."""
        try:
            future.result()
        except KilledWorker:
            return False
        except CancelledError:
            raise self._lost() from None
        except (InputError, ToolFailed):
            raise
        except Exception as error:  # such as a worker without fanin, which cannot load the task
            raise ToolFailed(f"a worker cannot carry runs out: {' '.join(str(error).split())}") from None
        return True

    def _workers(self) -> int:
        """Return the number of threads of all workers. Raises ToolFailed after ``--patience`` s without any."""
        if self._client.status != "running":
            raise self._lost()
        try:
            found = sum(self._client.nthreads().values())
        except (OSError, TimeoutError, RuntimeError):
            raise self._lost() from None
        now = time.monotonic()
        if found:
            self._seen = now
        elif self._refusals:
            raise ToolFailed(f"{self._refusals[0]}; {self._again()}")
        elif now - self._seen > self._patience:
            raise ToolFailed(f"no worker for {self._patience:g} s; {self._again()}")
        return found

    def _lost(self) -> ToolFailed:
        return ToolFailed(f"the scheduler is gone; {self._again()}")

    def _again(self) -> str:
        return "finished runs stay, and the same command goes on with the rest"
