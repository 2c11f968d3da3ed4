"""Supervisor process of one run: ends the run if its worker has died or its time is over.

``python -m fanin.campaign.supervisor`` reads a :class:`Task` as one line of JSON. The worker keeps the
supervisor's stdin open; the system closes it when the worker ends. The module has only light imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.plain import mode_of
from fanin.base.processes import die_with_parent
from fanin.base.scratch import WRITER_FILE, is_scratch, umask, write_file
from fanin.base.tools import python_module
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import Manifest, replace_files
from fanin.runs.output import RUN_FILE
from fanin.runs.provenance.environment import sources_digest

SCRATCH = ".run-"  # prefix of an unfinished run's folder, which its supervisor locks
RESULT_FILE, LOG_FILE, OUTPUT = "result.json", "log.txt", "output"
DONE, FAILED = "done", "failed"
GRACE = 10.0  # seconds from SIGTERM to SIGKILL
_ERROR_PREFIX = "fanin: error: "


@dataclass(frozen=True)
class Task:
    """Task of a supervisor: one run.

    - ``place``: folder of the run.
    - ``argv``: words of its command line after ``fanin``.
    - ``output``: index in ``argv`` of the value of ``-o``, which is relative to ``place``; None: no ``-o``.
    - ``folder``: working directory of the run.
    - ``limit``: maximum time of the run, in s.
    - ``keep``: False deletes the run's ``-o`` output.
    - ``sources``: SHA-256 of the client's fanin; a run with other sources is discarded.
    """

    place: str
    argv: tuple[str, ...]
    output: int | None
    folder: str
    limit: float
    keep: bool
    sources: str

    def to_json(self) -> str:
        """Return the task as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """Return the task in text of :meth:`to_json`."""
        value = json.loads(text)
        return Task(**value | {"argv": tuple(value["argv"])})


def main() -> int:
    """Read a task from stdin, carry it out and create the run's folder atomically; return the exit status.

    The status is 1 if fanin's sources have changed since the campaign began, or the folder cannot be written.
    """
    task = Task.from_json(sys.stdin.readline())
    run_folder = Path(task.place)
    scratch = Path(tempfile.mkdtemp(dir=run_folder.parent, prefix=SCRATCH))
    try:
        with sole_writer(scratch):
            record = _run(task, scratch)
            if record is not None:
                if sources_digest() != task.sources:  # checked after the run, which loads some files late
                    print("fanin's sources have changed since the campaign began", file=sys.stderr)
                    return 1
                if not task.keep:
                    _delete(scratch / OUTPUT)
                size = sum(path.lstat().st_size for path in scratch.rglob("*"))
                write_file(scratch / RUN_FILE, json.dumps(record | {"bytes": size}, indent=2) + "\n")
                scratch.chmod(0o777 & ~umask())
                return _publish(scratch, run_folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _run(task: Task, scratch: Path) -> dict[str, Any] | None:
    """Start the run and wait for its end; return the content of ``run.json``, or None if the worker died."""
    argv = list(task.argv)
    if task.output is not None:
        argv[task.output] = str(scratch / argv[task.output])
    start = time.monotonic()
    with (scratch / RESULT_FILE).open("wb") as result, (scratch / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            python_module("fanin", *argv),
            stdin=subprocess.DEVNULL,
            stdout=result,
            stderr=log,
            cwd=task.folder,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),  # safe: the process still has a single thread
        )
    worker_ended = threading.Event()
    threading.Thread(target=_watch_worker, args=(process, worker_ended), daemon=True).start()
    try:
        process.wait(task.limit)
        error = None if process.returncode == 0 else _cause(process.returncode, scratch / LOG_FILE)
    except subprocess.TimeoutExpired:
        error = f"did not end in {task.limit:g} s"
    end(process)  # also ends processes that the run has left
    if worker_ended.is_set():
        return None
    if not (scratch / RESULT_FILE).stat().st_size:
        (scratch / RESULT_FILE).unlink()
    return {
        "argv": task.argv,
        "status": FAILED if error else DONE,
        "exit_status": process.returncode,
        "error": error,
        "seconds": round(time.monotonic() - start, 3),
        "host": socket.gethostname(),
    }


def _publish(scratch: Path, run_folder: Path) -> int:
    """Move the run's files from ``scratch`` to ``run_folder`` atomically; return the exit status.

    In an existing folder without a finished run, the user's files stay. If another attempt at the same run was
    faster, its folder stays. A link at ``run_folder`` is not followed.
    """
    files = [file for file in scratch.rglob("*") if not file.is_dir() and not is_scratch(file)]
    Manifest(RUN_FILE, tuple(sorted(file.relative_to(scratch).as_posix() for file in files))).write(scratch)
    with contextlib.suppress(OSError):
        scratch.rename(run_folder)
        return 0
    try:
        with sole_writer(run_folder, follow_link=False) as folder:
            if not mode_of(RUN_FILE, folder):
                (scratch / WRITER_FILE).unlink(missing_ok=True)
                replace_files(folder, scratch, RUN_FILE)
    except InputError:  # for a folder: another attempt is writing it
        if run_folder.is_symlink():
            print(f"{run_folder}: is a link; remove it to carry out its run", file=sys.stderr)
            return 1
    except OSError as error:
        print(f"{run_folder}: cannot take the run's files: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _watch_worker(process: subprocess.Popen[bytes], worker_ended: threading.Event) -> None:
    """Wait until the worker has ended, and then end the run."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    worker_ended.set()
    end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End the session of a process: SIGTERM, up to ``GRACE`` s for clean-up, then SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _cause(status: int, log: Path) -> str:
    """Return the cause of a failure in one line: the run's last error message, or last line of output."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix(_ERROR_PREFIX) for line in lines if line.startswith(_ERROR_PREFIX)]
    return " ".join((errors or lines or [f"exit status {status}"])[-1].split())


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
