"""States in files: what comes back, first parameters, and a line for every file that is not one of ours."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.cnn.golden.network import initial_state
from fanin.cnn.run.checkpoint import (
    Checkpoint,
    CheckpointInfo,
    flatten_states,
    load_checkpoint,
    save_checkpoint,
)
from fanin.cnn.run.initial import load_initial_states
from fanin.cnn.run.measures import Tally
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import unplanned
from fanin.runs.states import load_state, save_state


@pytest.fixture(scope="module")
def network():
    return unplanned(load_model("digits_cnn"))


@pytest.fixture
def state(network):
    """Every word is another one, NaNs and signed zeros among them."""
    states = tuple(initial_state(network, 5))
    rng = np.random.default_rng(1)
    for each in states:
        for name, values in each.items():
            bits = rng.integers(0, 1 << 32, values.shape, np.uint32)
            each[name] = bits.view(np.float32)
    return states


@pytest.fixture
def saved(network, state, tmp_path):
    path = tmp_path / "state.npz"
    about = CheckpointInfo(network.name, network.model_digest, seed=5, epoch=2, frame=64, training={"lr": 0.1})
    save_checkpoint(path, network, Checkpoint(about, state))
    return path


def bits(network, states):
    return {name: values.tobytes() for name, values in flatten_states(network, states).items()}


def refusal(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_state_comes_back_bit_by_bit(network, state, saved):
    found = load_checkpoint(saved, network)
    assert bits(network, found.states) == bits(network, state)
    assert (found.info.epoch, found.info.frame, found.info.training) == (2, 64, {"lr": 0.1})
    assert found.info.model == network.model_digest
    assert set(np.load(saved)) == {"about", "sha256", *flatten_states(network, state)}


def test_the_state_in_binary64_and_the_tallies_come_back(network, state, tmp_path):
    """And so do the others; for first parameters only these count."""
    path, about = (
        tmp_path / "state.npz",
        CheckpointInfo(network.name, network.model_digest, tallies={"rtl": Tally(3, 0.1, 2)}),
    )
    finer = tuple({name: np.float64(1) / 3 + np.zeros(v.shape) for name, v in each.items()} for each in state)
    save_checkpoint(path, network, Checkpoint(about, tuple(initial_state(network, 5)), finer))
    found = load_checkpoint(path, network)
    assert bits(network, found.binary64) == bits(network, finer)
    assert bits(network, found.states) == bits(network, tuple(initial_state(network, 5)))
    assert found.info == about
    assert bits(network, load_initial_states(path, network)) == bits(network, tuple(initial_state(network, 5)))


def test_parameters_of_another_run_begin_without_its_velocity(network, tmp_path):
    arrays = {
        n: np.random.default_rng(1).random(v.shape, np.float32)
        for n, v in flatten_states(network, tuple(initial_state(network, 1))).items()
    }
    np.savez(tmp_path / "model.npz", **arrays)
    found = flatten_states(network, load_initial_states(tmp_path / "model.npz", network))
    kept = ("weights", "mean", "variance", "scale")
    for name, values in found.items():
        same = name.rpartition("/")[2] in kept
        assert np.array_equal(values, arrays[name]) if same else not values.any()


@pytest.mark.parametrize("length", [0, 10, 3000, -1])
def test_a_file_that_was_cut_off_is_refused(saved, network, length):
    saved.write_bytes(saved.read_bytes()[:length])
    assert refusal(load_checkpoint, saved, network) == f"{saved}: no NumPy archive, or one that was cut off"


def test_a_bit_that_fell_over_is_seen(saved, network):
    content = bytearray(saved.read_bytes())
    content[len(content) // 2] ^= 4
    saved.write_bytes(content)
    assert refusal(load_checkpoint, saved, network).startswith(
        f"{saved}: no NumPy archive of numbers: Bad CRC-32"
    )


def test_a_bit_that_makes_an_array_an_encrypted_one_is_seen(saved, network):
    content = bytearray(saved.read_bytes())
    content[content.rindex(b"PK\1\2") + 8] ^= 1  # flags of the last array, in the archive's directory
    saved.write_bytes(content)
    said = refusal(load_checkpoint, saved, network)
    assert said.startswith(f"{saved}: no NumPy archive of numbers: File ")
    assert "is encrypted" in said


def test_arrays_of_two_states_are_torn(saved, network):
    with np.load(saved) as archive:
        arrays = dict(archive)
    arrays["conv2/velocity"] = arrays["conv2/velocity"][::-1]
    np.savez(saved, **arrays)
    assert refusal(load_checkpoint, saved, network).startswith(f"{saved}: is damaged: ")


def test_a_changed_description_is_torn(saved, network):
    with np.load(saved) as archive:
        arrays = dict(archive)
    about = json.loads(str(arrays["about"])) | {"epoch": 3}
    np.savez(saved, **arrays | {"about": np.str_(json.dumps(about, sort_keys=True))})
    assert refusal(load_checkpoint, saved, network).startswith(f"{saved}: is damaged: ")


def test_a_state_of_another_model_is_foreign(saved, network):
    other = unplanned(load_model("listing1"))
    said = refusal(load_checkpoint, saved, other)
    assert said == f"{saved}: holds a state of digits_cnn, not of listing1"
    norm = replace(network.stages[2].layer, forward_decay=0.5)
    stages = [*network.stages[:2], replace(network.stages[2], layer=norm), *network.stages[3:]]
    said = refusal(load_checkpoint, saved, replace(network, stages=tuple(stages)))
    assert said == f"{saved}: holds a state of another model of that name, not of digits_cnn"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"model": None}, '"model" must be a text of one line, not null'),
        ({"tallies": None}, "tallies: must be an object, not null"),
        ({"tallies": {"rtl": 1}}, "tallies.rtl: must be an object, not 1"),
        ({"tallies": {"rtl": {"frames": 1, "loss": "1", "right": 0}}}, '"loss" must be a number of at least 0'),
        ({"epoch": "2"}, '"epoch" must be an integer'),
        ({"training": 3}, "training: must be an object, not 3"),
    ],
)
def test_a_description_with_other_fields_is_refused(saved, network, changes, cause):
    """Whoever writes a file can also write its digest."""
    about, arrays = load_state(saved, "fanin cluster")
    save_state(saved, about | changes, arrays)
    assert cause in refusal(load_checkpoint, saved, network)


def test_other_files_are_no_checkpoints(tmp_path, network):
    path = tmp_path / "x.npz"
    assert refusal(load_checkpoint, path, network) == f"{path}: cannot be read: No such file or directory"
    path.write_text("no archive")
    assert refusal(load_checkpoint, path, network) == f"{path}: no NumPy archive, or one that was cut off"
    np.savez(path, conv1=np.zeros(3))
    assert refusal(load_checkpoint, path, network) == f"{path}: no checkpoint of fanin cluster"
    np.savez(path, conv1=np.array([object()]))
    assert refusal(load_checkpoint, path, network).startswith(
        f"{path}: no NumPy archive of numbers: an array of Python objects"
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conv1.npy", "no array")
    assert refusal(load_checkpoint, path, network) == (
        f"{path}: no NumPy archive of numbers: conv1 is no array"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"conv3/weights": None}, "conv3/weights is missing"),
        (
            {"conv1/weights": np.zeros((3, 3, 1, 8), np.float32)},
            "conv1/weights is 3×3×1×8 of float32, not 3×3×1×16 of",
        ),
        ({"bias1/weights": np.zeros(16)}, "bias1/weights is 16 of float64, not 16 of float32"),
        ({"bias1/weights": np.full(16, np.nan, np.float32)}, "bias1/weights has values that are not finite"),
        ({"conv9/weights": np.zeros(1, np.float32)}, "has conv9/weights, which digits_cnn has not"),
        ({"conv1/mean": np.zeros(1, np.float32)}, "has conv1/mean, which digits_cnn has not"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(network, tmp_path, change, said):
    arrays = flatten_states(network, tuple(initial_state(network, 1))) | change
    path = tmp_path / "model.npz"
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    assert refusal(load_initial_states, path, network).startswith(f"{path}: {said}")


def test_nothing_is_left_of_a_file_that_cannot_be_written(network, state, tmp_path):
    (tmp_path / "folder").mkdir()
    about = CheckpointInfo(network.name, network.model_digest)
    said = refusal(save_checkpoint, tmp_path / "folder", network, Checkpoint(about, state))
    assert said.startswith(f"{tmp_path}/folder: cannot be written")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
