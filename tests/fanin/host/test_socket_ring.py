"""The ring over TCP sockets: sums beside the golden ring, ranks that disagree, do not come, stop or end."""

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from multiprocessing import get_context

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import Inceptionn
from fanin.codec.golden.codecs import roundtrip
from fanin.codec.golden.exchange import host_ring
from fanin.host.algorithm1 import array_facts, check_facts
from fanin.host.lobby import Lobby
from fanin.host.socket_ring import Ring
from tests.fanin.host.self_connection import SelfConnecting
from tests.support import new_seed


def _addresses(count):
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [server.getsockname() for server in with_ports]
    for server in with_ports:
        server.close()
    return addresses


def _ranks(count, life):
    """What ``life(rank, addresses)`` returns at each rank, or what it raises; a thread each."""
    addresses, found = _addresses(count), {}

    def carry_out(rank):
        try:
            found[rank] = life(rank, addresses)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=carry_out, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[rank] for rank in range(count)]


def test_connections_that_say_nothing_hold_no_rank_up():
    """Each was waited for, for two seconds, one after another."""
    strangers = []

    def life(rank, addresses):
        while rank and len(strangers) < 10:
            try:
                strangers.append(socket.create_connection(addresses[0]))
            except ConnectionRefusedError:
                time.sleep(0.01)
        began = time.monotonic()
        with Ring(rank, addresses, timeout=20) as ring:
            return list(ring.allreduce(np.full(3, rank + 1, np.float32))), time.monotonic() - began

    try:
        (first, _), (second, seconds) = _ranks(2, life)
    finally:
        for one in strangers:
            one.close()
    assert first == second == [3, 3, 3]
    assert seconds < 4


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("codec", [None, Inceptionn(6)])
def test_sums_are_the_rings_and_settled_where_nics_compress(ranks, codec):
    seed = new_seed()
    shapes = [(1,), (2,), (7,), (0,), (300, 5), (200_001,)]

    def given(shape):
        rng = np.random.default_rng([seed, *shape])
        return [(rng.standard_normal(shape) * 0.1).astype(np.float32) for _ in range(ranks)]

    def life(rank, addresses):
        rng = np.random.default_rng([seed, rank])
        with Ring(rank, addresses, codec=codec, timeout=20) as ring:
            sums = []
            for shape in shapes:
                time.sleep(rng.uniform(0, 0.02))  # ranks come when they come
                sums.append(ring.allreduce(given(shape)[rank]))
            return sums

    expected = [host_ring([own.reshape(-1) for own in given(shape)], None) for shape in shapes]
    if ranks > 1:
        expected = [roundtrip(roundtrip(total, codec), codec) for total in expected]
    for sums in _ranks(ranks, life):
        for shape, total, golden in zip(shapes, sums, expected, strict=True):
            assert total.shape == shape
            assert total.tobytes() == golden.tobytes()


def test_packets_with_values_are_marked_and_notes_are_not():
    def life(rank, addresses):
        with Ring(rank, addresses, timeout=20) as ring:
            neighbours = ring._neighbours
            both = neighbours.data, *(c for c in neighbours._outgoing.values() if c is not neighbours.data)
            return [connection.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) for connection in both]

    assert _ranks(2, life) == [[0x28, 0]] * 2


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (np.zeros(6, np.float32), r"rank 2: shape must be that of rank 0, \(5,\), not \(6,\)"),
        (np.zeros(5), "rank 2: array must be of float32, not ndarray of float64"),
        ([1.0], "rank 2: array must be of float32, not list of $"),
    ],
)
def test_ranks_that_disagree_are_all_told_and_the_ring_lives_on(own, message):
    def life(rank, addresses):
        with Ring(rank, addresses, timeout=20) as ring:
            with pytest.raises(ValueError, match=message):
                ring.allreduce(own if rank == 2 else np.zeros(5, np.float32))
            return ring.allreduce(np.ones(2, np.float32)).tolist()

    assert _ranks(3, life) == [[3, 3]] * 3


def test_codecs_that_differ():
    def life(rank, addresses):
        with Ring(rank, addresses, codec=Inceptionn(10 - rank), timeout=20) as ring:
            ring.allreduce(np.zeros(5, np.float32))

    assert {str(error) for error in _ranks(2, life)} == {
        "rank 1: codec must be that of rank 0, inceptionn, 2^-10, strict, group 8, "
        "not inceptionn, 2^-9, strict, group 8"
    }


def test_what_is_refused():
    (address,) = _addresses(1)
    with pytest.raises(InputError, match="rank must be 0 to 1, not 2"):
        Ring(2, [address, address])
    with socket.create_server(address), pytest.raises(InputError, match=r"rank 0: 127\.0\.0\.1:\d+: Address"):
        Ring(0, [address, address])
    with pytest.raises(
        ConnectionError, match=r"rank 1 has not come in 0\.5 s, at 127\.0\.0\.1:\d+: Connection"
    ):
        Ring(0, _addresses(2), timeout=0.5)


def test_a_rank_that_waits_does_not_call_itself(monkeypatch):
    monkeypatch.setattr(socket, "socket", SelfConnecting)
    with pytest.raises(ConnectionError, match=r"rank 1 has not come in 0\.3 s, at .*: Connection refused"):
        Ring(0, _addresses(2), timeout=0.3)


def test_worlds_of_other_sizes():
    def life(rank, addresses):
        Ring(rank, addresses[: 3 - rank], timeout=2)

    *both, out = _ranks(3, life)
    called = "rank (0 of 3|1 of 2) has called rank [01] of [32]: all ranks must have the same addresses"
    gone = "rank [01] has not come in 2 s, at .*"  # of one that the other has left by then
    assert any(re.fullmatch(called, str(error)) for error in both)
    assert all(re.fullmatch(f"{called}|{gone}", str(error)) for error in both)
    assert str(out) == "rank must be 0 to 0, not 2"


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"[" * 1024, b"\xff" * 1024, b"1" * 1024])
def test_a_stranger_who_calls_is_let_go(words):
    """Also one whose words are JSON nested too deep, no text, or a number of too many digits."""

    def life(rank, addresses):
        if rank == 2:
            time.sleep(0.2)
            with socket.create_connection(addresses[0]) as stranger:
                stranger.sendall(words.ljust(2048))
                return None
        time.sleep(0.5 * rank)
        with Ring(rank, addresses[:2], timeout=20) as ring:
            return ring.allreduce(np.ones(1, np.float32)).tolist()

    assert _ranks(3, life)[:2] == [[2], [2]]


def test_strangers_who_call_again_and_again_do_not_hide_a_missing_rank():
    """Each hello added 50 ms to the wait."""
    addresses, ended = _addresses(2), threading.Event()

    def knock():
        while not ended.wait(0.01):
            with contextlib.suppress(OSError), socket.create_connection(addresses[0], 5) as stranger:
                stranger.sendall(bytes(1024))

    thread = threading.Thread(target=knock)
    thread.start()
    threading.Timer(10, ended.set).start()
    try:
        with socket.create_server(addresses[1]), pytest.raises(ConnectionError, match="rank 1 has not come in"):
            Ring(0, addresses, timeout=0.3)
        assert not ended.is_set()
    finally:
        ended.set()
        thread.join()


def test_a_connection_that_has_gone_behind_its_hello_is_none(monkeypatch):
    """The answer to its hello ended the ring with the words of the kernel."""
    whole, gone = Lobby.next, {}

    def first_gone(lobby, deadline):
        port = lobby._server.getsockname()[1]
        if port in gone:
            return whole(lobby, deadline)
        gone[port], theirs = socket.socketpair()
        theirs.close()
        hello = {"rank": 1 - ports.index(port), "ranks": 2, "kind": "data"}
        return gone[port], json.dumps(hello).encode().ljust(1024)

    def life(rank, addresses):
        ports[:] = [port for _, port in addresses]
        with Ring(rank, addresses, timeout=20) as ring:
            return ring.allreduce(np.ones(1, np.float32)).tolist()

    ports = []
    monkeypatch.setattr(Lobby, "next", first_gone)
    assert _ranks(2, life) == [[2], [2]]


@pytest.mark.parametrize(
    "said", [5, [], [1, 2, 3, 4], ["ndarray", "float32", 5, ""], ["ndarray", "float32", ["x"], "\n"]]
)
def test_what_a_rank_says_of_its_array_is_checked(said):
    with pytest.raises(ValueError, match=r"^rank 1: must say type, shape and codec of its array, not "):
        check_facts([array_facts(np.zeros(3, np.float32), None), said])


def _failing(rank, addresses, told):
    """Two all-reduces, before the second of which rank 1 waits for a signal; what the others are told."""
    with Ring(rank, addresses, codec=None, timeout=1) as ring:
        ring.allreduce(np.zeros(3, np.float32))
        if rank == 1:
            told.send("ready")
            time.sleep(60)
        begun = time.monotonic()
        for _ in range(2):
            try:
                ring.allreduce(np.zeros(2_000_000, np.float32))
            except ConnectionError as error:
                told.send((str(error), time.monotonic() - begun))


@pytest.mark.parametrize(
    ("signal_number", "message"),
    [
        (signal.SIGKILL, "rank 1 has ended, or closed its connections"),
        (signal.SIGSTOP, "rank 1 has not come in 1 s, or has stopped answering"),
    ],
)
def test_a_rank_that_ends_or_stops_is_named_by_all(signal_number, message):
    context, addresses = get_context("fork"), _addresses(4)
    pipes = [context.Pipe(duplex=False) for _ in addresses]
    ranks = [
        context.Process(target=_failing, args=(rank, addresses, told)) for rank, (_, told) in enumerate(pipes)
    ]
    for process in ranks:
        process.start()
    try:
        assert pipes[1][0].poll(30)
        os.kill(ranks[1].pid, signal_number)
        for rank in (0, 2, 3, 0, 2, 3):
            assert pipes[rank][0].poll(30)
            said, seconds = pipes[rank][0].recv()
            assert said == message
            assert seconds < 12
    finally:
        for process in ranks:
            process.kill()
            process.join()
