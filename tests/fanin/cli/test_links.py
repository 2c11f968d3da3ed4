"""What lies in a run's folder may be a link, or no file at all: nothing behind it is touched."""

import json
import os

import pytest

from fanin.cli.output import CLASSES_FOLDER, check_directory, output_directory
from fanin.cli.scratch import delete_scratch
from fanin.errors import InputError


@pytest.fixture
def other(tmp_path):
    """A folder of somebody else's, with a file that looks like scratch."""
    folder = tmp_path / "other"
    folder.mkdir()
    for name in ("precious", ".fanin-old", "run.json"):
        (folder / name).write_text(name)
    return folder


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("name", [CLASSES_FOLDER, "model.npz", "states", "run.json"])
def test_a_link_in_the_place_of_a_result_is_replaced_and_what_it_names_stays(tmp_path, other, name):
    target, before = tmp_path / "run", content(other)
    with output_directory(target) as folder:
        (folder / "run.json").write_text(json.dumps({"fanin": "1", "options": "first"}))
    if name == "run.json":
        (target / name).rename(tmp_path / "mark")
        (target / name).symlink_to(tmp_path / "mark")
    else:
        (target / name).symlink_to(other)
    with output_directory(target) as folder:
        (folder / "run.json").write_text(json.dumps({"fanin": "1", "options": "second"}))
    assert content(other) == before
    assert [path.name for path in target.iterdir()] == ["run.json"]
    assert not (target / "run.json").is_symlink()
    assert json.loads((target / "run.json").read_text()) == {"fanin": "1", "options": "second"}
    if name == "run.json":
        assert json.loads((tmp_path / "mark").read_text()) == {"fanin": "1", "options": "first"}


def test_scratch_behind_a_link_stays(tmp_path, other):
    before, target = content(other), tmp_path / "run"
    target.mkdir()
    (target / "link").symlink_to(other)
    (target / ".fanin-link").symlink_to(other)
    (target / ".fanin-old").write_text("ours")
    delete_scratch(target)
    assert content(other) == before
    assert [path.name for path in target.iterdir()] == ["link"]


@pytest.mark.parametrize("mark", ['{"options": {}}', '{"options": {}, "scripts": 1}'])
def test_a_foreign_folder_with_a_key_of_ours_is_left_alone(tmp_path, mark):
    (tmp_path / "run.json").write_text(mark)
    (tmp_path / "model.npz").write_text("somebody else's")
    with pytest.raises(InputError, match=r"holds no run\.json of an earlier run"), output_directory(tmp_path):
        pass
    assert content(tmp_path) == {"run.json": mark, "model.npz": "somebody else's"}


def test_a_fifo_in_the_place_of_the_mark_is_no_earlier_run(tmp_path):
    """Reading it would wait for a writer."""
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(InputError, match=r"holds no run\.json of an earlier run"):
        check_directory(tmp_path)
