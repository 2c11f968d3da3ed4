"""Two ends of a connection and a bad network: every word once and in order, in frames that others can read."""

import random

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.hdl.layers.connection import Connection
from fanin.hdl.net.link.job import LinkFailure
from fanin.wire.connection import (
    CONNECTION_LINK,
    MAX_PAYLOAD_WORDS,
    ConnectionFrame,
    decode_connection,
    encode_connection,
)
from fanin.wire.ethernet import Encap, Endpoint
from fanin.wire.link import LINK_PORT, LinkKind
from tests.hdl.net.link.bench import Delivery, Wires, faulty, mac, straight
from tests.support import new_seed, simulate, slow

RUN, NUMBER, PRIORITY = 0x1234, 7, 5
ROW = 360  # words: a frame of 352 and one of 8
# Of addresses whose header's sum is just below 2^16, so that a long frame's length makes it carry.
ENDS = [Endpoint(mac(0), 0x0A003300), Endpoint(mac(1), 0x0A00321A)]


class Ends(wiring.Component):
    """Two ends side by side, not connected; ``link`` are both."""

    def __init__(self, lanes, **parameters):
        self.parts = [Connection(lanes=n, **parameters) for n in lanes]
        super().__init__({f"end{k}": Out(part.signature) for k, part in enumerate(self.parts)})
        self.link = [getattr(self, f"end{k}") for k in range(len(lanes))]

    def elaborate(self, platform):
        m = Module()
        for k, (port, part) in enumerate(zip(self.link, self.parts, strict=True)):
            m.submodules[f"part{k}"] = part
            wiring.connect(m, part, wiring.flipped(port))
        return m


def job(end, **other):
    """ConnectionJob of an end."""
    return {
        "run": RUN,
        "connection": NUMBER,
        "priority": PRIORITY,
        "own_mac": ENDS[end].mac,
        "peer_mac": ENDS[1 - end].mac,
        "own_ip": ENDS[end].ip,
        "peer_ip": ENDS[1 - end].ip,
        "timeout": 300,
        "retries": 1000,
        "ack_frames": 2,
        "ack_delay": 30,
    } | other


def transfers(words, lanes):
    return [words[at : at + lanes] for at in range(0, len(words), lanes)]


def flat(log):
    return [int(word) for _, payload in log for word in payload]


def frames_of(words, row, rows):
    """The payloads of a stream, as ``(frame, words)``."""
    made = []
    for n, start in enumerate(range(0, len(words), row)):
        of_row = words[start : start + row]
        made += [(n // rows, tuple(of_row[at : at + 352])) for at in range(0, row, 352)]
    return made


def exchange(dut, wires, *, row, rows, count, rng, stall=0.0, seed=0, idle=400):
    """Both ends send ``count`` rows; the log and the words, once all that arrived is compared."""
    lanes = [part.lanes for part in dut.parts]
    words = [[rng.getrandbits(32) for _ in range(row * count)] for _ in lanes]
    log = simulate(
        dut,
        drive={f"end{k}.i": transfers(words[k], lanes[k]) for k in range(2)},
        collect={f"end{k}.o": len(words[0]) // lanes[k] for k in range(2)},
        stall=stall,
        settings={f"end{k}.job": job(k) for k in range(2)},
        processes=[wires.process],
        seed=seed,
        idle=idle,
    )
    for k in range(2):
        assert flat(log[f"end{k}.o"]) == words[1 - k]
        sent = [decode_connection(s.frame) for s in wires.sent if s.link == k]
        made = frames_of(words[k], row, rows)
        # Of each frame its first copy: while another leaves, it may be acknowledged, and its buffer refilled.
        data = {f.sequence: (f.frame, f.words) for f in reversed(sent) if f.kind == LinkKind.DATA}
        assert [data[n] for n in range(len(made))] == made
        assert {(f.run, f.connection) for f in sent} == {(RUN, NUMBER)}
        assert wires.counts[k]["sent"] == wires.counts[1 - k]["received"] == len(made)
    assert wires.failed == {}
    assert wires.idle == [1, 1]
    return log


@pytest.mark.parametrize(
    ("width", "encap", "lanes", "row", "rows"),
    [
        (512, Encap.L2, (8, 3), ROW, 2),
        (256, Encap.UDP, (20, 4), 20, 3),
        (64, Encap.L2, (5, 3), 15, 3),
        *slow(
            (32, Encap.UDP, (6, 1), 6, 2),
            (128, Encap.L2, (8, 3), 24, 1),
            (128, Encap.UDP, (4, 2), 20, 1),
            (512, Encap.UDP, (1, 24), 72, 2),
            (256, Encap.L2, (5, 8), ROW, 1),
            (256, Encap.UDP, (8, 3), ROW, 2),
        ),
    ],
)
def test_every_word_arrives_once_and_in_order_over_a_bad_network(width, encap, lanes, row, rows):
    seed = new_seed()
    rng = random.Random(seed)
    dut = Ends(lanes, row=row, rows=rows, data_width=width, encap=encap, frames=4)
    wires = Wires(dut, straight, rng, start=[3, 150], pause=0.2, stall=0.1)
    count = 5 if row == ROW else 8
    wires.route = faulty(rng, 0.15, wires, count * -(-row // 352))
    exchange(dut, wires, row=row, rows=rows, count=count, rng=rng, stall=0.2, seed=seed, idle=700)
    faults = wires.counts[0] + wires.counts[1]
    assert faults["retransmitted"] > 0
    assert faults["bad_fcs"] + faults["out_of_order"] + faults["duplicates"] > 0


@pytest.mark.parametrize("width", [512, *slow(256)])
@pytest.mark.parametrize("encap", list(Encap))
def test_a_saturated_end_sends_a_beat_a_cycle_and_its_frames_are_read_by_others(width, encap):
    """A row of two whole frames: but for the ACKs no cycle passes without a beat."""
    rng = random.Random(width)
    lanes, row = width // 32, 704
    dut = Ends((lanes, lanes), row=row, rows=2, data_width=width, encap=encap)
    wires = Wires(dut, straight, rng, start=[3, 3])
    exchange(dut, wires, row=row, rows=2, count=6, rng=rng)
    sent = [s for s in wires.sent if s.link == 0]
    data = [s for s in sent if decode_connection(s.frame).kind == LinkKind.DATA]
    own = [s for s in sent if data[0].first <= s.first <= data[-1].first]
    beats = sum(8 * len(s.frame) // width for s in own)
    assert data[-1].last - data[0].first + 1 <= beats + len(own) - len(data)
    header = 64 if encap is Encap.UDP or width == 512 else 32
    assert {len(s.frame) for s in data} == {header + 1408}
    for s in sent:
        read = Ether(s.frame)
        source, destination = (int(a.replace(":", ""), 16) for a in (read.src, read.dst))
        assert (source, destination) == (ENDS[0].mac, ENDS[1].mac)
        if encap is Encap.UDP:
            ip, udp = read[IP], read[UDP]
            assert (ip.tos, ip.src, ip.dst) == (PRIORITY << 5, "10.0.51.0", "10.0.50.26")
            assert (udp.sport, udp.dport, udp.chksum) == (LINK_PORT, LINK_PORT, 0)
            assert (ip.len, udp.len) == (len(s.frame) - 14, len(s.frame) - 34)
            assert IP(bytes(ip)[:20]).chksum == ip.chksum
            made = IP(bytes(ip))
            del made.chksum
            assert IP(bytes(made)).chksum == ip.chksum


def frame(kind, *, width, encap, sequence=0, words=(), **other):
    """A frame from the peer, encoded."""
    made = ConnectionFrame(kind, RUN, NUMBER, sequence=sequence, words=words, **other)
    return encode_connection(
        made, beat_bytes=width // 8, source=ENDS[1], destination=ENDS[0], encap=encap, priority=PRIORITY
    )


def run(parameters, script, *, i=(), o=0, cycles=400, settings=None, stall=0.0):
    """An end alone for ``cycles``; ``script`` has ``(cycle, frame)``."""
    at = {}
    for cycle, bytes_of in script:
        at.setdefault(cycle, []).append(Delivery(0, bytes_of))
    dut = Ends((8,), **parameters)
    wires = Wires(dut, lambda *_: (), random.Random(0), start=[5], at=at)
    log = simulate(
        dut,
        drive={"end0.i": i} if i else {},
        collect={"end0.o": o} if o else {},
        stall=stall,
        settings={"end0.job": job(0) | (settings or {})},
        processes=[wires.process],
        seed=0,
        idle=cycles,
        limit=cycles + 1,
    )
    return wires, log


@pytest.mark.parametrize("width", [512, *slow(256)])
@pytest.mark.parametrize("encap", list(Encap))
def test_latencies_are_those_of_the_docstring(width, encap):
    parameters = {"row": 32, "rows": 1, "data_width": width, "encap": encap}
    words = tuple(range(1, 33))
    script = [
        (20, frame(LinkKind.ACK, width=width, encap=encap, limit=4)),
        (60, frame(LinkKind.DATA, width=width, encap=encap, words=words)),
    ]
    settings = {"ack_delay": 1000}
    slow_source = {"end0.i": 0.9}  # its last words come when there is credit
    wires, log = run(parameters, script, i=transfers(list(words), 8), o=4, settings=settings, stall=slow_source)
    assert flat(log["end0.o"]) == list(words)
    arrived = next(cycle for _, cycle, data in wires.arrived if decode_connection(data).kind == LinkKind.DATA)
    assert log["end0.o"][0][0] - arrived == 5
    begun = next(s.first for s in wires.sent if decode_connection(s.frame).kind == LinkKind.DATA)
    assert begun - log["end0.i"][-1][0] == 6


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("width", [32, 256, 512])
def test_answers_report_the_frames_after_a_gap(encap, width):
    """A row of three frames; of these the first is lost."""
    row = 2 * MAX_PAYLOAD_WORDS + 8
    parameters = {"row": row, "rows": 1, "data_width": width, "encap": encap}
    long, short = (0,) * MAX_PAYLOAD_WORDS, (0,) * 8
    script = [
        (20, frame(LinkKind.DATA, width=width, encap=encap, sequence=1, words=long)),
        (40, frame(LinkKind.DATA, width=width, encap=encap, sequence=2, words=short)),
    ]
    wires, _ = run(parameters, script, cycles=1200, settings={"ack_delay": 1000})
    read = [decode_connection(s.frame) for s in wires.sent]
    answers = [(made.sequence, made.arrived) for made in read if made.kind in (LinkKind.ACK, LinkKind.NAK)]
    assert answers == [(0, 0b00), (0, 0b01), (0, 0b11)]


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("width", [256, *slow(512)])
def test_what_is_of_another_connection_or_run_or_is_no_frame_is_foreign(encap, width):
    parameters = {"row": 32, "rows": 1, "data_width": width, "encap": encap}
    words = tuple(range(1, 33))
    right = ConnectionFrame(LinkKind.DATA, RUN, NUMBER, words=words)

    def bytes_of(made, source=ENDS[1], of=encap):
        return encode_connection(made, beat_bytes=width // 8, source=source, destination=ENDS[0], encap=of)

    good = bytes_of(right)
    strangers = [
        ConnectionFrame(LinkKind.DATA, RUN + 1, NUMBER, words=words),
        ConnectionFrame(LinkKind.DATA, RUN, NUMBER + 1, words=words),
        ConnectionFrame(LinkKind.DATA, RUN, NUMBER, words=words, version=1),
        ConnectionFrame(5, RUN, NUMBER, words=words),
    ]
    foreign = [bytes_of(made) for made in strangers]
    foreign.append(bytes_of(right, source=Endpoint(mac(9), 99)))
    foreign.append(bytes_of(right, of=next(e for e in Encap if e is not encap)))
    header_beats = -(-CONNECTION_LINK.header_bytes(encap) * 8 // width)
    foreign += [good[: width // 8 * n] for n in range(1, header_beats + 1)]  # without payload
    foreign.append(good[:-1])
    if encap is Encap.UDP:
        for byte in (14, 20, 21, 23, 36):  # version, more fragments, fragment, protocol, port
            spoilt = bytearray(good)
            spoilt[byte] ^= 0x20
            foreign.append(bytes(spoilt))
    script = [(20, data) for data in [*foreign, good]]
    wires, log = run(parameters, script, o=4)
    assert flat(log["end0.o"]) == list(words)
    assert wires.counts[0]["foreign"] == len(foreign)
    assert wires.counts[0]["received"] == 1


@pytest.mark.parametrize("count", [31, 24])
def test_a_frame_of_other_words_than_its_place_in_the_row_has_ends_the_job(count):
    parameters = {"row": 32, "rows": 1, "data_width": 256}
    words = tuple(range(count))
    script = [(20, frame(LinkKind.DATA, width=256, encap=Encap.L2, words=words))]
    wires, _ = run(parameters, script, o=-(-count // 8), cycles=100)
    assert wires.failed[0][1] == LinkFailure.MISMATCH.value


def lossy(lost):
    """A network that loses the DATA frames of end 0 with these sequence numbers, once each."""
    left = set(lost)

    def route(link, data, cycle):
        made = decode_connection(data)
        if link == 0 and made.kind == LinkKind.DATA and made.sequence in left:
            left.discard(made.sequence)
            return
        yield from straight(link, data, cycle)

    return route


@pytest.mark.parametrize("missing", [0, 3, 5])
def test_published_mode_ends_with_loss_whichever_frame_is_missing(missing):
    """Frame 5 is the last: a PROBE shows that it is missing. Nothing is sent again."""
    rng = random.Random(missing)
    dut = Ends((8, 8), row=16, rows=2, data_width=256, frames=8, published=True)
    wires = Wires(dut, lossy({missing}), rng, start=[3, 3])
    words = [rng.getrandbits(32) for _ in range(16 * 6)]
    log = simulate(
        dut,
        drive={"end0.i": transfers(words, 8)},
        collect={"end1.o": 2 * missing} if missing else {},
        stall=0.0,
        settings={f"end{k}.job": job(k, timeout=60) for k in range(2)},
        processes=[wires.process],
        seed=0,
        idle=300,
        limit=600,
    )
    if missing:
        assert flat(log["end1.o"]) == words[: 16 * missing]
    assert wires.failed[1][1] == LinkFailure.LOSS.value
    sent = [decode_connection(s.frame) for s in wires.sent if s.link == 0]
    numbers = [f.sequence for f in sent if f.kind == LinkKind.DATA]
    assert numbers == sorted(set(numbers))
    assert LinkKind.NAK not in wires_kinds(wires, 1)


def wires_kinds(wires, link):
    return {decode_connection(s.frame).kind for s in wires.sent if s.link == link}


def test_published_mode_delivers_all_over_a_good_network_with_a_slow_consumer():
    rng = random.Random(1)
    dut = Ends((8, 4), row=16, rows=2, data_width=256, frames=2, published=True)
    wires = Wires(dut, straight, rng, start=[3, 90], pause=0.2)
    exchange(dut, wires, row=16, rows=2, count=10, rng=rng, stall={"end1.o": 0.8})
    assert wires.counts[0]["retransmitted"] == wires.counts[1]["retransmitted"] == 0
