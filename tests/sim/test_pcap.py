"""Captures of one simulation behind the other."""

from fanin.sim.capture import read_capture
from fanin.sim.pcap import PcapWriter, append_capture


def test_captures_follow_one_another_in_one_file(tmp_path):
    whole, part = tmp_path / "whole.pcap", tmp_path / "part.pcap"
    for start, frames in ((0, [(b"a" * 60, 1_500)]), (10**13, [(b"b" * 61, 0), (b"c" * 62, 2 * 10**12)])):
        with PcapWriter(part) as pcap:
            for frame, time in frames:
                pcap.write(frame, time)
        append_capture(whole, part, start=start)
    ns = 10**9
    assert read_capture(whole) == [(1, b"a" * 60), (10 * ns, b"b" * 61), (12 * ns, b"c" * 62)]
