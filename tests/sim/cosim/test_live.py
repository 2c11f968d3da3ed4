"""Live hosts: programs, memory, watches and alarms, and time that is skipped while nothing can happen."""

import functools
from itertools import pairwise
from time import monotonic

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.link import LinkConfig
from fanin.sim.cosim.live import MAX_IDLE_SKIPS, SimulationError
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase
from fanin.sim.cosim.simulator import SimulationFailed, Simulator
from tests.sim.cosim import copy_node, scan_node
from tests.sim.cosim.kinds import NODES, SCAN, SPLIT, copy, groups, request, scan, send

pytestmark = pytest.mark.verilator

MS = 10**9  # ps
PERIOD = 4000
QUIET = 600
NONE = HostProgram()


@pytest.fixture(scope="module")
def simulator():
    return Simulator(groups(), quiet=True)


@pytest.fixture
def run(simulator, tmp_path):
    def go(hosts, progress=None, **changes):
        return simulator.run(request(tmp_path, hosts=hosts, **changes), progress=progress)

    return go


class Hosts:
    """What the hosts of these tests have in common."""

    def __init__(self, board, *, skip=True):
        self.board, self.skip = board, skip
        self.done, self.log = False, []

    progress = 0

    def may_skip(self):
        return self.skip

    def waiting(self):
        return f"{len(self.log)} entries so far"

    def result(self):
        return self.log

    def note(self, *what):
        self.log.append((self.board.now, self.board.cycle, *what))

    def end(self, *_):
        self.note("end")
        self.done = True


class Scanned(Hosts):
    """Computes for milliseconds, then writes a word, which the scanning node finds and answers."""

    def __init__(self, board, *, rounds, compute=3 * MS):
        super().__init__(board)
        self.rounds, self.compute = rounds, compute
        self.memory = board.memory(SCAN)[:8].view("<u8")
        self.answer = board.memory(SCAN, 1)[scan_node.TARGET :][:8].view("<u8")

    def start(self):
        self.memory[0] = 0
        self.board.watch(SCAN, scan_node.TARGET, self.answered)
        self.board.run(SCAN, scan(), lambda reads: self.next())

    def next(self):
        self.board.at(self.board.now + self.compute, self.write)

    def write(self):
        self.memory[0] = self.board.now  # by the address of the answer only, never by a program
        self.note("write")

    def answered(self):
        self.note("answer")
        assert self.answer[0] == self.memory[0]
        self.rounds -= 1
        if self.rounds:
            self.next()
        else:
            self.done = True


def test_computing_takes_no_cycles_and_an_engine_that_reads_on_sees_what_a_host_wrote(run):
    rounds = 8
    result = run(functools.partial(Scanned, rounds=rounds), trace=None)
    wrote = [entry for entry in result.hosts if entry[2] == "write"]
    answered = [entry for entry in result.hosts if entry[2] == "answer"]
    assert len(wrote) == len(answered) == rounds
    for write, answer in zip(wrote, answered, strict=True):
        assert 0 < answer[0] - write[0] == (answer[1] - write[1]) * PERIOD < 300 * PERIOD
    for answer, write in pairwise(result.hosts[1:]):
        if write[2] == "write":
            assert write[0] - answer[0] == 3 * MS  # to the ps: time is skipped to the alarm itself
            assert write[1] - answer[1] == QUIET
    assert result.cycles < rounds * (QUIET + 300)
    assert result.cycles * PERIOD + result.skipped_ps == pytest.approx(answered[-1][0], abs=4 * PERIOD)
    assert result.bytes_read[SCAN][0] > 8 * 9 * rounds  # it has read all the while


def test_a_host_that_allows_no_skipping_gets_its_alarm_at_the_first_edge_from_then_on(run):
    result = run(functools.partial(Alarms, times=[10_001, 9_999, 2_000_001], skip=False))
    assert [entry[2] for entry in result.hosts] == [9_999, 10_001, 2_000_001]
    assert [entry[0] for entry in result.hosts] == [12_000, 12_000, 2_004_000]
    assert result.skipped_ps == 0
    assert result.cycles == pytest.approx(501, abs=2)


class Alarms(Hosts):
    """Sets alarms, and notes when they come."""

    def __init__(self, board, *, times, skip=True):
        super().__init__(board, skip=skip)
        self.left = list(times)

    def start(self):
        for time in self.left:
            self.board.at(time, functools.partial(self.rings, time))

    def rings(self, time):
        self.note(time)
        self.left.remove(time)
        self.done = not self.left


def test_alarms_come_in_the_order_of_their_times_and_of_their_setting(run):
    result = run(functools.partial(Alarms, times=[5 * MS, MS, 7 * MS + 1, MS]))
    assert [(entry[0], entry[2]) for entry in result.hosts] == [(t, t) for t in (MS, MS, 5 * MS, 7 * MS + 1)]
    assert result.cycles < 3 * (QUIET + 4)


class Queue(Hosts):
    """Several programs at one node, one at another."""

    def start(self):
        self.board.memory(0)[:64] = 7
        self.board.watch(0, 0x100 + 33, functools.partial(self.note, "second word"))
        self.board.watch(0, 0x100, functools.partial(self.note, "first word"))
        self.board.watch(1, 0x100, functools.partial(self.note, "another node's"))
        at = copy_node.REGISTERS.offset
        for number in range(3):
            program = HostProgram().write(at("strobe"), number).read(at("strobe")).read(at("frames"))
            self.board.run(0, program, functools.partial(self.note, "program"))
        self.board.run(0, NONE, functools.partial(self.note, "empty"))
        self.board.run(0, copy(0, 0x100, 2), functools.partial(self.note, "copied"))
        self.board.run(1, HostProgram().poll(at("frames"), 0), functools.partial(self.note, "other"))
        self.board.run(0, NONE, self.end)

    def end(self, *_):
        assert (self.board.memory(0)[0x100:0x140] == 7).all()
        self.note(int(self.board.memory(0)[0x140]))
        super().end()


def test_programs_of_a_node_run_one_after_another_beside_those_of_others(run, tmp_path):
    result = run(Queue, phases=[Phase("first", [copy(0, 0x400, 1)] * 2 + [NONE] * 2)])
    said = [entry[2:] for entry in result.hosts]
    assert said.index(("other", [])) < 3
    said.remove(("other", []))
    assert said[:4] == [("program", [number, 0]) for number in range(3)] + [("empty", [])]
    assert said[4:7] == [("first word",), ("second word",), ("copied", [0])]
    assert said[8:] == [("end",)]
    assert said[7] == (int(np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)[0x140]),)
    first, second = result.hosts[-5], result.hosts[-4]
    assert second[1] - first[1] in (0, 1)
    assert result.hosts[0][1] >= result.phases[0].end
    assert [entry[0] for entry in result.hosts] == [entry[1] * PERIOD for entry in result.hosts]


class Sender(Hosts):
    """Sends after a millisecond, and again when the other node has it."""

    def start(self):
        self.board.at(MS, self.send)

    def send(self):
        self.note("send")
        self.board.run(0, send(1, 2), self.sent)

    def sent(self, reads):
        self.note("sent")
        self.board.at(self.board.now + MS, self.look)

    def look(self):
        self.note("look")
        self.board.run(1, HostProgram().read(copy_node.REGISTERS.offset("received")), self.looked)

    def looked(self, reads):
        self.note(reads)
        self.board.at(self.board.now + MS, self.end if reads[0] >= 4 else self.send)


def test_frames_on_their_way_are_waited_for_and_stand_in_the_capture_at_simulated_time(run, tmp_path):
    link = LinkConfig(delay_ns=20_000, gbps=1)  # much longer than what counts as quiet
    result = run(Sender, link=link, pcap=tmp_path / "x.pcap", watchdog=50_000)
    said = [entry[2] for entry in result.hosts]
    assert said == ["send", "sent", "look", [2], "send", "sent", "look", [4], "end"]
    received = [entry[0] for entry in result.hosts if isinstance(entry[2], list)]
    content, times = (tmp_path / "x.pcap").read_bytes()[24:], []
    while content:
        seconds, nanoseconds, size, _ = np.frombuffer(content[:16], "<u4").tolist()
        times.append((seconds * 10**9 + nanoseconds) * 1000)
        content = content[16 + size :]
    first, second = (entry[0] for entry in result.hosts if entry[2] == "send")
    up = [times[0], times[2], times[4], times[6]]
    assert min(time - first for time in up[:2]) > 20 * MS // 1000
    assert up[1] < received[0] < second < up[2] < up[3] < received[1]
    assert result.hosts[-1][0] > 5 * MS
    assert result.links[1]["down"]["frames"] == 4


def test_a_mac_whose_link_is_occupied_is_waited_for(run):
    result = run(Sender, mac_bytes_per_cycle=0.05)
    for sent, look in zip(result.hosts[1:-1:4], result.hosts[2::4], strict=True):
        assert (sent[2], look[2]) == ("sent", "look")
        assert look[0] - sent[0] == MS
        frame = (64 + 24) * 20  # in cycles
        assert frame - 20 < look[1] - sent[1] < frame + QUIET


class Raises(Hosts):
    """Ends the run by what it raises."""

    def __init__(self, board, *, error, when):
        super().__init__(board)
        self.error, self.when = error, when

    def start(self):
        if self.when == "start":
            raise self.error
        self.board.at(MS, self.raises)

    def raises(self):
        raise self.error


@pytest.mark.parametrize("when", ["start", "alarm"])
@pytest.mark.parametrize("error", [CheckFailed("worker 3 diverges"), SimulationError("worker 3 diverges")])
def test_what_a_host_raises_ends_the_run_with_its_message(run, error, when):
    with pytest.raises(SimulationFailed, match=r"^worker 3 diverges$") as failure:
        run(functools.partial(Raises, error=error, when=when))
    assert failure.value.result.hosts is None
    assert (failure.value.result.skipped_ps > 0) == (when == "alarm")


def test_any_other_exception_is_named(run):
    with pytest.raises(SimulationFailed, match="KeyError in the simulator's process: 5"):
        run(functools.partial(Raises, error=KeyError(5), when="alarm"))


class Waits(Hosts):
    """Waits for a write that never comes."""

    def __init__(self, board, *, alarm=None, poll=False, skip=True):
        super().__init__(board, skip=skip)
        self.alarm, self.poll = alarm, poll

    def start(self):
        self.board.run(SCAN, scan(), lambda reads: None)  # reads for ever, and that is no progress
        self.board.watch(0, 5, self.end)
        if self.alarm:
            self.board.at(self.alarm, self.end)
        if self.poll:
            self.board.run(1, HostProgram().poll(copy_node.REGISTERS.offset("frames"), 9), self.end)


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ({}, "no program runs, no alarm is set"),
        ({"poll": True}, "programs run at nodes 1, no alarm is set"),
        ({"poll": True, "alarm": MS}, "programs run at nodes 1, the next alarm is at 1000.000 µs"),
        (
            {"alarm": MS, "skip": False},
            "no program runs, the next alarm is at 1000.000 µs, no time may be skipped until then",
        ),
    ],
)
def test_who_waits_in_vain_is_ended_by_the_watchdog(run, hosts, said):
    message = rf"no progress for 5000 cycles; live hosts at \d+\.\d+ µs, {said}, 0 entries so far$"
    with pytest.raises(SimulationFailed, match=message) as failure:
        run(functools.partial(Waits, **hosts))
    assert 5000 < failure.value.result.cycles < 6000


class Rearms(Hosts):
    """Looks for something by alarms, one after the other."""

    def __init__(self, board, *, every):
        super().__init__(board)
        self.every = every

    def start(self):
        self.board.at(self.board.now + self.every, self.start)


@pytest.mark.parametrize("every", [0, 400_000])
def test_alarms_that_are_too_near_to_be_skipped_to_do_not_hold_the_watchdog(run, every):
    with pytest.raises(SimulationFailed, match="no progress for 5000 cycles; live hosts"):
        run(functools.partial(Rearms, every=every))


def test_alarms_without_end_do_not_go_on_for_ever(run, monkeypatch):
    with pytest.raises(
        SimulationFailed, match=f"{MAX_IDLE_SKIPS} alarms have passed, and nothing else"
    ) as failure:
        run(functools.partial(Rearms, every=MS), quiet_cycles=65)
    assert failure.value.result.skipped_ps == pytest.approx(MAX_IDLE_SKIPS * MS, rel=1e-2)


class Finished(Hosts):
    """Has nothing to do."""

    start = Hosts.end


def test_hosts_that_are_done_at_once_end_the_run(run):
    result = run(Finished, phases=[Phase("first", [copy(0, 0x400, 1)] * 2 + [NONE] * 2)])
    assert [entry[2] for entry in result.hosts] == ["end"]
    assert result.cycles == result.phases[0].end


class Last(Hosts):
    """Is done while more has happened in the same cycle."""

    def start(self):
        for _ in range(3):
            self.board.at(MS, self.end)


def test_after_the_end_nothing_is_called_any_more(run):
    assert len(run(Last).hosts) == 1


class Errors(Hosts):
    """A program that ends with an error of the bus."""

    def start(self):
        self.board.run(1, HostProgram().read(0x800), self.end)


def test_an_error_in_a_program_ends_the_run(run):
    with pytest.raises(
        SimulationFailed, match="node 1: the bus answers register 0x800 with error 2; live hosts"
    ):
        run(Errors)


class Misuse(Hosts):
    """Notes what the board refuses."""

    def start(self):
        board = self.board
        for wrong in (
            lambda: board.run(NODES, NONE, self.end),
            lambda: board.watch(-1, 0, self.end),
            lambda: board.watch(0, -1, self.end),
            lambda: board.memory(NODES),
            lambda: board.memory(SPLIT, 2),
            lambda: board.cut(NODES),
        ):
            with pytest.raises(ValueError, match="must") as error:
                wrong()
            self.log.append(str(error.value))
        with pytest.raises(RuntimeError, match="from within told"):
            board.order("what other ranks would hear in another order")
        self.done = True


def test_the_board_refuses_what_there_is_not(run):
    assert run(Misuse).hosts == [
        f"node must be 0 to {NODES - 1}, not {NODES}",
        f"node must be 0 to {NODES - 1}, not -1",
        "address must not be below 0, but is -1",
        f"node must be 0 to {NODES - 1}, not {NODES}",
        f"port must be 0 to 1 at node {SPLIT}, not 2",
        f"node must be 0 to {NODES - 1}, not {NODES}",
    ]


@pytest.mark.parametrize("quiet_cycles", [64, 5000])
def test_quiet_cycles_lie_between_latency_and_watchdog(run, quiet_cycles):
    with pytest.raises(ValueError, match="quiet_cycles must be more than memory_latency, 64, and less than"):
        run(Finished, quiet_cycles=quiet_cycles)


class Lasts(Hosts):
    """Goes on for seconds of the user's time, however many cycles that is."""

    def start(self):
        self.board.run(SCAN, scan(), lambda reads: None)
        self.ends = monotonic() + 1.5
        self.later()

    def later(self):
        self.board.at(self.board.now + 20 * PERIOD, self.end if monotonic() > self.ends else self.later)


def test_progress_is_told_while_live_hosts_run(run):
    told = []
    run(functools.partial(Lasts, skip=False), progress=told.append, watchdog=10**9)
    assert len(told) >= 3
    assert all(a.cycle < b.cycle for a, b in pairwise(told))


class Strobes(Hosts):
    """Watches bytes of a word of which one is written."""

    def start(self):
        for address, what in ((0x100, "first"), (0x101, "one"), (0x101, "other"), (0x102, "third")):
            self.board.watch(SPLIT, address, functools.partial(self.note, what))
        self.board.run(SPLIT, copy(0, 0x100, 1, strobe=0b10), lambda reads: None)
        self.board.run(SPLIT, copy(0, 0x100, 1, strobe=0b10), self.end)


def test_only_a_byte_that_is_written_is_told_each_time_and_to_all_who_watch_it(run):
    assert [entry[2] for entry in run(Strobes).hosts] == ["one", "other"] * 2 + ["end"]
