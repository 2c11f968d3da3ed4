"""``fanin nic run --kind ring``: nodes in processes of their own on a lossy wire, and what fails."""

import signal
import subprocess
import threading
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.codec.facts import Bfp
from fanin.host.ethernet import open_interface
from fanin.host.lab import Lab
from fanin.job import worker_endpoint
from fanin.ring.facts import PRESETS
from fanin.ring.golden.all_reduce import all_reduce
from tests.fanin.cli.json_page import documented
from tests.fanin.cli.nic_command import FANIN, LIMIT
from tests.support import new_seed

BUILD = 600  # seconds of a simulator, and a run


class _Wire:
    """Joins the nodes' interfaces, and loses some frames, while the context lasts."""

    def __init__(self, lab, ranks, rng, drop):
        self._ports = [lab.opened("wire", lambda n=n: open_interface(f"port{n}")) for n in range(ranks)]
        self._places = {worker_endpoint(n).mac: port for n, port in enumerate(self._ports)}
        self._rng, self._drop = rng, drop
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.dropped = 0

    def _run(self):
        while not self._stop.wait(0.001):
            for port in self._ports:
                for _, frame in port.receive():
                    to = self._places.get(int.from_bytes(frame[:6], "big"))
                    if to is not None and self._rng.random() < self._drop:
                        self.dropped += 1
                    elif to is not None:
                        to.send(frame)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(LIMIT)
        for port in self._ports:
            port.close()


@pytest.fixture
def lab():
    """Three hosts, each with an interface ``eth`` to a wire."""
    with Lab(["wire", "node0", "node1", "node2"]) as lab:
        for n in range(3):
            lab.wire("wire", f"port{n}", f"node{n}", "eth")
        yield lab


def _started(opened, lab, rank, ranks, path, *options):
    np.save(path.with_suffix(".npy"), options[0])
    command = (*FANIN, "nic", "run", "--kind", "ring", "--preset", "tiny", "--port", "eth", "--json")
    of_it = (
        "--rank",
        rank,
        "--ranks",
        ranks,
        "--gradient",
        path.with_suffix(".npy"),
        "-o",
        path.with_suffix(".sum"),
    )
    process = lab.start(
        f"node{rank}", [*map(str, (*command, *of_it, *options[1:]))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    opened.callback(process.communicate)
    opened.callback(process.kill)
    return process


def _vectors(rng, ranks, values):
    return [rng.normal(size=values).astype(np.float32) for _ in range(ranks)]


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "codec", "drop"), [(2, None, 0.0), (3, None, 0.05), (3, Bfp(block=8), 0.05)])
def test_every_node_has_the_golden_models_sum_whatever_the_wire_loses(lab, tmp_path, ranks, codec, drop):
    rng = np.random.default_rng(new_seed())
    vectors = _vectors(rng, ranks, 3_001)
    options = ("--codec", "bfp", "--block", "8") if codec else ()
    with _Wire(lab, ranks, rng, drop) as wire, ExitStack() as opened:
        processes = [
            _started(opened, lab, rank, ranks, tmp_path / str(rank), vectors[rank], *options)
            for rank in range(ranks)
        ]
        ended = [process.communicate(timeout=BUILD) for process in processes]
        assert [process.returncode for process in processes] == [0] * ranks, ended
    found = [documented("nic run", out) for out, _ in ended]
    golden = all_reduce(vectors, replace(PRESETS["tiny"], codec=codec))
    for rank in range(ranks):
        assert np.load(tmp_path / f"{rank}.sum").tobytes() == golden.tobytes()
    assert len({run["sha256"] for run in found}) == 1
    assert (wire.dropped > 0) == (sum(run["counters"]["retransmitted"] for run in found) > 0) == (drop > 0)


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.slow
def test_who_is_not_there_and_who_has_another_vector_is_told(lab, tmp_path):
    rng = np.random.default_rng(new_seed())
    with _Wire(lab, 2, rng, 0.0), ExitStack() as opened:
        alone = _started(opened, lab, 0, 2, tmp_path / "0", *_vectors(rng, 1, 100), "--wait", "2")
        _, error = alone.communicate(timeout=BUILD)
        assert (alone.returncode, error.splitlines()[-1]) == (
            1, "fanin: error: no progress for 2 s: nothing comes from rank 1, or not all",
        )  # fmt: skip
        pair = [
            _started(opened, lab, n, 2, tmp_path / str(n), *_vectors(rng, 1, values), "--wait", "5")
            for n, values in enumerate((100, 200))
        ]
        ended = [process.communicate(timeout=BUILD)[1].splitlines()[-1] for process in pair]
        assert [process.returncode for process in pair] == [1, 1]
        assert any("do not agree: the descriptor of the previous" in error for error in ended), ended
        waits = _started(opened, lab, 0, 2, tmp_path / "0", *_vectors(rng, 1, 100))
        while "ring node" not in waits.stderr.readline():
            assert waits.poll() is None
        waits.send_signal(signal.SIGINT)
        _, error = waits.communicate(timeout=LIMIT)
        assert (waits.returncode, error) == (1, "fanin: error: eth: ended before the sum was there\n")
    assert not list(tmp_path.glob("*.sum"))


def test_frames_that_the_interface_does_not_take_are_refused_before_anything_is_built(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("fanin.sim.nic.outside.check_interfaces", lambda names: None)
    monkeypatch.setattr("fanin.host.ethernet.mtu_of", lambda name: 1500)
    np.save(tmp_path / "v.npy", np.zeros(10, np.float32))
    command = f"{RING} --port eth --rank 0 --ranks 2 --gradient {tmp_path / 'v.npy'} --frame-words 64"
    assert main(command.split()) == 2
    assert capsys.readouterr().err == (
        "fanin: error: --port eth: its MTU is 1500, and frames of 64 words take 4146: "
        "ip link set eth mtu 4146, or fewer --frame-words at all nodes\n"
    )


RING = "nic run --kind ring"
AT_LO = f"{RING} --port lo --rank 0 --ranks 2 --gradient"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RING, "--port: --kind ring needs it"),
        (f"{RING} --port lo --rank 0 --ranks 2", "--gradient: --kind ring needs it"),
        (f"{RING} --port lo --rank 2 --ranks 2 --gradient v.npy", "--rank 2: must be 0 to 1"),
        (f"{RING} --port lo --rank 0 --ranks 1 --gradient v.npy", "--ranks 1: a ring has 2 to"),
        (f"{AT_LO} no.npy", "no.npy: cannot be read"),
        (f"{AT_LO} v.npy --frame-words 0", "--frame-words 0: frame_words must"),
        (f"{AT_LO} v.npy", "lo: is not an Ethernet interface"),
        (f"{AT_LO} v.npy --wait 0", "--wait 0: must be 1 to 86400"),
        (f"{AT_LO} v.npy --block 8", "--block: needs a --codec"),
        (f"{RING} --model", "--model: a ring's node has none"),
        (f"{RING} --host lo", "--host: applies to --kind inceptionn, not to ring"),
        (f"{RING} --ip 10.0.0.1", "--ip: applies to --kind rdma, not to ring"),
        ("nic run --kind rdma --preset prototype --port a --ip 1 --memory m", "--preset prototype: of an RDMA"),
        ("nic run --kind rdma --rank 1", "--rank: applies to --kind ring, not to rdma"),
        ("nic run --codec bfp", "--codec: applies to --kind ring, not to inceptionn"),
        ("ring run v.npy v.npy --ports a,b", "--ports: fanin nic run --kind ring adds up over interfaces"),
    ],
)  # fmt: skip
def test_bad_input_takes_one_line(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("v.npy", np.zeros(10, np.float32))
    assert main(options.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fanin: error: {message}")
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]
