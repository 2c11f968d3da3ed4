"""Causes of unfinished runs: failures, and stops from outside."""

from __future__ import annotations

from typing import NoReturn

from fanin.base.errors import CheckFailed
from fanin.base.printable import print_note, printable

INTERRUPTED, TERMINATED = "interrupted", "terminated"
#: Value of ``error`` of a run that is in progress, or was killed.
UNFINISHED = "the run has not come to its end"
#: Cause of the end of a run whose process was killed.
KILLED = "the process of the run is gone, and the run has not come to its end"
#: Values of ``error`` of runs that can be resumed.
RESUMABLE = (UNFINISHED, INTERRUPTED, TERMINATED)
#: Exceptions that stop a run from outside: KeyboardInterrupt by Ctrl-C, SystemExit by SIGTERM.
STOP_EXCEPTIONS = (KeyboardInterrupt, SystemExit)


def cause_of(stop: BaseException) -> str:
    """Return the ``error`` of a run, in one line."""
    causes = {KeyboardInterrupt: INTERRUPTED, SystemExit: TERMINATED}
    return causes.get(type(stop), " ".join(str(stop).split()))


def raise_stop(stop: BaseException, message: str) -> NoReturn:
    """Raise again the exception that has stopped a run, with a message; a failure becomes CheckFailed."""
    if isinstance(stop, SystemExit):
        print_note(f"fanin: error: {message}")
        raise stop
    raise KeyboardInterrupt(printable(message)) if isinstance(stop, KeyboardInterrupt) else CheckFailed(message)
