"""The switch on this host: workers over real sockets, with losses, are given sums; nothing else is."""

import contextlib
import random
import socket
import time

import pytest

from fanin.base.errors import InputError
from fanin.golden.aggregation import WorkerEndpoint
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import default_deployment
from fanin.sim.switch import host
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.host import HostSwitch
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import AggPacket, Encap, Kind, decode_payload, encode_payload

WORKERS, OPERATIONS, SLOTS = 3, 40, 8
BOUND_S = 20


@contextlib.contextmanager
def sockets(count):
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            one.bind(("127.0.0.1", 0))
            one.settimeout(0.02)
            found.append(one)
        yield found


@contextlib.contextmanager
def served(boards):
    config = ProgramConfig(workers=len(boards), slots=SLOTS, values=8, encap=Encap.UDP)
    (job,) = default_deployment(config).jobs
    switch = make_switch(len(boards), kind=SwitchKind.REFERENCE, config=config)
    switch.add_job(job)
    with HostSwitch(
        switch,
        boards=[board.getsockname() for board in boards],
        job=job,
        address=("127.0.0.1", 0),
    ) as server:
        yield server, job


def deliver(board, worker, server, rng, loss):
    """One datagram into a worker, or its timers; what it sends in turn."""
    try:
        packet = decode_payload(board.recv(2048))
        received = worker.receive(packet)
        packets, delivered = received.packets, received.delivered
    except TimeoutError:
        packets, delivered = [p for slot in worker.waiting() for p in worker.timeout(slot)], ()
    for packet in packets:
        if rng.random() >= loss:
            board.sendto(encode_payload(packet), server.address)
    return delivered


@pytest.mark.parametrize("loss", [0, 0.2])
def test_every_operation_is_the_sum_of_all_workers(loss):
    rng = random.Random(seed := 5)
    print(f"seed {seed}")
    values = [
        [tuple(rng.randrange(-(1 << 20), 1 << 20) for _ in range(8)) for _ in range(OPERATIONS)]
        for _ in range(WORKERS)
    ]
    with sockets(WORKERS) as boards, served(boards) as (server, job):
        workers = [
            WorkerEndpoint(job=job.id, base=job.base, slots=SLOTS, member=member.bitmap)
            for member in job.members
        ]
        sums = [[] for _ in workers]
        end = time.monotonic() + BOUND_S
        while any(len(found) < OPERATIONS for found in sums) and time.monotonic() < end:
            for board, worker, own, found in zip(boards, workers, values, sums, strict=True):
                while worker.submitted < OPERATIONS and worker.can_submit():
                    for packet in worker.submit(own[worker.submitted]):
                        board.sendto(encode_payload(packet), server.address)
                found += deliver(board, worker, server, rng, loss)
        while server.operations < OPERATIONS and time.monotonic() < end:
            time.sleep(0.001)  # it is noted behind the last RESULT
        assert server.failure is None
        assert len(server.latencies_ns) == OPERATIONS
        assert server.foreign_datagrams == 0
    expected = [tuple(map(sum, zip(*own, strict=True))) for own in zip(*values, strict=True)]
    assert sums == [expected] * WORKERS


def test_what_comes_from_elsewhere_is_dropped_and_counted():
    with sockets(2) as boards, sockets(1) as (stranger,), served(boards) as (server, _):
        stranger.sendto(bytes(60), server.address)
        boards[0].sendto(b"short", server.address)
        end = time.monotonic() + BOUND_S
        while server.foreign_datagrams < 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert (server.foreign_datagrams, server.frames) == (2, 0)
        with pytest.raises(TimeoutError):
            stranger.recv(2048)


def test_latencies_take_no_memory_without_end(monkeypatch):
    monkeypatch.setattr(host, "MAX_LATENCIES", 3)
    with sockets(1) as (board,), served([board]) as (server, job):
        for number in range(1, 6):
            board.sendto(_agg(job, 0, number), server.address)
            _wait(server, 2 * number - 1)
            ack = AggPacket(Kind.ACK, job.id, 0, number, job.members[0].bitmap, ())
            board.sendto(encode_payload(ack), server.address)
            _wait(server, 2 * number)
        assert (server.operations, len(server.latencies_ns)) == (5, 3)


def _agg(job, slot, number, member=0):
    packet = AggPacket(Kind.AGG, job.id, slot, number, job.members[member].bitmap, (1,) * 8)
    return encode_payload(packet)


def _wait(server, frames):
    end = time.monotonic() + BOUND_S
    while server.frames < frames and time.monotonic() < end:
        time.sleep(0.001)
    assert (server.frames, server.failure) == (frames, None)


def test_forged_aggs_take_no_memory_and_operations_are_still_timed():
    """A board's address can be forged; each of these AGGs has another slot and round."""
    with sockets(2) as boards, served(boards) as (server, job):
        for number in range(400):
            boards[0].sendto(_agg(job, number % (2 * SLOTS), 5 + number), server.address)
            _wait(server, number + 1)
        assert len(server._agg_arrivals) <= SLOTS
        for number in (1, 2):
            for worker, board in enumerate(boards):
                board.sendto(_agg(job, 0, number, worker), server.address)
            _wait(server, 400 + 2 * number)
        boards[1].sendto(_agg(job, 0, 1, 1), server.address)  # of the round before
        _wait(server, 405)
        assert len(server.latencies_ns) == 1  # the forged round hid the first one's begin


class _Endless:
    """A socket at which a stranger's datagrams come for five seconds, faster than they are read."""

    def __init__(self, whole):
        self._whole, self.reads, self._end = whole, 0, time.monotonic() + 5

    def recvfrom(self, _):
        self.reads += 1
        if time.monotonic() > self._end:
            raise BlockingIOError
        return b"x", ("127.0.0.1", 1)

    def __getattr__(self, name):
        return getattr(self._whole, name)


def test_a_flood_of_datagrams_does_not_delay_the_end():
    with sockets(1) as (board,), served([board]) as (server, _):
        server._socket = _Endless(server._socket)
        board.sendto(b"x", server.address)
        end = time.monotonic() + BOUND_S
        while not server._socket.reads and time.monotonic() < end:
            time.sleep(0.001)
        start = time.monotonic()
    assert time.monotonic() - start < 2


def test_an_address_that_is_taken_is_bad_input():
    with (
        sockets(1) as (one,),
        pytest.raises(InputError, match=r"UDP 127\.0\.0\.1:\d+ is unavailable: .*in use"),
    ):
        HostSwitch(None, boards=[], job=None, address=one.getsockname())
