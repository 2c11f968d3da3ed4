"""Smart NICs in Verilator: sums bit for bit while other traffic of the hosts passes, which stays as it is."""

import numpy as np
import pytest

from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.sim.ring.cosim import RingCosim
from fanin.sim.ring.flow import Flow
from tests.sim.ring.test_cosim import check, vectors
from tests.support import new_seed

pytestmark = pytest.mark.verilator

NODES = 3
CONFIG = RingConfig(lanes=8, frame_words=64, slice_frames=20, buffer_frames=32, replay_frames=32)
COUNT = 1 << 16  # values
GBPS = 40
LINK = LinkConfig(gbps=GBPS)
BYTES = GBPS / 8 / 0.25  # a cycle, at 250 MHz


@pytest.fixture(scope="module")
def cosim():
    return RingCosim(CONFIG, nodes=NODES, nic=True, quiet=True)


@pytest.fixture(scope="module")
def given():
    return vectors(np.random.default_rng(new_seed()), (COUNT,), NODES)


@pytest.fixture(scope="module")
def alone(cosim, given):
    return cosim.all_reduce(given, link=LINK).cycles


def check_flow(run):
    """All frames have come, unchanged and in order, and the nodes have counted them."""
    for node, carried in enumerate(run.flow_counters):
        behind = run.counters[(node + 1) % NODES]
        assert carried.sent == carried.received == run.counters[node]["host_tx_frames"] > 0
        assert carried.wrong == 0
        assert behind["host_rx_frames"] == carried.received
        assert (behind["host_rx_dropped"], behind["host_rx_bad_fcs"], behind["host_tx_dropped"]) == (0, 0, 0)


@pytest.mark.parametrize("size", [60, 61, 1500, 9216])
def test_a_flow_within_its_share_leaves_the_ring_the_rest(cosim, given, alone, size):
    run = cosim.all_reduce(given, link=LINK, flow=Flow(gbps=4, size=size))
    check(run, given, CONFIG)
    check_flow(run)
    frame = (size + 24) / (run.cycles * BYTES)  # of the link's time
    left = 1 - sum(carried.sent for carried in run.flow_counters) / NODES * frame
    assert left == pytest.approx(0.9, abs=frame + 0.003)
    assert (
        run.cycles < 1.02 * alone / left + 2 * (size + 24) / BYTES
    )  # the last words may wait for a frame a hop


@pytest.mark.parametrize("share", [2, 8])
@pytest.mark.parametrize("size", [60, 1500, 9216])
def test_neither_side_is_below_its_share_where_both_want_all(cosim, given, alone, share, size):
    run = cosim.all_reduce(given, link=LINK, flow=Flow(gbps=2 * GBPS, size=size, share=share))
    check(run, given, CONFIG)
    check_flow(run)
    part = share / 16
    ends = 2 * (size + 24) / BYTES  # the last words may wait for a frame a hop
    assert run.cycles < alone / (0.97 * (1 - part)) + ends
    for carried in run.flow_counters:
        assert carried.sent * (size + 24) / (run.cycles * BYTES) > 0.97 * part


def test_both_survive_a_bad_network_and_other_frames_are_lost_by_the_link_alone(cosim, given):
    seed = new_seed()
    link = LinkConfig(gbps=GBPS, drop=0.02, corrupt=0.01)
    run = cosim.all_reduce(given, link=link, timeout=3000, seed=seed, flow=Flow(gbps=4))
    check(run, given, CONFIG)
    assert sum(counters["retransmitted"] for counters in run.counters) > 0
    assert all(carried.wrong == 0 for carried in run.flow_counters)
    assert sum(carried.sent - carried.received for carried in run.flow_counters) > 0
    for node, counters in enumerate(run.counters):
        assert counters["host_tx_frames"] == run.flow_counters[node].sent
        assert counters["host_rx_frames"] == run.flow_counters[node - 1].received
        assert counters["host_rx_dropped"] == 0


def test_a_host_that_takes_nothing_does_not_stall_the_ring(cosim, given, alone):
    run = cosim.all_reduce(given, link=LINK, flow=Flow(gbps=4, stall=1.0))
    check(run, given, CONFIG)
    assert run.cycles < alone / 0.9 * 1.01
    for node, counters in enumerate(run.counters):
        assert run.flow_counters[node].received == counters["host_rx_frames"] == 0
        assert 0 < counters["host_rx_dropped"] <= run.flow_counters[node - 1].sent == counters["host_tx_frames"]


def test_a_flow_needs_smart_nics(given):
    cosim = RingCosim(CONFIG, nodes=2, quiet=True)
    with pytest.raises(ValueError, match="flow must be between smart NICs"):
        cosim.all_reduce(given[:2], flow=Flow(gbps=4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"size": 21}, "size must be at least 22, not 21"), ({"gbps": 0}, "gbps must be above 0, not 0")],
)
def test_a_flow_that_is_none_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Flow(**{"gbps": 1, "size": 60} | changes)
