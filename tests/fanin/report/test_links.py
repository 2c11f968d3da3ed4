"""Links in timelines: kinds and repetitions of frames, what the network did to them, credit, foreign frames."""

import itertools
from dataclasses import replace

import pytest

from fanin.job import worker_endpoint
from fanin.report import perfetto
from fanin.report.links import add_credit, add_links, decode_log, link_frame
from fanin.report.perfetto import Trace
from fanin.sim.link_log import HEAD_BYTES, LinkLog, LoggedFrame
from fanin.wire import rdma, tcp
from fanin.wire.connection import CONNECTION_LINK, ConnectionFrame, encode_connection
from fanin.wire.ethernet import Encap
from fanin.wire.link import LinkKind
from fanin.wire.rdma import Opcode, RdmaPacket
from fanin.wire.ring import RING_LINK, RingFrame, encode_ring
from fanin.wire.tcp import Segment, encode_tcp
from tests.fanin.report.traces import read

NODES = ("left", "right")
ENDS = tuple(map(worker_endpoint, (0, 1)))


def connection(kind, source=0, *, number=1, encap=Encap.L2, **fields):
    frame = ConnectionFrame(kind, 7, number, **fields)
    ends = {"source": ENDS[source], "destination": ENDS[1 - source]}
    return encode_connection(frame, beat_bytes=64, encap=encap, **ends)


def data(sequence, source=0, *, number=1):
    return connection(LinkKind.DATA, source, number=number, sequence=sequence, frame=9, words=(1, 2, 3))


def logged_frames(*frames):
    """Of (port, up, frame), one behind the other, 100 ns each."""
    return tuple(
        LoggedFrame(port, up, 100_000 * n, 100_000 * n + 90_000, len(frame), frame[:HEAD_BYTES])
        for n, (port, up, frame) in enumerate(frames)
    )


def sent_of(log):
    return decode_log(log, lambda logged: link_frame(CONNECTION_LINK, logged.head))


def timeline(log):
    trace, sent = Trace(), sent_of(log)
    add_links(trace, sent, NODES, log.left_out)
    add_credit(trace, sent, NODES)
    return read(trace.text())


@pytest.mark.parametrize("encap", Encap)
def test_a_link_s_header_is_read_whatever_carries_it(encap):
    frame = connection(LinkKind.DATA, encap=encap, sequence=4, frame=9, words=(1, 2, 3))
    about = link_frame(CONNECTION_LINK, frame[:HEAD_BYTES])
    assert about.kind == "DATA"
    assert about.facts == {"run": 7, "connection": 1, "sequence": 4, "words": 3, "frame": 9}
    assert (about.stream, about.number) == ((7, 1), 4)
    answer = connection(LinkKind.NAK, encap=encap, sequence=4, limit=36)
    about = link_frame(CONNECTION_LINK, answer[:HEAD_BYTES])
    assert (about.kind, about.facts["limit"], about.number) == ("NAK", 36, None)


def test_other_traffic_is_no_frame_of_a_link():
    ours = connection(LinkKind.DATA, encap=Encap.UDP, words=(1,))
    ring = RingFrame(LinkKind.DATA, 1, 2, payload=bytes(64))
    foreign = [
        b"",
        ours[:40],  # cut short
        ours[:36] + b"\0\1" + ours[38:],  # another port
        ours[:23] + b"\6" + ours[24:],  # another protocol
        encode_ring(ring, beat_bytes=64, source=1, destination=2),  # the ring's version
        connection(LinkKind.DATA)[:14] + b"\x2f" + bytes(60),  # a kind that there is not
        ENDS[0].mac.to_bytes(6, "big") * 2 + b"\x08\x06" + bytes(60),
    ]
    assert [link_frame(CONNECTION_LINK, frame) for frame in foreign] == [None] * len(foreign)
    assert link_frame(RING_LINK, foreign[4]).kind == "DATA"
    log = LinkLog(logged_frames(*((0, True, frame) for frame in [*foreign, ours])))
    assert len(sent_of(log)) == 1


def test_frames_lie_on_their_links_with_their_peers_and_repetitions_are_told():
    log = LinkLog(
        logged_frames(
            (0, True, data(0)),
            (1, True, data(0, 1)),  # the other end's own
            (0, True, data(0, number=2)),  # another connection's
            (1, False, data(0)),
            (0, True, data(0)),
            (1, False, data(0)),
            (1, True, connection(LinkKind.ACK, 1, sequence=1, limit=9)),
            (1, True, connection(LinkKind.ACK, 1, sequence=1, limit=9)),
        )
    )
    found = timeline(log)
    names = {thread: [name for name, *_ in each] for (_, thread), each in found.slices.items()}
    assert names == {
        "from left": ["DATA", "DATA", "DATA again"],
        "from right": ["DATA", "ACK", "ACK"],
        "to right": ["DATA", "DATA"],
    }
    _, begin, end, facts = found.slices["network", "to right"][0]
    assert (begin, end) == (300, 390)
    assert facts == {
        "peer": "left",
        "bytes": len(data(0)),
        "run": 7,
        "connection": 1,
        "sequence": 0,
        "words": 3,
        "frame": 9,
    }
    assert found.slices["network", "from right"][0][3]["peer"] == "left"


def test_what_the_network_does_to_a_frame_stands_at_its_end():
    plain = logged_frames(*itertools.repeat((0, True, data(0)), 3))
    fates = ({"dropped": True}, {"duplicated": True, "corrupted": 2}, {"reordered": True})
    log = LinkLog(tuple(replace(one, **fate) for one, fate in zip(plain, fates, strict=True)))
    found = timeline(log)
    assert [(name, time) for name, time, _ in found.instants["network", "from left"]] == [
        *(("dropped", 90), ("duplicated", 190), ("corrupted", 190), ("corrupted", 190), ("reordered", 290)),
    ]
    assert found.faults() == {"dropped": 1, "duplicated": 1, "corrupted": 2, "reordered": 1}


def test_credit_is_what_answers_have_granted_less_what_was_sent():
    answers = [connection(LinkKind.ACK, 1, sequence=0, limit=limit) for limit in (2, 5, 4)]
    lost = connection(LinkKind.ACK, 1, sequence=2, limit=50)
    plain = logged_frames(
        (0, False, answers[0]),
        (0, True, data(0)),
        (0, True, data(1)),
        (0, True, data(0)),  # again: takes no credit
        (0, False, lost),
        (0, False, answers[1]),
        (0, False, answers[2]),  # overtaken
        (0, False, connection(LinkKind.ACK, 1, number=3, sequence=0, limit=8)),
    )
    log = LinkLog((*plain[:4], replace(plain[4], dropped=True), *plain[5:]))
    found = timeline(log).counters
    assert [value for _, value in found["network", "credit of left, connection 1"]] == [2, 1, 0, 3, 3]
    assert found["network", "credit of left, connection 3"] == [(790, 8)]
    assert len(found) == 2


def test_frames_beyond_the_bound_are_counted_with_those_that_the_log_lacks(monkeypatch):
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 2)
    found = timeline(LinkLog(logged_frames(*((0, True, data(n)) for n in range(3))), left_out=10))
    assert found.names("network", "from left") == {"DATA": 2}
    assert found.notes == {"frames left out": 11}


def test_the_headers_of_a_packet_are_read_from_its_beginning():
    packet = RdmaPacket(Opcode.WRITE_FIRST, 5, 77, address=64, rkey=3, length=4096, payload=bytes(1024))
    frame = rdma.encode(packet, source=ENDS[0], destination=ENDS[1])
    found = rdma.read_headers(frame[:HEAD_BYTES])
    assert {name: found[name] for name in ("opcode", "queue_pair", "psn", "address", "rkey", "length")} == {
        "opcode": Opcode.WRITE_FIRST,
        "queue_pair": 5,
        "psn": 77,
        "address": 64,
        "rkey": 3,
        "length": 4096,
    }
    assert rdma.read_headers(frame[:60]) is None  # its RETH is cut
    assert rdma.read_headers(connection(LinkKind.DATA, encap=Encap.UDP, words=(1,) * 40)) is None


def test_so_are_those_of_a_segment():
    segment = Segment(*ENDS, 100, 7, tos=0x28, payload=bytes(1000))
    frame = encode_tcp(segment)
    found = tcp.read_headers(frame[:HEAD_BYTES])
    assert [found[name] for name in ("sequence", "acknowledgement", "payload", "tos")] == [100, 7, 1000, 0x28]
    assert tcp.read_headers(frame[:50]) is None
    assert tcp.read_headers(connection(LinkKind.DATA, encap=Encap.UDP, words=(1,) * 40)) is None
