"""``fanin train --on`` with boards that fall silent, fail, or are others: one line names the board, in time."""

import json
import os
import re
import signal
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from fanin.cli.main import main
from fanin.glm.facts import PRESETS
from fanin.hdl.boards.registers import VERSION
from fanin.hdl.glm.node_registers import Failure, node_constants, node_registers
from fanin.host.board import TIMEOUT, BoardClient, UdpChannel
from fanin.wire.aggregation import AggPacket, Kind, encode_payload
from fanin.wire.control import CONTROL_PORT, VERSION_AT
from fanin.wire.ethernet import Encap
from tests.fanin.cli.test_train_boards import IDENTITY, board, build, written
from tests.fanin.host.fake_board import fake_board

NODE = replace(PRESETS["ecp5-85"], encap=Encap.UDP)
REGISTERS = node_registers(NODE)
TRIES = 20  # a second of silence
PORT = 20_000 + os.getpid() % 10_000  # of this process: others may test beside it
LONGEST_S = 120  # of a machine that is busy with much else


class NodeBus(dict):
    """A node's registers that say what it is, and that it is busy from ``start`` on; all else holds words.

    ``started`` is called then, and may change ``busy`` and ``failure``.
    """

    def __init__(self, **changes):
        constants = node_constants(NODE) | changes
        self.busy, self.failure, self.started = 0, Failure.NONE, lambda: None
        self.resets = []  # of its transport: whether a switch listened then
        for register in REGISTERS.registers:
            fields = {field.name: constants.get(field.name, 0) for field in register.parts}
            self[REGISTERS.offset(register.name)] = register.pack(fields) & 0xFFFFFFFF

    def __missing__(self, address):
        return 0

    def __getitem__(self, address):
        if address == REGISTERS.offset("status"):
            said = {
                "busy": self.busy,
                "idle": 1 - self.busy,
                "failed": self.failure != 0,
                "cause": self.failure,
            }
            return REGISTERS["status"].pack(said)
        return super().__getitem__(address)

    def __setitem__(self, address, word):
        super().__setitem__(address, word)
        if address != REGISTERS.offset("control"):
            return
        ordered = REGISTERS["control"].unpack(word)
        if ordered["reset_transport"]:
            self.resets.append(switch_listens())
        if ordered["start"]:
            self.busy = 1
            self.started()


def switch_listens():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind(("127.0.0.1", PORT))
        except OSError:
            return True
        return False


def about(*, number=IDENTITY["board"], version=VERSION, build_number=IDENTITY["build"]):
    return (version << VERSION_AT | number, build_number, 0, 0)


class Cluster:
    """Two boards at addresses of this process' own, and the command that trains on them."""

    def __init__(self, folder, stack, changes, node_changes):
        first = IPv4Address("127.64.0.0") + 4 * (os.getpid() % (1 << 20))
        self.hosts = [str(first + 1), str(first + 2)]
        self.folder = folder
        self.buses = [NodeBus(), NodeBus(**node_changes)]
        said = [about(), about(**changes)]
        self.boards = [
            stack.enter_context(fake_board(bus, about=words, address=(host, CONTROL_PORT)))
            for bus, words, host in zip(self.buses, said, self.hosts, strict=True)
        ]
        build(folder / "a")
        self.path = written(folder, "".join(board(host, "a") for host in self.hosts))

    def train(self, *options):
        begin = time.monotonic()
        command = ["train", "breast_cancer", "--on", str(self.path), "-o", str(self.folder / "run"), *options]
        try:
            status = main([*command, "--switch", "reference"])
        except SystemExit as end:  # told to by SIGTERM
            status = end.code
        assert time.monotonic() - begin < LONGEST_S
        if status == 2:
            assert not (self.folder / "run").exists()
        else:  # what stopped it is left
            assert json.loads((self.folder / "run/run.json").read_text())["error"]
            assert (self.folder / "run/report.html").exists()
        return status

    def held(self):
        return [one.model.holder(0.0) != 0 for one in self.boards]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr("fanin.sim.glm.boards.REQUEST_TRIES", TRIES)
    monkeypatch.setattr("fanin.sim.glm.boards.EPOCH_TIMEOUT_S", 2 * LONGEST_S)
    monkeypatch.setattr("fanin.sim.glm.boards.UDP_PORT", PORT)
    with ExitStack() as stack:
        yield lambda node=(), **changes: Cluster(tmp_path, stack, changes, dict(node))


def silence(one):
    one.silent = True


def send_and_time_out(boards, number):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind((boards.hosts[number], PORT))
        own.sendto(encode_payload(AggPacket(Kind.AGG, 1, 0, 1, 1)), ("127.0.0.1", PORT))
    time_out(boards, number)


def time_out(boards, number):
    """As a node does: long behind what it has sent."""
    time.sleep(0.5)
    boards.buses[number].failure = Failure.TIMEOUT


def test_a_board_that_falls_silent_is_named_and_the_other_released(cluster, capsys):
    boards = cluster()
    boards.buses[1].started = lambda: silence(boards.boards[1])
    assert boards.train() == 1
    said = f"board {boards.hosts[1]}: no answer to {TRIES} requests in {TRIES * TIMEOUT:g} s"
    assert capsys.readouterr().err == f"fanin: error: {said}\n"
    assert boards.held() == [False, False]  # what it was sent last, it heard


def test_a_board_that_stays_away_costs_all_restarts(cluster, capsys):
    """Before the first attempt it would have been bad input."""
    boards = cluster()
    boards.buses[1].started = lambda: silence(boards.boards[1])
    assert boards.train("--restart", "2") == 1
    said = f"board {boards.hosts[1]}: no answer to {TRIES} requests in {TRIES * TIMEOUT:g} s"
    errors = capsys.readouterr().err.splitlines()
    assert errors[:2] == [f"fanin: warning: {said}; restarts from the start as job {job}" for job in (2, 3)]
    found = json.loads((boards.folder / "run/run.json").read_text())
    assert [restart["error"] for restart in found["restarts"]] == [said, said]
    assert found["error"] == said


def test_it_is_the_silent_board_that_is_named_though_the_other_node_waits_in_vain(cluster, capsys):
    boards = cluster()
    boards.buses[0].started = lambda: setattr(boards.buses[0], "failure", Failure.TIMEOUT)
    boards.buses[1].started = lambda: silence(boards.boards[1])
    assert boards.train() == 1
    assert f"board {boards.hosts[1]}: no answer" in capsys.readouterr().err


def test_a_board_whose_packets_never_come_is_named(cluster, capsys):
    """The other one's do; both wait in vain, and say so."""
    boards = cluster()
    boards.buses[0].started = lambda: send_and_time_out(boards, 0)
    boards.buses[1].started = lambda: time_out(boards, 1)
    assert boards.train() == 1
    cause = f"board {boards.hosts[1]}: no packet of it arrived at UDP 127.0.0.1:{PORT}"
    assert capsys.readouterr().err == f"fanin: error: {cause}\n"


def test_a_node_that_fails_ends_the_run_for_all(cluster, capsys):
    boards = cluster()
    boards.buses[0].started = lambda: setattr(boards.buses[0], "failure", Failure.SHAPE)
    assert boards.train() == 1
    cause = f"board {boards.hosts[0]} stopped: SHAPE: the shape registers ask for what this node cannot do; "
    assert capsys.readouterr().err.startswith(f"fanin: error: {cause}")
    assert boards.held() == [False, False]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_lets_the_boards_go(cluster, number, status):
    """The switch opens when no node sends packets of an earlier run; when it closes, they are told to stop."""
    boards = cluster()
    boards.buses[1].started = lambda: os.kill(os.getpid(), number)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # CP-SAT leaves the system's own
    try:
        assert boards.train() == status
    finally:
        signal.signal(signal.SIGINT, before)
    assert boards.held() == [False, False]
    assert [bus.resets for bus in boards.buses] == [[False, True, False]] * 2


def test_a_board_is_known_by_its_address_however_it_is_written(cluster, capsys):
    """The first one's packets come, and are its own."""
    boards = cluster()
    named = str(int(IPv4Address(boards.hosts[0])))
    boards.path = written(boards.folder, board(named, "a") + board(boards.hosts[1], "a"))
    boards.buses[0].started = lambda: send_and_time_out(boards, 0)
    boards.buses[1].started = lambda: time_out(boards, 1)
    assert boards.train() == 1
    assert f"board {boards.hosts[1]}: no packet of it arrived" in capsys.readouterr().err


def test_two_names_of_one_board_are_refused(cluster, capsys):
    boards = cluster()
    first, named = boards.hosts[0], str(int(IPv4Address(boards.hosts[0])))
    boards.path = written(boards.folder, board(first, "a") + board(named, "a"))
    assert boards.train() == 2
    assert capsys.readouterr().err == f"fanin: error: {first} and {named} are one board, {first}\n"
    assert boards.boards[0].model.lease == 0  # nobody has held it


def test_boards_on_two_networks_of_this_host_are_refused(cluster, capsys, monkeypatch):
    boards = cluster()
    monkeypatch.setattr(UdpChannel, "local_host", property(lambda self: self.remote_host))
    assert boards.train() == 2
    assert "all boards must be on one network" in capsys.readouterr().err
    assert [one.model.lease for one in boards.boards] == [0, 0]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"build_number": 6}, "its build must be 0x5, not 0x6"),
        ({"number": 2}, "its board must be 0x1, not 0x2"),
        ({"version": VERSION + 1}, f"its version must be {VERSION:#x}, not {VERSION + 1:#x}"),
        ({"node": {"version": 7}}, "version must be .* not 7"),
        ({"node": {"lanes": 2}}, "lanes must be 8, not 2"),
    ],
)
def test_another_board_than_the_file_says_is_bad_input(cluster, capsys, changes, cause):
    boards = cluster(**changes)
    assert boards.train() == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fanin: error: board {boards.hosts[1]}: ")
    assert error.count("\n") == 1
    assert re.search(cause, error)
    assert boards.held() == [False, False]


def test_a_board_that_another_host_holds_is_bad_input(cluster, capsys):
    boards = cluster()
    with BoardClient(boards.hosts[1]):
        assert boards.train() == 2
        assert capsys.readouterr().err == f"fanin: error: board {boards.hosts[1]}: 127.0.0.1 holds it\n"
        assert boards.held() == [False, True]
