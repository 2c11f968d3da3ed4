"""Damaged frames at the ports of a served switch: each leaves as the program says, and the loop goes on."""

from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest

from fanin.job import FIRST_JOB
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.control import Lpm, TableEntry
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import make_switch
from fanin.wire.ethernet import Endpoint, encode_udp, internet_checksum
from fanin.wire.icmp import EchoType, encode_echo
from tests.fuzzing import Memory, Mutator, lengths, new_random, within
from tests.sim.switch.service.served import TEXT, Served

ROUTER = (Path(__file__).parents[4] / "examples" / "namespaces" / "router.p4").read_text()
GROWTH = 60_000  # kB
FRAME = 5.0  # seconds for a frame
HOSTS = {1: 0x02_00_00_00_00_01, 2: 0x02_00_00_00_00_02}
NET = {port: int(IPv4Address(f"10.0.{port}.0")) for port in HOSTS}


def _routed(frame):
    """Port and frame by which a frame leaves the router; None where it is dropped. By the program's text."""
    if len(frame) < 34 or frame[12:14] != b"\x08\x00" or frame[14] & 15 != 5 or frame[22] <= 1:
        return None
    port = {net >> 8: port for port, net in NET.items()}.get(int.from_bytes(frame[30:34], "big") >> 8)
    if port is None:
        return None
    header = bytearray(frame[14:34])
    header[8] -= 1
    header[10:12] = bytes(2)
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2, "big")
    return port, HOSTS[port].to_bytes(6, "big") + frame[:6] + frame[12:14] + bytes(header) + frame[34:]


@pytest.fixture
def router():
    served = Served(ROUTER, ports=(1, 2), cpu=None)
    for port, net in NET.items():
        key = {"hdr.ipv4.destination": Lpm(net, 24)}
        entry = TableEntry("Router.route", key, "Router.forward", {"to": HOSTS[port], "port": port})
        served.forwarding.run_in_loop(partial(served.forwarding.switch.insert, entry))
    yield served
    served.close()


@lengths(rounds=250)
def test_damaged_frames_leave_a_router_as_its_program_says(router, length):
    rng = new_random()
    gateway = 0x02_00_00_00_00_FE
    one, two = (Endpoint(gateway, NET[port] + 1, 5000) for port in (1, 2))
    valid = [
        encode_udp(bytes(20), source=one, destination=two),
        encode_udp(b"x" * 900, source=two, destination=one),
    ]
    valid.append(
        encode_echo(EchoType.REQUEST, bytes(56), identifier=1, sequence=2, source=one, destination=two)
    )
    frames = Mutator(rng, valid, longest=9000)
    marker = encode_udp(b"marker", source=one, destination=two)
    memory, dropped = Memory(), 0
    for number in length.each():
        frame = frames.message()
        port = rng.choice((1, 2))
        router.send(port, frame)
        if (leaves := _routed(frame)) is None:
            dropped += 1
            if number % 20:
                continue
            router.send(port, marker)  # nothing left before it
            leaves = _routed(marker)
        to, expected = leaves
        with within(FRAME):
            assert router.receive(to) == expected
    router.send(1, marker)
    assert router.receive(2) == _routed(marker)[1]
    counters = router.forwarding.run_in_loop(lambda: router.forwarding.counters)
    assert (
        sum(one.frames_out for one in counters.values())
        == sum(one.frames_in for one in counters.values()) - dropped
    )
    assert router.forwarding.failed == 0
    assert router.said == []
    assert memory.growth < GROWTH


@lengths(rounds=40)
def test_damaged_packets_of_a_job_end_no_switch_and_the_next_job_sums_exactly(length):
    rng = new_random()
    program = ProgramConfig(workers=2, slots=4, values=8)
    rows = np.array([[rng.randrange(-1000, 1000) for _ in range(24)] for _ in range(2)], dtype=np.int32)
    switch, captured = make_switch(2, kind=SwitchKind.EMBEDDED, config=program), []

    def total():
        return allreduce(
            rows,
            switch=switch,
            program=program,
            network=NetworkConfig(),
            capture=lambda frame, time: captured.append(frame),
        ).sums

    assert (total() == rows.sum(axis=0)).all()
    frames = Mutator(rng, captured[:], longest=3000)
    memory = Memory()
    for _ in length.each():
        with within(FRAME):
            left = switch.inject(rng.randrange(2), frames.message(), 0)
        assert len(left) <= 2
        assert all(port in range(2) for port, _, _ in left)
    switch.remove_job(FIRST_JOB)
    assert (total() == rows.sum(axis=0)).all()
    assert memory.growth < GROWTH


@lengths(rounds=150)
def test_damaged_frames_at_a_port_of_a_controller_end_no_program(length):
    """TEXT has clones, groups, a header of the controller and its port; nothing is installed but a group."""
    rng = new_random()
    served = Served(TEXT)
    try:
        frames = Mutator(
            rng, [bytes(6) + b"\2" * 8, b"\0\x80" + bytes(6) + b"\2" * 20, bytes(60)], longest=9000
        )
        memory = Memory()
        for number in length.each():
            frame = frames.message()
            if number % 3:
                served.send(rng.randrange(3), frame)
            else:
                served.forwarding.run_in_loop(partial(served.forwarding.inject, frame))
            for interface in served.interfaces.values():
                interface.host.setblocking(False)
                try:
                    while True:
                        interface.host.recv(65536)
                except BlockingIOError:
                    pass
        assert served.forwarding.run_in_loop(lambda: served.forwarding.failed) == 0, served.said
        assert memory.growth < GROWTH
    finally:
        served.close()
