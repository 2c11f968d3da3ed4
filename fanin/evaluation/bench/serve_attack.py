"""Benchmark of the embedded switch without and with hostile controllers (``fanin bench serve --attack``).

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
from fanin.evaluation.bench.served import ServedSwitch, aggregate, cpu_seconds, serve_switch

SECONDS = 10.0  # duration of each measurement
MIN_RATE = 0.9  # least ratio of the rate with attackers to the rate without
MAX_SHARE = 0.1  # maximum share of control in the forwarding process's time
SEPARATE_CORES = 4  # minimum cores of the machine for which attackers have their own cores
_ADDRESS, _DEVICE = "127.0.0.1:9559", 0
_MAX_QUEUED = 2048  # frames in the kernel's queue
_BATCH = 128  # frames sent between two checks of the queue
_PAUSE_SECONDS = 0.0005  # while the queue is full
_TIMEOUT_SECONDS = 120.0  # for the attackers' start or end, and for answers


@dataclass(frozen=True)
class Rates:
    """Rates of forwarding.

    - ``wall_rate``: frames per s of time.
    - ``cpu_rate``: frames per s of the switch's processor time.
    - ``cpu_time``: the switch's processor time, in s.
    """

    wall_rate: float
    cpu_rate: float
    cpu_time: float


def measure() -> Iterator[Result]:
    """Yield the rates, and control's share of the processor. Raises ModuleNotFoundError without P4Runtime."""
    from fanin.evaluation.bench.hostile import COUNT

    cores = sorted(os.sched_getaffinity(0))
    separate_cores = len(cores) >= SEPARATE_CORES
    try:
        if separate_cores:
            os.sched_setaffinity(0, cores[2:])  # of all that is started from now on
        with serve_switch() as switch:
            if separate_cores:
                os.sched_setaffinity(switch.process.pid, cores[:1])
            with _attackers(switch, COUNT) as attackers:
                if separate_cores:
                    os.sched_setaffinity(0, cores[1:2])
                idle_rates, attack_rates, calls = _measure_rates(switch, attackers)
    finally:
        os.sched_setaffinity(0, cores)
    if not calls:
        raise CheckFailed("no call of the hostile controllers has ended: nothing was attacked")
    yield from figures(
        idle_rates, attack_rates, switch.report["control_seconds"], calls, separate_cores=separate_cores
    )


def figures(
    idle: Rates, attack: Rates, control: float, calls: int, *, separate_cores: bool
) -> Iterator[Result]:
    """Yield the figures.

    - ``idle``, ``attack``: rates without and with attackers.
    - ``control``: processor time of control, in s.
    - ``calls``: number of the attackers' finished calls.
    - ``separate_cores``: True if the attackers had their own cores; False: the rate by the clock has no limit.
    """
    note = "attackers on other cores" if separate_cores else "attackers at nice 10 on the same cores: no limit"
    yield Result("frames a second", idle.wall_rate, "frames/s", note="no controllers")
    yield Result("frames a second, 16 hostile controllers", attack.wall_rate, "frames/s", note=note)
    yield Result("frames a second of one core", idle.cpu_rate, "frames/s", note="no controllers")
    yield Result("frames a second of one core, 16 hostile controllers", attack.cpu_rate, "frames/s")
    limit = MIN_RATE if separate_cores else None
    yield Result("rate kept, by the clock", attack.wall_rate / idle.wall_rate, "", limit, at_least=True)
    yield Result("rate kept, of one core", attack.cpu_rate / idle.cpu_rate, "", MIN_RATE, at_least=True)
    yield Result("control's share of the switch's processor time", control / attack.cpu_time, "", MAX_SHARE)
    yield Result("calls of the hostile controllers", calls, "")


def _measure_rates(switch: ServedSwitch, attackers: subprocess.Popen[str]) -> tuple[Rates, Rates, int]:
    """Return rates without and with attackers, and the number of the attackers' finished calls."""
    flood = _Flood(switch)
    flood.send_for(1.0)  # caches are warm
    idle_rates = _rates(switch, flood)
    assert attackers.stdin is not None
    assert attackers.stdout is not None
    attackers.stdin.write("\n")
    attackers.stdin.flush()
    flood.send_until(lambda: _has_output(attackers))
    if attackers.stdout.readline() != "ready\n":
        raise ToolFailed("the hostile controllers did not start")
    attack_rates = _rates(switch, flood)
    attackers.stdin.close()
    flood.send_until(lambda: _has_output(attackers))
    calls = int(attackers.stdout.readline())
    flood.send_for(1.0)  # frames wait until control has forgotten the attackers' calls
    flood.settle()
    return idle_rates, attack_rates, calls


@contextlib.contextmanager
def _attackers(switch: ServedSwitch, count: int) -> Iterator[subprocess.Popen[str]]:
    """Start the process of the attackers, which begin at its first line of input; kill it at the end."""
    command = python_module("fanin.evaluation.bench.hostile", _ADDRESS, str(_DEVICE), str(count))
    pipe = subprocess.PIPE
    with switch.lab.start("switch", command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _has_output(process: subprocess.Popen[str]) -> bool:
    """Return whether a process has printed text that is not yet read."""
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def _rates(switch: ServedSwitch, flood: _Flood) -> Rates:
    start, cpu_start, frames_start = time.monotonic(), cpu_seconds(switch.process.pid), flood.forwarded()
    flood.send_for(SECONDS)
    count, cpu_time = flood.forwarded() - frames_start, cpu_seconds(switch.process.pid) - cpu_start
    return Rates(count / (time.monotonic() - start), count / cpu_time, cpu_time)


class _Flood:
    """Worker that sends one frame repeatedly: an AGG of a complete round, which the switch answers.

    Frames always wait in the kernel's queue, but never so many that it loses frames.
    """

    def __init__(self, switch: ServedSwitch):
        self._devices = Path(f"/proc/{switch.process.pid}/net/dev")
        for worker, host in enumerate(switch.hosts):
            host.send(aggregate(worker, 0, 1))
        self._frame, self._host = aggregate(0, 0, 1), switch.hosts[0]
        self._sent = 1
        self.settle()

    def forwarded(self) -> int:
        """Return the number of answered frames: those that have left the switch's first port."""
        lines = self._devices.read_text().splitlines()
        counts = next(line.split() for line in lines if line.split()[0] == "port0:")
        return int(counts[10])

    def send_for(self, seconds: float) -> None:
        """Send frames for ``seconds``."""
        deadline = time.monotonic() + seconds
        self.send_until(lambda: time.monotonic() >= deadline)

    def send_until(self, finished: Callable[[], bool]) -> None:
        """Send frames until ``finished`` returns True. Raises CheckFailed after ``_TIMEOUT_SECONDS``."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not finished():
            if time.monotonic() > deadline:
                raise CheckFailed(f"the switch, or the attackers, took more than {_TIMEOUT_SECONDS:g} s")
            if self._sent - self.forwarded() > _MAX_QUEUED - _BATCH:
                time.sleep(_PAUSE_SECONDS)
                continue
            for _ in range(_BATCH):
                self._host.send(self._frame)
            self._sent += _BATCH

    def settle(self) -> None:
        """Wait until each frame is answered. Raises CheckFailed after ``_TIMEOUT_SECONDS``."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while unanswered := self._sent - self.forwarded():
            if time.monotonic() > deadline:
                raise CheckFailed(f"the switch has not answered {unanswered} of {self._sent} frames")
            time.sleep(_PAUSE_SECONDS)
