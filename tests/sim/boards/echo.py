"""Boards that are no simulation: each sends a frame back to whoever sent it, a while later."""

from dataclasses import dataclass, field

from fanin.sim.boards.board import Transmission

LATENCY = 3_000_000


@dataclass
class Config:
    phys: tuple = (None,)
    mac: int | None = None  # it answers for this one alone


@dataclass
class EchoBoards:
    """In the place of ``Boards``. ``received`` has what boards were given, with the time."""

    configs: list = field(default_factory=lambda: [Config()])
    answers: bool = True
    time: int = 0
    busy: bool = False
    received: list = field(default_factory=list)
    waiting: list = field(default_factory=list)

    def send(self, board, frame, *, time, phy=0, bad_fcs=False):
        assert time >= self.time
        self.received.append((board, time, frame, bad_fcs))
        own = self.configs[board].mac
        if self.answers and not bad_fcs and own in (None, int.from_bytes(frame[:6], "big")):
            self.transmit(board, swapped(frame), time + LATENCY)

    def transmit(self, board, frame, end, fault=""):
        self.waiting.append(Transmission(board, 0, end, 12, frame.ljust(60, b"\0"), fault))

    def run(self, until):
        self.time = until
        due = sorted((one for one in self.waiting if one.time < until), key=lambda one: one.time)
        self.waiting = [one for one in self.waiting if one.time >= until]
        return due


def swapped(frame):
    """The same frame from its receiver to its sender: addresses and UDP ports."""
    return (
        frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36]
    ) + frame[38:]
