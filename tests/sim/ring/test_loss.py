"""The ring's model of losses: single losses by hand; tests/sim/ring/test_cosim.py has it beside the RTL."""

import pytest

from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.sim.ring.loss import RingLoss, _Run
from fanin.sim.ring.time import RingTime

MIB = 262_144  # values
WIRE = 84.12  # cycles of a frame of 65 beats: 4,184 bytes at 50 a cycle, and a share of an ACK
TRIP = 532.88 - 64  # cycles of a frame from its link to the next node's buffer: a hop less the frame's 64 words


class Losing:
    """Random numbers by which exactly one transmission is lost: the one with this index."""

    def __init__(self, index):
        self.left = index

    def random(self):
        self.left -= 1
        return 0.0 if self.left == -1 else 1.0


def model(nodes=4, drop=0.0, **sizes):
    return RingLoss(RingTime(config=RingConfig(**sizes), nodes=nodes, count=MIB, link=LinkConfig(drop=drop)))


def cycles(ring, lost=None):
    """Cycles of a run in which one transmission or answer is lost, of all in the order of their events."""
    return _Run(ring, 0.5 if lost is not None else 0.0, Losing(-1 if lost is None else lost)).cycles()


@pytest.mark.parametrize("nodes", [2, 3, 4, 6])
def test_without_loss_it_is_the_time_model(nodes):
    ring = model(nodes)
    memory = 210  # cycles of the first and the last word
    assert cycles(ring) == pytest.approx(ring.time.total - memory, rel=0.005)
    assert ring.ratio(1) == 1


def test_the_only_loss_of_a_last_frame_costs_its_timer():
    ring = model(nodes=2)
    draws = 2 * 2 * len(ring.frames)  # of each node a transmission and an answer per frame
    extra = [cycles(ring, lost) - cycles(ring) for lost in range(draws - 40, draws)]
    answer = 150 + 2 * (64 + 12) / 50 + 40 + 3 * WIRE  # 600 ns, 64 + 12 bytes on two links, logic, frames ahead
    timer = TRIP + answer + 500 + 16
    assert max(extra) == pytest.approx(timer, abs=1.5)


def test_a_loss_that_the_slices_hide_costs_one_transmission():
    """A slice of 64 frames takes 5,384 cycles, ten times a hop, so the next step does not wait."""
    ring = model(nodes=4, slice_frames=64, buffer_frames=128, replay_frames=128)
    extra = [cycles(ring, lost) - cycles(ring) for lost in range(160, 180)]
    assert {round(cost) for cost in extra} == {0, round(WIRE)}  # 0: of an answer


def test_more_loss_takes_longer_and_a_seed_repeats():
    means = [sum(model(drop=drop).ratio(seed) for seed in range(5)) / 5 for drop in (0.001, 0.01, 0.05)]
    assert 1 < means[0] < means[1] < means[2]
    assert model(drop=0.01).ratio(3) == model(drop=0.01).ratio(3)
