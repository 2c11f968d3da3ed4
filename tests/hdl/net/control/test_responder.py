"""The responder in RTL against the golden model: any requests, in any order, whatever stalls."""

import random
from dataclasses import replace

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from fanin.golden.control import MIN_FRAME
from fanin.wire.arp import Operation, encode_arp
from fanin.wire.control import MAX_DUMP, MAX_FRAME, MAX_LOAD, MAX_OPERATIONS, Kind, Status, decode_control
from fanin.wire.ethernet import Endpoint, encode_udp
from fanin.wire.icmp import EchoType, encode_echo
from tests.fanin.golden.test_control import MALFORMED, damaged_frame, valid_frames
from tests.fuzzing import Mutator, lengths, new_random
from tests.hdl.net.control.bench import (
    ABOUT,
    HOLE,
    MAX_LEASE,
    OWN,
    WINDOW,
    Bus,
    Expected,
    Slave,
    control_frame,
    hello,
    host,
    latency,
    offer_of,
    run,
    talk,
)
from tests.support import new_seed, slow


class Hosts:
    """Three hosts that know how the board stands, and what goes wrong on their way to it.

    Now and then one of them uses the offer or the lease of another, or the MAC address of another.
    """

    def __init__(self, rng):
        self.rng = rng
        self.board = Expected()
        self.sent = []

    def frame(self):
        """Any frame: a new request mostly, an old one, a damaged one, or other traffic."""
        frame = self._frame()
        self.board.add(frame)
        return frame

    def _frame(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return self.other()
        if self.sent and kind < 0.35:
            return rng.choice(self.sent[-3:])
        frame = self.request()
        if kind < 0.45:
            return self.damaged(frame)
        self.sent.append(frame)
        return frame

    def request(self):
        """Most often of the host that holds the board, or of one that finds it free."""
        rng, model, offer = self.rng, self.board.model, self.board.offer
        free = not model.holder(0)
        if rng.random() < (0.7 if free and offer is None else 0.1):
            return hello(rng.getrandbits(32), lease=rng.choice((0, 9, model.lease)), source=rng.randrange(3))
        lease, sequence, owner = model.lease, model._sequence + rng.choice((1, 1, 1, 1, 2, 0)), model._host
        if offer is not None and rng.random() < (0.9 if free else 0.2):
            lease, sequence, owner = offer.lease, rng.choice((1, 1, 1, 1, 1, 2)), offer.host
        elif not lease or rng.random() < 0.1:
            lease, sequence, owner = rng.getrandbits(32) | 1, rng.choice((1, 1, 1, 2)), host(0)
        kinds = (self.access, self.access, self.access, self.load, self.dump, self.checksum)
        make = self.release if rng.random() < 0.05 else rng.choice(kinds)
        kind, count, words = make()
        return control_frame(kind, sequence, *words, count=count, lease=lease, source=self.source(owner))

    def source(self, owner):
        """The owner of a lease, as others may know it; one time of ten another address."""
        rng = self.rng
        if rng.random() < 0.9:
            return owner
        other = host(rng.randrange(3))
        return rng.choice((other, replace(owner, mac=other.mac), replace(owner, ip=other.ip)))

    def address(self):
        rng = self.rng
        places = (WINDOW, WINDOW, WINDOW, 4 * rng.getrandbits(4), rng.getrandbits(31))
        return HOLE if rng.random() < 0.05 else rng.choice(places)

    def access(self):
        rng = self.rng
        count = rng.choice((0, 1, 2, 5))
        pairs = [(self.address() & ~1 | rng.getrandbits(1), rng.getrandbits(32)) for _ in range(count)]
        return Kind.ACCESS, count, [word for pair in pairs for word in pair]

    def load(self):
        count = self.rng.choice((0, 1, 7))
        return Kind.LOAD, count, [self.address(), *(self.rng.getrandbits(32) for _ in range(count))]

    def dump(self):
        return Kind.DUMP, self.rng.choice((0, 1, 2, 9, MAX_DUMP + 1)), [self.address()]

    def checksum(self):
        return Kind.CHECKSUM, 0, [self.address(), self.rng.choice((0, 1, 6, 65536))]

    def release(self):
        return Kind.RELEASE, 0, []

    def damaged(self, frame):
        """A byte changed, most often of a header; or cut off, or with something behind."""
        rng = self.rng
        what = rng.random()
        if what < 0.6:
            at = rng.randrange(min(len(frame), 64))
            return frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]
        if what < 0.8:
            return frame[: rng.randint(37, len(frame))]
        return frame + bytes(rng.randint(1, 9))

    def other(self):
        rng = self.rng
        who, data = host(rng.randrange(3)), rng.randbytes(rng.choice((0, 1, 2, 3, 55, 56)))
        return rng.choice(
            (
                encode_arp(Operation.REQUEST, sender=who, target=Endpoint(0, OWN.ip ^ rng.getrandbits(1))),
                encode_arp(Operation.REPLY, sender=who, target=OWN),
                encode_echo(EchoType.REQUEST, data, identifier=1, sequence=2, source=who, destination=OWN),
                encode_echo(EchoType.REPLY, data, identifier=1, sequence=2, source=who, destination=OWN),
                encode_udp(data, source=who, destination=replace(OWN, port=34997)),
                encode_udp(data, source=who, destination=OWN),
                encode_udp(data, source=who, destination=replace(OWN, mac=OWN.mac ^ 0x100)),
            )
        ).ljust(rng.choice((0, 60)), b"\0")


def check(groups, expected, *, seed, **options):
    """Run a trace through RTL as well as the model, and compare all that can be seen."""
    bus = Bus()
    out, counted = run(groups, expected, bus=bus, seed=seed, **{"lease_cycles": MAX_LEASE} | options)
    assert out["o"] == expected.replies
    assert out["node"] == expected.node
    assert bus.log == expected.bus.log
    assert {name: count for name, count in counted.items() if count} == dict(expected.model.counters)


@pytest.mark.parametrize(("stall", "groups"), [(0.0, 30), (0.3, 30), *slow((0.0, 200), (0.3, 200), (0.1, 200))])
def test_any_trace_has_the_model_s_replies_and_accesses(stall, groups):
    seed = new_seed()
    rng = random.Random(seed)
    hosts = Hosts(rng)

    def trace():
        yield [hosts.board.add(hello(0))]
        for _ in range(groups):
            yield [hosts.frame() for _ in range(rng.choice((1, 2)))]
        yield [hosts.board.add(hello(1))]

    check(trace(), hosts.board, seed=seed, stall=stall, limit=20_000 + 2_000 * groups)
    assert {"requests", "repeats", "refused"} <= hosts.board.model.counters.keys()


KIND_AT, COUNT_AT = 44, 60  # of a frame: byte with the kind; words of a checksum
MAX_WORDS = 500  # of a damaged checksum


def damaged_trace(rng, expected, groups):
    """Groups of frames with damage of any kind, requests that fit the board as it stands among them."""
    yield [expected.add(hello(0))]
    for _ in range(groups):
        model, offer = expected.model, expected.offer
        lease, sequence, owner = (
            (offer.lease, 1, offer.host) if offer else (model.lease, model._sequence + 1, model._host)
        )
        source = replace(owner, port=host(0).port)
        samples = list(valid_frames(lease, sequence % (1 << 32), source, own=OWN))
        mutator = Mutator(rng, samples, longest=MAX_FRAME)
        frame = rng.choice(samples) if rng.random() < 0.2 else damaged_frame(rng, mutator, OWN)
        frame = frame[:MAX_FRAME].ljust(MIN_FRAME, b"\0")
        header = frame.ljust(COUNT_AT + 4, b"\0")
        if (
            header[KIND_AT] & 15 == Kind.CHECKSUM
            and int.from_bytes(header[COUNT_AT : COUNT_AT + 4]) > MAX_WORDS
        ):
            frame = samples[0]  # a checksum of 65,535 words takes a minute of simulation
        yield [expected.add(frame)]
    yield [expected.add(hello(1))]


@lengths(rounds=1)
def test_damaged_frames_have_the_model_s_replies_and_accesses(length):
    """The model's own fuzzer asserts what a sender may do; here RTL does the same as the model."""
    rng = new_random()
    groups = 3 if length.rounds else 40
    for _ in length.each():
        expected = Expected()
        trace = damaged_trace(rng, expected, groups)
        seed = rng.getrandbits(32)
        check(trace, expected, seed=seed, stall=rng.choice((0.0, 0.2)), limit=20_000 + 3_000 * groups)


@pytest.mark.parametrize("longest", [("load", "dump"), *slow((("access",),), (("echo",),))])
def test_the_longest_requests_and_replies_fit(longest):
    rng = random.Random(1)
    words = [rng.getrandbits(32) for _ in range(MAX_DUMP)]
    pairs = [word if n % 2 else word & 0xFFE for n, word in enumerate(words)]
    echo = encode_echo(
        EchoType.REQUEST, rng.randbytes(1472), identifier=1, sequence=2, source=host(0), destination=OWN
    )
    expected = Expected()

    def trace():
        yield [expected.add(hello(0))]
        lease = expected.offer.lease
        frames = {
            "access": control_frame(Kind.ACCESS, 1, *pairs, count=MAX_OPERATIONS, lease=lease),
            "load": control_frame(Kind.LOAD, 1, 0x400, *words[:MAX_LOAD], count=MAX_LOAD, lease=lease),
            "dump": control_frame(Kind.DUMP, 2, 0x400, count=MAX_DUMP, lease=lease),
            "echo": echo,
        }
        for name in longest:
            yield [expected.add(frames[name])]

    sizes = {"access": 56 + 4 * MAX_OPERATIONS, "load": 56, "dump": 1512, "echo": 1514}
    check(trace(), expected, seed=1, stall=0, patience=0)
    assert [len(reply) for reply in expected.replies[1:]] == [sizes[name] for name in longest]


def test_a_frame_longer_than_ethernet_s_is_dropped_and_nothing_behind_it_is_lost():
    frames = [hello(n) for n in range(3)]
    long = [frames[1] + bytes(1515 - len(frames[1])), frames[1] + bytes(1800)]
    fits = frames[1] + bytes(1514 - len(frames[1]))
    expected = Expected()

    def trace():
        yield [expected.add(frames[0])]
        yield [long[0]]
        yield [long[1]]
        yield [expected.add(fits)]
        yield [expected.add(frames[2])]

    out, counted = run(trace(), expected, bus=Bus(), lease_cycles=MAX_LEASE)
    assert out["o"] == expected.replies
    assert (counted["dropped"], counted["requests"]) == (2, 3)


def test_what_finds_no_room_is_dropped_and_all_else_is_answered():
    """Five frames back to back, while the first waits for a slow bus: two are kept, and the rest is lost."""
    hellos = [hello(n) for n in range(5)]
    expected = Expected()

    def trace():
        yield [expected.add(hellos[4])]
        slow = control_frame(Kind.DUMP, 1, 0x400, count=40, lease=expected.offer.lease)
        yield [expected.add(slow), expected.add(hellos[0]), hellos[1], hellos[2]]
        yield [expected.add(hellos[3])]

    out, counted = run(trace(), expected, bus=Bus(), stall=0, lease_cycles=MAX_LEASE)
    assert out["o"] == expected.replies
    assert counted["dropped"] == 2


@pytest.mark.parametrize(
    ("sent", "cycles"), [("arp", 29), ("echo", 29), ("hello", 29), ("repeat", 29), ("new", 34)]
)
def test_latency_is_that_of_the_docstring(sent, cycles):
    frames = {
        "arp": encode_arp(Operation.REQUEST, sender=host(0), target=OWN),
        "echo": encode_echo(
            EchoType.REQUEST, bytes(20), identifier=1, sequence=2, source=host(0), destination=OWN
        ),
        "hello": hello(5),
        "repeat": lambda offers: control_frame(Kind.ACCESS, 1, lease=offers[0]),
        "new": lambda offers: control_frame(Kind.ACCESS, 2, lease=offers[0]),
    }
    assert latency([hello(4), frames["repeat"], frames[sent]]) == cycles


@pytest.mark.parametrize("stall", [0.3])
def test_scapy_s_requests_are_answered_and_it_agrees_with_the_checksums(stall):
    us = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:12:99"}
    ip = IP(src="10.1.2.1", dst="10.1.2.153", ttl=3, id=77, flags="DF", tos=4)
    payload = hello(5, lease=9)[42:]
    frames = [
        bytes(packet).ljust(60, b"\0")
        for packet in (
            Ether(src=us["src"], dst="ff:ff:ff:ff:ff:ff")
            / ARP(hwsrc=us["src"], psrc="10.1.2.1", pdst="10.1.2.153"),
            Ether(**us) / ip / ICMP(id=3, seq=4) / Raw(b"fanin"),
            Ether(**us) / ip / UDP(sport=5, dport=34998) / Raw(payload),
        )
    ]
    expected = Expected()
    trace = ([expected.add(frame)] for frame in frames)
    out, _ = run(trace, expected, bus=Bus(), stall=stall, lease_cycles=MAX_LEASE)
    assert out["o"] == expected.replies
    arp, echo, control = (Ether(reply) for reply in out["o"])
    assert (arp.dst, arp[ARP].op, arp[ARP].hwsrc) == (us["src"], 2, us["dst"])
    assert (echo.dst, echo[IP].dst, echo[IP].ttl) == (us["src"], "10.1.2.1", 64)
    assert (echo[ICMP].type, echo[ICMP].id, echo[ICMP].seq, bytes(echo[Raw])) == (0, 3, 4, b"fanin")
    assert (control[UDP].sport, control[UDP].dport) == (34998, 5)
    assert decode_control(bytes(control[UDP].payload)).words == (0, *ABOUT, *expected.offers)
    for read, reply, layers in ((echo, out["o"][1], (IP, ICMP)), (control, out["o"][2], (IP,))):
        for layer in layers:
            del read[layer].chksum
        assert bytes(read) == reply


def test_what_is_malformed_says_so_and_what_is_just_right_does_not():
    """The model's list; then the largest counts that fit, whose accesses the bus refuses."""
    frames = [hello(0)]
    frames += [control_frame(kind, 1, *words, **{"lease": 1} | header) for kind, words, header in MALFORMED]
    right = [(Kind.DUMP, (HOLE,), MAX_DUMP), (Kind.CHECKSUM, (HOLE, 65535), 0), (Kind.ACCESS, (HOLE, 0), 1)]
    frames += [
        lambda offers, n=n, kind=kind, words=words, count=count: control_frame(
            kind, n, *words, count=count, lease=offers[0]
        )
        for n, (kind, words, count) in enumerate(right, 1)
    ]
    bus = Bus()

    async def refuse(ctx, axil):
        await Slave(axil, bus, patience=0).process(ctx)

    replies = talk(frames, refuse, gaps=(0,) * len(frames))
    expected = Expected(frames[:1])
    expected.show(replies)
    for frame in frames[1:]:
        expected.add(frame(expected.offers) if callable(frame) else frame)
    assert replies == expected.replies
    assert expected.model.counters == {"malformed": len(MALFORMED), "requests": 1 + len(right)}
    assert bus.log == expected.bus.log == [HOLE] * 3


def test_when_a_frame_came_decides_on_later_offers():
    """Two hellos, the second always in the same cycle; only the first one's time differs."""

    def offers(first):
        gaps = (first, 200 - first)
        return [offer_of(reply) for reply in talk([hello(0), hello(1)], None, gaps=gaps)]

    found = [offers(first)[1] for first in (0, 1, 2, 0)]
    assert found[0] == found[3]
    assert len(set(found)) == 3


def test_a_lease_ends_in_silence_and_not_before():
    """A second host is refused as long as the first is heard, and gets the board when that has been silent."""

    def first(n):
        return lambda offers: control_frame(Kind.ACCESS, n, lease=offers[0])

    def second(offers):
        return control_frame(Kind.ACCESS, 1, lease=offers[1], source=host(1))

    trace = [(hello(0), 0), (first(1), 0), (hello(0, source=1), 0), (second, 500), (first(2), 300)]
    trace += [(first(2), 600), (second, 900), (second, 100), (first(3), 0), (hello(0, source=2), 0)]
    frames, gaps = zip(*trace, strict=True)
    found = [decode_control(reply[42:]) for reply in talk(frames, None, gaps=gaps, lease_cycles=1000)]
    done, held = Status.DONE, Status.HELD
    assert [reply.status for reply in found] == [done, done, done, held, done, done, held, done, held, done]
    assert [reply.words[0] for reply in found if reply.words] == [0, host(0).ip, host(1).ip]


def test_a_bus_that_does_not_answer_ends_the_request_and_no_other():
    """The slave falls silent, then speaks again: its late answer is nobody's, and the next access works."""
    results = []

    async def slave(ctx, axil):
        for answer in (False, True):
            await ctx.tick().until(axil.arvalid)
            ctx.set(axil.arready, 1)
            await ctx.tick()
            ctx.set(axil.arready, 0)
            if not answer:
                await ctx.tick().repeat(600)
            ctx.set(axil.rdata, 0xBAD if not answer else 0x600D)
            ctx.set(axil.rvalid, 1)
            await ctx.tick().until(axil.rready)
            ctx.set(axil.rvalid, 0)

    frames = [
        lambda offers, n=n: control_frame(Kind.ACCESS, n, 4 * n, 0, count=1, lease=offers[0]) for n in (1, 2, 3)
    ]
    for reply in talk([hello(0), *frames], slave, gaps=(0, 0, 0, 600), bus_timeout=100)[1:]:
        found = decode_control(reply[42:])
        results.append((found.status, found.words))
    assert results == [(Status.BUS, (4,)), (Status.BUS, (8,)), (Status.DONE, (0x600D,))]
