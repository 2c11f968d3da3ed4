"""The transmitter beside the encoder of frames."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.rdma.transmitter import Transmitter
from fanin.rdma.facts import FIRST_QUEUE_PAIR
from fanin.wire.ethernet import Endpoint, tagged
from fanin.wire.rdma import Opcode, RdmaPacket, encode, header_bytes
from tests.support import new_seed, simulate, slow

OWN = Endpoint(0x02_11_22_33_44_55, 0x0A_00_00_07, 0)


def random_packet(rng, sizes):
    opcode = rng.choice([code for code in Opcode if code is not Opcode.ACKNOWLEDGE])
    begins = opcode.begins
    if not (begins or opcode.has_immediate):
        sizes = [size for size in sizes if size]  # without any, its frame would have to be filled up
    return RdmaPacket(
        opcode, FIRST_QUEUE_PAIR + rng.randrange(16), rng.getrandbits(24), rng.random() < 0.5,
        rng.getrandbits(64) * begins, rng.getrandbits(32) * begins, rng.getrandbits(32) * begins,
        rng.getrandbits(32) if opcode.has_immediate else 0, payload=rng.randbytes(rng.choice(sizes)),
    )  # fmt: skip


def random_answer(rng):
    psn, msn = rng.getrandbits(24), rng.getrandbits(24)
    return RdmaPacket(Opcode.ACKNOWLEDGE, FIRST_QUEUE_PAIR, psn, syndrome=rng.getrandbits(8), msn=msn)


def random_peer(rng):
    return Endpoint(rng.getrandbits(48), rng.getrandbits(32), rng.getrandbits(16))


def marks_of(peer):
    """ToS, VLAN (None: no tag) and priority of the frames to a peer: any, but always the same."""
    rng = random.Random(peer.mac)
    return rng.getrandbits(8), rng.choice([None, rng.randrange(4095)]), rng.randrange(8)


def headers(packet, peer):
    """A packet as the transmitter is told of it."""
    names = ("opcode", "acknowledge", "psn", "address", "rkey", "length", "immediate", "syndrome", "msn")
    fields = {name: int(getattr(packet, name)) for name in names}
    tos, vlan, priority = marks_of(peer)
    fields["peer"] = {"queue_pair": packet.queue_pair, "mac": peer.mac, "ip": peer.ip, "port": peer.port}
    fields["peer"] |= {"traffic_class": tos, "tag": {"present": vlan is not None, "tci": 0}}
    if vlan is not None:
        fields["peer"]["tag"]["tci"] = priority << 13 | vlan
    return fields | {"size": len(packet.payload)}


def fetched(rng, packet, size, at):
    """A payload's words from memory, turned, and how to merge them."""
    count, lane = len(packet.payload), header_bytes(Opcode(packet.opcode)) % size
    memory = rng.randbytes(at) + packet.payload + rng.randbytes(-(at + count) % size)
    turn = (lane - at) % size
    words = []
    for start in range(0, len(memory), size):
        word = memory[start : start + size]
        words.append(int.from_bytes(word[-turn:] + word[:-turn] if turn else word, "little"))
    prime = at > lane
    leaves = -(-(lane + count) // size)
    window = {"words": len(words), "single": len(words) == 1, "lane": turn, "prime": prime, "drop": 0}
    return words, window | {"flush": leaves > len(words) - prime}


def frame_of(packet, peer, *, with_tags):
    tos, vlan, priority = marks_of(peer)
    source = Endpoint(OWN.mac, OWN.ip, peer.port)
    frame = encode(packet, source=source, destination=Endpoint(peer.mac, peer.ip, 0), tos=tos)
    return tagged(frame, vlan=vlan, priority=priority) if with_tags and vlan is not None else frame


def frames_in(beats, size):
    frames, frame = [], b""
    for _, beat in beats:
        frame += beat.data.to_bytes(size, "little")[: beat.keep.bit_count()]
        if beat.last:
            frames.append(frame)
            frame = b""
    return frames


def send(rng, width, packets, answers, *, stall, seed, at=None, vlan=False):
    """The beats that leave, and the frames that must."""
    dut, size = Transmitter(width=width, vlan=vlan), width // 8
    words, windows = [], []
    for packet, _ in packets:
        if packet.payload:
            own, window = fetched(rng, packet, size, rng.randrange(size) if at is None else at)
            words += own
            windows.append(window)
    wanted = [frame_of(*pair, with_tags=vlan) for pair in packets]
    others = [frame_of(*pair, with_tags=vlan) for pair in answers]
    log = simulate(
        dut,
        drive={
            "packets": [headers(*pair) for pair in packets],
            "answers": [headers(*pair) for pair in answers],
            "payload": windows,
            "words": words,
        },
        collect={"o": sum(-(-len(frame) // size) for frame in wanted + others)},
        settings={"own.mac": OWN.mac, "own.ip": OWN.ip},
        stall=stall,
        seed=seed,
        limit=40_000,
    )
    return log["o"], wanted, others


@pytest.mark.parametrize("width", [*slow(128, 256), 512])
@pytest.mark.parametrize(("stall", "vlan"), [*slow((0.0, False), (0.0, True)), (0.3, False), (0.3, True)])
def test_frames_are_those_of_the_encoder_and_answers_come_in_between(width, stall, vlan):
    seed = new_seed()
    rng = random.Random(seed)
    sizes = [0, 1, 2, 3, 4, 9, 10, 11, 50, 54, 58, 63, 64, 65, 128, 256, 300, 1000]
    packets = [(random_packet(rng, sizes), random_peer(rng)) for _ in range(24)]
    answers = [(random_answer(rng), random_peer(rng)) for _ in range(8)]
    beats, wanted, others = send(rng, width, packets, answers, stall=stall, seed=seed, vlan=vlan)
    frames = frames_in(beats, width // 8)
    assert [frame for frame in frames if frame in others] == others
    assert [frame for frame in frames if frame not in others] == wanted, seed
    assert all(beat.keep == (1 << width // 8) - 1 for _, beat in beats if not beat.last)


@pytest.mark.parametrize("at", [*slow(0, 54, 55), 63])
def test_long_frames_follow_one_another_without_a_bubble(at):
    seed = new_seed()
    rng = random.Random(seed)
    middle = [RdmaPacket(Opcode.WRITE_MIDDLE, 0x100, n, payload=rng.randbytes(4096)) for n in range(3)]
    packets = [(packet, random_peer(rng)) for packet in middle]
    beats, _, _ = send(rng, 512, packets, [], stall=0.0, seed=seed, at=at)
    cycles = [cycle for cycle, _ in beats]
    assert cycles == list(range(cycles[0], cycles[0] + 3 * 65))


def test_of_short_frames_one_leaves_in_6_cycles_and_an_answer_in_between():
    seed = new_seed()
    rng = random.Random(seed)
    packets = [
        (RdmaPacket(Opcode.WRITE_MIDDLE, 0x100, n, payload=rng.randbytes(4)), random_peer(rng))
        for n in range(6)
    ]
    answers = [(random_answer(rng), random_peer(rng)) for _ in range(6)]
    for others, wanted in ([], {6}), (answers, {1, 5}):
        beats, _, _ = send(rng, 512, packets, others, stall=0.0, seed=seed)
        assert {later - sooner for (sooner, _), (later, _) in pairwise(beats)} == wanted
