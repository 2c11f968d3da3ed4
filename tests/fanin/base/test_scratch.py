"""Atomic files: files of one command together, never in the place of a device, a FIFO or a socket."""

import errno
import io
import os
import socket

import pytest

import fanin
from fanin.base.errors import InputError
from fanin.base.scratch import write_file, write_files
from fanin.cli.main import main
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


@pytest.fixture
def full_disk(monkeypatch):
    """Disk with room for a number of bytes in all files that :func:`output_file` opens from now on."""
    fdopen = os.fdopen

    def of(room):
        left = [room]

        class Full(io.FileIO):
            def write(self, data):
                if len(data) > left[0]:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                left[0] -= len(data)
                return super().write(data)

        def opened(descriptor, mode="r", *options):
            return (
                io.BufferedWriter(Full(descriptor, mode))
                if mode == "wb"
                else fdopen(descriptor, mode, *options)
            )

        monkeypatch.setattr(os, "fdopen", opened)

    return of


def test_files_replace_earlier_ones_together(tmp_path, full_disk):
    write_files(tmp_path, {"a": "1", "b/c": b"2"})
    full_disk(14)
    with pytest.raises(InputError, match="c: cannot be written: No space left on device"):
        write_files(tmp_path, {"b/c": "new" * 4, "a": "new"})
    assert {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {
        "a": "1",
        "c": "2",
    }
    full_disk(15)
    write_files(tmp_path, {"a": "new", "b/c": "new" * 4})
    assert (tmp_path / "a").read_text() == "new"


def test_a_full_disk_leaves_a_program_as_it_was(tmp_path, full_disk):
    fanin.emit_p4(workers=2).write(tmp_path)
    earlier = _content(tmp_path)
    full_disk(2000)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        fanin.emit_p4(workers=2, encap="udp", job=tmp_path / "job.json").write(
            tmp_path, taken=tmp_path / "job.json"
        )
    assert _content(tmp_path) == earlier


def _content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_mark_is_deleted_before_the_first_file_is_replaced(tmp_path, monkeypatch):
    """A kill between two files leaves no mark; a full disk, found before, leaves everything."""
    write_files(tmp_path, {"a": "1", "mark": "1"}, mark="mark")
    replace, left = os.replace, [1]

    def killed(*names):
        if not left[0]:
            raise _Killed
        left[0] -= 1
        replace(*names)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(_Killed):
        write_files(tmp_path, {"a": "2", "b": "2", "mark": "2"}, mark="mark")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "2"}


class _Killed(BaseException):
    """Kill between two files."""


def test_a_full_disk_leaves_a_program_and_its_record_as_they_were(tmp_path, full_disk):
    assert main(["p4", "emit", "--workers", "2", "-o", str(tmp_path)]) == 0
    earlier = _content(tmp_path)
    assert tmp_path / "provenance.json" in earlier
    theirs = (
        "provenance.json",
        "aggregation.json",
        "aggregation.p4info.txtpb",
    )  # the record; p4c writes its files
    total = sum(len(content) for path, content in earlier.items() if path.name not in theirs)
    full_disk(2 * total + 50)  # the scratch copy, all files, a part of the record
    assert main(["p4", "emit", "--workers", "2", "-o", str(tmp_path)]) == 2
    assert _content(tmp_path) == earlier


def test_a_program_whose_writing_is_killed_has_no_record(tmp_path, monkeypatch):
    """Otherwise the record of the earlier program would be beside files of the new one."""
    job = tmp_path / "job.json"
    assert main(["p4", "emit", "--workers", "2", "-o", str(tmp_path)]) == 0
    replace = os.replace

    def killed(source, target):
        if str(target) == str(tmp_path / "aggregation.lua"):
            raise _Killed
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(_Killed):
        main(["p4", "emit", "--workers", "2", "--encap", "udp", "--job", str(job), "-o", str(tmp_path)])
    assert job.exists()
    assert not (tmp_path / "provenance.json").exists()
    monkeypatch.undo()
    assert main(["p4", "emit", "--workers", "2", "--encap", "udp", "--job", str(job), "-o", str(tmp_path)]) == 0
    assert (tmp_path / "provenance.json").exists()
