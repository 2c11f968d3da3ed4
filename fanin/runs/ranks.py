"""The options ``--ranks`` and ``--mpi``: a command whose simulation is spread over processes of MPI."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.cache import fresh_cache
from fanin.base.errors import InputError, ToolFailed
from fanin.runs.call import Call

if TYPE_CHECKING:  # NumPy takes a while to load
    from fanin.sim.cosim.run import RunResult

MOST = 1024
_STARTED = "FANIN_RANKS"  # set for processes that have been started here
_OWN = (0, 1, 2, 130, 143)  # exit statuses of a command, which has said why
_GRACE_SECONDS = 20
_VERSION_SECONDS = 60  # for a launcher to say what it is
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")  # what Open MPI asks of root


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """Declare the options, which :func:`carry_out` obeys."""
    group = parser.add_argument_group("processes").add_mutually_exclusive_group()
    group.add_argument(
        "--ranks", type=int, metavar="N", help="spread the nodes over N processes of this machine, by MPI"
    )
    group.add_argument(
        "--mpi", action="store_true", help="spread them over the processes that mpirun or srun has started"
    )


def carry_out(args: argparse.Namespace) -> int:
    """Run a parsed command, on as many ranks as it asks for; its exit status."""
    started = _STARTED in os.environ
    ranks = args.ranks if hasattr(args, "mpi") else None  # of add_ranks: those of nic run are a ring's nodes
    ranks = 1 if ranks is None else ranks
    if not 1 <= ranks <= MOST:
        raise InputError(f"--ranks must be in 1…{MOST}, not {ranks}")
    several = ranks > 1
    with fresh_cache(getattr(args, "no_cache", False) and not (several and started)):
        if several and not started:
            return _start(args.argv, ranks)
        if several or getattr(args, "mpi", False):
            with _joined() as first:
                if several and first:
                    _check_met(ranks)
                return args.run(args) if first else 0
        return args.run(args)


def _check_met(ranks: int) -> None:
    """Raise InputError unless the processes that were started here have met."""
    from fanin.sim.cosim.ranks import joined

    found = joined()
    if (found.size if found else 1) != ranks:
        raise InputError("--ranks: mpiexec and mpi4py are of different MPIs, so that ranks do not meet")


def refuse_ranks(args: argparse.Namespace | Call, what: str) -> None:
    """Raise InputError where several ranks were asked for, with something that leaves them nothing to do."""
    if args.mpi or (args.ranks or 1) > 1:
        raise InputError(f"--{'mpi' if args.mpi else 'ranks'}: does not go with {what}")


def check_nodes(args: argparse.Namespace | Call, nodes: int) -> None:
    """Raise InputError where there are more ranks than nodes, before anything is run."""
    if args.mpi or (args.ranks or 1) > 1:
        from fanin.sim.cosim.ranks import joined, spread

        found = joined()
        spread([1] * nodes, found.size if found else 1)


class Meetings:
    """How ranks have met in some runs; it depends on the machine, so that no file has it."""

    def __init__(self) -> None:
        self.count, self._seconds = 0, 0.0
        self._waits: list[float] = []  # of each rank, in seconds

    def add(self, raw: RunResult) -> None:
        """Add a run's."""
        self.count += raw.meetings
        self._seconds += raw.seconds
        before = self._waits or [0.0] * len(raw.meeting_seconds)
        self._waits = [sum(both) for both in zip(before, raw.meeting_seconds, strict=True)]

    def facts(self) -> list[list[str]]:
        """For a summary; nothing of runs in one process."""
        if not self.count:
            return []
        waits = [100 * seconds / self._seconds for seconds in self._waits]
        waited = f"waited {min(waits):.0f} to {max(waits):.0f} % of {self._seconds:.1f} s"
        return [["ranks", f"{len(waits)} met {self.count:,} times, and {waited}"]]


@contextlib.contextmanager
def _joined() -> Iterator[bool]:
    """Among the processes of MPI: whether this is the first, which the others have served otherwise."""
    from fanin.sim.cosim import ranks

    first = ranks.join()
    try:
        yield first
    finally:
        if all_ranks := ranks.joined():
            all_ranks.close()


def _start(argv: list[str], ranks: int) -> int:
    """The same command, on ranks of this machine; its exit status. Raises ToolFailed when one has died."""
    import mpi4py  # noqa: F401  (main says how to install it)

    found = launcher()
    command = [found, "-n", str(ranks), *launcher_options(found), sys.executable, "-m", "fanin", *argv]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, _STARTED: str(ranks)})
    try:
        status = process.wait()  # for as long as the command takes: a rank that dies ends the launcher
    except KeyboardInterrupt:  # of a terminal: the launcher has got it, too, and rank 0 says what it leaves
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        if process.returncode not in _OWN:
            raise
        status = process.returncode
    finally:
        _end(process)
    if status in _OWN:
        return status
    raise ToolFailed(f"{found} ended with status {status}: a rank has died, and so all have ended")


def launcher() -> str:
    """mpiexec, that of this interpreter before any other."""
    found = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if not found:
        raise InputError("--ranks: mpiexec is missing: pip install 'fanin[mpi]', or load the cluster's MPI")
    return found


def launcher_options(program: str) -> list[str]:
    """What makes a launcher start more ranks than there are cores."""
    ask = [program, "--version"]
    try:
        said = subprocess.run(
            ask, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_VERSION_SECONDS
        ).stdout
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{program} --version has not answered in {_VERSION_SECONDS} s") from None
    if not any(name in said for name in ("Open MPI", "OpenRTE")):  # up to 4.x its mpiexec is OpenRTE's
        return []
    if os.geteuid() == 0 and not all(name in os.environ for name in _ROOT):
        raise InputError(f"--ranks: Open MPI runs as root only where {' and '.join(_ROOT)} are set to 1")
    return ["--oversubscribe", "--bind-to", "none"]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the launcher end its ranks, if it still runs."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
