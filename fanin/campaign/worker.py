"""What a Dask worker does for a run: start its supervisor, and wait."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from fanin import __version__
from fanin.base.errors import InputError, ToolFailed
from fanin.campaign.supervisor import GRACE, Task
from fanin.runs.output import RUN_FILE
from fanin.runs.provenance.environment import sources_digest

_MARGIN = 60.0  # seconds beyond a run's limit and grace, for a slow machine to tidy up


def carry_out(task: Task) -> None:
    """Let a run be in its place, unless it is there. Called on a worker.

    Raises InputError for a worker that has another fanin than the client, or does not see the campaign's
    folder, ToolFailed where the run could not be recorded: fanin may have been edited since the worker began.
    """
    place, host = Path(task.place), socket.gethostname()
    if not place.parent.is_dir():
        raise InputError(
            f"worker {host}: {place.parent}: is not there; workers have to see the campaign's folder"
        )
    if _sources() != task.sources:
        raise InputError(f"worker {host}: has another fanin ({__version__}) than the client")
    if (place / RUN_FILE).exists():
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "fanin.campaign.supervisor"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is the client's
    )
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(task.to_json() + "\n")
            process.stdin.flush()  # and it stays open: its end is ours
        try:
            status = process.wait(task.limit + GRACE + _MARGIN)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ToolFailed(f"worker {host}: {place.name}: cannot be ended") from None
        if status:
            words = process.stderr.read().split("\n")
            raise ToolFailed(f"worker {host}: {place.name}: {' '.join(words[-2:]).strip()}")


@cache
def _sources() -> str:
    """The SHA-256 of the fanin that this worker began with."""
    return sources_digest()
