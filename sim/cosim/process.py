"""A simulator's process, from its start to its result."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import socket

import cocotb_tools.config
import find_libpython

from fanin.base.errors import InputError
from fanin.sim.cosim.build import EXECUTABLE
from fanin.sim.cosim.run import Phase, Progress, RunRequest, RunResult, kept_file

_LOG_LINES = 15
_GRACE_SECONDS = 5  # for the process to write its result, and again for it to end
_RESULT = "result"  # attribute of an exception, as in SimulationFailed
_ENVIRONMENT = {
    "COCOTB_TEST_MODULES": "fanin.sim.cosim.testbench",
    "COCOTB_TOPLEVEL": "top",
    "TOPLEVEL_LANG": "verilog",
    "COCOTB_TRUST_INERTIAL_WRITES": "1",
    "COCOTB_LOG_LEVEL": "WARNING",
    "COCOTB_ANSI_OUTPUT": "0",
    "COCOTB_REWRITE_ASSERTION_FILES": "",  # otherwise pytest rewrites every module, for seconds per run
}


class SimulationFailed(Exception):
    """The simulator reported an error, died or could not start. ``result``: the result until then, if any."""

    def __init__(self, text: str, result: RunResult | None = None):
        super().__init__(text)
        self.result = result


def python_library() -> str:
    """Return the path of Python's shared library, which a simulator loads. Raises InputError without one."""
    found = find_libpython.find_libpython()
    if found is None:
        name = f"libpython{sys.version_info.major}.{sys.version_info.minor}"
        raise InputError(
            f"the simulator needs Python's shared library, which {sys.executable} has not: install it "
            f"(Debian: {name}), or a Python built with --enable-shared"
        )
    return found


def execute(
    directory: Path,
    request: RunRequest,
    *,
    progress: Callable[[Progress], None] | None = None,
    keep: Callable[[RunResult], None] | None = None,
    channels: Sequence[socket] = (),
) -> RunResult:
    """Carry out a request with the build in ``directory``; return its result, which may have an ``error``.

    - ``progress``: called a few times a second, and when a phase has ended.
    - ``keep``: called after each ``kept`` phase, with the phases since its last call and the counters so far.
    - ``channels``: sockets to other ranks, which pass to the simulator and are closed here.

    Raises SimulationFailed if the simulator died. No process is left running, even on KeyboardInterrupt;
    :func:`result_of` then returns the result so far.
    """
    with tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
        work = Path(temporary)
        (work / "request").write_bytes(pickle.dumps(request))
        try:
            status = _execute(directory, work, _Watch(work, request.phases, progress, keep), channels)
        except BaseException as stop:
            setattr(stop, _RESULT, _written(work))
            raise
        result = _written(work)
        if result is None:
            raise SimulationFailed(_last_words(work / "log", status))
    if status and not result.error:
        raise SimulationFailed(f"the simulator ended with status {status}", result)
    return result


def result_of(stop: BaseException) -> RunResult | None:
    """Return the result of the simulator that ``stop`` has ended; None if there is none."""
    return getattr(stop, _RESULT, None)


def _written(work: Path) -> RunResult | None:
    """Return the result in a simulator's folder; None if it is absent or incomplete."""
    try:
        found: RunResult = pickle.loads((work / "result").read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    return found


class _Watch:
    """Receiver of a simulator's reports: passes on progress, and the results of ``kept`` phases."""

    def __init__(
        self,
        work: Path,
        phases: Sequence[Phase],
        progress: Callable[[Progress], None] | None,
        keep: Callable[[RunResult], None] | None,
    ):
        self._work, self._progress, self._keep = work, progress, keep
        self._awaited = [number for number, phase in enumerate(phases, start=1) if phase.kept]

    def __call__(self, now: Progress) -> None:
        while self._awaited and self._awaited[0] <= now.phases:
            file = kept_file(self._work, self._awaited.pop(0))
            if self._keep:
                self._keep(pickle.loads(file.read_bytes()))
            file.unlink()
        if self._progress:
            self._progress(now)


def _execute(
    directory: Path, work: Path, report: Callable[[Progress], None], channels: Sequence[socket]
) -> int:
    reader, writer = os.pipe()
    descriptors = [channel.fileno() for channel in channels]
    environment = (
        os.environ
        | _ENVIRONMENT
        | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYGPI_PYTHON_BIN": sys.executable,
            "GPI_USERS": f"{python_library()};{cocotb_tools.config.pygpi_entry_point()}",
            "FANIN_COSIM_REQUEST": str(work / "request"),
            "FANIN_COSIM_RESULT": str(work / "result"),
            "FANIN_COSIM_PROGRESS": str(writer),
            "FANIN_COSIM_CHANNELS": " ".join(map(str, descriptors)),
        }
    )
    with (work / "log").open("wb") as log, os.fdopen(reader) as lines:
        process = subprocess.Popen(
            [str(directory / EXECUTABLE)],
            cwd=work,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            pass_fds=[writer, *descriptors],
        )
        os.close(writer)
        for channel in channels:
            channel.close()
        try:
            # No timeout here: the simulation's own watchdog ends a run without progress.
            for line in lines:
                report(Progress(*map(int, line.split())))
            return process.wait()
        finally:
            lines.close()  # the simulator's next report fails, so it writes its result and ends
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for ask in (lambda: None, process.terminate, process.kill):
        ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
            return
    process.wait()


def _last_words(log: Path, status: int) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return "\n".join([f"the simulator {how}; its last lines:", *lines[-_LOG_LINES:]])
