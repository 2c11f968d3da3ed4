"""Ring nodes that live on between all-reduces: sums, cycles, and that nothing outlives its program."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection

import numpy as np
import pytest

from fanin.codec.facts import Bf16
from fanin.codec.formats import Rounding
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.golden.random_bits import RandomBits
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.ring import service as ring_service
from fanin.sim.ring.service import Nodes, RingService
from fanin.sim.ring.time import RingTime
from tests.sim.ring.test_cosim import NODES, SIZES
from tests.support import new_seed

pytestmark = pytest.mark.verilator

CONFIG = RingConfig(**SIZES)
ORPHAN = """
import sys, time
import numpy as np
from fanin.sim.ring.service import Nodes, RingService
from tests.sim.ring.test_service import CONFIG, NODES
service = RingService(Nodes(CONFIG, NODES), seconds=300)
service.all_reduce([np.ones(9, np.float32)] * NODES)
print(service._simulation._process.pid, flush=True)
time.sleep(100)
"""


@pytest.fixture
def service():
    service = RingService(Nodes(CONFIG, NODES), seconds=300)
    yield service
    service.close()


def vectors(count):
    rng = np.random.default_rng(new_seed())
    return [rng.standard_normal(count).astype(np.float32) for _ in range(NODES)]


def _gone(group, seconds):
    """Whether all processes of a group have ended in that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_one_all_reduce_after_the_other(service, monkeypatch):
    """With memory of 16 KiB at first; the fourth vector is longer, and begins a new simulation."""
    monkeypatch.setattr(ring_service, "_MIN_BYTES", 1 << 14)
    running = []
    for count in (1, 777, 4096, 9000, 40):
        given = vectors(count)
        served = service.all_reduce(given)
        expected = all_reduce(given, CONFIG)
        assert all(np.array_equal(own, expected) for own in served.sums)
        assert served.cycles == pytest.approx(RingTime(config=CONFIG, nodes=NODES, count=count).total, rel=0.05)
        running.append(service._simulation)
    assert running[0] is running[1] is running[2] is not running[3] is running[4]
    group = running[4]._process.pid
    service.close()
    assert _gone(group, 10)


@pytest.mark.slow
def test_a_process_that_has_died_is_told(service):
    service.all_reduce(vectors(3))
    running = service._simulation
    os.kill(running._process.pid, signal.SIGKILL)
    with pytest.raises(SimulationFailed, match="the process that simulates the nodes has ended"):
        service.all_reduce(vectors(3))
    assert _gone(running._process.pid, 10)
    assert np.array_equal(service.all_reduce([np.ones(3, np.float32)] * NODES).sums[0], [NODES] * 3)


def test_the_time_bounds_a_call():
    service = RingService(Nodes(CONFIG, NODES), seconds=0)
    with pytest.raises(SimulationFailed, match="the nodes have not been built in time"):
        service.all_reduce(vectors(3))
    assert service._simulation is None


@pytest.mark.slow
def test_a_simulator_that_takes_nothing_ends_a_call_in_its_time():
    here, there = socket.socketpair()
    with Connection(here.detach()) as sending, there:
        ring_service._limit_send_time(sending, time.monotonic() + 0.2)
        with pytest.raises(BlockingIOError):
            sending.send(bytes(1 << 24))


def test_nothing_outlives_a_program_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as program:
        group = int(program.stdout.readline())
        assert not _gone(group, 0.5)
        program.kill()
    assert _gone(group, 15)


def test_what_cannot_begin_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    service = RingService(Nodes(CONFIG, NODES), seconds=5)
    with contextlib.closing(service), pytest.raises(OSError, match="too long"):
        service.all_reduce([np.ones(9, np.float32)] * NODES)
    assert list(deep.iterdir()) == []


def test_a_watcher_that_cannot_start_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    begin = time.monotonic()
    service = RingService(Nodes(CONFIG, NODES), seconds=60)
    with contextlib.closing(service), pytest.raises(SimulationFailed, match="has ended"):
        service.all_reduce([np.ones(9, np.float32)] * NODES)
    assert time.monotonic() < begin + 30


@pytest.mark.slow
def test_random_bits_continue_in_nodes_with_more_memory(monkeypatch):
    monkeypatch.setattr(ring_service, "_MIN_BYTES", 1 << 12)
    config = replace(CONFIG, codec=Bf16(Rounding.STOCHASTIC))
    rng, bits = np.random.default_rng(new_seed()), RandomBits()
    service = RingService(Nodes(config, NODES, size=1 << 12), seconds=500)
    for count in (1000, 3000, 70):  # the second one does not fit
        given = [rng.normal(0, 1, count).astype(np.float32) for _ in range(NODES)]
        expected = all_reduce(given, config, bits=bits)
        assert all(np.array_equal(own, expected) for own in service.all_reduce(given).sums)
    service.close()
