"""One link and frames that a test chooses: when it speaks, what it drops, and when it gives up."""

import random
from dataclasses import replace

import pytest
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin.hdl.net.link.job import LinkFailure
from fanin.wire.link import ETHERTYPE_LINK, LinkKind
from fanin.wire.ring import RING_LINK, decode_ring
from tests.hdl.net.link.bench import (
    Delivery,
    Links,
    Wires,
    as_frame,
    beats_as_dicts,
    encoded,
    job,
    mac,
    payloads,
    ring_frame,
)
from tests.support import new_seed, simulate, slow

BEATS = 3
START = 5
JOB = job(0, nodes=3)  # node 1 is behind, node 2 before
BEHIND, BEFORE = 1, 2
SIZES = {"frame_beats": BEATS, "buffer_frames": 4, "replay_frames": 4}
each_width = pytest.mark.parametrize("width", [256, *slow(512)])


def run(width, *, at=(), tx=(), received=0, cycles=600, settings=None, stall=0.0, seed=0, restart=-2, pace=0.0):
    """Run a link for ``cycles``; its wires, and what ``tx`` and ``rx`` transferred.

    ``at`` has ``(cycle, source, frame of the ring)`` or ``(cycle, Delivery)``. ``received`` beats are awaited
    on ``rx``; 0 leaves it stalled.
    """
    script = {}
    for cycle, *what in at:
        delivery = (
            what[0] if len(what) == 1 else Delivery(0, encoded(what[1], width, source=what[0], destination=0))
        )
        script.setdefault(cycle, []).append(delivery)
    dut = Links(1, data_width=width, **SIZES)
    waits = {"mac_tx0": pace, "mac_rx0": pace}  # no phases: what happens is scripted by the cycle
    wires = Wires(
        dut, lambda *_: (), random.Random(seed), start=[START], at=script, restart=restart, stall=waits
    )
    log = simulate(
        dut,
        drive={"link[0].tx": [beat for frame in tx for beat in frame]} if tx else {},
        collect={"link[0].rx": received} if received else {},
        stall=stall,
        settings={"link[0].job": JOB | (settings or {})},
        processes=[wires.process],
        seed=seed,
        idle=cycles,
        limit=cycles + 1,
    )
    return wires, log


def of_kind(wires, kind):
    """Frames of one kind that were sent, as ``(cycle of the first beat, frame)``."""
    frames = [(s.first, decode_ring(s.frame, beat_bytes=wires.width // 8)) for s in wires.sent]
    return [(cycle, frame) for cycle, frame in frames if frame.kind == kind]


def answer(sequence, count, kind=LinkKind.ACK):
    return ring_frame(kind, nodes=3, sequence=sequence, count=count)


def data(beats, sequence, width, **other):
    return as_frame(beats, sequence, width, **({"nodes": 3} | other))


@each_width
def test_latencies_are_those_of_the_docstring(width):
    *mine, theirs = payloads(random.Random(1), [BEATS] * 3, width)
    at = [(START + 10, BEHIND, answer(0, 9)), (90, BEFORE, data(theirs, 0, width))]
    settings = {"timeout": 1000, "ack_delay": 1000}
    stall = {"link[0].tx": 0.9}
    wires, log = run(width, at=at, tx=mine, received=BEATS, cycles=300, settings=settings, stall=stall)
    assert beats_as_dicts(log["link[0].rx"]) == theirs
    assert log["link[0].rx"][0][0] - wires.arrived[1][1] == 4
    assert [frame for _, frame in of_kind(wires, LinkKind.DATA)] == [
        data(beats, k, width) for k, beats in enumerate(mine)
    ]
    assert of_kind(wires, LinkKind.DATA)[-1][0] - log["link[0].tx"][-1][0] == 5


@each_width
def test_frames_of_other_traffic_are_dropped_and_counted(width):
    """Each wrong in one way; then one that is right, which is the first to be taken."""
    beats = payloads(random.Random(2), [BEATS], width)[0]
    right = data(beats, 0, width)
    bytes_of = lambda frame, source: encoded(frame, width, source=source, destination=0)  # noqa: E731
    other_type = bytearray(bytes_of(right, BEFORE))
    other_type[13] ^= 1
    size = width // 8
    foreign = [
        bytes(other_type),
        bytes_of(data(beats, 0, width, version=2), BEFORE),
        bytes_of(data(beats, 0, width, job=6), BEFORE),
        bytes_of(replace(right, kind=4), BEFORE),
        bytes_of(right, BEHIND),
        bytes_of(right, 3),
        bytes_of(answer(0, 9), BEFORE),
        bytes_of(ring_frame(LinkKind.PROBE, nodes=3), BEHIND),
        bytes_of(right, BEFORE)[:size],  # no payload
        bytes_of(right, BEFORE)[:-1],  # not whole beats
        bytes_of(right, BEFORE) + bytes(size),  # a beat too many
        bytes_of(right, BEFORE) + bytes(20 * size),
        bytes_of(answer(0, 9), BEHIND) + bytes(size),
    ]
    frames = [*foreign, bytes_of(right, BEFORE)]
    at = [(START + 20, Delivery(0, frame)) for frame in frames]
    mine = payloads(random.Random(3), [1], width)
    wires, log = run(width, at=at, tx=mine, received=BEATS, cycles=300, settings={"timeout": 1000})
    assert beats_as_dicts(log["link[0].rx"]) == beats
    assert wires.counts[0]["foreign"] == len(foreign)
    assert wires.counts[0]["received"] == 1
    assert of_kind(wires, LinkKind.DATA) == []  # no credit was taken from a foreign answer
    assert wires.failed == {}


@each_width
def test_garbage_between_frames_changes_nothing(width):
    seed = new_seed()
    rng = random.Random(seed)
    frames = payloads(rng, [rng.randint(1, BEATS) for _ in range(12)], width)
    at, junk, spoilt = [], 0, 0
    for sequence, beats in enumerate(frames):
        good = encoded(data(beats, sequence, width), width, source=BEFORE, destination=0)
        for _ in range(rng.randrange(3)):
            if rng.random() < 0.5:
                at.append(Delivery(0, rng.randbytes(rng.randint(1, 300)), error=False))
                junk += 1
            else:
                at.append(Delivery(0, good[: rng.randint(1, len(good))], error=True))
                spoilt += 1
        at.append(Delivery(0, good))
    script = [(START + 10, delivery) for delivery in at]
    beats = [beat for frame in frames for beat in frame]
    wires, log = run(width, at=script, received=len(beats), cycles=400, seed=seed)
    assert beats_as_dicts(log["link[0].rx"]) == beats
    assert (wires.counts[0]["foreign"], wires.counts[0]["bad_fcs"]) == (junk, spoilt)


@each_width
@pytest.mark.parametrize("order", [[0, 1], [1, 0]], ids=["next", "ahead"])
def test_a_damaged_copy_right_after_a_frame_does_not_overwrite_it(width, order):
    """The copy has another payload; its first beat comes in the cycle in which the frame is kept."""
    rng = random.Random(15)
    frames, copies = payloads(rng, [1] * 2, width), payloads(rng, [1] * 2, width)
    at = []
    for sequence in order:
        for beats, error in (frames[sequence], False), (copies[sequence], True):
            frame = encoded(data(beats[0:1], sequence, width), width, source=BEFORE, destination=0)
            at.append((START + 20, Delivery(0, frame, error=error)))
    wires, log = run(width, at=at, received=2, cycles=200, settings={"timeout": 1000})
    assert beats_as_dicts(log["link[0].rx"]) == [beats[0] for beats in frames]
    assert wires.counts[0]["bad_fcs"] == 2


@pytest.mark.parametrize("kind", [LinkKind.DATA, LinkKind.PROBE], ids=["data", "probe"])
@pytest.mark.parametrize("field", RING_LINK.compared)
def test_a_frame_of_another_idea_of_the_job_ends_it(field, kind):
    beats = payloads(random.Random(4), [1], 512)[0]
    right = data(beats, 0, 512)
    other = {field: getattr(right, field) ^ 1}
    wrong = data(beats, 0, 512, **other) if kind is LinkKind.DATA else ring_frame(kind, **{"nodes": 3} | other)
    mine = payloads(random.Random(5), [1] * 2, 512)
    at = [(START + 20, BEFORE, wrong), (START + 40, BEHIND, answer(0, 9)), (START + 40, BEFORE, right)]
    wires, _ = run(512, at=at, tx=mine, cycles=200, settings={"timeout": 20})
    cycle, cause = wires.failed[0]
    assert cause == LinkFailure.MISMATCH.value
    assert cycle <= wires.arrived[0][1] + 4
    assert max(sent.first for sent in wires.sent) <= cycle + 4
    assert wires.counts[0]["received"] == 0
    assert wires.differed[0] == {field}


def test_a_silent_neighbour_ends_the_job_in_time():
    timeout, retries = 30, 4
    mine = payloads(random.Random(6), [1], 256)
    at = [(START + 10, BEHIND, answer(0, 9))]
    wires, _ = run(256, at=at, tx=mine, cycles=300, settings={"timeout": timeout, "retries": retries})
    cycle, cause = wires.failed[0]
    assert cause == LinkFailure.TIMEOUT.value
    waited = cycle - wires.arrived[0][1]  # the last that was heard
    assert retries * timeout < waited <= retries * (timeout + 2) + 8
    assert len(of_kind(wires, LinkKind.DATA)) in (retries, retries + 1)  # the last as the job ends
    assert len(of_kind(wires, LinkKind.PROBE)) in (retries, retries + 1)  # at the start, and at each timeout
    assert max(sent.last for sent in wires.sent) < cycle + 4


def test_without_room_nothing_is_sent_again_but_a_probe():
    """More timeouts than retries pass, each answered: the link waits, and goes on when there is room."""
    mine = payloads(random.Random(7), [1] * 4, 256)
    at = [(START + 10, BEHIND, answer(0, 2)), (35, BEHIND, answer(2, 2))]
    at += [(120 + 50 * k, BEHIND, answer(2, 2)) for k in range(8)]
    at += [(520, BEHIND, answer(2, 4)), (560, BEHIND, answer(4, 8))]
    wires, _ = run(256, at=at, tx=mine, cycles=700, settings={"timeout": 50, "retries": 3})
    assert wires.failed == {}
    assert [frame.sequence for _, frame in of_kind(wires, LinkKind.DATA)] == [0, 1, 2, 3]
    assert 7 <= len(of_kind(wires, LinkKind.PROBE)) <= 10
    assert wires.idle == [1]


@each_width
def test_a_full_buffer_takes_no_more_and_answers_probes(width):
    frames = payloads(random.Random(8), [BEATS] * 5, width)
    at = [(START + 10, BEFORE, data(beats, k, width)) for k, beats in enumerate(frames)]
    at += [(200, BEFORE, ring_frame(LinkKind.PROBE, nodes=3))]
    wires, _ = run(width, at=at, cycles=260, settings={"ack_frames": 2})
    assert wires.counts[0]["received"] == 4
    assert wires.counts[0]["out_of_order"] == 1
    acks = of_kind(wires, LinkKind.ACK)
    assert (acks[-1][1].sequence, acks[-1][1].count) == (4, 4)
    assert 200 < acks[-1][0] < 215


@pytest.mark.parametrize("kind", [LinkKind.ACK, LinkKind.NAK], ids=["ack", "nak"])
def test_an_answer_to_what_was_never_sent_ends_the_job(kind):
    """The next node is at frame 3 of this job before any was sent: one of both was started anew alone."""
    mine = payloads(random.Random(11), [BEATS] * 2, 256)
    at = [(START + 10, BEHIND, answer(3, 2, kind))]
    wires, _ = run(256, at=at, tx=mine, cycles=140, settings={"timeout": 80, "ack_delay": 1000})
    assert wires.failed[0][1] == LinkFailure.MISMATCH.value
    assert wires.differed[0] == {"acknowledged"}


@pytest.mark.parametrize("reset", range(30, 37))
def test_a_frame_that_a_reset_meets_is_neither_answered_nor_asked_for_in_the_next_job(reset):
    """What stood in the registers between receiver and acknowledger as the reset came is of the old job."""
    ahead = data(payloads(random.Random(12), [1], 256)[0], 1, 256)
    settings = {"timeout": 1000, "ack_delay": 1000}
    wires, _ = run(
        256, at=[(27, BEFORE, ahead), (60, BEFORE, ahead)], cycles=120, settings=settings, restart=reset
    )
    after = [(s.first, decode_ring(s.frame, beat_bytes=32).kind) for s in wires.sent if s.first > reset + 5]
    assert [kind for _, kind in after] == [LinkKind.ACK, LinkKind.PROBE, LinkKind.NAK]
    assert after[-1][0] > 60


def test_answers_come_when_they_should():
    """ACK at the start, after two frames, after a delay, at a duplicate; one NAK a gap, with its bitmap."""
    frames = payloads(random.Random(9), [1] * 7, 256)
    order = [(40, 0), (42, 1), (100, 2), (200, 1), (220, 4), (224, 5), (230, 3), (300, 6), (320, 6)]
    at = [(cycle, BEFORE, data(frames[k], k, 256)) for cycle, k in order]
    settings = {"ack_frames": 2, "ack_delay": 40}
    wires, log = run(256, at=at, received=7, cycles=400, settings=settings)
    assert beats_as_dicts(log["link[0].rx"]) == [beats[0] for beats in frames]
    acks = [(cycle, frame.sequence, frame.arrived) for cycle, frame in of_kind(wires, LinkKind.ACK)]
    naks = [(cycle, frame.sequence, frame.arrived) for cycle, frame in of_kind(wires, LinkKind.NAK)]
    assert [nak[1:] for nak in naks] == [(3, 0b1)]
    assert 220 < naks[0][0] < 235
    assert [ack[1:] for ack in acks[:1]] == [(0, 0)]
    assert acks[0][0] < START + 10
    assert [cycle for cycle, *_ in acks if 200 < cycle < 215] != []
    assert [cycle for cycle, *_ in acks if 320 < cycle < 335] != []
    assert wires.counts[0]["out_of_order"] == 2
    assert wires.counts[0]["duplicates"] == 2


def test_only_the_missing_frame_is_sent_again_a_round_trip_later():
    """Of four frames in flight the second is lost; 20 frames before have measured round trips of 30 cycles."""
    rng = random.Random(14)
    mine = payloads(rng, [1] * 24, 256)
    sent = []

    def route(link, frame, cycle):
        """The peer: it acknowledges each frame 30 cycles later, but never the first frame 21."""
        sequence = decode_ring(frame, beat_bytes=32).sequence
        if decode_ring(frame, beat_bytes=32).kind != LinkKind.DATA:
            return
        sent.append((sequence, cycle))
        if sequence == 21 and [at for at, _ in sent].count(21) == 1:
            return
        arrived = {at for at, _ in sent if at != 21} | ({21} if [at for at, _ in sent].count(21) > 1 else set())
        first = next(k for k in range(30) if k not in arrived)
        bits = sum(1 << at - first - 1 for at in arrived if at > first)
        back = ring_frame(LinkKind.ACK, nodes=3, sequence=first, count=first + 4, arrived=bits)
        yield Delivery(0, encoded(back, 256, source=BEHIND, destination=0), delay=30)

    dut = Links(1, data_width=256, **SIZES)
    start = Delivery(0, encoded(answer(0, 4), 256, source=BEHIND, destination=0))
    wires = Wires(dut, route, random.Random(0), start=[START], at={START + 10: [start]})
    simulate(
        dut,
        drive={"link[0].tx": [beat for frame in mine for beat in frame]},
        stall=0.0,  # a loss shows when the next frame arrives
        settings={"link[0].job": JOB | {"timeout": 1000}},
        processes=[wires.process],
        idle=900,
        limit=901,
    )
    assert wires.idle == [1]
    assert sorted(sequence for sequence, _ in sent) == sorted([*range(24), 21])
    first, again = (cycle for sequence, cycle in sent if sequence == 21)
    assert 30 <= again - first <= 60


@each_width
def test_no_answer_reports_a_kept_frame_missing(width):
    """Frames 1 to 3 arrive before frame 0; the expected number then advances by one a cycle, from 0 to 4."""
    frames = payloads(random.Random(15), [1] * 4, width)
    at = [(START + 10 + 20 * k, BEFORE, data(frames[k], k, width)) for k in (1, 2, 3)]
    at.append((START + 100, BEFORE, data(frames[0], 0, width)))
    settings = {"ack_frames": 100, "ack_delay": 1000, "timeout": 1000}
    wires, log = run(width, at=at, received=4, cycles=250, settings=settings)
    assert beats_as_dicts(log["link[0].rx"]) == [beat for frame in frames for beat in frame]
    answers = [frame for kind in (LinkKind.ACK, LinkKind.NAK) for _, frame in of_kind(wires, kind)]
    assert {(frame.sequence, frame.arrived) for frame in answers} == {(0, 0), (0, 1), (0, 3), (0, 7), (4, 0)}


@each_width
def test_frames_that_scapy_builds_are_taken(width):
    beats = payloads(random.Random(10), [BEATS], width)[0]
    payload = b"".join(beat["data"].to_bytes(width // 8, "little") for beat in beats)
    said = beats[0]
    header = bytes(
        [
            RING_LINK.version << 4,
            JOB["job"],
            JOB["nodes"],
            BEFORE,
            JOB["codec"] << 4 | said["complete"],
            said["slice"],
        ]
    )
    header += JOB["parameters"].to_bytes(2, "big") + bytes([said["operation"], said["length"]])
    header += (0).to_bytes(4, "big") + said["count"].to_bytes(4, "big")
    padding = bytes(32 if width == 512 else 0)
    address = ":".join(f"{byte:02x}" for byte in mac(BEFORE).to_bytes(6, "big"))
    frame = bytes(Ether(src=address, type=ETHERTYPE_LINK) / Raw(header + payload + padding))
    wires, log = run(width, at=[(START + 9, Delivery(0, frame))], received=BEATS, cycles=100)
    assert beats_as_dicts(log["link[0].rx"]) == beats
    assert wires.counts[0]["received"] == 1


def test_nothing_is_taken_before_the_start():
    beats = payloads(random.Random(11), [1], 256)[0]
    wires, _ = run(256, at=[(0, BEFORE, data(beats, 0, 256))], cycles=100)
    assert wires.counts[0]["received"] == 0
    assert wires.counts[0]["foreign"] <= 1


@each_width
def test_a_reset_begins_anew_and_cuts_no_frame_short(width):
    """Reset inside frames, with a slow MAC: what is left of one is dropped, the other is sent unspoilt."""
    mine = payloads(random.Random(12), [BEATS] * 4, width)
    theirs = payloads(random.Random(13), [BEATS], width)[0]
    frame = data(theirs, 0, width)
    at = [(30, BEHIND, answer(0, 9)), (40, BEFORE, frame), (80, BEFORE, frame)]
    for reset in range(41, 46):
        wires, log = run(width, at=at, tx=mine, received=BEATS, cycles=160, restart=reset, pace=0.7)
        assert beats_as_dicts(log["link[0].rx"]) == theirs
        whole = [data(beats, 0, width).payload for beats in mine]
        sent = [frame.payload for _, frame in of_kind(wires, LinkKind.DATA)]
        assert sent != []
        assert [payload for payload in sent if payload not in whole] == []
        assert len(of_kind(wires, LinkKind.PROBE)) == 2  # one at each start
