"""How ``simple_switch_grpc`` is started, watched and ended: programs of its name that die, hang or wait."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fanin.base import scratch
from fanin.base.errors import InputError, ToolFailed
from fanin.sim.switch.bmv2 import process
from fanin.sim.switch.bmv2.frames import StreamFrames, VethFrames
from fanin.sim.switch.bmv2.p4runtime import Unreachable, connect
from fanin.sim.switch.bmv2.process import BmvProcess
from tests.sim.switch.bmv2.fake import compiled
from tests.sim.switch.bmv2.test_control import CONFIGS

WAITS = "echo one; echo two; echo three; echo four; exec sleep 600"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A shell script as simple_switch_grpc, and a folder of our own, of a short name, for temporary ones."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory(prefix="fanin-", dir="/tmp") as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)

        def write(script):
            switch = tmp_path / "bin" / "simple_switch_grpc"
            switch.write_text(f"#!/bin/sh\n{script}\n")
            switch.chmod(0o755)
            return Path(temporary)

        yield write
        monkeypatch.undo()


def _until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_one_that_dies_is_quoted(install):
    install("echo starting; echo 'no such interface' >&2; exit 3")
    switch = BmvProcess([0], veth=False)
    with pytest.raises(
        ToolFailed, match=r"died \(exit status 3\); its last lines: starting \| no such interface"
    ):
        switch.check(20)
    switch.close()


def test_one_that_dies_while_it_is_waited_for_ends_the_wait(install, tmp_path):
    install("echo bad option; exit 1")
    switch = BmvProcess([0], veth=False)
    with pytest.raises(ToolFailed, match=r"exit status 1\); its last lines: bad option"):
        connect(switch.p4runtime, compiled(CONFIGS[0], tmp_path), timeout=60, check_alive=switch.check)
    switch.close()


def test_one_that_never_answers_is_given_up(install, tmp_path):
    install(WAITS)
    switch = BmvProcess([0], veth=False)
    with pytest.raises(Unreachable, match="no P4Runtime server answers"):
        connect(switch.p4runtime, compiled(CONFIGS[0], tmp_path), timeout=0.5, check_alive=switch.check)
    switch.close()


def test_a_folder_whose_path_is_too_long_for_a_socket_is_not_used(install, monkeypatch, tmp_path):
    install(WAITS)
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    switch = BmvProcess([0], veth=False)
    folder = switch.folder
    assert folder.parent == Path("/tmp")
    switch.close()
    assert not folder.exists()
    assert list(deep.iterdir()) == []


def test_one_without_thrift_is_told_so(install, monkeypatch):
    install(WAITS)
    monkeypatch.setattr(process, "_SYSTEM_TIMEOUT", 0.2)
    switch = BmvProcess([0], veth=False)
    with pytest.raises(ToolFailed, match="must have been built with Thrift"):
        switch.thrift_socket()
    switch.close()


def test_closing_leaves_nothing_behind(install):
    folder = install(WAITS)
    switch = BmvProcess([0], veth=False)
    switch.check()
    switch.close()
    switch.close()
    assert _is_gone(switch.pid)
    assert list(folder.iterdir()) == []
    with pytest.raises(ToolFailed, match="was stopped"):
        switch.check()


OWNER = """
import sys, tempfile, time
from fanin.sim.switch.bmv2.process import BmvProcess
tempfile.tempdir = sys.argv[1]
switch = BmvProcess([0], veth=sys.argv[2] == "veth")
print(switch.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [pytest.param("veth", marks=pytest.mark.needs("namespaces")), "stream"])
def test_a_killed_owner_takes_its_switch_along_and_the_next_one_clears_up(install, how):
    folder = install(WAITS)
    command = [sys.executable, "-c", OWNER, str(folder), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            pid = int(owner.stdout.readline())
            assert not _is_gone(pid)
        finally:
            owner.send_signal(signal.SIGKILL)
    _until(lambda: _is_gone(pid))
    (stale,) = folder.iterdir()
    switch = BmvProcess([0], veth=False)
    assert not stale.exists()
    switch.close()


@pytest.mark.needs("namespaces")
def test_veth_pairs_live_and_die_with_the_switch(install):
    before = os.listdir("/sys/class/net")
    install(WAITS)
    switch = BmvProcess([0, 7], veth=True)
    _until(lambda: "four" in switch.last_lines())
    names = switch.run_in_namespace(lambda: Path("/proc/thread-self/net/dev").read_text())
    for name in ("host0", "switch0", "host7", "switch7"):
        assert f"{name}:" in names
    assert os.listdir("/sys/class/net") == before
    frames = VethFrames(switch, [0, 7])
    end = time.monotonic()
    os.kill(switch.pid, signal.SIGKILL)
    assert frames.receive(60) is None  # at once: the switch has died
    assert time.monotonic() < end + 20
    frames.close()
    switch.close()


@pytest.mark.needs("namespaces")
def test_frames_cross_a_veth_pair_as_they_are(install):
    install(WAITS)
    switch = BmvProcess([0], veth=True)
    _until(lambda: "four" in switch.last_lines())
    frames = VethFrames(switch, [0])

    def open_other_end():
        other = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        other.bind(("switch0", 0))
        return other

    other = switch.run_in_namespace(open_other_end)
    tagged = bytes(12) + b"\x81\x00\x20\x07\x88\xb5" + bytes(range(40))  # the kernel takes VLAN tags out
    short = bytes(12) + b"\x88\xb5"
    for frame in (short, tagged, bytes(9014)):
        other.send(frame)
        assert frames.receive(20) == (0, frame)
    frames.send(0, short)
    assert frames.receive(0.2) is None  # its own are not received
    for length in (13, 9015):
        with pytest.raises(ValueError, match=f"has 14 to 9014 bytes, not {length}"):
            frames.send(0, bytes(length))
    other.close()
    frames.close()
    switch.close()


def test_a_data_plane_that_goes_away_ends_the_wait(install):
    install(WAITS)
    switch = BmvProcess([0], veth=False)
    frames = StreamFrames(switch)
    assert frames.receive(0) is None
    with pytest.raises(ValueError, match="without a byte"):
        frames.send(0, b"")
    frames.close()
    switch.close()


def test_a_missing_switch_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="simple_switch_grpc is missing: install BMv2"):
        BmvProcess([0], veth=False)


def test_only_own_folders_of_killed_owners_are_removed(install, tmp_path, monkeypatch):
    """The folder for temporary files belongs to all users: others may put anything there under such a name."""
    folder = install(WAITS)
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    stale, link = folder / "fanin-bmv2-9999999-a", folder / "fanin-bmv2-9999999-b"
    stale.mkdir()
    (stale / "owner").write_text(scratch.machine())
    link.symlink_to(other)
    elsewhere = folder / "fanin-bmv2-9999999-c"  # its process may live in another namespace of processes
    elsewhere.mkdir()
    (elsewhere / "owner").write_text(f"{scratch.machine()}1")
    unknown = folder / "fanin-bmv2-9999999-d"
    unknown.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("os.geteuid", lambda: os.getuid() + 1)
        process._remove_stale()
        assert stale.exists()
    process._remove_stale()
    assert not stale.exists()
    assert elsewhere.exists()
    assert unknown.exists()
    assert link.is_symlink()
    assert (other / "precious").exists()
