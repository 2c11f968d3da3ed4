"""Runs spread over processes: the same bits as in one, and an end of all when one ends."""

import os
import pickle
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.link import LinkConfig
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.meeting import MAX_WINDOW, window
from fanin.sim.cosim.ranks import spread
from fanin.sim.cosim.run import RunResult
from fanin.sim.network import SWITCH_NS, min_trip_ps
from tests.sim.cosim.spread import NODES, OPERATIONS, Ordered
from tests.support import new_seed, slow

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
OF_THE_MACHINE = ("seconds", "cpu_seconds", "network_seconds", "meetings", "meeting_seconds")
pytestmark = pytest.mark.verilator


def run(case, folder, ranks, *seeds):
    """What each seed of a case leaves on so many ranks: a list of results, and of the files beside them."""
    folder = folder / f"{case}{ranks}"
    command = [sys.executable, "-m", "tests.sim.cosim.spread", case, str(folder), *map(str, seeds)]
    launcher = [BIN / "mpiexec", "-n", str(ranks)] if ranks > 1 else []
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*launcher, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, done.stderr
    left = [{path.name: path.read_bytes() for path in (folder / str(seed)).iterdir()} for seed in seeds]
    return [(pickle.loads(files.pop("result")), files) for files in left]


def plain(value):
    """A value that can be compared, without what depends on the machine."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if is_dataclass(value):
        left_out = OF_THE_MACHINE if isinstance(value, RunResult) else ()
        names = [field.name for field in fields(value) if field.name not in left_out]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, float):
        return value.hex()  # alike where it is not a number, too
    return value


def test_nodes_are_spread_evenly_and_those_of_a_host_stay_together():
    assert spread([7] * 8, 3) == (range(3), range(3, 5), range(5, 8))
    assert spread([1] * 12, 2, group_size=4) == (range(4), range(4, 12))
    assert spread([3] * 5, 1) == (range(5),)
    assert spread([1] * 16, 16) == tuple(range(node, node + 1) for node in range(16))
    with pytest.raises(InputError, match="must be at most 3 for 3 hosts of 2 nodes, not 4"):
        spread([1] * 6, 4, group_size=2)


def test_a_heavy_node_has_fewer_beside_it():
    assert spread([2, 1, 3], 2) == (range(2), range(2, 3))
    assert spread([4, 1, 1, 1, 1], 2) == (range(1), range(1, 5))
    assert spread([1, 1, 9], 3) == (range(1), range(1, 2), range(2, 3))  # each has one at least
    assert spread([9, 1, 1, 1], 3) == (range(1), range(1, 2), range(2, 4))


@pytest.mark.parametrize("delay_ns", [0, 0.5, 100, 101.3])
@pytest.mark.parametrize("gbps", [float("inf"), 100])
def test_no_frame_of_a_window_is_due_before_its_end(delay_ns, gbps):
    trip = min_trip_ps(LinkConfig(delay_ns=delay_ns, gbps=gbps), delay_ns)
    clock = Clock(4000)
    cycles = window(trip, clock)
    assert clock.time(1) + trip > clock.time(
        cycles - 1
    )  # it leaves at the first edge, and is due at the last one
    assert clock.time(1) + trip <= clock.time(cycles)  # or the window could be longer
    assert window(10**12, clock) == MAX_WINDOW


def test_two_ranks_leave_what_one_process_does(tmp_path):
    seed = new_seed()
    [alone], [both] = (run("dummies", tmp_path, ranks, seed) for ranks in (1, 2))
    assert plain(alone) == plain(both)
    result, files = both
    assert result.meetings > 10
    assert result.frames["AGG"] == 2 * OPERATIONS
    assert len(result.events) == OPERATIONS + 1  # of more that there were
    assert set(files) == {"capture.pcap", "links"}


def test_hosts_of_all_ranks_do_what_is_ordered_at_the_same_edges(tmp_path):
    [(alone, _)], [(both, _)] = (run("ordered", tmp_path, ranks, 1) for ranks in (1, 2))
    assert plain(alone) == plain(both)
    cycles = window(min_trip_ps(LinkConfig(), SWITCH_NS), Clock(4000))
    answered, ordered = (
        [[edge for what, edge in log if what == wanted] for log in both.hosts.values()]
        for wanted in ("answered", "ordered")
    )
    ends = [-(-max(edges) // cycles) * cycles for edges in zip(*answered, strict=True)]
    assert ordered == [ends] * NODES  # at the end of the window in which the last has answered
    assert len(ends) == Ordered.ROUNDS
    assert Ordered.LATER < both.skipped_ps < Ordered.NEVER
    assert both.cycles == ends[-1]


@pytest.mark.parametrize(
    "case", ["failing", "lost", *slow("ring_dies", "cluster_dies", "group_dies", "sync_dies", "sync_loses")]
)
def test_a_failure_is_the_same_on_two_ranks(tmp_path, case):
    [((text, alone), _)], [((other, both), _)] = (run(case, tmp_path, ranks, 1) for ranks in (1, 2))
    assert text == other
    assert alone.cycles == both.cycles
    assert plain(alone.failed_check) == plain(both.failed_check)
    assert alone.watched == both.watched


def test_a_simulator_that_dies_ends_all_and_is_named(tmp_path):
    began = time.monotonic()
    [((text, result), _)] = run("deadly", tmp_path, 2, 1)
    assert text.startswith("rank 1 on ")
    assert "nodes 1 to 1: the simulator was killed by signal 9" in text
    assert result is None
    assert time.monotonic() < began + 300


RANKS = (2, 3, 4, 8, 16)
SEEDS = 4

#: Nodes, where there are fewer than the most ranks; a window of no latency is a cycle.
LIMITS = {
    "no_latency": 2,
    "cluster": 3,
    "digits": 3,
    "data_parallel": 4,
    "groups": 7,
    "groups_train": 7,
    "engines": 8,
    "ring_train": 8,
    "wild": 8,
    "wild_loses": 8,
    "sync": 8,
}


@pytest.mark.parametrize(
    "case",
    slow(
        "train",
        "in_hbm",
        "switchml",
        "data_parallel",
        "no_latency",
        "ring",
        "engines",
        "rdma",
        "ring_train",
        "cluster",
        "digits",
        "groups",
        "groups_train",
        "wild",
        "wild_loses",
        "sync",
    ),
)
def test_any_number_of_ranks_leaves_the_same(tmp_path, case):
    """Four seeds for each number of ranks, on a network that loses, repeats, reorders and corrupts."""
    first = new_seed() % 2**31
    seeds = range(first, first + SEEDS)
    alone = [plain(left) for left in run(case, tmp_path, 1, *seeds)]
    for ranks in RANKS:
        if ranks <= LIMITS.get(case, 16):
            left = run(case, tmp_path, ranks, *seeds)
            for seed, one, other in zip(seeds, alone, left, strict=True):
                assert one == plain(other), (case, seed, ranks)
