"""Sockets between ranks: each finds rank 0, nobody else does, and a rank that does not come is named."""

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fanin.host.lobby import MAX_PENDING, Lobby
from fanin.sim.cosim import rendezvous
from fanin.sim.cosim.rendezvous import _HELLO, Listener, RendezvousFailed, connect
from tests.fuzzing import Memory, Mutator, lengths, new_random, speak, within

GROWTH = 60_000  # kB
NAMES = ["rank 0 on a", "rank 1 on a", "rank 2 on a"]


@pytest.fixture
def opened():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def listener(opened):
    return opened.enter_context(contextlib.closing(Listener(NAMES, ["a"] * 3)))


@pytest.fixture
def connected(opened, listener):
    return lambda rank: opened.enter_context(connect(listener.place, rank))


@pytest.fixture
def accepted(opened, listener):
    return lambda: [opened.enter_context(channel) for channel in listener.accept()]


def test_sockets_are_in_the_order_of_ranks(connected, accepted):
    others = {rank: connected(rank) for rank in (2, 1)}
    for rank, channel in enumerate(accepted(), 1):
        channel.sendall(b"%d" % rank)
        assert others[rank].recv(1) == b"%d" % rank


def test_strangers_are_sent_away_and_do_not_hold_ranks_up(opened, listener, connected, accepted):
    address = (listener.place.host, listener.place.port)
    silent, wrong = (opened.enter_context(socket.create_connection(address)) for _ in range(2))
    wrong.sendall(bytes(36))
    again = [connected(rank) for rank in (1, 1, 2)]
    channels = accepted()
    assert wrong.recv(1) == b""
    assert silent.recv(1) == b""
    assert again[1].recv(1) == b""  # its place is taken
    assert [channel.getpeername() for channel in channels] == [again[0].getsockname(), again[2].getsockname()]


def test_silent_connections_hold_no_rank_up(opened, listener, connected, accepted):
    """Each was waited for, for a second, one after another."""
    address = (listener.place.host, listener.place.port)
    silent = [opened.enter_context(socket.create_connection(address)) for _ in range(20)]
    silent[0].sendall(bytes(35))  # of a hello of 36
    began = time.monotonic()
    for rank in (1, 2):
        connected(rank)
    assert len(accepted()) == 2
    assert time.monotonic() - began < 1
    assert [one.recv(1) for one in silent] == [b""] * 20


def test_of_too_many_silent_connections_the_first_is_closed(opened):
    server = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2 * MAX_PENDING))
    with Lobby(server, 2) as lobby:
        opened.callback(server.close)
        silent = [socket.create_connection(server.getsockname()) for _ in range(MAX_PENDING + 2)]
        for one in silent:
            opened.callback(one.close)
        with pytest.raises(TimeoutError):
            lobby.next(time.monotonic() + 0.3)
        assert [one.recv(1) for one in silent[:2]] == [b"", b""]
        for number in (3, 2):
            silent[number].sendall(b"%dx" % number)
            connection, hello = lobby.next(time.monotonic() + 5)
            with connection:
                assert (hello, connection.getpeername()) == (b"%dx" % number, silent[number].getsockname())


def test_a_rank_that_does_not_come_is_named(monkeypatch, listener, connected):
    monkeypatch.setattr(rendezvous, "TIMEOUT", 0.2)
    first = connected(1)
    with pytest.raises(
        RendezvousFailed, match=rf"^rank 2 on a has not connected to port {listener.place.port} of 127.0.0.1"
    ):
        listener.accept()
    assert first.recv(1) == b""  # nor does the other wait any more
    with pytest.raises(RendezvousFailed, match="cannot be reached"):
        connect(listener.place, 2)


@lengths(rounds=15)
def test_damaged_hellos_are_sent_away_and_ranks_meet(length):
    """Hellos of whoever does not know the secret: another one, cut, lengthened, spliced, slow."""
    rng = new_random()
    memory = Memory()
    for _ in length.each():
        with contextlib.ExitStack() as opened:
            listener = opened.enter_context(contextlib.closing(Listener(NAMES, ["a"] * 3)))
            address, secret = (listener.place.host, listener.place.port), listener.place.secret
            wrong = [_HELLO.pack(rng.randbytes(32), rank) for rank in (0, 1, 2)]
            near = secret[:16] + rng.randbytes(16)
            messages = Mutator(rng, [*wrong, _HELLO.pack(near, 1), b"GET / HTTP/1.1\r\n\r\n"], longest=5000)
            ranks = [1, 2, *[0] * rng.choice((1, 5, 30))]
            rng.shuffle(ranks)
            strangers = []
            with within(10), ThreadPoolExecutor(1) as pool:
                accepting = pool.submit(listener.accept)
                for rank in ranks:
                    if rank:
                        opened.enter_context(connect(listener.place, rank)).sendall(b"%d" % rank)
                        continue
                    with contextlib.suppress(OSError):  # rank 0 listens no more
                        strangers.append(opened.enter_context(socket.create_connection(address, 5)))
                        speak(strangers[-1], messages.message(), rng, pause=0)
                channels = accepting.result(10)
            assert len(channels) == 2
            for rank, channel in enumerate(channels, 1):
                with channel:
                    assert channel.recv(10) == b"%d" % rank
    assert memory.growth < GROWTH


def test_ranks_come_while_rank_0_waits(connected, accepted):
    threads = [threading.Timer(0.05 * rank, connected, (rank,)) for rank in (1, 2)]
    for thread in threads:
        thread.start()
    assert len(accepted()) == 2
    for thread in threads:
        thread.join()


def test_the_secret_is_not_shown(listener):
    assert str(listener.place.secret) not in repr(listener.place)


def test_an_interrupt_while_rank_0_waits_lets_the_others_go(monkeypatch, listener, connected):
    first = connected(1)
    monkeypatch.setattr(Lobby, "next", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        listener.accept()
    with contextlib.suppress(ConnectionResetError):  # what it has said was not read
        assert first.recv(1) == b""


def _interrupted(lobby, deadline):
    raise KeyboardInterrupt
