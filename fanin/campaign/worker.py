"""Task of a Dask worker: start a run's supervisor, and wait for it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from functools import cache
from pathlib import Path

from fanin import __version__
from fanin.base.errors import InputError, ToolFailed
from fanin.base.tools import python_module
from fanin.campaign.supervisor import GRACE, Task
from fanin.runs.output import RUN_FILE
from fanin.runs.provenance.environment import sources_digest

_MARGIN = 60.0  # s after a run's limit and grace, for clean-up on a slow machine


def carry_out(task: Task) -> None:
    """Carry out a run on a worker, unless its folder already holds it.

    Raises InputError if the worker has another fanin than the client, or no access to the campaign's folder.
    Raises ToolFailed if the run could not be recorded, for instance because fanin's sources have changed.
    """
    run_folder, host = Path(task.place), socket.gethostname()
    if not run_folder.parent.is_dir():
        raise InputError(
            f"worker {host}: {run_folder.parent}: not found; workers need access to the campaign's folder"
        )
    if _sources() != task.sources:
        raise InputError(f"worker {host}: fanin {__version__} is not the client's")
    if (run_folder / RUN_FILE).exists():
        return
    process = subprocess.Popen(
        python_module("fanin.campaign.supervisor"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # only the client handles Ctrl-C
    )
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(task.to_json() + "\n")
            process.stdin.flush()  # stdin stays open: it closes when this worker ends
        try:
            status = process.wait(task.limit + GRACE + _MARGIN)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ToolFailed(f"worker {host}: {run_folder.name}: cannot be ended") from None
        if status:
            words = process.stderr.read().split("\n")
            raise ToolFailed(f"worker {host}: {run_folder.name}: {' '.join(words[-2:]).strip()}")


@cache
def _sources() -> str:
    """Return the SHA-256 of fanin's sources at the worker's first run."""
    return sources_digest()
