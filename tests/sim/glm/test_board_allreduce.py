"""Which frame and which event belong to which AllReduce; boards that stop are not waited for."""

from types import SimpleNamespace

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.job import SWITCH, worker_endpoint
from fanin.sim.boards.board import Transmission
from fanin.sim.boards.direct import DeliveredFrame
from fanin.sim.glm.board_allreduce import moments_of, run_on
from fanin.wire.aggregation import AggPacket, Encap, Kind, encode

OWN = worker_endpoint(1)
SLOTS, OPERATIONS = 2, 5
CONTROL = bytes(60)  # to neither address


def packet(kind, operation):
    number, slot = divmod(operation, SLOTS)
    ends = (OWN, SWITCH) if kind in (Kind.AGG, Kind.ACK) else (SWITCH, OWN)
    content = AggPacket(kind, 1, slot, number + 1, 2)
    return encode(content, encap=Encap.UDP, source=ends[0], destination=ends[1])


def logged(frames, *, sent):
    """Frames at 1000, 2000, … as the log of board 1, and events at its MAC 7 ps from them."""
    times = [1000 * (n + 1) for n in range(len(frames))]
    if sent:
        return [Transmission(1, 0, t, 12, f, "") for t, f in zip(times, frames, strict=True)], np.array(
            times
        ) - 7
    delivered = [DeliveredFrame(t - 600, t, f) for t, f in zip(times, frames, strict=True)]
    return delivered[::-1], np.array(times) + 7  # in any order


@pytest.fixture
def case():
    up = [CONTROL, packet(Kind.AGG, 0), packet(Kind.AGG, 1), packet(Kind.ACK, 1), packet(Kind.ACK, 0)]
    up += [packet(Kind.AGG, 3), packet(Kind.AGG, 2), packet(Kind.AGG, 4), CONTROL]
    down = [CONTROL, packet(Kind.RESULT, 1), packet(Kind.RESULT, 0), packet(Kind.CONFIRM, 0)]
    down += [packet(Kind.RESULT, n) for n in (2, 3, 4)]
    (sent, at_sent), (delivered, at_received) = logged(up, sent=True), logged(down, sent=False)
    boards = SimpleNamespace(sent=[[], sent], delivered=[[], delivered])
    events = {"pa": np.arange(5), "fa": np.arange(5) + 90, "sent": at_sent, "received": at_received}
    return boards, events


def test_moments_are_those_of_each_operation_whatever_the_order_of_frames(case):
    found = moments_of(case[0], 1, case[1], OPERATIONS)
    assert found["agg"].tolist() == [2000, 3000, 7000, 6000, 8000]
    assert found["sent"].tolist() == [1993, 2993, 6993, 5993, 7993]
    assert found["result"].tolist() == [3000, 2000, 5000, 6000, 7000]
    assert found["received"].tolist() == [3007, 2007, 5007, 6007, 7007]
    assert found["fa"].tolist() == [90, 91, 92, 93, 94]


def test_a_frame_that_the_mac_has_not_seen_is_no_measurement(case):
    boards, events = case
    with pytest.raises(CheckFailed, match="8 frames at a MAC, but 9 at its RGMII"):
        moments_of(boards, 1, events | {"sent": events["sent"][1:]}, OPERATIONS)
    with pytest.raises(CheckFailed, match=r"board 1: not 5 operations, but .'pa': 4.$"):
        moments_of(boards, 1, events | {"pa": events["pa"][1:]}, OPERATIONS)


class World:
    """A world in which a board gets a CONFIRM in each of the first ``slices``."""

    def __init__(self, slices):
        self.time, self.left, self.delivered = 0, slices, [[]]
        self.configs = [None]

    def run(self, until):
        self.time = until
        if self.left:
            self.left -= 1
            self.delivered[0].append(DeliveredFrame(0, 0, packet(Kind.CONFIRM, 0)))


def test_boards_that_stop_are_not_waited_for():
    world = World(30)
    run_on(world, world, 30)
    assert world.left == 0
    stopped = World(30)
    with pytest.raises(CheckFailed, match="the boards stopped after 30 of 31 AllReduces"):
        run_on(stopped, stopped, 31)
