"""P4SGD's protocol as published, on frames: the model checker's step by step, and what faults do to it."""

import random

import numpy as np
import pytest

from fanin.job import Job, Member, worker_endpoint
from fanin.link import LinkConfig
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.checker.protocol import Message
from fanin.sim.checker.published import Published
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import make_switch
from fanin.sim.switch.published import PublishedEndpoint, PublishedSwitch, published_allreduce
from fanin.wire.aggregation import AggPacket, Encap, Kind, decode_payload, encode, header_length
from tests.support import new_seed

WORKERS, SLOTS, VALUES = 3, 2, 2
PROGRAM = ProgramConfig(workers=WORKERS, slots=SLOTS, values=VALUES)


def _rows(source, operations):
    return np.array(
        [[source.randrange(-(2**20), 2**20) for _ in range(operations * VALUES)] for _ in range(WORKERS)],
        np.int32,
    )


def test_the_switch_decides_as_the_model_checkers():
    source = random.Random(new_seed())
    model, switch = (
        Published(workers=WORKERS, slots=1, rounds=64, check_invariants=False),
        PublishedSwitch(PROGRAM),
    )
    members = tuple(Member(n, 1 << n, worker_endpoint(n)) for n in range(WORKERS))
    switch.add_job(Job(1, 0, 1, members))
    state, answers = model.slot(), 0
    for step in range(2000):
        sender, kind, number = source.randrange(WORKERS), source.choice([Kind.AGG, Kind.ACK]), 1 + step % 64
        found = model.switch(state, 0, sender, Message(kind, number))
        state = found.state
        packet = AggPacket(kind, 1, 0, number, 1 << sender, (step, -step))
        frame = encode(packet, encap=Encap.L2, source=worker_endpoint(sender), destination=worker_endpoint(9))
        sent = switch.inject(sender, frame, step)
        kinds = [(port, decode_payload(out[header_length(Encap.L2) :], VALUES).kind) for port, out, _ in sent]
        assert kinds == [(to, message.kind) for to, message in found.sent]
        answers += bool(sent)
    assert answers > 100


def test_a_worker_decides_as_the_model_checkers():
    source = random.Random(new_seed())
    model = Published(workers=WORKERS, slots=SLOTS, rounds=64, check_invariants=False)
    worker, endpoint = model.worker(), PublishedEndpoint(slots=SLOTS, member=1, retries=10**6, values=VALUES)
    for _ in range(500):
        slot = source.randrange(SLOTS)
        match source.choice(["submit", "timeout", Kind.RESULT, Kind.CONFIRM]):
            case "submit":
                found = model.submit(worker)
                assert endpoint.can_submit() == (found is not None)
                if found is None:
                    continue
                step, sent = found[1], endpoint.submit((1, 2))
            case "timeout":
                step, sent = model.timeout(worker, slot), endpoint.timeout(slot)
                assert (step is None) == (sent == [])
                if step is None:
                    continue
            case kind:
                step = model.receive(worker, slot, Message(kind, max(1, worker.slots[slot].round)))
                sent, _ = endpoint.receive(AggPacket(kind, 1, slot, 1, 7, (1, 2)))
        worker = step.state
        assert [packet.kind for packet in sent] == ([step.sent.kind] if step.sent else [])
        assert endpoint.idle == all(each.unused for each in worker.slots)


def test_without_faults_it_is_as_fast_as_ours_and_as_right():
    rows = _rows(random.Random(new_seed()), 50)
    network = NetworkConfig()
    switch = make_switch(WORKERS, kind=SwitchKind.REFERENCE, config=PROGRAM)
    ours = allreduce(rows, switch=switch, program=PROGRAM, network=network)
    found = published_allreduce(rows, program=PROGRAM, network=network)
    assert (found.sums == rows.sum(axis=0)).all()
    assert (found.time_ns, found.latencies_ns, found.sent) == (ours.time_ns, ours.latencies_ns, ours.sent)
    assert (found.wrong, found.repeated, found.lost, found.gave_up) == (0, 0, 0, False)


def test_with_losses_its_sums_are_repeated_and_wrong():
    found = published_allreduce(
        _rows(random.Random(1), 300),
        program=PROGRAM,
        network=NetworkConfig(link=LinkConfig(drop=0.02), retries=50, seed=1),
    )
    assert found.repeated > 0
    assert found.wrong + found.lost > 0
    assert len(found.latencies_ns) + found.lost == 300 * WORKERS


@pytest.mark.parametrize("encap", list(Encap))
def test_a_dead_network_ends(encap):
    program = ProgramConfig(workers=WORKERS, slots=SLOTS, values=VALUES, encap=encap)
    network = NetworkConfig(link=LinkConfig(drop=1.0), retries=5)
    found = published_allreduce(np.ones((WORKERS, 6), np.int32), program=program, network=network)
    assert (found.gave_up, found.lost, found.latencies_ns) == (True, 3 * WORKERS, [])
