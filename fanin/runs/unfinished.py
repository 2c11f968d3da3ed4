"""Runs that were stopped before their end, by a failure or from outside: what is left says so."""

from __future__ import annotations

import sys
from typing import NoReturn

from fanin.base.errors import CheckFailed

INTERRUPTED, TERMINATED = "interrupted", "terminated"
#: The ``error`` of a run that is under way, or was killed.
UNENDED = "the run has not come to its end"
#: Cause of the end of a run whose process was killed.
GONE = "the process of the run is gone, and the run has not come to its end"
#: Those of runs that could have gone on.
STOPPED = (UNENDED, INTERRUPTED, TERMINATED)
#: What is raised when a run is stopped from outside; SystemExit: by SIGTERM.
OUTSIDE = (KeyboardInterrupt, SystemExit)


def cause_of(stop: BaseException) -> str:
    """The ``error`` of a run, of one line."""
    causes = {KeyboardInterrupt: INTERRUPTED, SystemExit: TERMINATED}
    return causes.get(type(stop), " ".join(str(stop).split()))


def stop_again(stop: BaseException, message: str) -> NoReturn:
    """Go on with what has stopped a run, with a line for people."""
    if isinstance(stop, SystemExit):
        print(f"fanin: error: {message}", file=sys.stderr)
        raise stop
    raise KeyboardInterrupt(message) if isinstance(stop, KeyboardInterrupt) else CheckFailed(message)
