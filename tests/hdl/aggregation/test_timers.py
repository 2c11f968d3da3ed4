# amaranth: UnusedElaboratable=no
"""Transport whose timeouts follow the round trips: a loss costs a round trip, and silence no storm."""

from itertools import pairwise

import pytest

from fanin.wire.aggregation import Kind, Protocol
from tests.hdl.aggregation.bench import config, packet_of
from tests.hdl.aggregation.test_transport import ALL_FAULTS, Meddler, Mirror, alone, run
from tests.support import slow

MOST = 4000
TRIP = 120  # cycles from a frame to its answer, in tests with a mirror
INSIDE = 14  # further cycles of a round trip as the transport measures it, at most
ADAPTIVE = {"adaptive": 1, "floor": 10}


@pytest.mark.parametrize("protocol", [Protocol.P4SGD, *slow(Protocol.SWITCHML)])
@pytest.mark.parametrize("seeds", [1, *slow(20)])
def test_faults_change_no_fa(protocol, seeds):
    log2_slots = 3 + (protocol is Protocol.SWITCHML)
    for _ in range(seeds):
        wire = run(
            operations=60,
            odds=ALL_FAULTS,
            timeout=200,
            log2_slots=log2_slots,
            protocol=protocol,
            job=ADAPTIVE | {"timeout": MOST},
        )
        assert wire.counts["retransmissions"] > 0


def test_the_round_trips_are_those_on_the_wire():
    wire, _, status = alone(
        Mirror(TRIP).exchange, operations=200, cycles=15_000, job=config(log2_slots=2, timeout=MOST, **ADAPTIVE)
    )
    assert wire.counts["retransmissions"] == 0
    assert TRIP <= status[-1].round_trip <= TRIP + INSIDE
    assert status[-1].round_trip_deviation < TRIP / 8
    assert status[0].round_trip == 0


class Silence:
    """A mirror that loses all frames from one cycle to another."""

    def __init__(self, begin, end):
        self.mirror, self.begin, self.end = Mirror(TRIP), begin, end

    def exchange(self, frames, now):
        return self.mirror.exchange([] if self.begin <= now < self.end else frames, now)


def test_retransmissions_back_off_and_their_answers_are_no_samples():
    """50 round trips of silence cost 6 packets an operation, and leave the estimate where it was."""
    end = 1200 + 50 * TRIP
    wire, _, status = alone(
        Silence(1200, end).exchange,
        operations=60,
        cycles=end + 6000,
        job=config(log2_slots=2, timeout=20 * TRIP, **ADAPTIVE),
    )
    assert wire.counts["results"] == 60
    assert wire.counts["retransmissions"] <= 6 * 4 + 4  # four slots, some of which had sent ACK
    assert max(s.round_trip for s in status) <= TRIP + INSIDE
    assert 0 < max(s.round_trip_deviation for s in status) < TRIP
    slots = {}
    for first, _, frame in wire.sent:
        if 1300 < first < end:
            slots.setdefault((packet_of(frame).kind, packet_of(frame).slot), []).append(first)
    for times in slots.values():
        gaps = [after - before for before, after in pairwise(times)]
        assert all(after > 1.6 * before for before, after in pairwise(gaps) if after < 18 * TRIP)


@pytest.mark.parametrize("lost", [Kind.AGG, Kind.RESULT])
def test_a_lost_packet_costs_about_two_round_trips(lost):
    """The third packet is lost once; its operation is sent again after its timeout, an eighth over a trip."""
    wire, log, _ = alone(
        Meddler(Mirror(TRIP), lost, [], at=300).exchange,
        operations=400,
        cycles=30_000,
        job=config(log2_slots=2, timeout=MOST, **ADAPTIVE),
    )
    assert wire.counts["retransmissions"] == 1
    assert len(log["fa"]) == 400
    times = {}
    for first, _, frame in wire.sent:
        packet = packet_of(frame)
        if packet.kind == Kind.AGG:
            times.setdefault((packet.slot, packet.round), []).append(first)
    (twice,) = [sent for sent in times.values() if len(sent) > 1]
    assert TRIP < twice[1] - twice[0] < 1.3 * TRIP + INSIDE
