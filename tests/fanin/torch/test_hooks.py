"""The PyTorch hooks over gloo ranks, bit for bit against the golden ring; round trips; a missing PyTorch."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden import bfp, codecs, inceptionn
from fanin.codec.golden.rounding import derived_seed
from fanin.codec.golden.samples import samples
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.golden.random_bits import RandomBits
from fanin.sim.ring.cosim import RingCosim
from fanin.torch import hooks as torch_hooks
from tests.fanin.torch import ranks as torch_ranks

SMALL = torch_ranks.SMALL
CONFIGS = {
    "none": (RingConfig(), None),
    "none, small": (SMALL, None),
    "strict": (RingConfig(codec=Inceptionn(group=16)), None),
    "published": (
        RingConfig(
            lanes=8, frame_words=2, slice_frames=2, buffer_frames=4, codec=Inceptionn(6, Mode.PUBLISHED, 8)
        ),
        None,
    ),
    "bfp": (RingConfig(codec=Bfp()), None),
    "bfp, 8 and 5": (
        RingConfig(lanes=8, frame_words=2, slice_frames=2, buffer_frames=4, codec=Bfp(8, 5)),
        None,
    ),
    "bfp, 4 bits of exponent": (replace(SMALL, codec=Bfp(8, 7, 4, 10)), None),
    "mx": (replace(SMALL, codec=Mx(Element.E2M1, 16)), None),
    "mx, stochastic": (RingConfig(codec=Mx(rounding=Rounding.STOCHASTIC)), None),
    "bf16": (RingConfig(codec=Bf16()), None),
    "fp16, stochastic": (replace(SMALL, codec=Fp16(Rounding.STOCHASTIC)), None),
    "bfp, 15 bits": (replace(SMALL, codec=Bfp(8, 15)), None),
    "half": (SMALL, lambda values: values / np.float32(2)),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each rank has got, by name: one start of four processes for all tests."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.fanin.torch.ranks", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [np.load(folder / f"{rank}.npz") for rank in range(torch_ranks.RANKS)]


def _same(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("number", range(len(torch_ranks.SETS)))
def test_every_rank_gets_the_rings_mean_bit_for_bit(results, name, number):
    ranks, count = torch_ranks.SETS[number]
    config, hop = CONFIGS[name]
    call = [size for size, _ in torch_ranks.SETS[:number]].count(ranks)  # of the hook in this group
    bits = RandomBits(derived_seed(2, call))
    expected = all_reduce(torch_ranks.gradients(ranks, count, number), config, hop, bits=bits) / np.float32(
        ranks
    )
    for rank in range(ranks):
        assert _same(results[rank][f"{name}/{number}"], expected)


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("name", ["none, small", "published", "bfp, 8 and 5", "bfp, 4 bits of exponent"])
def test_the_simulated_rings_nodes_get_the_same_bits(results, name):
    config, _ = CONFIGS[name]
    cosim = RingCosim(config, nodes=torch_ranks.RANKS, quiet=True)
    for number, (ranks, count) in enumerate(torch_ranks.SETS):
        run = cosim.all_reduce([[own] for own in torch_ranks.gradients(ranks, count, number)])
        for rank, (total,) in enumerate(run.sums):
            assert _same(total / np.float32(ranks), results[rank][f"{name}/{number}"])


def _largest(values, share):
    """The values of greatest magnitude where they are, NaN the greatest; else zeros."""
    places = np.argsort(np.abs(values), kind="stable")[-math.ceil(share * values.size) :]
    kept = np.zeros_like(values)
    kept[places] = values[places]
    return kept


def _in_order(given):
    total = np.zeros_like(given[0])
    for own in given:
        total += own
    return total


@pytest.mark.parametrize("number", range(len(torch_ranks.SETS)))
def test_top_k_adds_up_the_largest_values_of_each_rank(results, number):
    ranks, count = torch_ranks.SETS[number]
    given = [_largest(own, torch_ranks.SHARE) for own in torch_ranks.gradients(ranks, count, number)]
    for rank in range(ranks):
        assert np.array_equal(results[rank][f"top/{number}"], _in_order(given) / ranks, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "arrives", "add"),
    [
        (
            "codec",
            lambda values: inceptionn.roundtrip(values, Inceptionn(6, group=16)),
            lambda given: all_reduce(given, RingConfig(codec=Inceptionn(6, group=16))),
        ),
        ("top", lambda values: _largest(values, torch_ranks.SHARE), _in_order),
    ],
)
def test_error_feedback_adds_to_a_gradient_what_was_left_out_of_those_before(results, name, arrives, add):
    left = np.zeros((4, 400), np.float32)
    for step in range(torch_ranks.STEPS):
        whole = torch_ranks.gradients(4, 400, step) + left
        given = np.stack([arrives(own) for own in whole])
        left = np.nan_to_num(whole - given, nan=0)
        for result in results:
            found = result[f"fed {name}/{step}"]
            assert np.array_equal(found, add(given) / np.float32(4), equal_nan=True)
    assert np.any(left)


def test_error_feedback_with_stochastic_rounding_has_other_bits_at_each_rank_and_step(results):
    config = RingConfig(codec=Mx(Element.E2M3, rounding=Rounding.STOCHASTIC))
    left = np.zeros((4, 400), np.float32)
    for step in range(torch_ranks.STEPS):
        whole = torch_ranks.gradients(4, 400, step) + left
        given = np.stack(
            [codecs.roundtrip(own, config.codec, derived_seed(1, rank, step)) for rank, own in enumerate(whole)]
        )
        left = np.nan_to_num(whole - given, nan=0)
        total = all_reduce(given, config, bits=RandomBits(derived_seed(2, step)))
        for result in results:
            assert np.array_equal(result[f"fed stochastic/{step}"], total / np.float32(4), equal_nan=True)


def _as_type(values, name):
    """Values after rounding to a type of 16 bits, as float32."""
    with np.errstate(over="ignore"):
        return values.astype({"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[name]).astype(np.float32)


@pytest.mark.parametrize("hook", torch_ranks.NATIVE_HOOKS)
@pytest.mark.parametrize("name", torch_ranks.NATIVE)
def test_gradients_of_16_bits_are_added_in_float32_and_rounded_once(results, name, hook):
    config, _ = CONFIGS[hook]
    given = [_as_type(own, name) for own in torch_ranks.gradients(4, 400, 70)]
    expected = _as_type(all_reduce(given, config) / np.float32(4), name)
    for result in results:
        assert np.array_equal(result[f"native {name}/{hook}"], expected, equal_nan=True)
    if hook == "none":
        each_hop = given[0]
        for own in given[1:]:
            each_hop = _as_type(each_hop + own, name)
        assert not np.array_equal(each_hop / 4, expected, equal_nan=True)  # rounding on each hop differs


@pytest.mark.parametrize("hook", torch_ranks.NATIVE_HOOKS)
@pytest.mark.parametrize("name", torch_ranks.NATIVE)
def test_error_feedback_keeps_what_16_bits_lose_in_float32(results, name, hook):
    config, _ = CONFIGS[hook]
    left = np.zeros((4, 400), np.float32)
    for step in range(torch_ranks.STEPS):
        whole = np.stack([_as_type(own, name) for own in torch_ranks.gradients(4, 400, step)]) + left
        given = np.stack([_as_type(codecs.roundtrip(own, config.codec), name) for own in whole])
        with np.errstate(invalid="ignore"):
            left = np.nan_to_num(whole - given, nan=0, posinf=0, neginf=0)
        expected = _as_type(all_reduce(given, config) / np.float32(4), name)
        for result in results:
            assert np.array_equal(result[f"fed {name}/{hook}/{step}"], expected, equal_nan=True)
    assert np.any(left) == (hook != "none")  # a gradient of 16 bits that no codec changes leaves nothing


def test_a_rank_alone_keeps_its_gradients(results):
    assert _same(results[0]["alone"], np.array([0.3], dtype=np.float32))


def test_gradients_need_not_be_contiguous(results):
    expected = all_reduce(torch_ranks.gradients(4, 64, 50), SMALL) / np.float32(4)
    assert _same(results[2]["not contiguous"], expected)


@pytest.mark.parametrize("name", ["none", "strict", "bfp"])
def test_ddp_trains_with_what_the_ring_yields(results, name):
    mean = all_reduce([result[f"own/{name}"] for result in results], CONFIGS[name][0]) / np.float32(4)
    for result in results:
        assert _same(result[f"ddp/{name}"], results[0][f"ddp/{name}"])
        assert _same(np.sort(result[f"ddp/{name}"]), np.sort(mean))  # the bucket's order is DDP's


@pytest.mark.parametrize(
    "codec", [Inceptionn(), Inceptionn(3, Mode.PUBLISHED, 16), Bfp(), Bfp(4, 15), Bfp(16, 7, 3), None]
)
def test_round_trips_are_numpys_and_keep_the_shape(codec):
    own = samples(240, 4).reshape(4, 3, 20)
    golden = {Inceptionn: inceptionn.roundtrip, Bfp: bfp.roundtrip}.get(type(codec), lambda values, _: values)
    tensor = torch.from_numpy(own).requires_grad_()
    received = torch_hooks.roundtrip(tensor, codec)
    assert received.shape == (4, 3, 20)
    assert not received.requires_grad
    assert _same(received.numpy(), golden(own, codec))
    turned = torch_hooks.roundtrip(tensor.permute(2, 0, 1), codec)
    assert _same(turned.numpy(), golden(np.ascontiguousarray(own.transpose(2, 0, 1)), codec))
    received.zero_()
    assert _same(tensor.detach().numpy(), samples(240, 4).reshape(4, 3, 20))  # no memory is shared


def test_other_types_are_refused():
    with pytest.raises(TypeError, match=r"values must be float32, not torch\.float64"):
        torch_hooks.roundtrip(torch.zeros(3, dtype=torch.float64), None)
    bucket = torch_ranks.Bucket(torch.zeros(3, dtype=torch.float64))
    with pytest.raises(
        TypeError, match=r"gradients must be float32 or bfloat16 or float16, not torch\.float64"
    ):
        torch_hooks.ring()(None, bucket)
    bucket = torch_ranks.Bucket(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match=r"gradients must be float32, not torch\.bfloat16"):
        torch_hooks.top_k()(None, bucket)
    with pytest.raises(ValueError, match=r"share must be above 0, and at most 1, not 1\.5"):
        torch_hooks.top_k(1.5)
    with pytest.raises(ValueError, match="bound must be from"):
        torch_hooks.inceptionn(16)
    with pytest.raises(ValueError, match="mantissa must be 3 to 15"):
        torch_hooks.bfp(mantissa=2)
    with pytest.raises(ValueError, match="exponent must be 1 to 8"):
        torch_hooks.bfp(exponent=9)


@pytest.mark.parametrize("module", ["hooks", "cnn"])
def test_without_pytorch_the_import_says_what_is_missing(module):
    code = f"import sys; sys.modules['torch'] = None; import fanin.torch.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == f"ImportError: fanin.torch.{module} needs PyTorch: pip install 'fanin[torch]'"


@pytest.mark.slow
def test_the_example_trains_with_every_codec():
    example = Path(__file__).parents[3] / "examples" / "digits_ddp.py"
    command = [sys.executable, str(example), "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 13
    assert lines[1].split()[:2] == ["none", "1.00×"]
