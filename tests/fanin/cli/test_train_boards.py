"""``fanin train --on``: what the file must say; and two simulated boards train, bit for bit."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from fanin.base.errors import DoesNotFit, InputError
from fanin.boards.facts import MEMORIES, SPARSE_MEMORIES
from fanin.boards.run.folder import BOARD_FILE
from fanin.cli.main import main
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.layout import pack_samples, split_ports
from fanin.glm.run.boards import read_boards
from fanin.hdl.boards.registers import board_registers
from fanin.host.board import TIMEOUT, BoardClient
from fanin.sim.glm import data
from fanin.sim.glm.boards import REQUEST_TRIES, BoardAddress, Boards
from tests.fanin.cli.train_nodes import GoldenNodes
from tests.support import new_seed

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
        ("board = " + "[" * 5000, "values are nested deeper than 64"),
        (board("10.0.0.1", "a") * 2, "two boards have the address 10.0.0.1"),
        (board("10.0.0.1", "a") + board("10.0.0.2", "c"), "one preset, not ecp5-25, ecp5-85"),
        (board("10.0.0.1", "a") + board("10.0.0.2", "decay"), "either all boards or none .* with --l2"),
        (board("10.0.0.1", "a") + board("10.0.0.2", "lists"), "either all boards or none .* with --sparse"),
        (board("10.0.0.1", "none"), "none: holds no board.json of fanin board build"),
        (board("10.0.0.1", "shell"), "board[0]: .*shell is a shell without a node"),
        (board("10.0.0.1", "vendor"), "board[0]: .*vendor has the node u280, which is not controlled by UDP"),
        (board("10.0.0.1", "a", "port = 7\n"), 'board[0]: "port" is not known here'),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_cause(tmp_path, text, cause):
    build(tmp_path / "a")
    build(tmp_path / "c", preset="ecp5-25")
    build(tmp_path / "decay", l2=True)
    build(tmp_path / "lists", sparse=True)
    build(tmp_path / "shell", preset=None)
    build(tmp_path / "vendor", preset="u280")
    with pytest.raises(InputError, match=cause.replace("[", r"\[")) as error:
        read_boards(written(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path))


def test_a_file_that_is_not_called_toml_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"boards: is no \.toml file"):
        read_boards(tmp_path / "boards")


@pytest.mark.parametrize(
    ("memory", "cause"),
    [
        (
            None,
            "the labels of 4,104 samples take 16,416 bytes, their memory has 16,384: at most 4,096 samples fit",
        ),
        ("sdram", "no answer to 2 requests in 0.1 s"),
    ],
)
def test_a_set_is_held_to_the_memory_of_its_build(tmp_path, capsys, monkeypatch, memory, cause):
    """Before any board is asked."""
    monkeypatch.setattr("fanin.sim.glm.boards.REQUEST_TRIES", 2)
    build(tmp_path / "a", board="colorlight_i9", preset="ecp5-45", **({"memory": memory} if memory else {}))
    large = tmp_path / "large.svm"
    large.write_text("1 1:0.5\n-1 2:0.25\n" * 2052)
    path = written(tmp_path, board("127.0.0.1", "a"))
    words = ["train", str(large), "--test", "0", "--on", str(path), "-o", str(tmp_path / "run")]
    assert main(words) == 2
    assert f"board 127.0.0.1: {cause}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("l2", "cause"), [(False, "the weights of the nodes cannot decay"), (True, "no answer")]
)
def test_l2_needs_boards_that_were_built_with_it(tmp_path, capsys, monkeypatch, l2, cause):
    monkeypatch.setattr("fanin.sim.glm.boards.REQUEST_TRIES", 2)
    build(tmp_path / "a", l2=l2)
    path = written(tmp_path, board("127.0.0.1", "a"))
    words = ["train", "breast_cancer", "--l2", "0.002", "--on", str(path), "-o", str(tmp_path / "run")]
    assert main(words) == 2
    assert cause in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_boards_that_do_not_answer_end_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fanin.sim.glm.boards.REQUEST_TRIES", 2)
    build(tmp_path / "a")
    path = written(tmp_path, board("127.0.0.1", "a"))
    status = main(["train", "breast_cancer", "--on", str(path), "-o", str(tmp_path / "run")])
    assert status == 2
    assert capsys.readouterr().err == "fanin: error: board 127.0.0.1: no answer to 2 requests in 0.1 s\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (
            "--precision 8 --batch 8 digits",
            "digits: board 127.0.0.1: the samples of 1,347 samples take 22,984 ",
        ),
        ("--vanilla breast_cancer", "vanilla: the nodes were made without it"),
        ("--memory hbm2 breast_cancer", "--memory: does not apply with --on"),
        ("--timeout-ns 2e10 breast_cancer", "timeout_ns must be in (0, 1.07374e+10] at "),
    ],
)
def test_what_no_board_can_do_is_refused_before_one_is_asked(tmp_path, capsys, options, cause):
    """The second board has the faster clock."""
    build(tmp_path / "a", preset="ecp5-25", core_mhz=50)
    build(tmp_path / "b", preset="ecp5-25", core_mhz=200)
    path = written(tmp_path, board("127.0.0.1", "a") + board("127.0.0.2", "b"))
    assert main(["train", *options.split(), "--on", str(path), "-o", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fanin: error: {cause}")
    assert error.count("\n") == 1


def test_what_fits_is_what_is_packed():
    node = PRESETS["ecp5-25"]
    shape = TrainShape(node=node, workers=2, samples=960, columns=65, batch=8, precision=8)
    features = np.zeros((shape.samples, shape.columns), np.uint8)
    packed = split_ports(pack_samples(features, shape, 0))[0].size
    there = MEMORIES[node.name].sample_bytes
    assert packed <= there < packed * (shape.samples + 8) / shape.samples
    address = BoardAddress(host="b0", board=1, build=5, core_mhz=50, memory=MEMORIES[node.name])
    boards = Boards(node, [address])
    boards.check_fits(shape)
    with pytest.raises(DoesNotFit, match=r"board b0: the samples of 961 samples .* at most 960 samples fit"):
        boards.check_fits(replace(shape, samples=961))
    small = replace(shape, columns=2, precision=1, samples=2049)
    with pytest.raises(DoesNotFit, match=r"board b0: the labels of .* at most 2,048 samples fit"):
        boards.check_fits(small)


@pytest.mark.parametrize(("given", "most"), [("", 2e6), ("--timeout-ns 10000", 10_000), ("--timeout-ns 5", 5)])
def test_a_timeout_that_is_given_is_fixed(tmp_path, monkeypatch, given, most):
    """Otherwise timeouts follow the round trips, up to 2 ms."""
    build(tmp_path / "a")
    path = written(tmp_path, board("127.0.0.1", "a"))
    seen = []

    def see(options, **_):
        seen.append((options.network.ceiling_ns, options.network.adaptive))
        raise InputError("enough")

    monkeypatch.setattr("fanin.glm.run.setup.trainers", see)
    command = ["train", "breast_cancer", "--on", str(path), "-o", str(tmp_path / "run"), *given.split()]
    assert main(command) == 2
    assert seen == [(most, not given)]


class GoldenBoards(Boards):
    """Boards whose training is the golden model's."""

    made: ClassVar[list] = []

    def train(self, *arguments, **options):
        self.made.append(self)
        return GoldenNodes(self.config, workers=self.workers).train(*arguments, **options)


@pytest.fixture
def sparse_file(tmp_path):
    """200 samples of 400 features, of which 6 are not zero, as LIBSVM."""
    raw = data.synthetic("posts", data.SyntheticShape(samples=200, features=400, nonzeros=6), seed=3)
    dump_svmlight_file(raw.features, raw.labels, str(tmp_path / "posts.svm"), zero_based=False)
    return tmp_path / "posts.svm"


def two_boards(tmp_path, **changes):
    """The file of two boards of one build."""
    build(tmp_path / "a", board="colorlight_5a75b", preset="ecp5-25", core_mhz=50, **changes)
    return written(tmp_path, board("10.0.0.1", "a") + board("10.0.0.2", "a"))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("source", ["file", "breast_cancer"])
def test_boards_take_the_samples_that_they_were_built_for(
    tmp_path, monkeypatch, capsys, sparse_file, sparse, source
):
    path = two_boards(tmp_path, sparse=sparse)
    monkeypatch.setattr("fanin.glm.run.setup.Boards", GoldenBoards)
    monkeypatch.setattr("fanin.sim.glm.train.Cosim", GoldenNodes)
    name, run = str(sparse_file if source == "file" else source), tmp_path / "run"
    options = ["train", name, "--epochs", "2", "--lr", "2"]
    assert main([*options, "--on", str(path), "-o", str(run)]) == 0
    assert GoldenBoards.made[-1].config.sparse == sparse
    out = capsys.readouterr().out
    is_listed = sparse or source == "file"  # no word about dense samples of dense data
    kind = "sparse" if sparse else "dense"
    assert (f"{kind}, since the boards have {kind} nodes" in out) == is_listed
    dense = tmp_path / "dense"
    assert main([*options, "--sparse", "off", "--preset", "ecp5-25", "--workers", "2", "-o", str(dense)]) == 0
    assert np.array_equal(*(np.load(folder / "model.npz")["weights"] for folder in (run, dense)))


@pytest.mark.parametrize(("sparse", "choice", "built"), [(True, "off", "with"), (False, "on", "without")])
def test_boards_built_for_other_samples_are_refused(tmp_path, capsys, sparse_file, sparse, choice, built):
    path = two_boards(tmp_path, sparse=sparse)
    command = ["train", str(sparse_file), "--on", str(path), "--sparse", choice, "-o", str(tmp_path / "run")]
    assert main(command) == 2
    cause = f"--sparse {choice}: {path}: the boards were built {built} --sparse"
    assert capsys.readouterr().err == f"fanin: error: {cause}\n"


def test_lists_larger_than_a_boards_memory_are_refused(tmp_path, capsys, monkeypatch, sparse_file):
    path = two_boards(tmp_path, sparse=True)
    small = replace(SPARSE_MEMORIES["ecp5-25"], list_bytes=1024)
    monkeypatch.setattr("fanin.boards.memory.SPARSE_MEMORIES", {"ecp5-25": small})
    assert main(["train", str(sparse_file), "--on", str(path), "-o", str(tmp_path / "run")]) == 2
    cause = r"posts.svm: board 10.0.0.1: the list of 150 samples takes [\d,]+ bytes, their memory has 1,024: "
    assert re.search(cause, capsys.readouterr().err)


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


def trained(tmp_path, name, data, faults=""):
    """The ``run.json`` of two epochs on two simulated boards: their RTL from RGMII on, clocks 100 ppm apart."""
    for number in range(2):
        command = f"board build {name} --no-place --number {number} -o {tmp_path / str(number)}"
        assert main(command.split()) == 0
    path = written(tmp_path, board("127.0.64.2", "0") + board("127.0.64.3", "1"))
    with simulated(tmp_path / "0", tmp_path / "1", "--source", "--listen", "127.0.64.2", *faults.split()):
        command = f"train {data} --on {path} --epochs 2 -o {tmp_path / 'run'} --json"
        assert main(command.split()) == 0
    return json.loads((tmp_path / "run" / "run.json").read_text())


@pytest.mark.slow  # a simulator of two boards is built, some minutes
@pytest.mark.parametrize("faults", ["", "--drop 0.02 --duplicate 0.02 --reorder 0.02"])
def test_two_simulated_boards_train_bit_for_bit(tmp_path, faults):
    """The switch is this process, by UDP."""
    found = trained(tmp_path, "colorlight_5a75b", "breast_cancer", faults)
    assert found["bit_exact"]
    assert len(found["epochs"]) == 2
    if faults:  # without, a late switch may cost a needless one
        assert found["retransmissions"] > 0


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
        cause = f"board {hosts[1]}: no answer to {REQUEST_TRIES} requests in {REQUEST_TRIES * TIMEOUT:g} s"
        assert (status, capsys.readouterr().err.splitlines()[-1]) == (1, f"fanin: error: {cause}")
        with closing(BoardClient(hosts[0])) as other:
            assert other.hello().holder is None
    assert main(["doctor", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err == f"fanin: error: {cause}\n"


@pytest.mark.slow  # likewise
def test_a_board_that_is_replaced_in_mid_run_trains_on_from_the_last_state(tmp_path, capsys):
    """Its node is as after power-on; the other board's has a run behind it that failed. Then more epochs."""
    assert main(f"board build colorlight_5a75b --no-place -o {tmp_path / '0'}".split()) == 0
    hosts, run = ["127.0.66.2", "127.0.66.3"], tmp_path / "run"
    path = written(tmp_path, "".join(board(host, "0") for host in hosts))

    def replace_board(process):
        end = time.monotonic() + BOUND_S
        while not list(run.glob("states/*")):
            assert time.monotonic() < end, "it keeps no state"
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        stack.enter_context(simulated(tmp_path / "0", "--source", "--listen", hosts[1]))

    with ExitStack() as stack:
        _, second = [
            stack.enter_context(simulated(tmp_path / "0", "--source", "--listen", host)) for host in hosts
        ]
        replacing = threading.Thread(target=replace_board, args=(second,))
        replacing.start()
        status = main(f"train breast_cancer --on {path} --epochs 3 --checkpoint 1 --restart 9 -o {run}".split())
        replacing.join()
        assert status == 0
        found = json.loads((run / "run.json").read_text())
        assert found["bit_exact"]
        assert [restart["epoch"] for restart in found["restarts"]][:1] in ([1], [2])
        assert main(f"train --resume {run} --epochs 4".split()) == 0
    again = json.loads((run / "run.json").read_text())
    assert again["bit_exact"]
    assert again["epochs"][:3] == found["epochs"]
    golden = tmp_path / "golden"
    assert main(f"train breast_cancer --workers 2 --preset ecp5-25 --epochs 4 -o {golden}".split()) == 0
    assert (run / "model.npz").read_bytes() == (golden / "model.npz").read_bytes()


@pytest.mark.slow  # likewise
def test_two_simulated_boards_train_sparse_samples(tmp_path, sparse_file):
    """Lists and words of block RAM, through the boards' buses."""
    found = trained(tmp_path, "colorlight_5a75b --sparse", f"{sparse_file} --lr 2")
    assert found["bit_exact"]
    assert found["layout"]["sparse"]
    assert [node["words"] for node in found["counters"]] == [
        2 * sum(words) for words in found["layout"]["words"]
    ]


@pytest.mark.slow  # likewise
@pytest.mark.needs("litedram")
def test_two_simulated_boards_train_sparse_samples_out_of_sdram(tmp_path):
    """More words than block RAM holds."""
    shape = data.SyntheticShape(samples=1_600, features=900, nonzeros=12)
    raw = data.synthetic("posts", shape, seed=new_seed())
    dump_svmlight_file(raw.features, raw.labels, str(tmp_path / "large.svm"), zero_based=False)
    options = f"{tmp_path / 'large.svm'} --test 0 --lr 2"
    found = trained(tmp_path, "colorlight_i9 --memory sdram --sparse", options)
    assert found["bit_exact"]
    words = max(max(each) for each in found["layout"]["words"])
    assert words * 4 > SPARSE_MEMORIES["ecp5-45"].sample_bytes


@pytest.mark.slow  # likewise
@pytest.mark.needs("litedram")
def test_two_simulated_boards_train_out_of_sdram(tmp_path):
    """More than a megabit a board, which block RAM does not hold; the chips stop where a rule is broken."""
    seed = new_seed()
    rng = np.random.default_rng(seed)
    samples = rng.random((3600, 160)).round(2)
    weights = rng.normal(size=160)
    large = tmp_path / "large.svm"
    with large.open("w") as file:
        for sample, above in zip(samples, (samples - 0.5) @ weights > 0, strict=True):
            features = " ".join(f"{n}:{value}" for n, value in enumerate(sample, 1))
            file.write(f"{2 * above - 1} {features}\n")
    found = trained(tmp_path, "colorlight_i9 --memory sdram", f"{large} --test 0 --lr 2")
    assert found["bit_exact"]
    assert found["epochs"][-1]["accuracy"] > 0.7
