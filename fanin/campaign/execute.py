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
from fanin.campaign.file import Campaign, Run, read_campaign
from fanin.campaign.folder import Folder
from fanin.campaign.results import FAILED, MISSING, write_results
from fanin.campaign.supervisor import GRACE
from fanin.campaign.worker import carry_out
from fanin.runs.dask_cluster import check_cluster, connected_client
from fanin.runs.live import LiveFile, RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import make_folder
from fanin.runs.output import CAMPAIGN, check_directory, print_json

_POLL_SECONDS = 1.0  # between two checks of the workers
_QUEUED_RUNS = 2  # per worker, in addition to the run in progress
_SETTLE_SECONDS = GRACE + 5.0  # for runs whose workers have ended
_DASK_FOLDER = ".fanin-dask"  # folder of Dask's temporary files, with the prefix of temporary names


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
            counts = write_results(campaign, folder) if folder.has_begun else {}
    if args.json:
        print_json({"folder": str(args.output), "command": campaign.command.name, **counts})
    else:
        print(f"{args.output}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if counts[FAILED] or counts[MISSING]:
        shortfall = f"{counts[FAILED]:,} failed, {counts[MISSING]:,} not carried out"
        raise CheckFailed(
            f"{args.output}: of {sum(counts.values()):,} runs {shortfall}; results.csv says which"
        )
    return 0


def _carry_out(args: argparse.Namespace, campaign: Campaign, folder: Folder) -> None:
    """Carry out the missing runs; afterwards, wait for this campaign's processes and delete unfinished runs."""
    missing = folder.missing(failed=args.retry_failed)
    if not missing:
        folder.begin([])
        return
    scratch = folder.path / _DASK_FOLDER
    with as_input_error(scratch):
        make_folder(folder.path, _DASK_FOLDER)
    try:
        with connected_client(args, args.file, campaign.cluster, scratch) as (client, refusals):
            folder.begin(missing)
            if args.scheduler:
                print(f"dashboard: {client.dashboard_link}", file=sys.stderr)
            _Submission(client, folder, missing, args, refusals).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if folder.has_begun:
            folder.settle(0.0 if args.scheduler else _SETTLE_SECONDS)  # workers of a foreign scheduler continue


class _Submission:
    """Submission of missing runs to a cluster, at the pace of its workers."""

    def __init__(
        self, client: Client, folder: Folder, missing: list[Run], args: argparse.Namespace, refusals: list[str]
    ):
        self._client, self._folder = client, folder
        self._refusals = refusals
        self._queue = missing[::-1]
        self._total, self._done = len(missing), 0
        self._in_progress: dict[Future, Run] = {}
        self._worker_timeout: float = args.patience  # s without workers
        self._worker_seen = time.monotonic()  # last time with a worker

    def run(self) -> None:
        """Run until each run has ended. Raises ToolFailed if the cluster is lost."""
        title = f"{self._folder.facts['command']}, {self._total:,} runs"
        live_file = LiveFile(self._folder.path, "campaign", title=title, unit="runs")
        with live_file, RunStatus(live_file) as status:
            status.stage("starting workers")
            status.expect(self._total)
            while self._queue or self._in_progress:
                self._submit_runs()
                self._collect_runs()
                status.advance(self._done, f"{self._done:,} of {self._total:,} runs")

    def _submit_runs(self) -> None:
        """Submit runs until each worker has ``_QUEUED_RUNS``. Raises InputError if the disk is nearly full."""
        capacity = self._workers() * (1 + _QUEUED_RUNS) - len(self._in_progress)
        for _ in range(min(capacity, len(self._queue))):
            self._folder.check_disk(len(self._in_progress) + 1)
            run = self._queue.pop()
            task = self._folder.task(run)
            # Other campaigns may share the scheduler, so a key must be unique: the run's folder.
            future = self._client.submit(carry_out, task, key=task.place, pure=False)
            self._in_progress[future] = run

    def _collect_runs(self) -> None:
        """Wait up to ``_POLL_SECONDS`` for runs to end, and note the sizes of those that have."""
        if not self._in_progress:
            time.sleep(_POLL_SECONDS)
            return
        with contextlib.suppress(TimeoutError, CancelledError):
            wait(list(self._in_progress), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
        for future in [future for future in self._in_progress if future.done()]:
            run = self._in_progress.pop(future)
            self._done += 1
            if self._is_recorded(future):
                self._folder.note_size(run)

    def _is_recorded(self, future: Future) -> bool:
        """Return False if the workers of a run died, else True. Raises ToolFailed if the cluster fails."""
        try:
            future.result()
        except KilledWorker:
            return False
        except CancelledError:
            raise self._scheduler_lost() from None
        except (InputError, ToolFailed):
            raise
        except Exception as error:  # such as a worker without fanin, which cannot load the task
            raise ToolFailed(f"a worker cannot carry runs out: {' '.join(str(error).split())}") from None
        return True

    def _workers(self) -> int:
        """Return the number of threads of all workers. Raises ToolFailed after ``--patience`` s without any."""
        if self._client.status != "running":
            raise self._scheduler_lost()
        try:
            threads = sum(self._client.nthreads().values())
        except (OSError, TimeoutError, RuntimeError):
            raise self._scheduler_lost() from None
        now = time.monotonic()
        if threads:
            self._worker_seen = now
        elif self._refusals:
            raise ToolFailed(f"{self._refusals[0]}; {self._resume_hint()}")
        elif now - self._worker_seen > self._worker_timeout:
            raise ToolFailed(f"no worker for {self._worker_timeout:g} s; {self._resume_hint()}")
        return threads

    def _scheduler_lost(self) -> ToolFailed:
        return ToolFailed(f"the scheduler is gone; {self._resume_hint()}")

    def _resume_hint(self) -> str:
        return "finished runs are kept; the same command carries out the missing ones"
