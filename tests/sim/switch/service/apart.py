"""A served switch in a process of its own, for tests of load: clients do not share its interpreter's lock."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

from fanin.host.ethernet import BATCH
from fanin.sim.switch.embedded import load
from fanin.sim.switch.service.forwarding import Forwarding
from fanin.sim.switch.service.memory import prepare, set_aside
from fanin.sim.switch.service.requests import P4RuntimeService
from fanin.sim.switch.service.server import P4RuntimeServer
from tests.sim.switch.service.client import DEVICE
from tests.sim.switch.service.served import SELECTED, TEXT, FakeInterface, frame_to

CELLS = 2_000_000
#: TEXT with a register and a counter of many cells, and a table for many entries.
LARGE = (
    TEXT.replace("register<bit<48>>(8) last;", f"register<bit<48>>({CELLS}) last;")
    .replace("counter(4, CounterType.packets) by_port;", f"counter({CELLS}, CounterType.packets) by_port;")
    .replace("size = 4;", "size = 300000;")
)
#: SELECTED with room for many entries that age.
AGEING = SELECTED.replace("support_timeout = true;", "support_timeout = true; size = 300000;")
PROGRAMS = {"large": LARGE, "small": TEXT.replace("size = 4;", "size = 300000;"), "ageing": AGEING}


class Flood(FakeInterface):
    """A port at which frames always wait, while ``on``."""

    def __init__(self):
        super().__init__()
        self._event = os.eventfd(0)
        self._frames = [(0, frame_to(0x10, payload=bytes(46)))] * BATCH
        self.sent = 0

    def turn(self, on):
        if on:
            os.eventfd_write(self._event, 1)
        else:
            os.eventfd_read(self._event)

    def fileno(self):
        return self._event

    def receive(self):
        return self._frames

    def send(self, frame):
        self.sent += 1
        return True


class Outside(FakeInterface):
    """A port whose other end another process has."""

    def __init__(self, number):
        super().__init__()
        self._ours.close()
        self._ours = socket.socket(fileno=number)
        self._ours.setblocking(False)


class Apart:
    """The process, seen from the test: port 0 is ``host``; port 2 is a :class:`Flood`."""

    def __init__(self, program):
        self.program = program
        self.host, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.host.settimeout(20)
        with theirs:
            command = [sys.executable, "-m", __name__, program, str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.address = f"127.0.0.1:{json.loads(self.process.stdout.readline())}"

    def ask(self, *words):
        """What the process answers to a command."""
        print(*words, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        self.process.stdout.close()
        self.host.close()


class Served:
    """The process, seen from inside."""

    def __init__(self, program, number):
        self.program = load(PROGRAMS[program])
        self.flood = Flood()
        self.said = []
        fresh = lambda: self.program.switch(range(511))  # noqa: E731
        ports = {0: Outside(number), 1: FakeInterface(), 2: self.flood}
        self.forwarding = Forwarding(fresh(), ports, cpu=100, report=self.said.append)
        self.server = P4RuntimeServer(
            P4RuntimeService(self.program, self.forwarding, fresh, DEVICE), "127.0.0.1:0"
        )
        self.flooding = False

    def obey(self):
        """Carry out commands until there are no more."""
        print(self.server.port, flush=True)
        for line in sys.stdin:
            answer = self.forwarding.run_in_loop(partial(self._answer, *line.split()))
            print(json.dumps(answer), flush=True)
        self.server.close()
        self.forwarding.stop()

    def _answer(self, word, *rest):
        if word == "flood":
            self.flood.turn(rest == ("on",))
        elif word == "reset":
            self.forwarding.longest_visit = 0.0
        return {
            "frames": self.forwarding.counters[2].frames_in,
            "cpu": time.thread_time(),
            "clock": time.monotonic(),
            "control": self.forwarding.control_seconds,
            "longest": self.forwarding.longest_visit,
            "calls": len(self.server._calls._calls),
            "failed": self.forwarding.failed,
            "said": self.said,
            "kB": memory(os.getpid()),
            "front_kB": memory(self.server._process.pid),
            "peak_kB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }


def memory(pid):
    """Resident kB of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def main():
    served = Served(sys.argv[1], int(sys.argv[2]))
    prepare()
    threading.Thread(target=served.obey, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        served.forwarding.run(set_aside)


if __name__ == "__main__":
    main()
