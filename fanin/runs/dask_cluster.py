"""Dask clusters of a command: a local cluster, an existing scheduler, or jobs of a batch system."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import dask
from distributed import Client, LocalCluster
from distributed.comm import connect
from distributed.security import Security

from fanin.base.errors import InputError
from fanin.base.printable import print_note
from fanin.base.tools import safe_path

_ANSWER_SECONDS = 10.0  # timeout of a scheduler's answer
_HTTP_ADDRESS = "127.0.0.1:0"  # address of Dask's HTTP server, which has no pages
#: No HTTP pages of schedulers and workers: they would show runs and paths to every user of the machine.
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_NO_PAGES_IN_JOBS = "export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES='[]'"
_SAFE_PATH_IN_JOBS = "export PYTHONSAFEPATH=1"  # as tools.safe_path does for local workers
_ROLES = ("client", "scheduler", "worker")
_ALLOWED_WORKER_DEATHS = 3  # a run is abandoned if more of its workers than that die
#: Classes of dask-jobqueue, by ``cluster.kind``.
_CLASSES = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "sge": "SGECluster",
    "lsf": "LSFCluster",
    "oar": "OARCluster",
    "htcondor": "HTCondorCluster",
    "moab": "MoabCluster",
}


class WorkerOptions(Protocol):
    """Options that name a cluster."""

    @property
    def workers(self) -> int | None:
        """Number of workers of a local cluster; None: one per core."""

    @property
    def scheduler(self) -> str | None:
        """Address of an existing scheduler; None: no such scheduler."""


def check_cluster(args: WorkerOptions, file: Path, batch: Mapping[str, Any]) -> None:
    """Raise InputError unless options and table name one valid cluster.

    - ``file``: file with the table, for messages.
    - ``batch``: the table ``[cluster]`` of a campaign; empty: no batch system.
    """
    if args.workers is not None and not 1 <= args.workers <= 4096:
        raise InputError(f"--workers {args.workers}: must be in 1…4,096")
    if args.workers is not None and (args.scheduler or batch):
        raise InputError("--workers: only for the local cluster")
    if args.scheduler and batch:
        raise InputError(f"--scheduler: {file} also names a cluster")
    if not batch:
        return
    kind, jobs = batch.get("kind"), batch.get("jobs")
    if kind not in _CLASSES:
        raise InputError(f"{file}: cluster.kind must be one of {', '.join(_CLASSES)}, not {kind!r}")
    if type(jobs) is not int or jobs < 1:
        raise InputError(f"{file}: cluster.jobs must be an integer of at least 1, not {jobs!r}")


@contextlib.contextmanager
def connected_client(
    args: WorkerOptions, file: Path, batch: Mapping[str, Any], scratch: Path
) -> Iterator[tuple[Client, list[str]]]:
    """Yield a client of the requested cluster, and the list to which the batch system's refusals are appended.

    A cluster that was started here ends with the context. Raises InputError if a scheduler does not answer, or
    a batch system rejects its options.

    - ``file``: file with the table, for messages.
    - ``batch``: the table ``[cluster]`` of a campaign; empty: a local cluster or a scheduler.
    - ``scratch``: folder for temporary files of Dask, which the caller deletes.
    """
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for name in (*names, "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # fanin reports lost connections itself
    dask.config.set(
        {"distributed.scheduler.allowed-failures": _ALLOWED_WORKER_DEATHS, "temporary-directory": str(scratch)}
        | _NO_PAGES
    )
    refusals: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(safe_path())  # Dask starts workers with python -c, also anew after a death
        if args.scheduler:
            _check_answers(args.scheduler)
            if not args.scheduler.startswith("tls://"):
                risk = "who reaches its port can have code carried out with your rights; tls:// protects it"
                print_note(f"fanin: warning: --scheduler {args.scheduler}: {risk}")
            address = args.scheduler
        else:
            cluster: Any = (
                _start_batch(file, batch, scratch, refusals) if batch else _start_local(args.workers, scratch)
            )
            stack.callback(_close_cluster, cluster)
            if batch:
                cluster.scale(jobs=batch["jobs"])
            address = cluster
        client = Client(address, timeout=_ANSWER_SECONDS)
        stack.callback(_close_client, client)
        yield client, refusals


def _check_answers(address: str) -> None:
    """Raise InputError unless a scheduler answers in time. Dask itself has no timeout for the first answer."""

    async def probe() -> None:
        secure = Security().get_connection_args("client")
        comm = await asyncio.wait_for(connect(address, timeout=_ANSWER_SECONDS, **secure), _ANSWER_SECONDS)
        comm.abort()

    try:
        asyncio.run(probe())
    except (OSError, ValueError, TypeError, TimeoutError) as error:  # ValueError: a wrong address
        reason = str(error).partition("\n")[0] or f"nothing in {_ANSWER_SECONDS:g} s"
        raise InputError(f"--scheduler {address}: does not answer: {reason}") from None


def _start_local(workers: int | None, scratch: Path) -> LocalCluster:
    """Start a cluster that only this process can use: an open port of Dask would run any user's code."""
    return LocalCluster(
        protocol="tls://",
        security=Security.temporary(),
        n_workers=workers or len(os.sched_getaffinity(0)),
        threads_per_worker=1,
        memory_limit=None,  # runs are separate processes
        dashboard_address=_HTTP_ADDRESS,
        scheduler_kwargs={"dashboard": False},
        local_directory=str(scratch),
        silence_logs=logging.CRITICAL,
    )


def import_jobqueue() -> Any:
    """Return the module dask_jobqueue. Its import lets an interrupt end the process silently, with status 0."""
    handler = signal.getsignal(signal.SIGINT)
    import dask_jobqueue

    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return dask_jobqueue


def _start_batch(file: Path, batch: Mapping[str, Any], scratch: Path, refusals: list[str]) -> Any:
    """Start a cluster of batch jobs; append the messages of rejected jobs to ``refusals``.

    Unless the options name other TLS keys, the jobs use new keys in ``scratch``.
    """
    dask_jobqueue = import_jobqueue()
    kind = getattr(dask_jobqueue, _CLASSES[batch["kind"]])
    submit = shlex.split(kind.job_cls.submit_command)[0]
    if shutil.which(submit) is None:
        raise InputError(f"{file}: cluster.kind: {submit} of {batch['kind']} is not on this machine")
    options: dict[str, Any] = {
        "scheduler_options": {"dashboard": False, "dashboard_address": _HTTP_ADDRESS},
        "job_script_prologue": dask.config.get(f"jobqueue.{kind.job_cls.config_name}.job-script-prologue", []),
    }
    options |= {key: value for key, value in batch.items() if key not in ("kind", "jobs")}
    prologue = [_NO_PAGES_IN_JOBS, _SAFE_PATH_IN_JOBS, *options["job_script_prologue"]]
    options["job_script_prologue"] = prologue
    if "security" not in options:
        options |= {"security": _write_keys(scratch)}

    class Job(kind.job_cls):  # type: ignore[name-defined]
        async def _submit_job(self, script_filename: str) -> Any:
            try:
                return await super()._submit_job(script_filename)
            except Exception as error:  # error of dask-jobqueue with command, stdout and stderr
                message = str(error).rpartition("stderr:")[2].split() or str(error).split()
                refusals.append(f"{submit} takes no job: {' '.join(message)}")
                raise

    try:
        return kind(**options, job_cls=Job)
    except Exception as error:  # any kind; the message names the missing or wrong option
        raise InputError(f"{file}: cluster: {' '.join(str(error).split())}") from None


def _write_keys(folder: Path) -> Security:
    """Write new TLS keys into ``folder``, readable by their owner only, for the jobs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = {}
    for name, text in Security.temporary().get_tls_config_for_role("worker").items():
        if text and "\n" in text:
            paths[name] = folder / f"{name}.pem"
            with open(os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
    roles = {f"tls_{role}_{name}": str(paths[name]) for role in _ROLES for name in ("cert", "key")}
    return Security(require_encryption=True, tls_ca_file=str(paths["ca_file"]), **roles)


def _close_cluster(cluster: Any) -> None:
    """Close a cluster. Rejected jobs fail an assertion of Dask, which is ignored."""
    with contextlib.suppress(AssertionError):
        cluster.close(timeout=_ANSWER_SECONDS)


def _close_client(client: Client) -> None:
    """Close a client, even if its scheduler no longer exists."""
    with contextlib.suppress(OSError, TimeoutError):
        client.close(timeout=_ANSWER_SECONDS)
