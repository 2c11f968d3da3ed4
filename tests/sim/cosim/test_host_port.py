"""Hosts that send and receive frames beside their node's other traffic, through its host packet port."""

import functools

import numpy as np
import pytest
from scapy.utils import rdpcap

from fanin.codec.facts import Inceptionn
from fanin.codec.golden.packet import receive, transmit
from fanin.hdl.codec.nic.nic import InceptionnNic
from fanin.link import LinkConfig
from fanin.sim.cosim.cluster import Cluster
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.simulator import Group, SimulationFailed, Simulator
from tests.fanin.codec.golden.packets import frame_of, gradients
from tests.sim.cosim import kinds
from tests.sim.cosim.copy_node import CopyNode, mac
from tests.sim.cosim.host_node import BEAT, FAULT, HOLD, REGISTERS, HostNode
from tests.sim.cosim.test_live import MS, PERIOD, Hosts

pytestmark = pytest.mark.verilator

COPY = 2  # the one node without a host packet port


@pytest.fixture(scope="module")
def simulator():
    return Simulator([Group(HostNode(), COPY), Group(CopyNode())], quiet=True)


@pytest.fixture
def run(simulator, tmp_path):
    def go(hosts, **changes):
        (tmp_path / "memory").write_bytes(bytes(64))
        memories = [[], [], [tmp_path / "memory"]]
        return simulator.run(kinds.request(tmp_path, hosts=hosts, nodes=3, **{"memories": memories} | changes))

    return go


def frames_to(node, lengths):
    """Frames of these lengths, each with other bytes."""
    random = np.random.default_rng(len(lengths))
    return [mac(node).to_bytes(6, "big") + random.bytes(length - 6) for length in lengths]


class Traffic(Hosts):
    """Sends frames between the first two nodes, and notes what is taken, and what comes."""

    def __init__(self, board, *, frames, stall=0.0):
        super().__init__(board)
        self.frames, self.stall = frames, stall  # per node
        self.left = sum(map(len, frames))

    def start(self):
        for node, frames in enumerate(self.frames):
            self.board.on_frame(node, functools.partial(self.received, node))
            self.board.stall(node, self.stall)
            for number, frame in enumerate(frames):
                self.board.send(node, frame, functools.partial(self.taken, node, number))

    def taken(self, node, number):
        self.note("taken", node, number, self.board.unsent(node))

    def received(self, node, frame):
        self.note("received", node, frame)
        self.left -= 1
        self.done = not self.left

    def of(self, what, node):
        return [entry for entry in self.log if entry[2:4] == (what, node)]

    def result(self):
        return [(self.of("taken", node), self.of("received", node)) for node in range(2)]


def received(result):
    """The frames that each node has handed to its host."""
    return [[entry[4] for entry in own] for _, own in result.hosts]


LENGTHS = [64, 6, 1500, 15, 16, 17, 9000, *range(60, 70)]


@pytest.mark.parametrize("rate", [0.0, 3.7])
@pytest.mark.parametrize("stall", [0.0, 0.9])
def test_frames_come_unchanged_and_in_order_both_ways(run, rate, stall):
    frames = [frames_to(1, LENGTHS), frames_to(0, LENGTHS[::-1])]
    result = run(functools.partial(Traffic, frames=frames, stall=stall), mac_bytes_per_cycle=rate)
    assert received(result) == frames[::-1]
    for taken, _ in result.hosts:
        assert [entry[4] for entry in taken] == list(range(len(LENGTHS)))
        for _, _, _, _, number, unsent in taken:  # one more may have been taken at this edge
            assert len(LENGTHS) - number - unsent in (1, 2)
    assert result.frames == {"other": 2 * len(LENGTHS)}


def test_beats_follow_each_other_and_callbacks_come_a_cycle_after_them(run):
    beats, count = 3, 20
    result = run(functools.partial(Traffic, frames=[frames_to(1, [BEAT * beats] * count), []]))
    taken, came = (entries[side] for side, entries in enumerate(result.hosts))
    for entries in taken, came:
        assert entries[-1][1] - entries[0][1] == pytest.approx((count - 1) * beats, abs=1)
    # Its last beat is taken, and leaves an edge later; and the switch hands it on from the next edge.
    assert came[0][1] - taken[0][1] == pytest.approx(1 + beats + 1, abs=1)


@pytest.mark.parametrize("stall", [0.25, 0.75])
def test_a_host_stalls_in_a_share_of_the_cycles(run, stall):
    result = run(functools.partial(Traffic, frames=[frames_to(1, [BEAT * 1000]), []], stall=stall))
    (came,) = result.hosts[1][1]
    assert came[1] == pytest.approx(1000 + 1000 / (1 - stall), rel=0.05)  # the switch stores the frame


class Pauses(Traffic):
    """Takes nothing for 1,000 cycles."""

    def start(self):
        super().start()
        self.board.stall(1, 1)
        self.board.at(self.board.now + 1000 * PERIOD, lambda: self.board.stall(1, 0))


def test_a_host_takes_up_again_what_it_has_stalled(run):
    frames = [frames_to(1, LENGTHS), []]
    result = run(functools.partial(Pauses, frames=frames))
    assert received(result)[1] == frames[0]
    assert result.hosts[1][1][0][1] == pytest.approx(1000, abs=20)


class Answers(Traffic):
    """Waits milliseconds between frames."""

    def received(self, node, frame):
        super().received(node, frame)
        self.done = len(self.log) >= 6
        self.board.at(self.board.now + 3 * MS, lambda: self.board.send(node, frames_to(1 - node, [64])[0]))


def test_time_passes_without_the_clock_between_frames(run):
    result = run(functools.partial(Answers, frames=[frames_to(1, [64]), []]))
    assert result.skipped_ps == pytest.approx(4 * 3 * MS, rel=0.01)
    assert result.cycles < 5 * 700


class Held(Traffic):
    """Sends to a node that takes nothing; an alarm is set."""

    def start(self):
        self.board.at(self.board.now + 3 * MS, self.end)
        setting = HostProgram().write(REGISTERS.offset("settings"), HOLD)
        self.board.run(0, setting, lambda reads: Traffic.start(self))


def test_no_time_is_skipped_while_a_host_has_a_frame_and_the_message_names_its_node(run):
    with pytest.raises(SimulationFailed, match="no program runs, frames of hosts wait at nodes 0, the next"):
        run(functools.partial(Held, frames=[frames_to(1, [64]), []]))


class Faulty(Traffic):
    """The second node withdraws what its host stalls."""

    def start(self):
        setting = HostProgram().write(REGISTERS.offset("settings"), FAULT)
        self.board.run(1, setting, lambda reads: Traffic.start(self))


def test_the_stream_to_the_host_is_watched(run):
    faulty = functools.partial(Faulty, frames=[frames_to(1, [640]), []], stall=0.5)
    with pytest.raises(SimulationFailed, match="node 1, stream host_rx: valid withdrawn before ready"):
        run(faulty)


class Misuse(Hosts):
    """Notes what the board refuses."""

    def start(self):
        board = self.board
        for wrong in (
            lambda: board.send(COPY, b"frame"),
            lambda: board.send(0, b""),
            lambda: board.unsent(3),
            lambda: board.on_frame(COPY, print),
            lambda: board.stall(COPY, 1),
            lambda: board.stall(0, 1.1),
            lambda: board.memory(0),
        ):
            with pytest.raises(ValueError, match=r"must|has") as error:
                wrong()
            self.log.append(str(error.value))
        self.done = True


def test_the_board_refuses_what_there_is_not(run):
    assert run(Misuse).hosts == [
        "node 2 has no host packet port",
        "frame must have a byte at least",
        "node must be 0 to 2, not 3",
        "node 2 has no host packet port",
        "node 2 has no host packet port",
        "share must be 0 to 1, not 1.1",
        "node 0 has no memory port",
    ]


@pytest.mark.slow  # half a minute of C++
def test_a_nic_that_compresses_carries_frames_between_hosts(tmp_path):
    lengths = [1400, 0, 64, 1000]
    frames = [frame_of(gradients(length, length)) for length in lengths]
    frames.append(frame_of(gradients(200), tos=0))
    cluster = Cluster(lambda: [Group(InceptionnNic(), 2)], clock_mhz=100, quiet=True)
    result = cluster.run(
        memories=(),
        phases=[],
        longest_wait=1000,
        hosts=functools.partial(Traffic, frames=[frames, []]),
        link=LinkConfig(gbps=10),
        pcap=tmp_path / "x.pcap",
    )
    wire = [transmit(frame, Inceptionn()) for frame in frames]
    assert received(result) == [[], [receive(frame) for frame in wire]]
    captured = [bytes(packet) for packet in rdpcap(str(tmp_path / "x.pcap"))]
    assert sorted(captured) == sorted(2 * wire)  # as they reach the switch, and as they leave it
    assert sum(map(len, wire)) < sum(map(len, frames))
