"""A simulation from end to end, with the least node that there is."""

import functools
import os
import signal
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import scapy.layers.l2  # noqa: F401  (what a frame is)
from scapy.utils import rdpcap

from fanin.hbm import HBM2
from fanin.link import LinkConfig
from fanin.sim.cosim.process import result_of
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import EVENT, Phase, RunRequest
from fanin.sim.cosim.simulator import Group, SimulationFailed, Simulator
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.operations import Operations, Step
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.ethernet import Endpoint
from tests.sim.cosim.dummy import JOB, REGISTERS, SLOTS, DummyNode

pytestmark = pytest.mark.verilator

NODES = 2
OPERATIONS = 20
QUICK = LinkConfig(delay_ns=0, gbps=float("inf"))
at = REGISTERS.offset


class DyingSwitch(ReferenceSwitch):
    def inject(self, port, frame, time):
        os.kill(os.getpid(), signal.SIGSEGV)


class BrokenSwitch(ReferenceSwitch):
    def inject(self, port, frame, time):
        raise LookupError("no such port in my switch")


@pytest.fixture(scope="module")
def simulator():
    return Simulator([Group(DummyNode(), NODES)], quiet=True)


@pytest.fixture
def data():
    return np.random.default_rng(3).integers(-(10**6), 10**6, (NODES, OPERATIONS, 8), dtype=np.int32)


@pytest.fixture
def request_of(tmp_path, data):
    """Builds a request: run ``operations`` operations, read the total; anything else can be replaced."""

    def make(
        *, operations=OPERATIONS, switch=ReferenceSwitch, fault=0, then=lambda program: program, **changes
    ):
        for node in range(NODES):
            data[node].tofile(tmp_path / f"memory{node}")
        programs = [
            then(
                HostProgram()
                .write(at("worker"), node)
                .write(at("operations"), operations)
                .write(at("fault"), fault)
                .write(at("control"), 1)
                .poll(at("busy"), 0)
                .read(at("total"))
            )
            for node in range(NODES)
        ]
        members = tuple(Member(n, 1 << n, Endpoint(mac=n + 1)) for n in range(NODES))
        fields = {
            "nodes": NODES,
            "period_ps": 4000,
            "memories": [[tmp_path / f"memory{node}"] for node in range(NODES)],
            "phases": [Phase("all", programs)],
            "switch": functools.partial(switch, endpoint=Endpoint(mac=99), ports=NODES),
            "jobs": [Job(JOB, 0, SLOTS, members)],
            "link": QUICK,
            "switch_ns": 0.0,
            "seed": 1,
            "watchdog": 5000,
            "watch": Operations,
        }
        return RunRequest(**(fields | changes))

    return make


def test_memory_host_and_frames_work_together(simulator, request_of, data):
    result = simulator.run(request_of())
    total = int(data[:, :, 0].astype(np.int64).sum())
    assert [int(reads[0]) for reads in result.phases[0].reads] == [total % 2**32] * NODES
    assert result.frames == {"AGG": NODES * OPERATIONS, "ACK": NODES * OPERATIONS}
    assert result.jobs[JOB]["results"] == result.jobs[JOB]["confirms"] == OPERATIONS
    assert result.bytes_read == [[32 * OPERATIONS]] * NODES


def test_without_latency_a_result_is_taken_one_edge_after_its_agg(simulator, request_of):
    assert simulator.run(request_of()).watched.allreduce_cycles == [1] * (NODES * OPERATIONS)


def test_latency_is_links_and_switch_rounded_up_to_the_next_edge(simulator, request_of):
    result = simulator.run(request_of(link=LinkConfig(delay_ns=250, gbps=100), switch_ns=400))
    one_way = 250_000 + (8 + 60 + 4) * 80
    assert set(result.watched.allreduce_cycles) == {-(-(2 * one_way + 400_000) // 4000) + 1}


def test_the_clock_is_a_run_time_setting(simulator, request_of):
    link = LinkConfig(delay_ns=1000, gbps=float("inf"))
    slow = simulator.run(request_of(link=link, period_ps=10_000)).watched.allreduce_cycles
    assert set(slow) == {201}


def test_words_in_hbm_come_when_their_bank_has_them(simulator, request_of, tmp_path):
    """On the nodes' clock: words of an open row as behind a latency, and the first of a bank a tRCD later."""
    hbm = replace(HBM2, period_ps=4000, refresh=1 << 40)
    hit = hbm.to_controller + hbm.cas_latency + hbm.access + hbm.from_controller

    def sent(**memory):
        simulator.run(request_of(trace=tmp_path / "trace", event_mask=1, **memory))
        events = np.fromfile(tmp_path / "trace", EVENT)
        return np.diff(events["cycle"][events["node"] == 1].astype(int), prepend=0)

    late = sent(hbm=hbm) - sent(memory_latency=hit)
    assert late.tolist() == [hbm.activate_to_read] * 2 + [0] * (OPERATIONS - 2)  # two banks in turn
    assert (sent(hbm=hbm) != sent(hbm=replace(hbm, refresh=400))).any()


def test_the_same_seed_repeats_a_run_and_corrupt_frames_are_marked(simulator, request_of, tmp_path):
    def run(name, seed):
        # a node that never asks again stops at the first loss: its watchdog ends the run
        request = request_of(
            link=LinkConfig(corrupt=0.2), seed=seed, trace=tmp_path / name, event_mask=3, pcap=tmp_path / "p"
        )
        with pytest.raises(SimulationFailed) as failure:
            simulator.run(request)
        return failure.value.result, (tmp_path / name).read_bytes()

    first, second, other = run("a", 1), run("b", 1), run("c", 2)
    assert first[1] == second[1]
    assert first[1] != other[1]
    assert first[0].links == second[0].links
    assert sum(link["up"]["fcs_errors"] + link["down"]["fcs_errors"] for link in first[0].links) > 0


def test_a_lost_packet_ends_with_the_watchdog_and_says_how_far_it_came(simulator, request_of):
    with pytest.raises(SimulationFailed, match="no progress for 5000 cycles") as failure:
        simulator.run(request_of(link=LinkConfig(drop=1)))
    assert [list(steps) for steps in failure.value.result.watched.first_packet] == [[Step.AGG_LEFT]] * NODES


def test_events_are_traced_with_their_cycles(simulator, request_of, tmp_path):
    simulator.run(request_of(trace=tmp_path / "trace", event_mask=0b10))
    trace = np.fromfile(tmp_path / "trace", dtype="<u8").reshape(-1, 3)
    assert len(trace) == NODES * OPERATIONS
    assert (trace[:, 1] == 2).all()
    assert (np.diff(trace[:, 0].astype(np.int64)) >= 0).all()


def test_the_capture_shows_every_frame_at_the_switch(simulator, request_of, tmp_path):
    simulator.run(request_of(pcap=tmp_path / "x.pcap"))
    packets = rdpcap(str(tmp_path / "x.pcap"))
    assert len(packets) == 4 * NODES * OPERATIONS
    assert {packet.type for packet in packets} == {0x88B5}


def test_a_read_beyond_the_memory_is_an_error(simulator, request_of):
    with pytest.raises(SimulationFailed, match=f"memory port 0: read at {32 * OPERATIONS} beyond its"):
        simulator.run(request_of(operations=OPERATIONS + 1))


def test_a_bus_error_names_the_register(simulator, request_of):
    with pytest.raises(SimulationFailed, match="node 0: the bus answers register 0x800 with error 2"):
        simulator.run(request_of(then=lambda program: program.read(0x800)))


def test_a_check_that_fails_says_what_it_read(simulator, request_of):
    with pytest.raises(SimulationFailed, match=r"register 0x\w+ reads 0x14, expected 0x0") as failure:
        simulator.run(request_of(then=lambda program: program.check(at("operations"), 0)))
    assert failure.value.result.failed_check.value == OPERATIONS


def test_a_long_program_runs_without_python(simulator, request_of):
    def many(program):
        for _ in range(3000):
            program.read(at("operations"))
        return program

    result = simulator.run(request_of(then=many))
    assert all((reads[1:] == OPERATIONS).all() and len(reads) == 3001 for reads in result.phases[0].reads)


def test_a_frame_that_pauses_inside_is_a_violation(simulator, request_of):
    with pytest.raises(SimulationFailed, match="node 0, stream mac_tx: a frame pauses inside"):
        simulator.run(request_of(fault=1))


def test_a_simulator_that_dies_is_an_error(simulator, request_of):
    with pytest.raises(SimulationFailed, match="killed by signal 11"):
        simulator.run(request_of(switch=DyingSwitch))


def test_an_exception_in_the_simulator_is_reported(simulator, request_of):
    with pytest.raises(SimulationFailed, match=r"LookupError .*: no such port in my switch"):
        simulator.run(request_of(switch=BrokenSwitch))


def test_an_interrupt_leaves_no_process_behind_and_what_came_out_until_then(simulator, request_of, monkeypatch):
    processes = []
    popen = subprocess.Popen
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: processes.append(popen(*a, **k)) or processes[-1])

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop:
        simulator.run(request_of(), progress=interrupt)
    assert result_of(stop.value).frames["AGG"] == NODES * OPERATIONS  # the first report is the phase's end
    assert processes
    assert all(process.poll() is not None for process in processes)


def test_a_request_must_fit_the_build(simulator, request_of):
    with pytest.raises(ValueError, match="nodes must be 2, as built, not 3"):
        simulator.run(request_of(nodes=3))
    with pytest.raises(ValueError, match="node 0 must have a file for each of its 1 memory ports, not 0"):
        simulator.run(request_of(memories=[[], []]))
