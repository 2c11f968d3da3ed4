"""Damaged words to programs that wait for a peer: ranks of a ring over sockets, an end of a queue pair."""

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.host.neighbours import _frame
from fanin.host.rdma_setup import FORMAT, End, Rendezvous, negotiate
from fanin.host.socket_ring import Ring
from fanin.rdma.facts import Connection
from tests.fanin.host.test_rdma_setup import OURS, THEIRS
from tests.fanin.host.test_socket_ring import _addresses, _ranks
from tests.fuzzing import JsonMutator, Memory, Mutator, is_one_line, lengths, new_random, speak, within

GROWTH = 60_000  # kB
HELLOS = (
    {"rank": 1, "ranks": 2, "kind": "data"},
    {"rank": 1, "ranks": 2, "kind": "notes"},
    {"rank": 0, "ranks": 2, "kind": "notes"},
    {"rank": 2, "ranks": 3, "kind": "data"},
)
NOTES = (
    {"said": ["ndarray", "float32", [3], "None"]},
    {"said": 5},
    {"asked": True},
    {"waiting": 1},
    {"failed": "rank 1 has not come"},
)
TIMEOUT = 1.0  # seconds for which ranks and ends wait


def _check(error, beginning=""):
    """An error is one line of bounded length."""
    text = str(error)
    assert is_one_line(text), text
    assert text.startswith(beginning), text
    assert len(text) < 2000, text


def _hello(rng, messages):
    """A damaged hello, most often filled up to a frame; never one of a valid kind."""
    while True:
        data = messages.message()
        framed = data.ljust(1024) if rng.random() < 0.7 else data
        if b'"data"' not in framed[:1024] and b'"notes"' not in framed[:1024]:
            return framed


@lengths(rounds=6)
def test_hellos_of_strangers_do_not_keep_ranks_apart(length):
    """A hello that names a kind and another rank ends the ring; all others leave sums as they are."""
    rng = new_random()
    messages = JsonMutator(rng, [hello | {"kind": "dat"} for hello in HELLOS], longest=4000)
    memory = Memory()
    for _ in length.each():
        hellos = [_hello(rng, messages) for _ in range(20)]
        ready, strangers = threading.Event(), []

        def life(rank, addresses, hellos=hellos, ready=ready, strangers=strangers):
            if rank == 2:
                for number, words in enumerate(hellos):
                    with suppress(OSError):
                        one = socket.create_connection(addresses[number % 2], 5)
                        strangers.append(one)
                        speak(one, words, rng, pause=0)
                ready.set()
                return None
            if rank:
                time.sleep(0.02)
            with Ring(rank, addresses[:2], timeout=20) as ring:
                return ring.allreduce(np.full(3, rank + 1, np.float32)).tolist()

        with within(30):
            found = _ranks(3, life)
        for one in strangers:
            one.close()
        assert found == [[3, 3, 3], [3, 3, 3], None]
    assert memory.growth < GROWTH


class FalseRank:
    """A program in the place of rank 1 of two: its hellos are right, its notes and values are damaged."""

    def __init__(self, addresses, rng):
        self._rng = rng
        self._server = socket.create_server(addresses[1])
        self._thread = threading.Thread(target=self._live, args=(addresses[0],))
        self._thread.start()

    def _live(self, address):
        rng = self._rng
        taken = [self._server.accept()[0] for _ in range(2)]
        for one in taken:
            one.sendall(_frame({}))
        notes = JsonMutator(rng, NOTES, longest=1024)
        values = Mutator(rng, [bytes(12), _frame({"said": 1})])
        called = []
        for hello in HELLOS[:2]:
            one = self._called(address)
            one.sendall(_frame(hello))
            called.append(one)
        for _ in range(rng.choice((0, 1, 3, 200))):
            words = notes.message().replace(b"\n", b" ")
            words = words.ljust(1024) if rng.random() < 0.9 else words
            speak(rng.choice((called[1], called[1], *taken)), words, rng, pause=0)
        speak(called[0], values.message(), rng, pause=0)
        time.sleep(rng.choice((0, 0, 0.1)))
        for one in (*called, *taken):
            one.close()

    def _called(self, address):
        while True:
            with suppress(ConnectionRefusedError):
                return socket.create_connection(address, 5)
            time.sleep(0.01)

    def close(self):
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._server.close()


@lengths(rounds=5)
def test_a_false_rank_is_answered_by_one_line_in_time(length):
    rng = new_random()
    memory = Memory()
    for _ in length.each():
        addresses = _addresses(2)
        false = FalseRank(addresses, rng)
        with within(15):
            try:
                with Ring(0, addresses, codec=None, timeout=TIMEOUT) as ring:
                    total = ring.allreduce(np.ones(3, np.float32))
                assert total.shape == (3,)
            except (ConnectionError, ValueError) as error:
                _check(error)
        false.close()
    assert memory.growth < GROWTH


# ---- queue pairs ----


def _said(line):
    """The end that a line says, or the line of an error."""
    try:
        return End.from_json(line, source="peer")
    except InputError as error:
        _check(error, "peer: ")
        return None


@lengths(rounds=300)
def test_a_damaged_line_is_an_end_or_an_error_of_one_line(length):
    rng = new_random()
    lines = JsonMutator(rng, [{"format": FORMAT} | asdict(end) for end in (OURS, THEIRS)], longest=8192)
    ends = 0
    for _ in length.each():
        end = _said(lines.message().decode(errors="replace"))
        if end is None:
            continue
        ends += 1
        assert End.from_json(end.to_json(), source="peer") == end
        try:
            assert isinstance(negotiate(OURS, end), Connection)
        except InputError as error:
            _check(error)
    assert ends
    assert _said(THEIRS.to_json()) == THEIRS


@lengths(rounds=15)
def test_a_peer_of_damaged_words_is_given_up_in_time(length):
    rng = new_random()
    valid = [THEIRS.to_json().encode() + b"\nready\n", THEIRS.to_json().encode() + b"\n"]
    messages = Mutator(rng, valid, longest=200_000)
    memory = Memory()
    for _ in length.each():
        ours, theirs = socket.socketpair()
        theirs.settimeout(TIMEOUT)
        words = rng.choice((messages.message(), messages.message(), *valid))
        speaker = threading.Thread(target=speak, args=(theirs, words, rng), kwargs={"pause": 0.001})
        with Rendezvous(ours, "peer", 0.2) as here, within(5):
            speaker.start()
            try:
                assert isinstance(here.exchange(OURS), End)
                here.wait("ready")
            except InputError as error:
                _check(error, "peer: ")
        speaker.join()
        theirs.close()
    assert memory.growth < GROWTH


@pytest.mark.parametrize("gid", [5, 0xFFFF_0A00_0001, "::ffff:10.0.0.1%eth0", "::1%\x1b[31m"])
def test_a_gid_is_the_text_of_an_address_without_a_scope(gid):
    said = json.loads(THEIRS.to_json()) | {"gid": gid}
    with pytest.raises(InputError, match="peer: gid must be an IPv6 address"):
        End.from_json(json.dumps(said), source="peer")
