"""``fanin train --on``: what the file must say; and two simulated boards train, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager

import pytest

from fanin.cli.board.builds import BOARD_FILE
from fanin.cli.main import main
from fanin.cli.train.boards import read_boards
from fanin.errors import InputError
from fanin.hdl.boards.registers import board_registers
from fanin.host.board import TIMEOUT, BoardClient
from fanin.sim.glm.boards import TRIES

BOUND_S = 600
IDENTITY = {"board": 1, "build": 5, "mac": 2, "ip": 3}


def build(folder, **changes):
    folder.mkdir()
    said = {"board": "ecpix5", "preset": "ecp5-85", "core_mhz": 100, "identity": IDENTITY} | changes
    (folder / BOARD_FILE).write_text(json.dumps(said))


def written(tmp_path, text):
    path = tmp_path / "boards.toml"
    path.write_text(text)
    return path


def board(host, folder, more=""):
    return f'[[board]]\nhost = "{host}"\nbuild = "{folder}"\n{more}'


def test_boards_are_read_with_what_their_builds_say(tmp_path):
    build(tmp_path / "a")
    build(tmp_path / "b", core_mhz=50)
    cluster = read_boards(written(tmp_path, board("10.0.0.1", "a") + board("10.0.0.2", tmp_path / "b")))
    assert cluster.preset == "ecp5-85"
    assert [address.host for address in cluster.addresses] == ["10.0.0.1", "10.0.0.2"]
    assert [address.core_mhz for address in cluster.addresses] == [100, 50]
    assert {address.build for address in cluster.addresses} == {5}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", ".board. is missing"),
        ("board = []", "names no board"),
        ("[[board", "Expected"),
        (board("10.0.0.1", "a") * 2, "two boards have the address 10.0.0.1"),
        (board("10.0.0.1", "a") + board("10.0.0.2", "c"), "one preset, not ecp5-25, ecp5-85"),
        (board("10.0.0.1", "none"), "none: holds no board.json of fanin board build"),
        (board("10.0.0.1", "shell"), "board[0]: .*shell is a shell without a node"),
        (board("10.0.0.1", "a", "port = 7\n"), 'board[0]: "port" is not known here'),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_cause(tmp_path, text, cause):
    build(tmp_path / "a")
    build(tmp_path / "c", preset="ecp5-25")
    build(tmp_path / "shell", preset=None)
    with pytest.raises(InputError, match=cause.replace("[", r"\[")) as error:
        read_boards(written(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path))


def test_boards_that_do_not_answer_end_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fanin.sim.glm.boards.TRIES", 2)
    build(tmp_path / "a")
    path = written(tmp_path, board("127.0.0.1", "a"))
    status = main(["train", "breast_cancer", "--on", str(path), "-o", str(tmp_path / "run")])
    assert status == 2
    assert capsys.readouterr().err == "fanin: error: board 127.0.0.1: no answer to 2 requests in 0.1 s\n"
    assert not (tmp_path / "run").exists()


@contextmanager
def simulated(*arguments):
    """``fanin board simulate`` in a process of its own, from when its boards are there."""
    command = [sys.executable, "-m", "fanin", "board", "simulate", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline(), "it has ended"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
        process.stdout.close()


@pytest.mark.slow  # a simulator of two boards is built, some minutes
@pytest.mark.parametrize("faults", ["", "--drop 0.02 --duplicate 0.02 --reorder 0.02"])
def test_two_simulated_boards_train_bit_for_bit(tmp_path, faults):
    """RTL of whole boards, from RGMII on; clocks 100 ppm apart; the switch is this process, by UDP."""
    for number in range(2):
        command = f"board build colorlight_5a75b --no-place --number {number} -o {tmp_path / str(number)}"
        assert main(command.split()) == 0
    path = written(tmp_path, board("127.0.64.2", "0") + board("127.0.64.3", "1"))
    with simulated(tmp_path / "0", tmp_path / "1", "--source", "--listen", "127.0.64.2", *faults.split()):
        command = f"train breast_cancer --on {path} --epochs 2 -o {tmp_path / 'run'} --json"
        assert main(command.split()) == 0
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert found["bit_exact"]
    assert len(found["epochs"]) == 2
    assert (found["retransmissions"] > 0) == bool(faults)


def kill_while_it_trains(process, host):
    """End a simulated board as soon as its node is busy."""
    end = time.monotonic() + BOUND_S
    with closing(BoardClient(host)) as client:
        while not board_registers()["state"].unpack(client.hello().state)["running"]:
            assert time.monotonic() < end, "it never trains"
            time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow  # a simulator of a board is built, some minutes
def test_a_simulated_board_that_dies_in_mid_run_ends_it_and_the_other_is_free(tmp_path, capsys):
    """Two worlds of one board each, builds of one number: the host knows workers by where they answer."""
    assert main(f"board build colorlight_5a75b --no-place -o {tmp_path / '0'}".split()) == 0
    hosts = ["127.0.65.2", "127.0.65.3"]
    path = written(tmp_path, "".join(board(host, "0") for host in hosts))
    with ExitStack() as stack:
        _, second = [
            stack.enter_context(simulated(tmp_path / "0", "--source", "--listen", host)) for host in hosts
        ]
        killer = threading.Thread(target=kill_while_it_trains, args=(second, hosts[1]))
        killer.start()
        status = main(f"train breast_cancer --on {path} --epochs 200 -o {tmp_path / 'run'}".split())
        killer.join()
        cause = f"board {hosts[1]}: no answer to {TRIES} requests in {TRIES * TIMEOUT:g} s"
        assert (status, capsys.readouterr().err.splitlines()[-1]) == (1, f"fanin: error: {cause}")
        with closing(BoardClient(hosts[0])) as other:
            assert other.hello().holder is None
    assert not (tmp_path / "run").exists()
