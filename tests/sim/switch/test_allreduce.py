"""AllReduces through the emitted program, over good and bad networks."""

import random
from dataclasses import replace

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.golden.aggregation import Verdict
from fanin.link import FAULTS, LinkConfig
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import Encap, Protocol
from tests.support import new_seed, slow

PROGRAM = ProgramConfig(workers=3, slots=4, values=8)


def _reduce(rows, program=PROGRAM, *, kind=SwitchKind.EMBEDDED, capture=None, link=None, **network):
    switch = make_switch(len(rows), kind=kind, config=replace(program, workers=len(rows)))
    config = NetworkConfig(link=link or LinkConfig(), **network)
    return allreduce(
        rows, switch=switch, program=replace(program, workers=len(rows)), network=config, capture=capture
    )


def _rows(rng, workers, count):
    return np.array(
        [
            [rng.choice([0, 1, -1, rng.randrange(-(2**26), 2**26)]) for _ in range(count)]
            for _ in range(workers)
        ],
        dtype=np.int32,
    )


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("target", list(Target))
@pytest.mark.parametrize("encap", list(Encap))
def test_every_worker_gets_the_sum_over_a_bad_network(protocol, target, encap):
    rng = random.Random(seed := new_seed())
    program = replace(PROGRAM, protocol=protocol, target=target, encap=encap)
    rows = _rows(rng, rng.randrange(1, 6), rng.randrange(1, 200))
    bad = LinkConfig(**{fault: rng.choice([0, 0.05, 0.2]) for fault in FAULTS})
    found = _reduce(rows, program, link=bad, seed=seed)
    assert (found.sums == rows.sum(axis=0)).all()
    operations = -(-rows.shape[1] // program.values)
    assert found.counters.results == operations
    assert found.counters.aggregated == operations * len(rows) == len(found.latencies_ns)
    assert found.sent - found.retransmissions == operations * len(rows) * len(protocol.to_switch)


@pytest.mark.parametrize("count", [300, *slow(20_000)])
def test_without_faults_no_packet_is_sent_again(count):
    rows = _rows(random.Random(new_seed()), 4, count)
    frames = []
    found = _reduce(rows, link=LinkConfig(), capture=lambda frame, time: frames.append((time, frame)))
    assert found.retransmissions == 0
    assert {verdict for verdict, number in found.verdicts.items() if number} == {
        Verdict.RESULT,
        Verdict.CONFIRM,
    }
    assert frames == sorted(frames, key=lambda frame: frame[0])
    assert len(frames) == 2 * found.sent  # each has an answer at each worker


def test_a_latency_is_that_of_two_links_and_the_switch():
    link = LinkConfig(delay_ns=1000, gbps=100)
    found = _reduce(_rows(random.Random(new_seed()), 2, 8), link=link, switch_ns=400)
    wire = (8 + 60 + 4) * 8 / 100  # preamble, the least frame, FCS
    assert found.latencies_ns == pytest.approx([2 * (1000 + wire) + 400] * 2)


def test_the_reference_switch_does_the_same():
    rng = random.Random(seed := new_seed())
    rows = _rows(rng, 4, 120)
    bad = LinkConfig(drop=0.1, duplicate=0.1, reorder=0.1)
    embedded, reference = (
        _reduce(rows, kind=kind, link=bad, seed=seed) for kind in (SwitchKind.EMBEDDED, SwitchKind.REFERENCE)
    )
    assert (embedded.sums == reference.sums).all()
    assert (embedded.sent, embedded.latencies_ns) == (reference.sent, reference.latencies_ns)


def test_a_packet_that_is_never_answered_is_given_up():
    with pytest.raises(CheckFailed, match=r"^worker [01]: slot 0: unanswered after 3 retries$"):
        _reduce(_rows(random.Random(new_seed()), 2, 8), link=LinkConfig(drop=1.0), retries=3)


def test_as_many_workers_as_a_packet_names_over_a_bad_network():
    """All 32, through the emitted program."""
    seed = new_seed()
    rows = _rows(random.Random(seed), 32, 24)
    link = LinkConfig(drop=0.01, duplicate=0.01, reorder=0.01)
    result = _reduce(rows, link=link, seed=seed)
    assert (result.sums == rows.astype(np.int64).sum(axis=0).astype(np.int32)).all()
    assert result.counters.results == 3
