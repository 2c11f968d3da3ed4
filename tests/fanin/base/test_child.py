"""A computation in a child process: its result, its error, its crash, its memory."""

import os
import warnings

import pytest

from fanin.base.child import ChildDied, in_child


def test_a_result_may_be_longer_than_a_pipe():
    assert in_child(lambda: bytes(1 << 20)) == bytes(1 << 20)


def test_an_error_keeps_its_text():
    def fail():
        raise LookupError("no \ud800 here")

    with pytest.raises(ValueError, match=r"^no \? here$"):
        in_child(fail)


def test_a_crash_prints_nothing(capfd):
    with pytest.raises(ChildDied):
        in_child(lambda: os.system("echo words >&2; kill -KILL $PPID"))
    assert capfd.readouterr() == ("", "")


def test_memory_is_bounded():
    with pytest.raises(ChildDied):
        in_child(lambda: bytes(1 << 30), max_bytes=1 << 28)
    assert in_child(lambda: b"enough", max_bytes=1 << 28) == b"enough"


def test_threads_of_the_caller_draw_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_child(lambda: b"") == b""
