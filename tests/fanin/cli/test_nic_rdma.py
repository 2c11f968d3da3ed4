"""``fanin nic run --kind rdma``: two nodes on a wire, a peer that is no fanin, how it ends, what it refuses."""

import os
import signal
import time
from contextlib import ExitStack

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.cli.nic import rdma, show
from fanin.host.ethernet import open_interface
from fanin.host.lab import Lab
from fanin.host.nic import RdmaNic
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Ending
from fanin.sim.nic.rdma_settings import RdmaSettings
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import Opcode, RdmaPacket, decode, encode
from tests.echo_request import echo_requests
from tests.fanin.cli.json_page import documented
from tests.fanin.cli.nic_command import LIMIT, running
from tests.support import new_seed, slow

RTL = ("--preset", "tiny")
BYTES = 1 << 16


@pytest.fixture
def lab():
    with Lab(["a", "b"]) as lab:
        lab.wire("a", "port", "b", "port")
        yield lab


def _node(lab, folder, name, engine, *options):
    """The node in a namespace, with the address 10.0.0.1 in ``a`` and 10.0.0.2 in ``b``."""
    ip = {"a": "10.0.0.1", "b": "10.0.0.2"}[name]
    command = ("nic", "run", "--kind", "rdma", "--port", "port", "--ip", ip, "--json", *engine, *options)
    files = ("--memory", folder / f"{name}.mem", "--memory-bytes", BYTES, "--control", folder / f"{name}.sock")
    return running(lab, name, *command, *files)


def _until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("engine", [("--model",), *slow((RTL,))])
def test_two_nodes_write_into_each_others_files(lab, tmp_path, engine, capsys):
    rng = np.random.default_rng(new_seed())
    (tmp_path / "a.mem").write_bytes(rng.bytes(BYTES))
    with ExitStack() as opened:
        nodes = [
            opened.enter_context(_node(lab, tmp_path, name, engine, "--peer", peer))
            for name, peer in (("a", "10.0.0.2"), ("b", "10.0.0.1"))
        ]
        a, b = (opened.enter_context(RdmaNic(tmp_path / f"{name}.sock")) for name in "ab")
        _until(lambda: a.info()["connected"] and b.info()["connected"])
        memory, other = a.memory(), b.memory()
        assert a.write(30_001, local=3, remote=17, immediate=9) is Ending.DONE
        assert b.arrival(LIMIT) == {"pair": 0, "immediate": 9, "length": 30_001}
        assert np.array_equal(other[17:30_018], memory[3:30_004])
        other[:100] = 5  # a program writes, and the node sends what it wrote
        posted = [b.post(10, local=10 * n, remote=BYTES - 100 + 10 * n) for n in range(10)]
        assert {b.wait(number) for number in posted} == {Ending.DONE}
        assert (memory[-100:] == 5).all()
        write = ["nic", "write", str(tmp_path / "a.sock"), "--bytes", "50", "--remote", "40000", "--json"]
        capsys.readouterr()  # the seed
        assert main(write) == 0
        assert documented("nic write", capsys.readouterr().out) == {"ending": "done", "bytes": 50}
        assert main(["nic", "show", str(tmp_path / "b.sock"), "--json"]) == 0
        assert documented("nic show", capsys.readouterr().out)["ip"] == "10.0.0.2"
        assert a.write(1, rkey=99) is Ending.ACCESS
        assert main(write) == 1
        assert (
            "a.sock: the write ended with FLUSHED: its queue pair had failed before" in capsys.readouterr().err
        )
        assert main(["nic", "show", write[2]]) == 0
        assert "failed with ACCESS: the peer has no such region" in capsys.readouterr().out
        for node in nodes:
            node.send_signal(signal.SIGINT)
        found = [documented("nic run", node.communicate(timeout=LIMIT)[0]) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert found[0]["counters"]["sent"] >= 30_001 // 1024 + 2
    assert [counts["counters"]["failed"] for counts in found] == [1, 0]
    assert (tmp_path / "b.mem").read_bytes()[40_000:40_050] == (tmp_path / "a.mem").read_bytes()[:50]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mem", "b.mem"]


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("engine", [("--model",), *slow((RTL,))])
def test_a_peer_that_is_no_fanin_writes_and_is_written_to(lab, tmp_path, engine):
    """Frames at a raw socket, as a capture's replay sends them."""
    own, node = (
        Endpoint(0x02_00_00_00_00_77, 0x0A_00_00_63, 0xC111),
        Endpoint(0x02_00_0A_00_00_01, 0x0A_00_00_01),
    )
    peer = lab.opened("b", lambda: open_interface("port"))

    def next_packet():
        found = []

        def look():
            found.extend(packet for _, frame in peer.receive() if (packet := decode(frame)))
            return found

        _until(look)
        return found[0]

    with peer, _node(lab, tmp_path, "a", engine) as process, RdmaNic(tmp_path / "a.sock") as nic:
        nic.set_regions({"rkey": 0x1234, "base": 4096, "length": 4096, "pairs": [1]})
        nic.connect(
            1, "10.0.0.99", mac="02:00:00:00:00:77", peer=0x42, send_psn=7, receive_psn=0xFFFFFF, mtu=256
        )
        data = np.random.default_rng(new_seed()).bytes(200)
        write = RdmaPacket(
            Opcode.WRITE_ONLY, FIRST_QUEUE_PAIR + 1, 0xFFFFFF, acknowledge=True, address=5000, rkey=0x1234,
            length=len(data), payload=data,
        )  # fmt: skip
        peer.send(encode(write, source=own, destination=node))
        answer = next_packet()
        assert (answer.opcode, answer.queue_pair, answer.psn) == (Opcode.ACKNOWLEDGE, 0x42, 0xFFFFFF)
        assert answer.syndrome >> 5 == 0
        assert nic.memory()[5000:5200].tobytes() == data
        posted = nic.post(200, pair=1, local=5000, remote=1 << 40, rkey=0xABCD)
        request = next_packet()
        assert (request.psn, request.address, request.rkey, request.payload) == (7, 1 << 40, 0xABCD, data)
        peer.send(
            encode(RdmaPacket(Opcode.ACKNOWLEDGE, FIRST_QUEUE_PAIR + 1, 7, msn=1), source=own, destination=node)
        )
        assert nic.wait(posted) is Ending.DONE
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 0


@pytest.mark.needs("namespaces")
@pytest.mark.slow
@pytest.mark.parametrize("engine", [("--model",), RTL])
def test_a_node_answers_ping_and_ends_when_its_interface_goes(lab, tmp_path, engine):
    lab.address("b", "port", "10.0.0.9/24")
    with _node(lab, tmp_path, "a", engine) as process:
        assert len(echo_requests(lab, "b", "10.0.0.1", count=2, timeout=10)) == 2
        lab.run("a", ["ip", "link", "set", "port", "down"])
        time.sleep(0.3)
        lab.run("a", ["ip", "link", "set", "port", "up"])
        _until(lambda: echo_requests(lab, "b", "10.0.0.1", timeout=1))  # it answers when it is up again
        lab.run("b", ["ip", "link", "delete", "port"])
        _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert error.startswith("fanin: error: port: ")
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.mem"]


NIC = "nic run --kind rdma --model"
AT_LO = f"{NIC} --port lo --ip 10.0.0.1 --memory"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (NIC, "--port: --kind rdma needs it"),
        (f"{NIC} --port lo --ip 10.0.0.1", "--memory: --kind rdma needs it"),
        (f"{AT_LO} m", "lo: is not an Ethernet interface"),
        (f"{NIC} --port no-such --ip 10.0.0.1 --memory m", "no-such: no such interface"),
        (f"{NIC} --port lo --ip 10.0.0 --memory m", "--ip 10.0.0: is no IPv4 address"),
        (f"{NIC} --port lo --ip 10.0.0.1 --mac 3 --memory m", "--mac 3: is no MAC address"),
        (f"{AT_LO} no/m", "--memory no/m: there is no folder no"),
        (f"{AT_LO} odd", "--memory odd: must have a multiple of 64 bytes"),
        (f"{AT_LO} m --memory-bytes 65", "--memory-bytes 65: must have a multiple"),
        (f"{AT_LO} odd --memory-bytes 64", "--memory-bytes 64: odd exists, and has"),
        (f"{AT_LO} m --peer x", "--peer x: is no IPv4 address"),
        (f"{AT_LO} m --peer 10.0.0.2:z", "--peer 10.0.0.2:z: z is no queue pair's"),
        (f"{NIC} --host lo", "--host: applies to --kind inceptionn, not to rdma"),
        ("nic run --ip 10.0.0.1", "--ip: applies to --kind rdma, not to inceptionn"),
        ("nic run --wire a", "--host: --kind inceptionn needs an interface for it"),
        ("nic run --kind glm", "--kind glm: fanin train DATA --ports"),
        ("nic write no-such --bytes 1", "no-such: no node serves it: No such file or directory"),
        ("nic write no-such --bytes 1 --wait 0.5", "--wait 0.5: must be 1 to 86400 seconds"),
        ("nic write no-such --bytes 1 --wait nan", "--wait nan: must be 1 to 86400 seconds"),
        ("nic show odd", "odd: no node serves it: Connection refused"),
    ],
)  # fmt: skip
def test_bad_input_takes_one_line_and_makes_no_file(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd").write_bytes(bytes(65))
    assert main(options.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fanin: error: {message}")
    assert error.count("\n") == 1
    assert os.listdir(tmp_path) == ["odd"]


def _settings(memory, size=64):
    own = Endpoint(0x02_00_0A_00_00_01, 0x0A_00_00_01)
    return RdmaSettings(config=PRESETS["tiny"], port="lo", endpoint=own, memory=memory, size=size, mtu=256)


def _opened(memory, size=64):
    with rdma._open_memory(_settings(memory, size)) as opened:
        return opened


def test_memory_stays_the_file_that_was_checked(tmp_path):
    (tmp_path / "m").write_bytes(b"m" * 64)
    (tmp_path / "private").write_bytes(b"p" * 64)
    with rdma._open_memory(_settings(tmp_path / "m")) as opened:
        (tmp_path / "m").unlink()
        (tmp_path / "m").symlink_to(tmp_path / "private")
        assert opened.checked_memory.read_bytes() == b"m" * 64


def test_memory_of_others_is_refused(tmp_path, monkeypatch):
    memory = tmp_path / "m"
    memory.write_bytes(bytes(64))
    with pytest.raises(InputError, match="has 64 bytes now, not 128"):
        _opened(memory, 128)
    memory.chmod(0o666)
    with pytest.raises(InputError, match="others may write it; name a file of your own"):
        _opened(memory)
    memory.chmod(0o600)
    (tmp_path / "private").hardlink_to(memory)
    with pytest.raises(InputError, match=r"has 2 names \(hard links\), not one"):
        _opened(memory)
    (tmp_path / "private").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: memory.stat().st_uid + 1)
    with pytest.raises(InputError, match="is another user's"):
        _opened(memory)


def test_memory_of_another_node_is_refused(tmp_path):
    used = pytest.raises(InputError, match=r"m: another fanin nic run uses it; each node has")
    with rdma._open_memory(_settings(tmp_path / "m")), used:
        _opened(tmp_path / "m")
    _opened(tmp_path / "m")


def test_memory_is_made_for_its_owner_alone(tmp_path):
    settings = _settings(tmp_path / "m")
    umask = os.umask(0)
    try:
        for _ in range(2):  # what is there stays
            with rdma._open_memory(settings) as opened:
                assert opened.checked_memory.read_bytes() == bytes(64)
    finally:
        os.umask(umask)
    assert (settings.memory.stat().st_mode & 0o777, settings.memory.stat().st_size) == (0o600, 64)


def test_memory_is_no_link(tmp_path, capsys):
    (tmp_path / "other").write_bytes(bytes(64))
    (tmp_path / "m").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="Too many levels of symbolic links"):  # one that came meanwhile
        _opened(tmp_path / "m", 128)
    assert main([*AT_LO.split(), str(tmp_path / "m")]) == 2
    told = f"--memory {tmp_path}/m: is a link to {tmp_path}/other; name the file itself"
    assert capsys.readouterr().err == f"fanin: error: {told}\n"
    assert (tmp_path / "other").stat().st_size == 64


@pytest.mark.parametrize(
    ("failed", "said"),
    [("", ""), ("retries", "; failed with RETRIES: the peer has not answered; "), ("new", "; failed with new")],
)
def test_a_failed_queue_pair_is_shown_with_its_cause_and_an_unknown_one_as_it_is(failed, said):
    assert show._failure_note({"failed": failed}).startswith(said)
