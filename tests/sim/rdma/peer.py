"""A peer of a simulated node that sends it what a test wants, and keeps what it answers."""

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
