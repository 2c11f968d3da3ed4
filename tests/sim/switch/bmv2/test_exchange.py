"""How one knows that BMv2 is done with a frame, against switches that are as unhelpful as BMv2 may be."""

from collections import deque

import pytest

from fanin.base.errors import ToolFailed
from fanin.sim.switch.bmv2 import exchange
from fanin.sim.switch.bmv2.exchange import Exchange, choose_marker_port, marker_entries
from fanin.sim.switch.bmv2.frames import Frames

PORTS, SPARE = (0, 1, 2), 510
FRAME = bytes(60)


class Slow(Frames):
    """Takes one frame at a time, from the last port first; its ports deliver one after the other, too.

    A frame of bytes 0 comes out at port 1 twice, and where it came in.
    """

    ordered = False

    def __init__(self):
        self.waiting, self.leaving = {}, {}

    def send(self, port, frame):
        self.waiting.setdefault(port, deque()).append(frame)

    def receive(self, limit):
        for port in sorted(self.waiting, reverse=True):
            if self.waiting[port] and not any(self.leaving.values()):
                self._forward(port, self.waiting[port].popleft())
        for port in sorted(self.leaving, reverse=True):
            if self.leaving[port]:
                return port, self.leaving[port].popleft()
        return None

    def _forward(self, port, frame):
        to = (1, 1, port) if frame == FRAME else PORTS if port == SPARE else (SPARE,)
        for out in to:
            self.leaving.setdefault(out, deque()).append(frame)

    def close(self):
        pass


def _exchange(frames, check=lambda: None):
    return Exchange(frames, PORTS, SPARE, check)


@pytest.mark.parametrize("port", PORTS)
def test_all_that_a_frame_causes_is_there_whatever_overtakes_what(port):
    through = _exchange(Slow())
    for _ in range(3):
        assert through.process(port, FRAME) == sorted([(1, FRAME), (1, FRAME), (port, FRAME)])


def test_without_the_first_marker_the_second_would_overtake():
    frames = Slow()
    frames.ordered = True  # which it is not
    through = _exchange(frames)
    assert through.process(0, FRAME) == []
    with pytest.raises(ToolFailed, match="let a frame at port 1 be overtaken"):
        through.process(0, FRAME)


def test_a_frame_behind_its_marker_ends_the_run():
    frames = Slow()
    through = _exchange(frames)
    through.process(0, FRAME)
    frames.leaving[2] = deque([b"late"])
    with pytest.raises(ToolFailed, match="let a frame at port 2 be overtaken: 6c617465"):
        through.process(0, FRAME)


class Silent(Slow):
    def receive(self, limit):
        return None


def test_a_switch_that_forwards_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(exchange, "MARKER_TIMEOUT", 0.0)
    with pytest.raises(ToolFailed, match="forwarded nothing to port 510 in 0 s"):
        _exchange(Silent()).process(0, FRAME)


def test_a_switch_that_died_is_asked_why():
    def died():
        raise ToolFailed("died")

    with pytest.raises(ToolFailed, match=r"^died$"):
        _exchange(Silent(), died).process(0, FRAME)
    with pytest.raises(ToolFailed, match="closed its data plane"):
        _exchange(Silent()).process(0, FRAME)


def test_markers_have_a_port_and_entries_of_their_own():
    assert choose_marker_port([510, 509, 3]) == 508
    to_spare, from_spare = marker_entries(508)
    assert to_spare.parameters == {"to": 508}
    assert from_spare.match["port"].value == 508
    assert from_spare.match["port"].mask == 0x1FF
