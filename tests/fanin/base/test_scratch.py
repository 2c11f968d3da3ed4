"""Atomic files never take the place of a device, a FIFO or a socket."""

import os
import socket

import pytest

from fanin.base.errors import InputError
from fanin.base.scratch import write_file
from fanin.runs.output import RUN, check_capture, check_writable


def _refused(call, path, cause):
    with pytest.raises(InputError, match=f": is a {cause}; the output replaces it, so name a file"):
        call(path)


@pytest.mark.parametrize("write", [check_writable, lambda path: write_file(path, "text")])
@pytest.mark.parametrize("target", ["/dev/null", "/proc/self/fd/1"])
def test_a_device_is_no_output(tmp_path, write, target):
    """As root, a file would take the place of /dev/null, or of /dev/stdout, which is a link."""
    link = tmp_path / "link"
    link.symlink_to(target)
    _refused(write, link, "device")
    assert link.is_symlink()


def test_a_fifo_or_a_socket_is_no_output(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    _refused(check_writable, tmp_path / "pipe", "FIFO")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        _refused(check_writable, tmp_path / "socket", "socket")


@pytest.mark.parametrize("name", [".files.json", ".fanin-live.json", ".fanin-writer.json"])
def test_files_that_fanin_keeps_in_a_folder_are_no_output(tmp_path, name):
    """A capture in the place of the list of files is lost, and with it the list of an earlier run."""
    with pytest.raises(InputError, match="is a name of fanin's own files; name another file"):
        check_writable(tmp_path / name)


@pytest.mark.parametrize("name", ["run.json", "states/x.pcap", "classes/0/frames.pcap"])
def test_a_capture_is_no_other_file_of_the_run(tmp_path, name):
    with pytest.raises(InputError, match=r"cannot be frames\.pcap and (run\.json|states|classes) at once"):
        check_capture(tmp_path / "run" / name, tmp_path / "run", RUN)
