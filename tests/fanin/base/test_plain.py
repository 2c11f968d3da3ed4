"""Copies of folders that someone else has written."""

import os

import pytest

from fanin.base.errors import InputError
from fanin.base.plain import copy_plain
from fanin.cnn.run.build import _copy
from fanin.runs.output import PLAN


@pytest.fixture
def given(tmp_path):
    folder = tmp_path / "given"
    (folder / "devices").mkdir(parents=True)
    (folder / "devices/fpga0.json").write_text("{}")
    (folder / "plan.json").write_text("[]")
    return folder


def test_files_and_folders_are_copied(given, tmp_path):
    (tmp_path / "copy").mkdir()
    for name in ("plan.json", "devices", "absent"):
        copy_plain(given, tmp_path / "copy", name)
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert found == {"plan.json", "devices", "devices/fpga0.json"}
    assert (tmp_path / "copy/devices/fpga0.json").read_text() == "{}"


@pytest.mark.parametrize("kind", ["file", "folder", "whole", "loop", "fifo"])
def test_a_link_in_a_plan_is_not_followed(given, tmp_path, kind):
    """``cluster build`` copied the target: a private file, or, of two links to a folder above, 2^40 copies."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("private")
    if kind == "file":
        (given / "report.html").symlink_to(tmp_path / "secret/key")
    elif kind == "folder":
        (given / "devices/x").symlink_to(tmp_path / "secret")
    elif kind == "whole":
        (given / "devices").rename(given / "other")
        (given / "devices").symlink_to(tmp_path / "secret")
    elif kind == "loop":
        (given / "devices/x").symlink_to("..")
    else:
        os.mkfifo(given / "devices/x")
    with pytest.raises(InputError, match="cannot be copied"):
        _copy(given, tmp_path / "copy", PLAN)
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.name == "key" or path.is_symlink()]
    assert all(path.read_text() != "private" for path in (tmp_path / "copy").rglob("*") if path.is_file())
