"""The model of a board's answers: what scapy asks and reads, leases, and each request carried out once."""

import zlib

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether

from fanin.golden.control import BoardModel, Destination, destination
from fanin.wire.control import CONTROL_PORT, ControlFrame, Kind, Status, decode_control, encode_control
from fanin.wire.ethernet import Endpoint, encode_udp

HOST = Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01, 5555)
OTHER = Endpoint(0x02_00_00_00_00_02, 0x0A_00_00_02, 6666)
OWN = Endpoint(0x02_00_00_00_00_99, 0x0A_00_00_99, CONTROL_PORT)
TO_US = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:99") / IP(src="10.0.0.1", dst="10.0.0.153")
ABOUT = (0x0001_0005, 7, 8, 9)
#: Requests that say what cannot be: kind, words and header.
MALFORMED = [
    (Kind.ACCESS, (1, 2), {"count": 2}),
    (Kind.ACCESS, (), {"version": 2}),
    (Kind.ACCESS, (), {"lease": 0}),
    (6, (), {}),
    (15, (), {}),
    (Kind.LOAD, (1, 2), {"count": 2}),
    (Kind.DUMP, (1,), {"count": 365}),
    (Kind.CHECKSUM, (1, 65536), {}),
    (Kind.CHECKSUM, (1, 1), {"count": 1}),
    (Kind.HELLO, (1,), {}),
    (Kind.RELEASE, (), {"count": 1}),
    (Kind.ACCESS, (1, 2, 3), {"count": 1}),
    (Kind.ACCESS, (1, 2), {"count": 257}),
    (Kind.LOAD, (1, 2), {"count": 513}),
    (Kind.DUMP, (1, 2), {"count": 1}),
    (Kind.CHECKSUM, (1,), {}),
    (Kind.CHECKSUM, (1, 0x8000_0001), {}),
]


def board(bus=None, **parameters):
    return BoardModel({} if bus is None else bus, own=OWN, about=lambda: ABOUT, **parameters)


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
    model = board(bus)
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
    model = board(bus)
    assert said(model, Kind.LOAD, 1, 0x1000, 1, 2, 3, count=3) == (Status.DONE, ())
    assert bus == {0x1000: 1, 0x1004: 2, 0x1008: 3}
    assert said(model, Kind.DUMP, 2, 0x1004, count=2) == (Status.DONE, (2, 3))
    assert said(model, Kind.CHECKSUM, 3, 0x1000, 3) == (Status.DONE, (zlib.crc32(b"\1\0\0\0\2\0\0\0\3\0\0\0"),))
    assert said(model, Kind.DUMP, 4, 0x1004, count=3) == (Status.BUS, (0x100C,))


def test_what_follows_a_bus_error_is_not_done():
    bus = Window()
    model = board(bus)
    assert said(model, Kind.ACCESS, 1, 5, 1, 0x105, 2, 9, 3) == (Status.BUS, (0x104,))
    assert bus.log == [(4, 1)]


def test_one_lease_holds_the_board_until_it_lets_go_or_is_silent():
    model = board()
    seconds = model.lease_time
    held = (Status.HELD, (HOST.ip, *ABOUT))
    assert said(model, Kind.HELLO, 0, lease=0) == (Status.DONE, (0, *ABOUT))
    assert said(model, Kind.ACCESS, 1) == (Status.DONE, ())
    assert said(model, Kind.HELLO, 0, lease=0) == (Status.DONE, (HOST.ip, *ABOUT))
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER, now=seconds - 1) == held
    assert said(model, Kind.ACCESS, 2, now=seconds - 1) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER, now=2 * seconds - 2) == held
    assert said(model, Kind.ACCESS, 1, lease=6, host=OTHER, now=2 * seconds) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 3, now=2 * seconds) == (Status.HELD, (OTHER.ip, *ABOUT))
    assert said(model, Kind.RELEASE, 2, lease=6, host=OTHER, now=2 * seconds) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 3, now=2 * seconds) == (Status.UNKNOWN, ())
    assert said(model, Kind.RELEASE, 2, lease=6, host=OTHER, now=2 * seconds) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, 1, lease=9, now=2 * seconds) == (Status.DONE, ())


def test_sequence_numbers_wrap():
    model = board()
    model.lease, model._sequence = 5, (1 << 32) - 1
    assert said(model, Kind.ACCESS, 0) == (Status.DONE, ())
    assert said(model, Kind.ACCESS, (1 << 32) - 1) is None


@pytest.mark.parametrize(("kind", "words", "header"), MALFORMED)
def test_what_is_malformed_says_so_and_does_nothing(kind, words, header):
    model = board()
    assert said(model, kind, 1, *words, **header) == (Status.MALFORMED, ())
    assert model.holder(0) == 0
    assert model.counters == {"malformed": 1}


def test_a_reply_and_what_is_none_of_ours_is_not_answered():
    model = board()
    assert said(model, Kind.HELLO, 1, status=Status.DONE) is None
    assert said(model, Kind.HELLO, 1, magic=0xFA18) is None
    good = encode_udp(encode_control(ControlFrame(Kind.HELLO, 0, 0)), source=HOST, destination=OWN)
    for at, value in ((17, 1), (24, 0xFF), (39, 1), (17, 0xFF)):
        assert model.answer(good[:at] + bytes([value]) + good[at + 1 :], 0) is None
    assert model.counters == {"malformed": 6}
