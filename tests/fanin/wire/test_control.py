"""Control, ARP and echo on the wire: what scapy reads in ours, and the sizes that follow from a frame's."""

import zlib
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether

from fanin.wire import arp, control
from fanin.wire.control import ControlFrame, Kind, decode_control, encode_control
from fanin.wire.ethernet import Endpoint, encode_udp
from fanin.wire.icmp import EchoType, encode_echo

HOST = Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01)
PAGE = (Path(__file__).parents[3] / "docs/systems/boards.md").read_text()
BOARD = Endpoint(0x02_00_00_00_00_99, 0x0A_00_00_99)


def test_scapy_reads_our_arp():
    read = Ether(arp.encode_arp(arp.Operation.REQUEST, sender=HOST, target=Endpoint(0, BOARD.ip)))
    assert (read.dst, read.src, read.type) == ("ff:ff:ff:ff:ff:ff", "02:00:00:00:00:01", 0x0806)
    assert bytes(read[ARP]) == bytes(ARP(op="who-has", hwsrc=read.src, psrc="10.0.0.1", pdst="10.0.0.153"))


def test_scapy_reads_our_echo_and_agrees_with_its_checksums():
    frame = encode_echo(
        EchoType.REQUEST, bytes(range(57)), identifier=7, sequence=9, source=HOST, destination=BOARD
    )
    read = Ether(frame)
    assert (read[ICMP].type, read[ICMP].id, read[ICMP].seq) == (8, 7, 9)
    assert bytes(read[ICMP].payload) == bytes(range(57))
    for layer in IP, ICMP:
        del read[layer].chksum
    assert bytes(read) == frame


def test_a_frame_is_read_as_it_was_built():
    frame = ControlFrame(Kind.ACCESS, 0x89AB_CDEF, 0x0102_0304, count=1, words=(5, 0xFFFF_FFFE))
    payload = encode_control(frame)
    assert payload.hex() == "fa17210089abcdef01020304000100000005fffffffe"
    assert decode_control(payload) == frame


def test_a_hello_is_as_long_as_its_reply():
    """Six words: holder, board, build, uptime, state, offer."""
    payload = encode_control(control.hello_request(0x0102_0304, lease=9))
    assert payload.hex() == "fa172000" + "00000009" + "01020304" + "0000" + 6 * "00000000"
    assert [field.name for field in control.ABOUT] == ["holder", "board", "build", "uptime", "state", "offer"]


@pytest.mark.parametrize(
    "damaged", [b"", b"\xfa\x17" + bytes(11), b"\xfa\x18" + bytes(12), b"\xfa\x17" + bytes(13)]
)
def test_what_is_none_of_ours_is_not_read(damaged):
    assert decode_control(damaged) is None


def test_the_header_ends_on_a_word_of_the_frame_and_the_largest_frames_are_full():
    header = len(encode_udp(encode_control(ControlFrame(Kind.HELLO, 0, 0)), source=HOST, destination=BOARD))
    assert header % control.WORD_BYTES == 0
    for words in (2 * control.MAX_OPERATIONS, 1 + control.MAX_LOAD, control.MAX_DUMP):
        assert 1514 - 8 < header + control.WORD_BYTES * words <= 1514


def test_a_checksum_is_of_bytes_as_they_lie_in_memory():
    assert zlib.crc32(control.memory_bytes([0x04030201, 0x08070605])) == zlib.crc32(bytes(range(1, 9)))


def test_the_page_has_every_field_and_every_limit():
    rows = [f"| {field.name} | {field.bits} | {field.meaning} |" for field in control.CONTROL]
    assert "\n".join(rows) in PAGE
    for limit in (control.MAX_OPERATIONS, control.MAX_LOAD, control.MAX_DUMP, control.MAX_CHECKSUM):
        assert f"up to {limit:,}" in PAGE
