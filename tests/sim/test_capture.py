"""Captures, byte by byte as the specifications of pcap and pcapng have them."""

import os
import struct
import threading
from pathlib import Path

import pytest

from fanin.base.child import in_child
from fanin.base.errors import InputError
from fanin.sim import capture
from fanin.sim.capture import read_capture

# python-pcapng warns of its own schema of if_tsresol.
pytestmark = pytest.mark.filterwarnings("ignore:Field type should not:DeprecationWarning")

FRAME = bytes.fromhex("020000000002020000000001 88b5") + bytes(46)
FCS = b"\xde\xad\xbe\xef"
NETWORK_FCS = 0x24000001  # Ethernet, F bit, two words of FCS


def pcap(network, frame, order="<", magic=0xA1B2C3D4):
    header = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, network)
    return header + struct.pack(f"{order}IIII", 3, 7, len(frame), len(frame)) + frame


def option(code, value, order="<"):
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def block(kind, body, order="<"):
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + size + body + size


def interface(*options, order="<"):
    end = option(0, b"") if options else b""
    return block(1, struct.pack(f"{order}HHI", 1, 0, 0) + b"".join(options) + end, order)


def packet(frame, number=0, ticks=5, options=(), order="<"):
    head = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    padded = frame + bytes(-len(frame) % 4)
    return block(6, head + padded + b"".join(options) + (option(0, b"") if options else b""), order)


def pcapng(*blocks, order="<"):
    section = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)
    return block(0x0A0D0D0A, section, order) + b"".join(blocks)


@pytest.fixture
def read(tmp_path):
    def of(content):
        (tmp_path / "a.pcap").write_bytes(content)
        return read_capture(tmp_path / "a.pcap")

    return of


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
@pytest.mark.parametrize(("network", "end"), [(1, b""), (NETWORK_FCS, FCS)])
def test_pcap(read, order, magic, unit, network, end):
    assert read(pcap(network, FRAME + end, order, magic)) == [(3_000_000_000 + 7 * unit, FRAME)]


@pytest.mark.parametrize(
    ("options", "nanoseconds"),
    [
        ([], 5000),
        ([option(9, b"\x09")], 5),
        ([option(9, b"\x03")], 5_000_000),
        ([option(9, b"\x8a")], 5 * 10**9 // 1024),  # 2^-10 s
        ([option(14, struct.pack("<q", 10))], 10_000_005_000),
        ([option(14, struct.pack("<q", -2)), option(9, b"\x00")], 3_000_000_000),
        ([option(10, bytes(4)), option(2, b"eth0")], 5000),
    ],
)
def test_times_of_pcapng(read, options, nanoseconds):
    assert read(pcapng(interface(*options), packet(FRAME))) == [(nanoseconds, FRAME)]


@pytest.mark.parametrize(
    ("of_interface", "of_packet", "length"),
    [
        ([option(13, b"\x04")], [], 4),
        ([option(13, b"\x20")], [], 4),  # in bits
        ([], [option(2, struct.pack("<I", 4 << 5))], 4),
        ([option(13, b"\x04")], [option(2, struct.pack("<I", 2 << 5))], 2),
        ([option(13, b"\x04")], [option(2, struct.pack("<I", 1))], 4),  # inbound, nothing of an FCS
        ([], [], 0),
    ],
)
def test_fcs_of_pcapng(read, of_interface, of_packet, length):
    frames = read(pcapng(interface(*of_interface), packet(FRAME + FCS, options=of_packet)))
    assert frames == [(5000, (FRAME + FCS)[: len(FRAME) + 4 - length])]


def test_a_packet_is_of_its_own_interface_and_section(read):
    """Interfaces count from 0 in each section, whose byte order is its own."""
    first = pcapng(interface(), interface(option(9, b"\x09"), option(13, b"\x04")), packet(FRAME + FCS, 1))
    second = pcapng(interface(order=">"), packet(FRAME, order=">"), order=">")
    assert read(first + second) == [(5, FRAME), (5000, FRAME)]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (pcapng(packet(FRAME)), "a packet of an undeclared interface, 0"),
        (pcapng(interface(), packet(FRAME, 1)), "a packet of an undeclared interface, 1"),
        (pcap(NETWORK_FCS, b"ab"), "a frame of 2 bytes, of which 4 are declared as its FCS"),
        (pcap(113, FRAME), "a capture of something else than Ethernet"),
        (pcapng(interface(), packet(FRAME))[:-9], "not a whole pcapng file"),
        (pcapng(interface(option(9, b"")), packet(FRAME)), "not a whole pcapng file"),
        (pcap(1, FRAME)[:-1], "ends within a packet"),
        (
            pcapng(interface(option(14, struct.pack("<q", 1 << 32))), packet(FRAME)),
            "a packet's time is 4,294,967,296 s, outside 0 to 4,294,967,295 s",
        ),
        (pcapng(interface(option(14, struct.pack("<q", -1))), packet(FRAME)), "a packet's time is -1 s"),
        (pcapng(interface(), packet(FRAME), block(6, b""), packet(FRAME)), "not a whole pcapng file"),
        (pcapng(interface(), packet(FRAME), block(6, bytes(8)), packet(FRAME)), "not a whole pcapng file"),
        (pcapng(block(1, b""), interface(), packet(FRAME)), "not a whole pcapng file"),
        (b"nothing", "not a pcap or pcapng file"),
        (pcapng(struct.pack("<II", 6, 4)), "a block's length is too small"),
    ],
)
def test_what_is_refused(read, content, cause):
    with pytest.raises(InputError, match=cause):
        read(content)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_pcapng_file_cut_at_any_byte_is_refused(read, order):
    blocks = [interface(order=order), *(packet(FRAME, order=order) for _ in range(2))]
    content = pcapng(*blocks, order=order)
    frames = {len(pcapng(*blocks[:count], order=order)): max(count - 1, 0) for count in range(len(blocks) + 1)}
    for size in range(len(content) + 1):
        if size in frames:
            assert len(read(content[:size])) == frames[size]
        else:
            with pytest.raises(InputError):
                read(content[:size])


def test_a_block_that_declares_gigabytes_takes_no_memory_for_them(read):
    content = pcapng(interface(), struct.pack("<II", 6, 0xFFFFFFF0) + bytes(8))
    with pytest.raises(ValueError, match=r"not a whole pcapng file: Trying to read 4294967268 bytes"):
        in_child(lambda: bytes(len(read(content))), max_bytes=3 << 30)


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    content = pcapng(interface(), packet(FRAME))
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,), daemon=True)
    writer.start()
    assert read_capture(tmp_path / "pipe") == [(5000, FRAME)]


def test_a_capture_without_end_takes_one_line(monkeypatch):
    monkeypatch.setattr(capture, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match=r"^/dev/zero: has more than 1,000 bytes$"):
        read_capture(Path("/dev/zero"))
