"""What one rank knows of the others, without a process group."""

import threading
import time
from datetime import timedelta

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
