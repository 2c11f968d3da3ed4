"""Digests of inputs: of every file that a command reads, those that another file names included."""

import hashlib
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fanin.boards.run.folder import BOARD_FILE
from fanin.runs.provenance.inputs import ITSELF, Input, digests

BUILD = {"board": "ecpix5", "preset": "ecp5-85"}


def of(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def model(tmp_path):
    """A model whose weights are in ``weights``."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.arange(9.0, dtype=np.float32), "w")],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph), path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


@pytest.fixture
def boards(tmp_path):
    """A file of two boards, whose builds are beside it and elsewhere."""
    for name in ("a", "other/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / BOARD_FILE).write_text(json.dumps(BUILD | {"name": name}))
    (tmp_path / "in").mkdir()
    path = tmp_path / "in/boards.toml"
    path.write_text(f'[[board]]\nbuild = "../a"\n[[board]]\nbuild = "{tmp_path}/other/b"\n')
    return path


def test_external_data_of_a_model_are_among_its_files(model):
    weights = model.parent / "weights"
    found = digests(model)
    assert found == {ITSELF: of(model.read_bytes()), "weights": of(weights.read_bytes())}
    before = Input("model", str(model), found)
    assert before.first_change(model) is None
    weights.write_bytes(bytes(36))
    assert before.first_change(model) == str(weights)
    weights.unlink()
    assert before.first_change(model) == str(weights)


def test_builds_of_boards_are_among_their_files(boards):
    found = digests(boards)
    assert set(found) == {ITSELF, "../a/board.json", "../other/b/board.json"}
    before = Input("on", str(boards), found)
    assert before.first_change(boards) is None
    (boards.parent.parent / "a" / BOARD_FILE).write_text(json.dumps(BUILD))
    assert before.first_change(boards) == f"{boards.parent}/../a/board.json"


@pytest.mark.parametrize(
    "content",
    [
        "board = 1",
        "[board]",
        "[[board]]\nbuild = 1",
        "board = [1]",
        "[[board",
        "board = " + "[" * 900,
        '[[board]]\nbuild = "\\u0000"',
    ],
)
def test_a_file_that_names_nothing_has_one_digest(tmp_path, content):
    for name in ("file.toml", "file.onnx"):
        (tmp_path / name).write_text(content)
        assert digests(tmp_path / name) == {ITSELF: of(content.encode())}


def test_a_build_of_a_board_is_a_folder_of_files(boards):
    folder = boards.parent.parent / "a"
    (folder / "project").mkdir()
    (folder / "project/top.v").write_text("module top;")
    (folder / "notes").write_text("are not read")
    assert set(digests(folder)) == {BOARD_FILE, "project/top.v"}


def test_a_folder_of_several_kinds_is_hashed_as_each(tmp_path):
    """A command may read it as any of them."""
    names = ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz", "states/epoch.npz", "devices/a.json")
    for name in (*names, "notes"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "run.json").write_text('{"options": {}}')
    (tmp_path / "plan.json").write_text('{"layers": []}')
    assert set(digests(tmp_path)) == {*names, "run.json", "plan.json"}
