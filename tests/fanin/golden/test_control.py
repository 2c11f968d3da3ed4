"""The model of a board's answers: what scapy asks and reads, leases, and each request carried out once."""

import itertools
import random
import time
import zlib

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether

from fanin.golden.control import BoardModel, Destination, destination
from fanin.wire.arp import Operation, encode_arp
from fanin.wire.control import (
    CONTROL_PORT,
    ControlFrame,
    Kind,
    Status,
    decode_control,
    encode_control,
    hello_request,
)
from fanin.wire.ethernet import Endpoint, encode_udp, internet_checksum
from fanin.wire.icmp import EchoType, encode_echo
from tests.fuzzing import Memory, Mutator, lengths, new_random, within
from tests.support import new_seed

HOST = Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01, 5555)
OTHER = Endpoint(0x02_00_00_00_00_02, 0x0A_00_00_02, 6666)
OWN = Endpoint(0x02_00_00_00_00_99, 0x0A_00_00_99, CONTROL_PORT)
TO_US = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:99") / IP(src="10.0.0.1", dst="10.0.0.153")
ABOUT = (0x0001_0005, 7, 8, 9)
#: Requests that say what cannot be: kind, words and header.
MALFORMED = [
    (Kind.ACCESS, (1, 2), {"count": 2}),
    (Kind.ACCESS, (), {"version": 1}),
    (Kind.ACCESS, (), {"version": 3}),
    (Kind.ACCESS, (), {"lease": 0}),
    (6, (), {}),
    (15, (), {}),
    (Kind.LOAD, (1, 2), {"count": 2}),
    (Kind.DUMP, (1,), {"count": 365}),
    (Kind.CHECKSUM, (1, 65536), {}),
    (Kind.CHECKSUM, (1, 1), {"count": 1}),
    (Kind.HELLO, (), {}),
    (Kind.HELLO, (), {"version": 1}),
    (Kind.HELLO, (0,) * 5, {}),
    (Kind.HELLO, (0,) * 7, {}),
    (Kind.HELLO, (0,) * 6, {"count": 6}),
    (Kind.RELEASE, (), {"count": 1}),
    (Kind.ACCESS, (1, 2, 3), {"count": 1}),
    (Kind.ACCESS, (1, 2), {"count": 257}),
    (Kind.LOAD, (1, 2), {"count": 513}),
    (Kind.DUMP, (1, 2), {"count": 1}),
    (Kind.CHECKSUM, (1,), {}),
    (Kind.CHECKSUM, (1, 0x8000_0001), {}),
]


def board(bus=None, **parameters):
    """A board whose first offer is 5, the next one 6, and so on."""
    draw = itertools.count(5).__next__
    return BoardModel({} if bus is None else bus, own=OWN, about=lambda: ABOUT, draw=draw, **parameters)


def offered(bus=None, **parameters):
    """A board that has offered lease 5 to HOST."""
    model = board(bus, **parameters)
    assert hello(model) == (0, 5)
    model.counters.clear()
    return model


def hello(model, host=HOST, now=0.0):
    """The holder, and the offer."""
    status, (holder, *about, offer) = said(model, Kind.HELLO, 0, *[0] * 6, lease=0, host=host, now=now)
    assert (status, tuple(about)) == (Status.DONE, ABOUT)
    return holder, offer


def ask(model, kind, sequence, *words, lease=5, count=None, now=0.0, host=HOST, **header):
    """Send a request; the reply, or None."""
    count = len(words) // 2 if count is None and kind is Kind.ACCESS else count or 0
    frame = ControlFrame(kind, lease, sequence, count, words, **header)
    sent = encode_udp(encode_control(frame), source=host, destination=OWN)
    assert destination(sent, OWN) is Destination.BOARD
    reply = model.answer(sent, now)
    if reply is None:
        return None
    read = Ether(reply)
    del read[IP].chksum
    assert bytes(read) == reply
    assert (read[UDP].sport, read[UDP].dport, read[UDP].chksum) == (CONTROL_PORT, host.port, 0)
    return decode_control(bytes(read[UDP].payload))


def said(model, *arguments, **options):
    reply = ask(model, *arguments, **options)
    return reply and (reply.status, reply.words)


class Window:
    """A bus whose every access has an effect."""

    def __init__(self):
        self.log = []

    def __getitem__(self, address):
        if address >= 0x100:
            raise KeyError(address)
        self.log.append(address)
        return len(self.log)

    def __setitem__(self, address, data):
        self[address]
        self.log[-1] = (address, data)


def test_arp_for_our_address_is_answered_and_no_other():
    model = board()
    for target, answered in (("10.0.0.153", True), ("10.0.0.154", False)):
        request = bytes(
            Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:01")
            / ARP(hwsrc="02:00:00:00:00:01", psrc="10.0.0.1", pdst=target)
        )
        assert destination(request, OWN) is Destination.BOARD
        reply = model.answer(request.ljust(60, b"\0"), 0)
        assert (reply is not None) is answered
        if reply:
            read = Ether(reply)
            assert read.dst == "02:00:00:00:00:01"
            assert (read[ARP].op, read[ARP].hwsrc, read[ARP].psrc) == (2, "02:00:00:00:00:99", "10.0.0.153")
            assert (read[ARP].hwdst, read[ARP].pdst) == ("02:00:00:00:00:01", "10.0.0.1")


@pytest.mark.parametrize("size", [0, 1, 55, 56, 1472])
def test_ping_is_answered_with_right_checksums(size):
    request = bytes(TO_US / ICMP(id=3, seq=size) / bytes(n % 251 for n in range(size)))
    assert destination(request, OWN) is Destination.BOARD
    reply = board().answer(request.ljust(60, b"\0"), 0)
    read = Ether(reply)
    for layer in IP, ICMP:
        del read[layer].chksum
    assert bytes(read) == reply
    assert (read[ICMP].type, read[ICMP].id, read[ICMP].seq) == (0, 3, size)
    assert bytes(read[ICMP].payload) == bytes(n % 251 for n in range(size))


@pytest.mark.parametrize(
    ("packet", "whose"),
    [
        (TO_US / UDP(dport=34997), Destination.NODE),
        (TO_US / ICMP(type=0), Destination.NODE),
        (Ether(dst="02:00:00:00:00:99", type=0x88B5), Destination.NODE),
        (Ether(dst="ff:ff:ff:ff:ff:ff", type=0x88B5), Destination.NODE),
        (Ether(dst="02:00:00:00:00:98", type=0x0806), Destination.NOBODY),
        (TO_US / UDP(dport=CONTROL_PORT), Destination.BOARD),
        (Ether(dst="ff:ff:ff:ff:ff:ff") / IP(dst="10.0.0.153") / UDP(dport=CONTROL_PORT), Destination.NODE),
        (Ether(dst="02:00:00:00:00:99") / IP(dst="10.0.0.15") / UDP(dport=CONTROL_PORT), Destination.NODE),
        (
            Ether(dst="02:00:00:00:00:99") / IP(dst="10.0.0.153", frag=1) / UDP(dport=CONTROL_PORT),
            Destination.NODE,
        ),
    ],
)
def test_frames_go_where_they_belong(packet, whose):
    assert destination(bytes(packet).ljust(60, b"\0"), OWN) is whose


def test_accesses_are_carried_out_in_order_and_once():
    bus = Window()
    model = offered(bus)
    words = (0x10, 0, 0x15, 77, 0x10, 0)
    for _ in range(3):
        assert said(model, Kind.ACCESS, 1, *words) == (Status.DONE, (1, 3))
    assert bus.log == [0x10, (0x14, 77), 0x10]
    assert said(model, Kind.ACCESS, 2, 0x10, 0) == (Status.DONE, (4,))
    assert said(model, Kind.ACCESS, 1, *words) is None
    assert len(bus.log) == 4
    assert model.counters == {"requests": 2, "repeats": 2, "stale": 1}


def test_memory_is_loaded_dumped_and_checked():
    bus = {}
    model = offered(bus)
    assert said(model, Kind.LOAD, 1, 0x1000, 1, 2, 3, count=3) == (Status.DONE, ())
    assert bus == {0x1000: 1, 0x1004: 2, 0x1008: 3}
    assert said(model, Kind.DUMP, 2, 0x1004, count=2) == (Status.DONE, (2, 3))
    assert said(model, Kind.CHECKSUM, 3, 0x1000, 3) == (Status.DONE, (zlib.crc32(b"\1\0\0\0\2\0\0\0\3\0\0\0"),))
    assert said(model, Kind.DUMP, 4, 0x1004, count=3) == (Status.BUS, (0x100C,))


def test_what_follows_a_bus_error_is_not_done():
    bus = Window()
    model = offered(bus)
    assert said(model, Kind.ACCESS, 1, 5, 1, 0x105, 2, 9, 3) == (Status.BUS, (0x104,))
    assert bus.log == [(4, 1)]


def test_one_lease_holds_the_board_until_it_lets_go_or_is_silent():
    model = board()
    seconds = model.lease_time
    held = (Status.HELD, ())
    assert hello(model) == (0, 5)
    assert said(model, Kind.ACCESS, 1) == (Status.DONE, ())
    assert hello(model, OTHER) == (HOST.ip, 6)
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER, now=seconds - 1) == held
    assert said(model, Kind.ACCESS, 2, now=seconds - 1) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER, now=2 * seconds - 2) == held
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER, now=2 * seconds) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 3, now=2 * seconds) == held
    assert hello(model, now=2 * seconds) == (OTHER.ip, 7)
    assert said(model, Kind.RELEASE, 2, lease=6, host=OTHER, now=2 * seconds) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 3, now=2 * seconds) == (Status.UNKNOWN, ())
    assert said(model, Kind.RELEASE, 2, lease=6, host=OTHER, now=2 * seconds) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 1, lease=7, now=2 * seconds) == (Status.DONE, ())


UNKNOWN = (Status.UNKNOWN, ())
SPOOFED = Endpoint(OTHER.mac, HOST.ip, HOST.port)
STOLEN_MAC = Endpoint(HOST.mac, OTHER.ip, HOST.port)


@pytest.mark.parametrize("host", [OTHER, SPOOFED, STOLEN_MAC])
def test_an_offer_is_for_its_address_alone(host):
    model = offered()
    assert said(model, Kind.ACCESS, 1, host=host) == UNKNOWN
    assert said(model, Kind.ACCESS, 1, lease=6) == UNKNOWN
    assert said(model, Kind.ACCESS, 2) == UNKNOWN
    assert model.holder(0) == 0
    assert said(model, Kind.ACCESS, 1) == (Status.DONE, ())
    assert model.offer is None
    assert model.counters == {"refused": 3, "requests": 1}


def test_another_port_of_the_host_is_the_same_host():
    model = offered()
    for sequence, port in ((1, 9), (2, 10)):
        request = encode_control(ControlFrame(Kind.ACCESS, 5, sequence))
        reply = decode_control(model.control(request, Endpoint(HOST.mac, HOST.ip, port), 0))
        assert reply.status == Status.DONE


@pytest.mark.parametrize("host", [HOST, OTHER])
def test_the_next_hello_ends_an_offer_and_a_lease_uses_one_up(host):
    model = offered()
    assert hello(model, host) == (0, 6)
    assert said(model, Kind.ACCESS, 1) == UNKNOWN
    assert said(model, Kind.RELEASE, 1, lease=6, host=host) == (Status.DONE, ())
    assert hello(model, host) == (0, 7)
    assert said(model, Kind.RELEASE, 1, lease=7, host=host) == (Status.DONE, ())
    assert said(model, Kind.RELEASE, 1, lease=6, host=host) == UNKNOWN  # a copy that comes late
    assert said(model, Kind.RELEASE, 1, lease=7, host=host) == (Status.DONE, ())
    assert model.holder(0) == 0


def test_an_offer_is_not_0_and_not_the_last_lease():
    numbers = iter([0, 5, 5, 0, 5, 8])
    model = BoardModel({}, own=OWN, about=lambda: ABOUT, draw=numbers.__next__)
    assert hello(model) == (0, 5)
    assert said(model, Kind.ACCESS, 1) == (Status.DONE, ())
    assert hello(model) == (HOST.ip, 8)


@pytest.mark.parametrize("host", [OTHER, SPOOFED, STOLEN_MAC])
def test_a_lease_is_worth_nothing_at_another_address(host):
    """A host that has read the number neither reads, nor writes, nor releases, nor keeps the lease alive."""
    bus = {0x10: 1}
    model = offered(bus)
    assert said(model, Kind.ACCESS, 1, 0x10, 0) == (Status.DONE, (1,))
    for sequence in (1, 2):
        for kind, words in ((Kind.ACCESS, (0x11, 9)), (Kind.RELEASE, ()), (Kind.DUMP, (0x10,))):
            count = 1 if kind is Kind.DUMP else None
            assert said(model, kind, sequence, *words, count=count, host=host, now=30.0) is None
    assert bus == {0x10: 1}
    assert model.holder(59.9) == HOST.ip
    assert model.holder(60) == 0
    assert said(model, Kind.ACCESS, 2, host=host, now=60) is None
    assert model.counters == {"requests": 1, "refused": 7}
    assert said(model, Kind.ACCESS, 2, now=61) == (Status.DONE, ())


def test_a_first_request_whose_reply_was_lost_is_answered_again_whoever_says_hello():
    bus = Window()
    model = offered(bus)
    assert said(model, Kind.ACCESS, 1, 0x10, 0) == (Status.DONE, (1,))
    assert hello(model, OTHER) == (HOST.ip, 6)
    assert said(model, Kind.ACCESS, 1, 0x10, 0) == (Status.DONE, (1,))
    assert bus.log == [0x10]
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER) == (Status.HELD, ())
    assert said(model, Kind.RELEASE, 2) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER) == (Status.DONE, ())


def test_a_board_that_was_reset_has_no_offer_and_no_lease():
    before = offered()
    assert said(before, Kind.ACCESS, 1) == (Status.DONE, ())
    after = board()
    assert said(after, Kind.ACCESS, 1) == UNKNOWN
    assert said(after, Kind.ACCESS, 2) == UNKNOWN


#: A well-formed request of each kind: count and words.
FITTING = {
    Kind.HELLO: (0, (0,) * 6),
    Kind.ACCESS: (1, (4, 0)),
    Kind.LOAD: (1, (4, 5)),
    Kind.DUMP: (364, (4,)),
    Kind.CHECKSUM: (0, (4, 9)),
    Kind.RELEASE: (0, ()),
}


def guesses(rng, leases):
    """Requests of a host that has seen no reply: each kind well-formed and malformed, then any."""
    for kind, (count, words) in FITTING.items():
        yield encode_control(ControlFrame(kind, 8, 1, count, words))
        yield encode_control(ControlFrame(kind, 8, 1, count, (*words, 0)))
    for _ in range(60):
        kind = rng.choice((*Kind, 6, 15))
        count, words = FITTING.get(kind, (0, ()))
        count = rng.choice((count, count, 0, 1, 2, 364, 365, 0xFFFF))
        words = rng.choice((words, words, (4,) * count)) if count < 365 else words
        sequence = rng.choice((0, 1, 1, 1, 2, 3, rng.getrandbits(32)))
        version, status = rng.choice((2, 2, 2, 1)), rng.choice((0, 0, 0, 0, 0, 0, 1))
        lease = rng.choice(leases)
        frame = ControlFrame(kind, lease, sequence, count, words[:364], status, version=version)
        yield encode_control(frame)[: rng.choice((None, None, None, None, None, -1, -2, 13, 5))]


@pytest.mark.parametrize("state", ["fresh", "free", "held", "released"])
def test_no_reply_to_an_address_that_has_proved_nothing_is_longer_than_its_request(state):
    """Whatever the kind, and whatever is said to it; and nothing is done."""
    rng = random.Random(new_seed())
    seen = set()
    for _ in range(8):
        model = board(Window()) if state == "fresh" else offered(Window())
        if state in ("held", "released"):
            assert said(model, Kind.DUMP, 1, 4, count=40) == (Status.DONE, tuple(range(1, 41)))
        if state == "released":
            assert said(model, Kind.RELEASE, 2) == (Status.DONE, ())
        log = list(model.bus.log)
        for payload in guesses(rng, (0, 1, 5, 0xFFFF_FFFF)):
            model.draw = lambda: rng.getrandbits(32) | 0x1000_0000
            reply = model.control(payload, rng.choice((OTHER, SPOOFED, STOLEN_MAC)), 0.0)
            if reply is not None:
                assert len(reply) <= len(payload)
                frame = decode_control(reply)
                seen.add((frame.kind, frame.status))
        assert model.bus.log == log
        assert model.holder(0) == (HOST.ip if state == "held" else 0)
    refusal = Status.HELD if state == "held" else Status.UNKNOWN
    leased = set(Kind) - {Kind.HELLO}
    assert seen >= {(kind, refusal) for kind in leased} | {(Kind.HELLO, Status.DONE)}
    assert seen >= {(kind, Status.MALFORMED) for kind in Kind}


def test_sequence_numbers_wrap():
    model = offered()
    assert said(model, Kind.ACCESS, 1) == (Status.DONE, ())
    model._sequence = (1 << 32) - 1
    assert said(model, Kind.ACCESS, 0) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, (1 << 32) - 1) is None


@pytest.mark.parametrize(("kind", "words", "header"), MALFORMED)
def test_what_is_malformed_says_so_and_does_nothing(kind, words, header):
    model = board()
    assert said(model, kind, 1, *words, **header) == (Status.MALFORMED, ())
    assert model.holder(0) == 0
    assert model.counters == {"malformed": 1}


def test_a_hello_of_version_1_is_malformed_and_the_reply_says_version_2():
    hello_1 = bytes.fromhex("fa171000" + "00000000" + "00000001" + "0000")
    assert board().control(hello_1, HOST, 0) == bytes.fromhex("fa172003" + "00000000" + "00000001" + "0000")


def test_a_reply_and_what_is_none_of_ours_is_not_answered():
    model = board()
    assert said(model, Kind.HELLO, 1, status=Status.DONE) is None
    assert said(model, Kind.HELLO, 1, magic=0xFA18) is None
    good = encode_udp(encode_control(hello_request(0)), source=HOST, destination=OWN)
    for at, value in ((17, 1), (24, 0xFF), (39, 1), (17, 0xFF)):
        assert model.answer(good[:at] + bytes([value]) + good[at + 1 :], 0) is None
    assert model.counters == {"malformed": 6}


ANSWER = 0.5  # seconds of processor time for a frame
GROWTH = 40_000  # kB


class Storage(dict):
    """A bus of memory that notes whether it was touched."""

    touched = False

    def __getitem__(self, address):
        self.touched = True
        if address >= 1 << 20:
            raise KeyError(address)
        return self.get(address, 0)

    def __setitem__(self, address, data):
        self.touched = True
        if address >= 1 << 20:
            raise KeyError(address)
        super().__setitem__(address & 0xFFC, data)


def valid_frames(lease, sequence, host=HOST, own=OWN):
    """Frames of all kinds that a board answers; ``lease`` and ``sequence`` are of the requests."""
    for kind, (count, words) in FITTING.items():
        frame = ControlFrame(kind, lease, sequence, count, words)
        yield encode_udp(encode_control(frame), source=host, destination=own)
    yield encode_arp(Operation.REQUEST, sender=host, target=Endpoint(0, own.ip)).ljust(60, b"\0")
    yield encode_echo(EchoType.REQUEST, bytes(56), identifier=1, sequence=2, source=host, destination=own)


def repaired(frame):
    """The frame with lengths and checksum of IPv4 and UDP made right: what was damaged is then looked at."""
    whole = bytearray(frame.ljust(42, b"\0"))
    whole[16:18] = (len(whole) - 14).to_bytes(2, "big")
    whole[38:40] = (len(whole) - 34).to_bytes(2, "big")
    whole[24:26] = bytes(2)
    whole[24:26] = internet_checksum(bytes(whole[14:34])).to_bytes(2, "big")
    return bytes(whole)


def damaged_frame(rng, mutator, own=OWN):
    """A frame with damage of any kind, to the board's own MAC and IPv4 address most often."""
    frame = mutator.message()
    if rng.random() < 0.6:
        frame = repaired(frame)
    if rng.random() < 0.5:
        frame = own.mac.to_bytes(6, "big") + frame[6:]
    return frame


@lengths(rounds=600)
def test_damaged_frames_do_nothing_that_their_sender_may_not(length):
    rng = new_random()
    bus = Storage()
    model, now = board(bus), 0.0
    assert hello(model) == (0, 5)
    memory = Memory()
    for number in length.each():
        if number % 50 == 0:  # requests that fit the board as it stands
            lease, sequence = (model.offer.lease, 1) if model.offer else (model.lease, model._sequence + 1)
            samples = [f for host in (HOST, OTHER) for f in valid_frames(lease, sequence % (1 << 32), host)]
            mutator = Mutator(rng, samples, longest=2000)
        frame, bus.touched = damaged_frame(rng, mutator), False
        now += rng.choice((0.0, 0.1, 30.0))
        with within(ANSWER, time.thread_time):
            whose = destination(frame, OWN)
            reply = model.answer(frame, now) if whose is Destination.BOARD else None
        sender = Endpoint(int.from_bytes(frame[6:12], "big"), int.from_bytes(frame[26:30], "big"), 0)
        if bus.touched:
            assert sender == model._host
        if reply is not None:
            assert len(reply) <= max(60, len(frame)) or sender == model._host
            assert reply[6:12] == OWN.mac.to_bytes(6, "big")
            assert reply[12:14] != b"\x08\x00" or internet_checksum(reply[14:34]) == 0
            if whose is Destination.BOARD and reply[12:14] == b"\x08\x00" and reply[23] == 17:
                assert decode_control(reply[42:]).status in set(Status) - {Status.REQUEST}
    assert memory.growth < GROWTH
    now += 2 * model.lease_time
    assert said(model, Kind.ACCESS, 1, 0x11, 7, lease=hello(model, now=now)[1], now=now) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 2, 0x10, 0, lease=model.lease, now=now) == (Status.DONE, (7,))
