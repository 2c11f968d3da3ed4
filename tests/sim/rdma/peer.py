"""Peers of a simulated node, in place of the switch: one that sends what a test wants, and a standard one."""

import pickle

from fanin.sim.switch.base import OutsideSwitch
from fanin.sim.switch.forward import Forwarder

GAP_PS = 2_000_000  # between two frames: time for an answer


class ScriptedPeer(Forwarder):
    """In place of the switch: the node's first frame sets it going; ``answers`` keeps what comes then."""

    def __init__(self, frames, answers):
        super().__init__({})
        self.frames, self.answers = frames, answers
        self.begun = False

    def inject(self, port, frame, time):
        if self.begun:
            with self.answers.open("ab") as file:
                file.write(len(frame).to_bytes(4, "little") + frame)
            return []
        self.begun = True
        return [(0, sent, time + n * GAP_PS) for n, sent in enumerate(self.frames)]


def answers_in(path):
    """The frames that were kept, in order."""
    content, frames = path.read_bytes() if path.exists() else b"", []
    while content:
        size = int.from_bytes(content[:4], "little")
        frames.append(content[4 : 4 + size])
        content = content[4 + size :]
    return frames


class StandardPeer(Forwarder, OutsideSwitch):
    """A :class:`~tests.rxe.RxePeer` at port 0; the node's first frame sets it going, and a file keeps it.

    It sends again what has made no progress for ``TIMEOUT_PS``.
    """

    LOOK_PS, TIMEOUT_PS = 1_000_000, 20_000_000

    def __init__(self, peer, kept):
        super().__init__({})
        self.peer, self.kept = peer, kept
        self.begun, self._next, self._since = False, 0, 0

    @property
    def next_poll(self):
        return self._next

    def poll(self, time, busy=()):
        if time < self._next:
            return []
        self._next = time + self.LOOK_PS
        return [(0, frame, time) for frame in self._sent(time)] if self.begun else []

    def inject(self, port, frame, time):
        self.begun = True
        before = self.peer.sending.acknowledged
        answers = self.peer.receive(frame)
        if self.peer.sending.acknowledged != before:
            self._since = time
        sent = [(0, answer, time) for answer in [*answers, *self._sent(time)]]
        self.kept.write_bytes(pickle.dumps(self.peer))
        return sent

    def _sent(self, time):
        if self.peer.sending.pending and time - self._since > self.TIMEOUT_PS:
            self._since = time
            self.peer.timeout()
        return self.peer.send()


def peer_in(path):
    """The peer as it was in the end."""
    return pickle.loads(path.read_bytes())
