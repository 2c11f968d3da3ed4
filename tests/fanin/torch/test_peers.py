"""What one rank knows of the others, without a process group."""

import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from fanin.torch import peers


class _StoppedStore:
    """A store whose process is stopped after the ranks have met: it never answers, and knows no timeout."""

    def __init__(self):
        self.asked, self.free = threading.Event(), threading.Event()

    def clone(self):
        return _Stuck(self)

    def set(self, key, value):
        pass

    def wait(self, keys, timeout):
        pass

    def get(self, key):
        return b"fact"


class _Stuck:
    def __init__(self, store):
        self._store = store

    def set(self, key, value):
        self._store.asked.set()
        self._store.free.wait()


def test_a_store_that_has_stopped_does_not_keep_a_rank_from_ending(monkeypatch):
    monkeypatch.setattr(peers, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(peers, "_STORE_SECONDS", 0.1)
    store = _StoppedStore()
    one = peers.Peers(store, rank=0, global_ranks=[0], timeout=timedelta(seconds=1))
    one.agree("fact")
    assert store.asked.wait(10)
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < 5
    store.free.set()


def _peers(store):
    return peers.Peers(store, rank=0, global_ranks=[0, 1], timeout=timedelta(seconds=2))


@pytest.mark.parametrize("text", [b"\x1b[31mevil\nline\xff", b"x" * 100_000])
def test_texts_of_a_peer_are_one_line_without_control_characters(text):
    store = dist.HashStore()
    store.set("fact/1", text)
    store.set("informed/1", "")
    store.set("blame", text)
    one = _peers(store)
    with pytest.raises(dist.DistBackendError) as error:
        one.agree("ours")
    for shown in (str(error.value), one.blame("collective 1")):
        assert shown.isprintable()
        assert len(shown) < 1200
        assert ("\\x1b[31mevil line\ufffd" in shown) == text.startswith(b"\x1b")


@pytest.mark.parametrize("beat", ["", "1", "x y", "1 2 3", "-1 1", "9" * 5000 + " 1", "\u0661 1"])
def test_a_heartbeat_of_another_form_is_none(monkeypatch, beat):
    monkeypatch.setattr(peers, "SILENT_SECONDS", 0.01)
    store = dist.HashStore()
    store.set("beat/1", beat)
    assert _peers(store).blame("collective 1") == "collective 1: rank 1 has ended, or stopped answering"
