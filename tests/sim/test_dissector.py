"""The link's dissector: tshark reads every field of what the encoders write, and says what is malformed."""

import struct
import subprocess

import pytest

from fanin.sim.dissector import FILE, link_dissector
from fanin.sim.pcap import PcapWriter
from fanin.wire.connection import ConnectionFrame, encode_connection
from fanin.wire.ethernet import Encap, Endpoint
from fanin.wire.link import LinkKind
from fanin.wire.ring import RING, RingFrame, encode_ring
from tests.needs import require

ENDS = {"source": Endpoint(0x020000000001, 0x0A000001), "destination": Endpoint(0x020000000002, 0x0A000002)}
FLOATS = (1.5, -2.0, 0.25)
WORDS = tuple(struct.unpack("<I", struct.pack("<f", value))[0] for value in FLOATS)


def tshark(folder, frames, *options):
    """What tshark says of frames."""
    require("tshark")
    (folder / FILE).write_text(link_dissector())
    with PcapWriter(folder / "in.pcap") as pcap:
        for frame in frames:
            pcap.write(frame, 0)
    command = ["tshark", "-X", f"lua_script:{folder / FILE}", "-r", str(folder / "in.pcap"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "Lua Error" not in done.stdout + done.stderr
    return done.stdout


def fields(user, *names):
    return ["-T", "fields", *(option for name in names for option in ("-e", f"fanin_{user}.{name}"))]


@pytest.mark.parametrize("encap", list(Encap))
def test_tshark_reads_every_field_of_a_connection(tmp_path, encap):
    made = [
        ConnectionFrame(kind, 4660, 7, 10 + kind, 20, 30, WORDS if kind == LinkKind.DATA else (), arrived=0x81)
        for kind in LinkKind
    ]
    frames = [encode_connection(frame, beat_bytes=64, encap=encap, **ENDS) for frame in made]
    names = ["version", "kind", "connection", "run", "words", "sequence", "limit", "frame", "arrived", "word"]
    lines = tshark(tmp_path, frames, *fields("connection", *names)).splitlines()
    assert lines == [
        f"6\t{f.kind}\t7\t4660\t{len(f.words)}\t{f.sequence}\t20\t30\t"
        + ("\t1.5,-2,0.25" if f.words else "0x00000081\t")
        for f in made
    ]
    summary = tshark(tmp_path, frames)
    assert "DATA run 4660 connection 7 sequence 10 words 3 frame 30" in summary
    assert "ACK run 4660 connection 7 sequence 11 limit 20" in summary


def test_tshark_reads_every_field_of_the_ring(tmp_path):
    frame = RingFrame(LinkKind.DATA, 5, 6, 1, 2, 3, 4, 7, 8, 9, 10, 1, payload=bytes(64))
    data = encode_ring(frame, beat_bytes=64, source=1, destination=2)
    names = [field.name for field in RING]
    found = tshark(tmp_path, [data], *fields("ring", *names)).strip()
    assert found == "\t".join(str(getattr(frame, name)) for name in names)
    assert "DATA job 5 sequence 7 operation 4 count 8 length 9 slice 10 complete 1" in tshark(tmp_path, [data])


def test_tshark_reads_the_bitmap_of_the_rings_answers(tmp_path):
    frames = [RingFrame(kind, 5, 6, arrived=2**31 + 5) for kind in (LinkKind.ACK, LinkKind.NAK)]
    data = [encode_ring(frame, beat_bytes=64, source=1, destination=2) for frame in frames]
    assert tshark(tmp_path, data, *fields("ring", "arrived")).split() == ["0x80000005"] * 2


def test_tshark_says_what_is_malformed(tmp_path):
    def encoded(**other):
        frame = ConnectionFrame(**({"kind": LinkKind.DATA, "run": 1, "connection": 2, "words": WORDS} | other))
        return encode_connection(frame, beat_bytes=64, **ENDS)

    frames = {
        "": encoded(),
        "no such version": encoded(version=7),
        "no such kind": encoded(kind=9),
        "fewer words than the header says": encoded(words=WORDS * 20)[:70],
        "too short for a header": encoded()[:20],
    }
    said = tshark(tmp_path, frames.values(), *fields("connection", "malformed"), "-e", "_ws.expert.message")
    assert [line.strip().rpartition("\t")[2] for line in said.splitlines()] == list(frames)
