"""Sockets between ranks: each finds rank 0, nobody else does, and a rank that does not come is named."""

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fanin.host.lobby import MAX_PENDING, Lobby
from fanin.sim.cosim import rendezvous
from fanin.sim.cosim.rendezvous import (
    _HELLO,
    Listener,
    Place,
    RendezvousFailed,
    _proof,
    connect,
    greet,
)
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
def checks():
    """Checks of rank 0's answer, by connected sockets; a rank waits for the answer in ``connect``."""
    return []


@pytest.fixture
def connected(opened, listener, checks):
    def run(rank):
        channel, check = greet(listener.place, rank)
        checks.append(check)
        return opened.enter_context(channel)

    return run


@pytest.fixture
def accepted(opened, listener, checks):
    def run():
        channels = [opened.enter_context(channel) for channel in listener.accept()]
        for check in checks:
            with contextlib.suppress(RendezvousFailed):  # a rank whose place is taken
                check()
        return channels

    return run


def test_sockets_are_in_the_order_of_ranks(connected, accepted):
    others = {rank: connected(rank) for rank in (2, 1)}
    for rank, channel in enumerate(accepted(), 1):
        channel.sendall(b"%d" % rank)
        assert others[rank].recv(1) == b"%d" % rank


def test_strangers_are_sent_away_and_do_not_hold_ranks_up(opened, listener, connected, accepted):
    address = (listener.place.host, listener.place.port)
    silent, wrong = (opened.enter_context(socket.create_connection(address)) for _ in range(2))
    wrong.sendall(bytes(_HELLO.size))
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
    silent[0].sendall(bytes(_HELLO.size - 1))
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
    assert len(first.recv(100)) == 32  # the proof
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
            wrong = [_HELLO.pack(rank, rng.randbytes(32), rng.randbytes(32)) for rank in (0, 1, 2)]
            near = Place(*address, secret[:16] + rng.randbytes(16))
            almost = _HELLO.pack(1, bytes(32), _proof(near, b"guest", 1, bytes(32)))
            messages = Mutator(rng, [*wrong, almost, b"GET / HTTP/1.1\r\n\r\n"], longest=5000)
            ranks = [1, 2, *[0] * rng.choice((1, 5, 30))]
            rng.shuffle(ranks)
            strangers = []
            with within(10), ThreadPoolExecutor(1) as pool:
                accepting = pool.submit(listener.accept)
                for rank in ranks:
                    if rank:
                        opened.enter_context(connect(listener.place, rank)).sendall(b"%d" % rank)  # proven
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


@pytest.mark.parametrize("answer", [b"", bytes(31), bytes(32), b"echo"])
def test_a_stranger_at_rank_0_s_port_is_not_believed(opened, monkeypatch, answer):
    """Rank 0 has ended, and another user listens at its port. A rank would unpickle what comes from there."""
    monkeypatch.setattr(rendezvous, "TIMEOUT", 5)
    gone = Listener(NAMES, ["a"] * 3)
    gone.close()
    server = opened.enter_context(socket.create_server(("127.0.0.1", gone.place.port)))

    def speaks():
        guest, _ = server.accept()
        with guest:
            hello = guest.recv(_HELLO.size)
            assert gone.place.secret not in hello
            guest.sendall(hello[-32:] if answer == b"echo" else answer)
            guest.shutdown(socket.SHUT_WR)
            guest.recv(1)

    stranger = threading.Thread(target=speaks)
    stranger.start()
    with pytest.raises(RendezvousFailed, match="not rank 0 of this run answers"):
        opened.enter_context(connect(gone.place, 1))
    stranger.join()


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
