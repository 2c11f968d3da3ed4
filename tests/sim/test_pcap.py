"""Captures of one simulation behind the other."""

import stat
from functools import partial

import pytest

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


@pytest.mark.parametrize(
    "write", [lambda path, part: PcapWriter(path).close(), partial(append_capture, start=0)]
)
def test_a_link_in_the_place_of_a_capture_is_replaced(tmp_path, write):
    part, link, target = tmp_path / "part.pcap", tmp_path / "frames.pcap", tmp_path / "precious"
    PcapWriter(part).close()
    target.write_text("precious")
    link.symlink_to(target)
    write(link, part)
    assert target.read_text() == "precious"
    assert not link.is_symlink()
    assert read_capture(link) == []


def test_a_capture_is_not_appended_to_a_link_that_takes_its_place_meanwhile(tmp_path, monkeypatch):
    part, link = tmp_path / "part.pcap", tmp_path / "frames.pcap"
    PcapWriter(part).close()
    (tmp_path / "precious").write_text("precious")
    link.symlink_to("precious")
    monkeypatch.setattr("fanin.sim.pcap.mode_of", lambda path: stat.S_IFREG)
    with pytest.raises(OSError, match="symbolic links"):
        append_capture(link, part, start=0)
    assert (tmp_path / "precious").read_text() == "precious"
