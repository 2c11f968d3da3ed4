"""``fanin bench serve --attack``: rate of the embedded switch without and with hostile controllers.

One host sends so that frames always wait. The rate counts frames that the switch has answered, in two ways:

- Per second of the forwarding process's own processor time. It shows how much of that time control takes.
- By the clock. The attackers also compete with the switch for the machine's cores. With four cores or more,
  switch and sender therefore have a core each; attackers and the switch's gRPC process share the others.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fanin.base.errors import CheckFailed, ToolFailed
from fanin.base.tools import python_module
from fanin.evaluation.bench.result import Result
from fanin.evaluation.bench.served import Served, aggregate, cpu_seconds, serving

SECONDS = 10.0  # of each measurement
MIN_RATE = 0.9  # of the rate without attackers
MAX_SHARE = 0.1  # of the forwarding process's time
SEPARATE_CORES = 4  # from which attackers have cores of their own
_ADDRESS, _DEVICE = "127.0.0.1:9559", 0
_WAITING = 2048  # frames in the kernel's queue, at most
_BATCH = 128
_PAUSE = 0.0005
_PATIENCE = 120.0  # seconds until attackers are at work, or frames come


@dataclass(frozen=True)
class Rates:
    """Frames per second of time and of the switch's processor time, and that time in seconds."""

    by_clock: float
    by_core: float
    busy: float


def attacked() -> Iterator[Result]:
    """Yield the rates, and control's share of the processor. Raises ModuleNotFoundError without P4Runtime."""
    from fanin.evaluation.bench.hostile import COUNT

    cores = sorted(os.sched_getaffinity(0))
    apart = len(cores) >= SEPARATE_CORES
    try:
        if apart:
            os.sched_setaffinity(0, cores[2:])  # of all that is started from now on
        with serving() as served:
            if apart:
                os.sched_setaffinity(served.process.pid, cores[:1])
            with _attackers(served, COUNT) as attackers:
                if apart:
                    os.sched_setaffinity(0, cores[1:2])
                before, during, calls = _measured(served, attackers)
    finally:
        os.sched_setaffinity(0, cores)
    if not calls:
        raise CheckFailed("no call of the hostile controllers has ended: nothing was attacked")
    yield from figures(before, during, served.outcome["control_seconds"], calls, apart=apart)


def figures(before: Rates, during: Rates, control: float, calls: int, *, apart: bool) -> Iterator[Result]:
    """Yield the figures.

    - ``before``, ``during``: rates without and with attackers.
    - ``control``: processor time of control, in s.
    - ``calls``: number of the attackers' finished calls.
    - ``apart``: True if the attackers had cores of their own; False: the rate by the clock has no limit.
    """
    where = "attackers on other cores" if apart else "attackers at nice 10 on the same cores: no limit"
    yield Result("frames a second", before.by_clock, "frames/s", note="no controllers")
    yield Result("frames a second, 16 hostile controllers", during.by_clock, "frames/s", note=where)
    yield Result("frames a second of one core", before.by_core, "frames/s", note="no controllers")
    yield Result("frames a second of one core, 16 hostile controllers", during.by_core, "frames/s")
    limit = MIN_RATE if apart else None
    yield Result("rate kept, by the clock", during.by_clock / before.by_clock, "", limit, at_least=True)
    yield Result("rate kept, of one core", during.by_core / before.by_core, "", MIN_RATE, at_least=True)
    yield Result("control's share of the switch's processor time", control / during.busy, "", MAX_SHARE)
    yield Result("calls of the hostile controllers", calls, "")


def _measured(served: Served, attackers: subprocess.Popen[str]) -> tuple[Rates, Rates, int]:
    """Return rates without and with attackers, and the number of the attackers' finished calls."""
    flood = _Flood(served)
    flood.send_for(1.0)  # caches are warm
    before = _rates(served, flood)
    assert attackers.stdin is not None
    assert attackers.stdout is not None
    attackers.stdin.write("\n")
    attackers.stdin.flush()
    flood.send_until(lambda: _says(attackers))
    if attackers.stdout.readline() != "ready\n":
        raise ToolFailed("the hostile controllers did not start")
    during = _rates(served, flood)
    attackers.stdin.close()
    flood.send_until(lambda: _says(attackers))
    calls = int(attackers.stdout.readline())
    flood.send_for(1.0)  # frames wait until control has forgotten the attackers' calls
    flood.settle()
    return before, during, calls


@contextlib.contextmanager
def _attackers(served: Served, count: int) -> Iterator[subprocess.Popen[str]]:
    """Start the process of the attackers, which begin at its first line of input; kill it at the end."""
    command = python_module("fanin.evaluation.bench.hostile", _ADDRESS, str(_DEVICE), str(count))
    pipe = subprocess.PIPE
    with served.lab.start("switch", command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _says(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def _rates(served: Served, flood: _Flood) -> Rates:
    began, busy, frames = time.monotonic(), cpu_seconds(served.process.pid), flood.forwarded()
    flood.send_for(SECONDS)
    count, spent = flood.forwarded() - frames, cpu_seconds(served.process.pid) - busy
    return Rates(count / (time.monotonic() - began), count / spent, spent)


class _Flood:
    """A worker that sends one frame again and again, which the switch answers: an AGG whose round is complete.

    Frames always wait, but not so many that the kernel's queue loses one.
    """

    def __init__(self, served: Served):
        self._devices = Path(f"/proc/{served.process.pid}/net/dev")
        for worker, host in enumerate(served.hosts):
            host.send(aggregate(worker, 0, 1))
        self._frame, self._host = aggregate(0, 0, 1), served.hosts[0]
        self._sent = 1
        self.settle()

    def forwarded(self) -> int:
        """Return how many frames the switch has answered: those that have left its first port."""
        lines = self._devices.read_text().splitlines()
        counts = next(line.split() for line in lines if line.split()[0] == "port0:")
        return int(counts[10])

    def send_for(self, seconds: float) -> None:
        """Send for so long."""
        end = time.monotonic() + seconds
        self.send_until(lambda: time.monotonic() >= end)

    def send_until(self, finished: Callable[[], bool]) -> None:
        """Send until ``finished``. Raises CheckFailed if that takes too long."""
        end = time.monotonic() + _PATIENCE
        while not finished():
            if time.monotonic() > end:
                raise CheckFailed(f"the switch, or the attackers, took more than {_PATIENCE:g} s")
            if self._sent - self.forwarded() > _WAITING - _BATCH:
                time.sleep(_PAUSE)
                continue
            for _ in range(_BATCH):
                self._host.send(self._frame)
            self._sent += _BATCH

    def settle(self) -> None:
        """Wait until each frame has been answered. Raises CheckFailed if some are not."""
        end = time.monotonic() + _PATIENCE
        while waiting := self._sent - self.forwarded():
            if time.monotonic() > end:
                raise CheckFailed(f"the switch has not answered {waiting} of {self._sent} frames")
            time.sleep(_PAUSE)
