"""A campaign, carried out: what is missing goes to the cluster, a few runs at a time."""

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
from fanin.campaign.cluster import check_cluster, connected
from fanin.campaign.file import Campaign, Run, read_campaign
from fanin.campaign.folder import Folder
from fanin.campaign.results import FAILED, MISSING, write_results
from fanin.campaign.supervisor import GRACE
from fanin.campaign.worker import carry_out
from fanin.runs.live import LiveFile, RunStatus
from fanin.runs.lock import sole_writer
from fanin.runs.output import CAMPAIGN, check_directory, print_json

_POLL = 1.0  # seconds between two looks at the workers
_AHEAD = 2  # runs that wait for each worker
_SETTLE = GRACE + 5.0  # seconds for runs whose workers have ended
_DASK = ".fanin-dask"  # what Dask keeps; begins as all that is not whole


def execute(args: argparse.Namespace) -> int:
    """Carry out what is missing.

    Raises InputError before anything is written, CheckFailed where a run failed.
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
        finally:  # of a campaign that is stopped, too
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
    """Carry out what is missing; behind it no process of ours and nothing half-written is left."""
    missing = folder.missing(failed=args.retry_failed)
    if not missing:
        folder.begin([])
        return
    scratch = folder.path / _DASK
    try:
        with connected(args, args.file, campaign.cluster, scratch) as (client, refusals):
            folder.begin(missing)
            if args.scheduler:
                print(f"dashboard: {client.dashboard_link}", file=sys.stderr)
            _Loop(client, folder, missing, args, refusals).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if folder.begun:
            folder.settle(0.0 if args.scheduler else _SETTLE)  # others' workers go on with what they have


class _Loop:
    """The runs that are missing, handed to a cluster as its workers take them."""

    def __init__(
        self, client: Client, folder: Folder, missing: list[Run], args: argparse.Namespace, refusals: list[str]
    ):
        self._client, self._folder = client, folder
        self._refusals = refusals
        self._waiting = missing[::-1]
        self._total, self._done = len(missing), 0
        self._under_way: dict[Future, Run] = {}
        self._patience: float = args.patience
        self._seen = time.monotonic()  # a worker, last

    def run(self) -> None:
        """Until none is missing, or all that can be done is. Raises ToolFailed where the cluster is lost."""
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
        """Let every worker have runs to go on with. Raises InputError where the disk is nearly full."""
        room = self._workers() * (1 + _AHEAD) - len(self._under_way)
        for _ in range(min(room, len(self._waiting))):
            self._folder.check_disk(len(self._under_way) + 1)
            run = self._waiting.pop()
            task = self._folder.task(run)
            # Keys are the scheduler's, which others' campaigns may share: the place is this run's alone.
            future = self._client.submit(carry_out, task, key=task.place, pure=False)
            self._under_way[future] = run

    def _take_in(self) -> None:
        """Wait a little, and note what has ended."""
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
        """Whether a run is in its place. Raises ToolFailed where the cluster cannot go on."""
        try:
            future.result()
        except KilledWorker:
            return False
        except CancelledError:
            raise self._lost() from None
        except (InputError, ToolFailed):
            raise
        except Exception as error:  # a worker without fanin, for instance, cannot load what it is sent
            raise ToolFailed(f"a worker cannot carry runs out: {' '.join(str(error).split())}") from None
        return True

    def _workers(self) -> int:
        """Threads of all workers. Raises ToolFailed where there has been none for too long."""
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
