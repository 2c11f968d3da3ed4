"""Process of a simulator: start, progress, result and end."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
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
    library = find_libpython.find_libpython()
    if library is None:
        name = f"libpython{sys.version_info.major}.{sys.version_info.minor}"
        raise InputError(
            f"the simulator needs Python's shared library, which {sys.executable} has not: install it "
            f"(Debian: {name}), or a Python built with --enable-shared"
        )
    return library


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
    - ``channels``: sockets to other ranks; the simulator inherits them, and they are closed here.

    Raises SimulationFailed if the simulator died. No process is left running, even on KeyboardInterrupt;
    :func:`result_of` then returns the result so far.
    """
    with tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
        folder = Path(temporary)
        (folder / "request").write_bytes(pickle.dumps(request))
        try:
            status = _execute(directory, folder, _Watch(folder, request.phases, progress, keep), channels)
        except BaseException as stop:
            setattr(stop, _RESULT, _read_result(folder))
            raise
        result = _read_result(folder)
        if result is None and not shutil.disk_usage(folder).free:
            raise SimulationFailed(f"{folder.parent}: no space is left on its disk for the simulator's files")
        if result is None:
            raise SimulationFailed(_log_tail(folder / "log", status))
    if status and not result.error:
        raise SimulationFailed(f"the simulator ended with status {status}", result)
    return result


def result_of(stop: BaseException) -> RunResult | None:
    """Return the result of the simulator that ``stop`` has ended; None if there is none."""
    return getattr(stop, _RESULT, None)


def _read_result(folder: Path) -> RunResult | None:
    """Return the result in a simulator's folder; None if it is absent or incomplete."""
    try:
        result: RunResult = pickle.loads((folder / "result").read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    return result


class _Watch:
    """Receiver of a simulator's reports: calls ``progress``, and ``keep`` after ``kept`` phases."""

    def __init__(
        self,
        folder: Path,
        phases: Sequence[Phase],
        progress: Callable[[Progress], None] | None,
        keep: Callable[[RunResult], None] | None,
    ):
        self._work, self._progress, self._keep = folder, progress, keep
        self._phases_to_keep = [number for number, phase in enumerate(phases, start=1) if phase.kept]

    def __call__(self, progress: Progress) -> None:
        while self._phases_to_keep and self._phases_to_keep[0] <= progress.phases:
            file = kept_file(self._work, self._phases_to_keep.pop(0))
            if self._keep:
                self._keep(pickle.loads(file.read_bytes()))
            file.unlink()
        if self._progress:
            self._progress(progress)


def _execute(
    directory: Path, folder: Path, report: Callable[[Progress], None], channels: Sequence[socket]
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
            "FANIN_COSIM_REQUEST": str(folder / "request"),
            "FANIN_COSIM_RESULT": str(folder / "result"),
            "FANIN_COSIM_PROGRESS": str(writer),
            "FANIN_COSIM_CHANNELS": " ".join(map(str, descriptors)),
        }
    )
    with (folder / "log").open("wb") as log, os.fdopen(reader) as lines:
        process = subprocess.Popen(
            [str(directory / EXECUTABLE)],
            cwd=folder,
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
    for end in (lambda: None, process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
            return
    process.wait()


def _log_tail(log: Path, status: int) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    status_text = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return "\n".join([f"the simulator {status_text}; its last lines:", *lines[-_LOG_LINES:]])
