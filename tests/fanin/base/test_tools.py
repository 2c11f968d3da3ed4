"""Runs of external tools: every failure is one ToolFailed."""

import sys

import pytest

from fanin.base.errors import ToolFailed
from fanin.base.tools import run_tool


def _python(code, folder, timeout=20.0):
    return run_tool([sys.executable, "-c", code], folder, timeout)


def test_the_output_of_a_tool_is_returned(tmp_path):
    assert (
        _python("import os, sys; print(os.getcwd()); print(1, file=sys.stderr)", tmp_path) == f"{tmp_path}\n1\n"
    )


def test_a_tool_that_fails_or_hangs_is_named(tmp_path):
    with pytest.raises(ToolFailed, match=r"^python[\d.]*: out of cells$"):
        _python("import sys; sys.exit('out of cells')", tmp_path)
    with pytest.raises(ToolFailed, match=r"^python[\d.]*: no end within 0.2 s$"):
        _python("import time; time.sleep(20)", tmp_path, 0.2)
