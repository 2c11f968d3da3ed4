"""One run of a campaign, in a process that ends it when its worker is gone or its time is over.

``python -m fanin.campaign.supervisor`` reads a :class:`Task` as one line of JSON. Its input then stays open
as long as the worker lives: the system closes it, however the worker ends. It loads nothing heavy.
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
from fanin.base.processes import end_with
from fanin.base.scratch import WRITER_FILE, is_scratch, umask, write_file
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import Manifest, replace_files
from fanin.runs.output import RUN_FILE
from fanin.runs.provenance.environment import sources_digest

SCRATCH = ".run-"  # prefix of a run's folder that is not whole yet; its supervisor has it locked
RESULT_FILE, LOG_FILE, OUTPUT = "result.json", "log.txt", "output"
DONE, FAILED = "done", "failed"
GRACE = 10.0  # seconds from SIGTERM to SIGKILL
_ERROR = "fanin: error: "


@dataclass(frozen=True)
class Task:
    """A run: its folder, its command line, and where it is started.

    ``output``: the index in ``argv`` of the value of ``-o``, which is relative to ``place``; None for a command
    that has none. ``limit``: seconds. Unless ``keep``, what it wrote with ``-o`` is deleted. ``sources``: the
    SHA-256 of the client's fanin; a run of any other one is not kept.
    """

    place: str
    argv: tuple[str, ...]
    output: int | None
    folder: str
    limit: float
    keep: bool
    sources: str

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """What :meth:`to_json` returned."""
        value = json.loads(text)
        return Task(**value | {"argv": tuple(value["argv"])})


def main() -> int:
    """Carry the task out; the run's folder appears whole, or not at all. 1 where fanin was edited meanwhile."""
    task = Task.from_json(sys.stdin.readline())
    place = Path(task.place)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=SCRATCH))
    try:
        with sole_writer(scratch):
            found = _run(task, scratch)
            if found is not None:
                if sources_digest() != task.sources:  # now: a run loads some of them late
                    print("fanin's sources have changed since the campaign began", file=sys.stderr)
                    return 1
                if not task.keep:
                    _delete(scratch / OUTPUT)
                size = sum(path.lstat().st_size for path in scratch.rglob("*"))
                write_file(scratch / RUN_FILE, json.dumps(found | {"bytes": size}, indent=2) + "\n")
                scratch.chmod(0o777 & ~umask())
                return _put(scratch, place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _run(task: Task, scratch: Path) -> dict[str, Any] | None:
    """Start the run and wait; what is to be said of it, or None where the worker has gone."""
    argv = list(task.argv)
    if task.output is not None:
        argv[task.output] = str(scratch / argv[task.output])
    began = time.monotonic()
    with (scratch / RESULT_FILE).open("wb") as result, (scratch / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fanin", *argv],
            stdin=subprocess.DEVNULL,
            stdout=result,
            stderr=log,
            cwd=task.folder,
            start_new_session=True,
            preexec_fn=partial(end_with, os.getpid()),  # there is one thread yet
        )
    gone = threading.Event()
    threading.Thread(target=_watch, args=(process, gone), daemon=True).start()
    try:
        process.wait(task.limit)
        error = None if process.returncode == 0 else _cause(process.returncode, scratch / LOG_FILE)
    except subprocess.TimeoutExpired:
        error = f"did not end in {task.limit:g} s"
    end(process)  # and what the run has left
    if gone.is_set():
        return None
    if not (scratch / RESULT_FILE).stat().st_size:
        (scratch / RESULT_FILE).unlink()
    return {
        "argv": task.argv,
        "status": FAILED if error else DONE,
        "exit_status": process.returncode,
        "error": error,
        "seconds": round(time.monotonic() - began, 3),
        "host": socket.gethostname(),
    }


def _put(scratch: Path, place: Path) -> int:
    """Let the run's folder appear whole at ``place``; return the exit status.

    If a folder is there that holds no whole run, the user's files in it stay. If another attempt at the same
    run was faster, its folder stays.
    """
    files = [file for file in scratch.rglob("*") if not file.is_dir() and not is_scratch(file)]
    Manifest(RUN_FILE, tuple(sorted(file.relative_to(scratch).as_posix() for file in files))).write(scratch)
    with contextlib.suppress(OSError):
        scratch.rename(place)
        return 0
    try:
        with sole_writer(place):
            if not (place / RUN_FILE).exists():
                (scratch / WRITER_FILE).unlink(missing_ok=True)
                replace_files(place, scratch, RUN_FILE)
    except InputError:  # another attempt is being put there
        pass
    except OSError as error:
        print(f"{place}: cannot take the run's files: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _watch(process: subprocess.Popen[bytes], gone: threading.Event) -> None:
    """Wait for the worker's end."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    gone.set()
    end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a session that a process leads: it may clean up, for a while."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _cause(status: int, log: Path) -> str:
    """Why a run failed, in one line: its error, or its last words."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return " ".join((errors or lines or [f"exit status {status}"])[-1].split())


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
