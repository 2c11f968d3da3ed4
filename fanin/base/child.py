"""Computations in a child process, for libraries that may crash on untrusted input or where memory ends."""

from __future__ import annotations

import os
import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from fanin.base.processes import die_with_parent

_RESULT, _ERROR = b"\0", b"\1"  # first byte of the child's answer


class ChildDied(Exception):
    """The child process ended without an answer: the library crashed, or the memory did not suffice."""


def in_child(action: Callable[[], bytes], max_bytes: int | None = None) -> bytes:
    """Return the result of ``action``, which runs in a child process.

    - ``max_bytes``: memory that the child may take more than this process has; None: no limit.

    Raises ValueError with the text of an exception of ``action``. Raises ChildDied for a crash and a
    MemoryError. The child prints nothing on stderr.
    """
    read_end, write_end = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork while threads run. The child only runs the library, and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            die_with_parent(parent)
            _answer(action, max_bytes, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    if answer[:1] == _RESULT:
        return answer[1:]
    if answer[:1] == _ERROR:
        raise ValueError(answer[1:].decode(errors="replace"))
    raise ChildDied


def _answer(action: Callable[[], bytes], max_bytes: int | None, write_end: int) -> None:
    """Call ``action`` and write the answer; write nothing if the memory does not suffice."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a crash prints nothing on the command's stderr
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # and leaves no file
    if max_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + max_bytes
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = limit if soft == resource.RLIM_INFINITY else min(limit, soft)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        answer = _RESULT + action()
    except MemoryError:
        return
    except Exception as error:  # libraries raise many kinds
        answer = _ERROR + str(error).encode(errors="replace")
    with os.fdopen(write_end, "wb") as file:
        file.write(answer)
