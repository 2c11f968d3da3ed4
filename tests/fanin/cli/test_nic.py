"""``fanin nic run`` and ``fanin train --ports``: what they refuse, how they end, nodes at a served switch."""

import json
import selectors
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.host.ethernet import open_interface
from fanin.host.lab import Lab
from tests.echo_request import echo_requests
from tests.fanin.cli.json_page import documented
from tests.fanin.cli.nic_command import FANIN, LIMIT, running
from tests.support import new_seed, slow

TRAIN = ("train", "breast_cancer", "--preset", "tiny", "--epochs", "1")
BUILD = 600  # of a simulator, and a run
FOREIGN = (20, 21)  # ports of the switch that no node has


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("nic run --host lo --wire lo", "--wire lo: must be another interface than --host"),
        ("nic run --host no-such --wire lo", "no-such: no such interface"),
        ("nic run --host lo --wire no-such --model", "lo: is not an Ethernet interface"),
        ("nic run --host a --wire b --bound 3", "--bound 3: must be a power of two"),
        ("nic run --host a --wire b --slowdown 0", "--slowdown 0: must be 1 to 100000"),
        ("nic run --host a --wire b --seconds 0", "--seconds 0: must be above 0"),
        ("train breast_cancer --ports no-such,b", "no-such: no such interface"),
        ("train breast_cancer --ports a,a", "a, a: an interface is named twice"),
        ("train breast_cancer --ports a --worker x", "--worker x: must be numbers, from 0 on"),
        ("train breast_cancer --ports a,b --worker 0", "--worker 0: --ports 2 needs one worker per port"),
        (
            "train breast_cancer --ports a --worker 4",
            "--worker 4: must be different ones of 0 to 3 (--workers)",
        ),
        ("train breast_cancer --ports a,b --worker 1,1", "--worker 1,1: must be different ones of 0 to 3"),
        ("train breast_cancer --worker 1", "--worker: needs --ports"),
        ("train breast_cancer --ports a --on boards.toml", "--ports: does not apply with --on"),
        ("train breast_cancer --slowdown 7", "--slowdown: needs --ports"),
        ("train breast_cancer --drop 0.5 --on boards.toml", "--drop: does not apply with --on"),
        ("train breast_cancer --switch-ns 9000 --on boards.toml", "--switch-ns: does not apply with --on"),
        ("train breast_cancer --frame-bytes 256 --on boards.toml", "--frame-bytes: does not apply with --on"),
    ],
)
def test_bad_input_takes_one_line(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards.toml").touch()
    assert main(options.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fanin: error: {message}")
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["boards.toml"]


@pytest.fixture
def lab():
    with Lab(["here"]) as lab:
        lab.wire("here", "host", "here", "peer")
        lab.wire("here", "wire", "here", "far")
        yield lab


@pytest.mark.needs("namespaces")
def test_more_classes_than_two_are_refused_before_anything_is_built(lab, tmp_path):
    (tmp_path / "three.csv").write_text("x,class\n" + "".join(f"{n},{n % 3}\n" for n in range(60)))
    train = [*FANIN, "train", tmp_path / "three.csv", "--ports", "host,wire", "-o", tmp_path / "run"]
    done = subprocess.run(lab.inside("here", train), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2
    assert " 3 classes need a training each; the switch" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("engine", [("--model",), *slow((("--rtl",),))])
def test_it_ends_when_told_to_and_says_what_it_did(lab, engine):
    options = ["--model"] if engine == ("--model",) else []
    with (
        running(lab, "here", "nic", "run", "--host", "host", "--wire", "wire", "--json", *options) as process,
        lab.opened("here", lambda: open_interface("peer")) as peer,
        lab.opened("here", lambda: open_interface("far")) as far,
    ):
        frame = bytes(12) + b"\x88\xb5" + bytes(range(100))
        peer.send(frame)
        assert _next(far) == frame
        second = subprocess.run(
            lab.inside("here", [*FANIN, "nic", "run", "--host", "host", "--wire", "wire", *options]),
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert second.returncode == 2
        assert second.stderr == "fanin: error: host: the interface is in use by another fanin\n"
        process.send_signal(signal.SIGINT)
        found = documented("nic run", process.communicate(timeout=LIMIT)[0])
    assert process.returncode == 0
    counters = {name: value for name, value in found["counters"].items() if value}
    assert counters == {"tx_bypassed": 1, "tx_bytes_in": len(frame), "tx_bytes_out": len(frame)}
    assert (found["lost"], found["unaligned"]) == (0, 0)


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("engine", [("--model",), *slow((("--rtl",),))])
def test_an_interface_that_goes_ends_it(lab, engine):
    options = ["--model"] if engine == ("--model",) else []
    with running(lab, "here", "nic", "run", "--host", "host", "--wire", "wire", *options) as process:
        lab.run("here", ["ip", "link", "delete", "wire"])
        _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert error.startswith("fanin: error: wire: ")
    assert error.count("\n") == 1


def _next(interface):
    with selectors.DefaultSelector() as selector:
        selector.register(interface, selectors.EVENT_READ)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            selector.select(0.2)
            if frames := interface.receive():
                return frames[0][1]
    raise AssertionError("no frame has come")


class _Foreign:
    """Frames that are nobody's business, at interfaces on both sides of the switch, while the context lasts."""

    def __init__(self, lab, names, seed):
        self._interfaces = [lab.opened("nodes", lambda name=name: open_interface(name)) for name in names]
        self._rng = np.random.default_rng(seed)
        self._stop = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        rng = self._rng
        while not self._stop.wait(0.002):
            for interface in self._interfaces:
                kind = rng.choice([b"\x08\x00", b"\x08\x06", b"\x88\xb5", b"\x86\xdd"])
                destination = rng.choice([b"\xff" * 6, bytes.fromhex("020000000001"), rng.bytes(6)])
                frame = (
                    bytes(destination).ljust(6, b"\1")
                    + rng.bytes(6)
                    + bytes(kind)
                    + rng.bytes(rng.integers(1, 900))
                )
                self.sent += interface.send(frame)
                interface.receive()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(LIMIT)
        for interface in self._interfaces:
            interface.close()


@contextmanager
def _switch(folder, workers, encap):
    """A lab whose namespace ``switch`` serves the job at port0, port1, …; and the process."""
    ports = (*range(workers), *FOREIGN)
    options = ["--workers", str(workers), "--slots", "4", "--encap", encap]
    with Lab(["switch", "nodes"]) as lab:
        for port in ports:
            lab.wire("switch", f"port{port}", "nodes", f"node{port}")
        lab.run("switch", [*FANIN, "p4", "emit", *options, "-o", folder])
        named = [text for port in ports for text in ("--port", f"{port}=port{port}")]
        serve = ["p4", "serve", folder / "aggregation.p4", "--job", folder / "job.json", *named]
        with running(lab, "switch", *serve, "--grpc", "none", "--json") as process:
            yield lab, process


def _training(lab, workers, encap, *options):
    ports = ",".join(f"node{port}" for port in range(workers))
    return lab.inside("nodes", [*FANIN, *TRAIN, "--encap", encap, "--ports", ports, "--json", *options])


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.parametrize(("workers", "encap", "drop"), [(2, "l2", "0"), *slow((4, "udp", "0.02"))])
def test_nodes_train_through_a_served_switch_beside_foreign_traffic(workers, encap, drop, tmp_path):
    ports = range(workers)
    with (
        _switch(tmp_path / "switch", workers, encap) as (lab, process),
        _Foreign(lab, [f"node{port}" for port in FOREIGN], new_seed()) as foreign,
    ):
        done = subprocess.run(
            _training(lab, workers, encap, "--drop", drop, "-o", tmp_path / "run"),
            capture_output=True, text=True, timeout=BUILD, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        process.terminate()
        switch = json.loads(process.communicate(timeout=LIMIT)[0])["ports"]
    found = documented("train", done.stdout)
    assert found["bit_exact"] is True
    assert found["options"]["workers"] == workers
    assert found["switch"]["lost"] == 0
    dropped = sum(link["up"]["dropped"] for link in found["links"])
    assert found["packets"] == sum(switch[str(port)]["frames_in"] for port in ports) + dropped
    assert (found["retransmissions"] > 0) or drop == "0"
    assert foreign.sent > 100
    assert sum(switch[str(port)]["frames_in"] for port in FOREIGN) > 100


def _frames(lab, namespace, interface):
    """That it has received."""
    return int(lab.run(namespace, ["cat", "/proc/net/dev"]).split(f"{interface}:")[1].split()[1])


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.slow
def test_a_training_outlasts_an_interface_that_is_down_and_ends_where_one_goes(tmp_path):
    with _switch(tmp_path / "switch", 2, "l2") as (lab, _), ExitStack() as opened:
        training = subprocess.Popen(
            _training(lab, 2, "l2", "--epochs", "4000", "-o", tmp_path / "run"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        opened.callback(training.communicate)
        opened.callback(training.kill)

        def until_frames(count):
            end = time.monotonic() + BUILD
            while _frames(lab, "nodes", "node0") < count:
                assert training.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)

        until_frames(100)
        lab.run("nodes", ["ip", "link", "set", "node0", "down"])
        time.sleep(0.5)
        lab.run("nodes", ["ip", "link", "set", "node0", "up"])
        until_frames(_frames(lab, "nodes", "node0") + 100)
        lab.run("nodes", ["ip", "link", "delete", "node0"])
        _, error = training.communicate(timeout=LIMIT)
    assert training.returncode == 2
    assert error.splitlines()[-1].startswith("fanin: error: node0: the interface is gone")
    assert "the interface is gone" in json.loads((tmp_path / "run" / "run.json").read_text())["error"]


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["model-parallel", "data-parallel"])
def test_a_process_for_each_worker_trains_the_golden_model_whoever_starts_first(mode, tmp_path):
    def training(lab, worker):
        options = ("--mode", mode, "--workers", "2", "--worker", str(worker), "--ports", f"node{worker}")
        command = [*FANIN, *TRAIN, *options, "--json", "-o", str(tmp_path / f"run{worker}")]
        return lab.start("nodes", command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with _switch(tmp_path / "switch", 2, "l2") as (lab, _), ExitStack() as opened:
        trainings = []
        for worker in (1, 0):
            trainings.append(training(lab, worker))
            opened.callback(trainings[-1].communicate)
            opened.callback(trainings[-1].kill)
            time.sleep(3)
        ended = [process.communicate(timeout=BUILD) for process in trainings]
        assert [process.returncode for process in trainings] == [0, 0], ended
    found = [documented("train", out) for out, _ in ended]
    assert [run["bit_exact"] for run in found] == [True, True]
    assert [run["options"]["network"]["here"] for run in found] == [[1], [0]]
    assert [len(run["counters"]) for run in found] == [1, 1]
    assert found[0]["golden_loss"] == found[1]["golden_loss"] == [epoch["loss"] for epoch in found[0]["epochs"]]
    models = [np.load(tmp_path / f"run{worker}" / "model.npz")["weights"] for worker in range(2)]
    assert np.array_equal(*models)


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.slow
def test_a_node_answers_arp_and_ping_while_it_trains(tmp_path):
    """Requests go to the interface of the switch that leads to the node; the kernel sends the ARP request."""
    answers = []
    with _switch(tmp_path / "switch", 2, "udp") as (lab, _):
        lab.address("switch", "port0", "10.0.0.77/24")
        training = subprocess.Popen(
            _training(lab, 2, "udp", "--epochs", "20", "-o", tmp_path / "run"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            end = time.monotonic() + BUILD
            while len(answers) < 3 and training.poll() is None and time.monotonic() < end:
                answers = echo_requests(lab, "switch", "10.0.0.1", count=3, size=1000, timeout=1)
            neighbour = lab.run("switch", ["ip", "neighbour", "show", "10.0.0.1"])
            out, error = training.communicate(timeout=BUILD)
        finally:
            training.kill()
            training.wait()
    assert len(answers) == 3, error
    assert "lladdr 02:00:00:00:00:01" in neighbour
    assert json.loads(out)["bit_exact"] is True
