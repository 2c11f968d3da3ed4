"""Timelines of parameter servers: workers, each gradient's way through a server, packets sent again."""

import math

from fanin.job import worker_endpoint
from fanin.param_server.page.trace import param_server_trace
from fanin.sim.link_log import HEAD_BYTES, LinkLog, LoggedFrame
from fanin.sim.param_server.training import Outcome, ServerUpdate, Span
from fanin.wire.rdma import Nak, Opcode, RdmaPacket, encode
from tests.fanin.report.traces import read

SIZES = {"workers": 2, "servers": 1}  # nodes 0 and 1, then 2


def write(psn, *, to=2, source=0, opcode=Opcode.WRITE_ONLY, **fields):
    packet = RdmaPacket(opcode, 5, psn, length=64, payload=bytes(64), **fields)
    return encode(packet, source=worker_endpoint(source), destination=worker_endpoint(to))


def test_workers_and_gradients_of_a_training():
    outcome = Outcome(
        spans=[Span(1, "compute", 1e-6, 3e-6), Span(0, "compute", 0, 2e-6), Span(0, "push", 2e-6, 4e-6)],
        updates=[
            ServerUpdate(0, 0, 1, stored=5e-6, arrival=4e-6, received=7e-6),
            ServerUpdate(0, 1, 1, stored=6e-6, arrival=4.5e-6, received=math.nan),  # its worker has stopped
        ],
        start=1e-3,
    )
    found = read(param_server_trace(outcome, LinkLog(), **SIZES)).slices
    assert {track: [one[:3] for one in each] for track, each in found.items()} == {
        ("worker 0", "compute"): [("compute", 1_000_000, 1_002_000)],
        ("worker 0", "push"): [("push", 1_002_000, 1_004_000)],
        ("worker 1", "compute"): [("compute", 1_001_000, 1_003_000)],
        ("server 0", "update for worker 0"): [("gradient 1", 1_004_000, 1_005_000)],
        ("server 0", "update for worker 1"): [("gradient 1", 1_004_500, 1_006_000)],
        ("server 0", "row to worker 0"): [("gradient 1", 1_005_000, 1_007_000)],
    }


def test_packets_of_one_number_to_two_workers_repeat_nothing():
    ends = {"source": worker_endpoint(1), "destination": worker_endpoint(2)}
    answers = [
        encode(RdmaPacket(Opcode.ACKNOWLEDGE, 5, 7), **ends),
        encode(RdmaPacket(Opcode.ACKNOWLEDGE, 5, 7, syndrome=Nak.SEQUENCE.syndrome), **ends),
    ]
    frames = [
        *((2, True, write(7, source=2, to=worker)) for worker in (0, 1, 1)),
        (0, False, write(7, source=2, to=0)),
        *((1, True, answer) for answer in answers),
        (1, True, bytes(60)),  # foreign
    ]
    log = LinkLog(
        tuple(
            LoggedFrame(port, up, 1000 * n, 1000 * (n + 1), len(each), each[:HEAD_BYTES])
            for n, (port, up, each) in enumerate(frames)
        )
    )
    found = read(param_server_trace(None, log, **SIZES))
    assert found.names("network", "from server 0") == {"WRITE_ONLY": 2, "WRITE_ONLY again": 1}
    assert found.names("network", "to worker 0") == {"WRITE_ONLY": 1}
    assert found.names("network", "from worker 1") == {"ACK": 1, "NAK": 1}
    assert len(found.slices) == 3
    facts = found.slices["network", "from server 0"][0][3]
    assert (facts["peer"], facts["psn"], facts["queue_pair"], facts["length"]) == ("worker 0", 7, 5, 64)
