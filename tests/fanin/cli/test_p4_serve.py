"""``fanin p4 serve``: real pings and aggregation between namespaces, P4Runtime from outside, and bad input."""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.base.tools import program
from fanin.cli.main import main
from fanin.cli.p4 import serve
from fanin.host.ethernet import open_interface
from fanin.host.lab import Lab
from fanin.p4.deployment import load_deployment
from fanin.sim.switch.embedded import load
from tests.echo_request import echo_requests
from tests.fuzzing import Mutator, new_random
from tests.support import slow

CACHE = 10_000  # kB: 65,536 keys whose entries a table remembers
VLAN = (b"\x81\x00", b"\x88\xa8")  # types of tags

EXAMPLE = Path(__file__).parents[3] / "examples" / "namespaces"


@pytest.fixture
def router(tmp_path):
    for name in ("router.p4", "entries.json"):
        shutil.copy(EXAMPLE / name, tmp_path)
    return tmp_path


@pytest.fixture
def lab():
    """Two hosts in networks of their own, on ports 1 and 2 of ``switch``."""
    with Lab(["switch", "h1", "h2"]) as lab:
        for n in (1, 2):
            lab.wire("switch", f"port{n}", f"h{n}", "eth0")
            gateway = f"10.0.{n}.254"
            lab.address(
                f"h{n}", "eth0", f"10.0.{n}.1/24", mac=f"02:00:00:00:00:0{n}", gateway=gateway,
                neighbours={gateway: "02:00:00:00:00:fe"},
            )  # fmt: skip
        yield lab


@contextmanager
def _serving(lab, folder, *options, name="router.p4", ports=(1, 2)):
    """The running command, once it says that it is ready; ended at the latest here."""
    fanin = program("fanin", "pip install fanin")
    interfaces = [text for n in ports for text in ("--port", f"{n}=port{n}")]
    process = lab.start(
        "switch", [fanin, "p4", "serve", folder / name, *interfaces, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        lines = [process.stderr.readline()]
        if "none" not in options:
            lines.append(process.stderr.readline())
        assert all(line.startswith("fanin: ") and "error" not in line for line in lines), lines
        yield process
    finally:
        process.kill()
        process.communicate()


def _ended(process, how=signal.SIGTERM):
    process.send_signal(how)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    return out


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_hosts_ping_each_other_through_a_program(lab, router, how):
    with _serving(lab, router, "--entries", router / "entries.json", "--grpc", "none") as process:
        assert echo_requests(lab, "h1", "10.0.2.1", count=3) == [63] * 3  # the program decrements the TTL
        out = _ended(process, how)
    counts = [
        list(map(int, line.split()[2:]))
        for line in out.splitlines()
        if "port" in line and "interface" not in line
    ]
    assert counts == [[3, 3, 0], [3, 3, 0]]
    assert "PROMISC" not in lab.run("switch", ["ip", "link", "show", "port1"])  # as it was


@pytest.mark.needs("namespaces", "ping")
def test_the_example_pings():
    done = subprocess.run([sys.executable, EXAMPLE / "ping.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "3 received" in done.stdout
    assert "port1" in done.stdout


@pytest.mark.needs("namespaces")
def test_a_controller_from_outside_installs_what_hosts_need(lab, router):
    with _serving(lab, router, "--json", "--p4info", router / "router.p4info") as process:
        script = (
            "import sys\n"
            "from fanin.sim.switch.bmv2.p4runtime import P4Runtime\n"
            "from fanin.p4.control import Lpm, TableEntry\n"
            "control = P4Runtime('127.0.0.1:9559')\n"
            "for n in (1, 2):\n"
            "    match = {'hdr.ipv4.destination': Lpm(10 << 24 | n << 8, 24)}\n"
            "    to = {'to': 2 << 40 | n, 'port': n}\n"
            "    control.insert(TableEntry('Router.route', match, 'Router.forward', to))\n"
            "control.close()\n"
        )
        lab.run("switch", [sys.executable, "-c", script])
        assert len(echo_requests(lab, "h2", "10.0.1.1", count=2)) == 2
        ports = json.loads(_ended(process))["ports"]
    assert [ports[n]["frames_in"] for n in ("1", "2")] == [2, 2]
    assert 'name: "Router.route"' in (router / "router.p4info").read_text()


@pytest.mark.needs("namespaces")
def test_jobs_are_managed_as_on_bmv2(lab, tmp_path):
    assert main(["p4", "emit", "--workers", "2", "--slots", "8", "-o", str(tmp_path)]) == 0
    fanin = program("fanin", "pip install fanin")
    with _serving(lab, tmp_path, name="aggregation.p4", ports=(1,)) as process:
        assert "job 1 added" in lab.run("switch", [fanin, "p4", "job", "add", tmp_path])
        assert "job 1 reset" in lab.run("switch", [fanin, "p4", "job", "reset", "1"])
        stats = json.loads(lab.run("switch", [fanin, "p4", "job", "stats", "--json"]))
        assert stats["jobs"]["1"]["aggregated"] == 0
        _ended(process)


@pytest.mark.slow
@pytest.mark.needs("namespaces")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "frames that need it are lost (--permissive takes it as BMv2 has it)"),
        (("--permissive",), "a value that P4 leaves undefined is taken as BMv2 has it"),
    ],
    ids=["strict", "permissive"],
)  # fmt: skip
def test_a_header_that_is_invalid_is_read_where_that_is_allowed(lab, router, options, told):
    text = (router / "router.p4").read_text()
    assert "if (hdr.ipv4.isValid() && " in text
    (router / "router.p4").write_text(text.replace("if (hdr.ipv4.isValid() && ", "if ("))
    with _serving(lab, router, *options) as process:
        with lab.opened("h1", lambda: open_interface("eth0")) as host:
            host.send(bytes(12) + b"\x88\xb5" + bytes(50))
            assert told in process.stderr.readline()
        _ended(process)


@pytest.mark.needs("namespaces")
def test_an_interface_that_vanishes_ends_the_service_with_its_name(lab, router):
    with _serving(lab, router, "--grpc", "none") as process:
        lab.run("h2", ["ip", "link", "delete", "eth0"])
        _, error = process.communicate(timeout=30)
        assert process.returncode == 2
        assert error.splitlines()[-1] == "fanin: error: port2: the interface is gone"


@pytest.mark.needs("namespaces")
def test_what_is_taken_is_named(lab, router):
    with _serving(lab, router):
        fanin = program("fanin", "pip install fanin")
        second = [fanin, "p4", "serve", router / "router.p4", "--port"]
        assert "port1: the interface is in use by another fanin" in lab.run(
            "switch", [*second, "1=port1"], check=False
        )
        lab.wire("switch", "port3", "h1", "eth3")
        taken = lab.run("switch", [*second, "3=port3"], check=False)
        assert "--grpc 127.0.0.1:9559: the address is in use" in taken


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("seconds", [3, *slow(60)])
def test_load_and_malformed_frames_leave_counters_exact_and_memory_as_it_was(lab, router, seconds):
    rng = new_random()
    base = bytes(Ether(dst="02:00:00:00:00:fe") / IP(src="10.0.1.1", dst="10.0.2.1") / UDP() / bytes(20))
    damaged = Mutator(rng, [base, base + rng.randbytes(1400)], longest=1514)
    lab.run("h1", ["ip", "address", "flush", "dev", "eth0"])
    with (
        _serving(lab, router, "--entries", router / "entries.json", "--grpc", "none", "--json") as process,
        lab.opened("h1", lambda: open_interface("eth0")) as one,
        lab.opened("h2", lambda: open_interface("eth0")) as two,
    ):
        sent = found = good = 0
        begin, end, grown = None, time.monotonic() + seconds, time.monotonic() + seconds / 2
        while time.monotonic() < end:
            frames = [base if rng.random() < 0.5 else _damaged(damaged) for _ in range(64)]
            good += 64 - len([f for f in frames if f != base])
            sent += sum(map(one.send, frames))
            found += len(two.receive())
            if begin is None and time.monotonic() > grown:
                begin = _resident(process.pid)
            time.sleep(0.004)  # some 10,000 frames a second
        quiet = time.monotonic()
        while time.monotonic() < quiet + 1:  # the switch may be behind, by as much as its queue holds
            if frames := two.receive():
                found, quiet = found + len(frames), time.monotonic()
            time.sleep(0.01)
        after = _resident(process.pid)
        (link,) = json.loads(lab.run("h1", ["ip", "-s", "-j", "link", "show", "eth0"]))
        sent -= link["stats64"]["tx"]["dropped"]  # the kernel's own queue behind the veth pair was full
        ports = json.loads(_ended(process))["ports"]
    assert ports["1"]["frames_in"] + ports["1"]["overrun"] == sent
    assert ports["2"]["frames_out"] == found >= good - ports["1"]["overrun"]
    assert ports["1"]["refused"] + ports["1"]["lost"] == 0
    assert after - begin < CACHE, f"{begin} kB became {after} kB"


def _damaged(frames):
    """A damaged frame that the kernel carries: it loses tagged ones below 20 bytes."""
    frame = frames.message().ljust(14, b"\0")
    return frame.ljust(20, b"\0") if frame[12:14] in VLAN else frame


def _resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "1"], "--port 1: must be N=INTERFACE"),
        (["--port", "x=lo"], "--port x=lo: must be N=INTERFACE"),
        (["--port", "511=lo"], "--port 511=lo: ports are 0 to 510"),
        (["--port", "1=a", "--port", "1=b"], "--port 1=b: the port or the interface was named before"),
        (["--port", "1=a", "--port", "2=a"], "--port 2=a: the port or the interface was named before"),
        (["--port", "1=a", "--cpu-port", "1"], "--cpu-port 1: must be a port of its own"),
        (["--port", "1=lo", "--seconds", "0"], "--seconds 0: must be above 0"),
        (["--port", "1=none-such"], "none-such: no such interface; available are"),
        (["--port", "1=lo"], "lo: is not an Ethernet interface"),
        (["--port", "1=lo", "--entries", "nothing.json"], "nothing.json"),
    ],
)
def test_bad_input_is_one_line(router, capsys, options, message):
    assert main(["p4", "serve", str(router / "router.p4"), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fanin: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("addend", "warning"),
    [
        ("(bit<9>)(standard.ingress_global_timestamp >> 47)", ""),
        ("(bit<9>)(bit<32>)hdr.values.v0", "a value that P4 leaves undefined is taken as BMv2 has it"),
    ],
    ids=["clock", "uninitialized value"],
)
def test_a_switch_with_jobs_has_a_clock_and_warns_of_uninitialized_values(tmp_path, capsys, addend, warning):
    """Both addends are 0: 2**47 µs after the start, and a field of an invalid header."""
    assert main(["p4", "emit", "--workers", "2", "--slots", "8", "-o", str(tmp_path)]) == 0
    text = (tmp_path / "aggregation.p4").read_text()
    assert text.count("standard.egress_spec = to;") == 1
    program = load(text.replace("egress_spec = to;", f"egress_spec = to + {addend};"), permissive=True)
    first, second = load_deployment(tmp_path / "job.json").jobs[0].members
    args = argparse.Namespace(job=tmp_path / "job.json", entries=None)
    switch = serve._switch(program, args, {first.port: "a", second.port: "b"})
    frame = second.endpoint.mac.to_bytes(6, "big") + bytes(6) + b"\x12\x34" + bytes(46)
    capsys.readouterr()
    for _ in range(2):
        assert switch.process(first.port, frame) == [(second.port, frame)]
    assert capsys.readouterr().err.count("warning") == bool(warning)


def test_a_refused_program_is_named(tmp_path, capsys):
    (tmp_path / "p.p4").write_text("extern foo { foo(); }\n")
    assert main(["p4", "serve", str(tmp_path / "p.p4"), "--port", "1=lo"]) == 2
    assert "p.p4:1:1" in capsys.readouterr().err
