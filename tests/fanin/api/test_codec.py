"""Codecs from Python: the same bits as the command's, and what is refused."""

from contextlib import nullcontext

import numpy as np
import pytest

import fanin
from fanin.cli.main import main
from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden.codecs import roundtrip
from tests.support import new_seed

CODECS = [
    ("bfp", {"mantissa": 5, "block": 8}, Bfp(mantissa=5, block=8), ["--mantissa", "5", "--block", "8"]),
    ("inceptionn", {"bound": 8}, Inceptionn(bound=8), ["--bound", "2^-8"]),
    ("mx", {"element": "e2m1", "block": 16}, Mx(Element.E2M1, 16), ["--element", "e2m1", "--block", "16"]),
    (
        "mx",
        {"rounding": "stochastic", "seed": 7},
        Mx(rounding=Rounding.STOCHASTIC),
        ["--rounding", "stochastic", "--seed", "7"],
    ),
    ("bf16", {}, Bf16(), []),
    ("fp16", {"rounding": Rounding.STOCHASTIC}, Fp16(Rounding.STOCHASTIC), ["--rounding", "stochastic"]),
    (
        "inceptionn",
        {"mode": "published"},
        Inceptionn(mode=Mode.PUBLISHED),
        ["--mode", "published"],
    ),
]


@pytest.mark.parametrize(("name", "parameters", "config", "options"), CODECS)
def test_the_file_is_the_commands(tmp_path, name, parameters, config, options):
    values = np.random.default_rng(new_seed()).normal(scale=0.01, size=(31, 11)).astype(np.float32)
    values[0, :4] = [0.0, -0.0, np.inf, np.nan]
    own = values
    own.tofile(tmp_path / "values")
    assert main(["codec", "encode", "--codec", name, *options, f"{tmp_path}/values", f"{tmp_path}/theirs"]) == 0
    seed = parameters.get("seed", 1)
    with pytest.warns(UserWarning, match="2 of 341") if name in ("bfp", "mx") else nullcontext():
        packed = fanin.compress(values, name, **parameters)
    packed.write(tmp_path / "ours")
    stream = packed.stream
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    expected = roundtrip(values.reshape(-1), config, seed)
    assert fanin.decompress(tmp_path / "ours").tobytes() == expected.tobytes() == packed.values.tobytes()
    assert packed.values.shape == values.shape
    finite = np.isfinite(values)
    if name == "mx":  # the finite values beside the NaN are lost
        assert (packed.max_error, packed.mean_error) == (np.inf, np.inf)
        values = np.where(np.isfinite(packed.values), values, 0)
        packed, finite = fanin.compress(values, name, **parameters), np.isfinite(values)
    errors = np.abs(values[finite].astype(np.float64) - packed.values[finite])
    assert (packed.max_error, packed.mean_error) == (errors.max(), pytest.approx(errors.mean()))
    assert packed.ratio == pytest.approx(4 * values.size / len(packed.stream), rel=0.02)
    with pytest.warns(UserWarning, match="2 of 341") if name in ("bfp", "mx") else nullcontext():
        assert fanin.compress(own, config, seed=seed).stream == stream
    assert f"{packed.max_error:.3g}" in repr(packed)


def test_bfp_warns_of_a_nan_that_wipes_its_block():
    values = np.full(32, 0.5, np.float32)
    values[3] = np.nan
    with pytest.warns(UserWarning, match="1 of 32 values are NaN or infinite: finite values of their blocks"):
        packed = fanin.compress(values, "bfp", block=16)
    assert np.isnan(packed.values[3])
    assert packed.values[np.arange(32) != 3].tolist() == [0.0] * 15 + [0.5] * 16
    assert fanin.compress(values, "inceptionn").values[0] == 0.5


def test_float64_and_integers_become_float32():
    values = np.random.default_rng(new_seed()).normal(size=100)
    assert fanin.compress(values, "bfp").stream == fanin.compress(values.astype(np.float32), "bfp").stream
    assert fanin.compress([1, 2, -3], "bfp").values.tolist() == [1, 2, -3]


@pytest.mark.parametrize(
    ("values", "codec", "parameters", "message"),
    [
        ([1.0], "gzip", {}, "codec must be one of inceptionn, bfp, mx, bf16, fp16, not 'gzip'"),
        (
            [1.0],
            "bfp",
            {"bound": 3},
            "bound is not a parameter of bfp; its parameters are block, mantissa, exponent, offset",
        ),
        ([1.0], Bfp(), {"block": 8}, "block is set in bfp, .* already; give a codec's name and its parameters"),
        ([1.0], "bfp", {"mantissa": "a"}, "mantissa must be an integer, not 'a'"),
        ([1.0], "mx", {"element": "e9"}, "element must be one of e4m3, e5m2, e3m2, e2m3, e2m1, int8, not 'e9'"),
        ([1.0], "mx", {"rounding": 0}, "rounding must be one of nearest, stochastic, not 0"),
        ([1.0], "mx", {"seed": 0}, "seed must be 1 to 4,294,967,295, not 0"),
        ([1.0], "inceptionn", {"mode": 7}, "mode must be one of published, strict, not 7"),
        ([1e300], "bfp", {}, r"value 0 is 1e\+300, which float32 cannot hold"),
        (["a"], "bfp", {}, "values must be real numbers, not <U1"),
        ([[1], [1, 2]], "bfp", {}, "values must be an array: "),
        ([], "bfp", {}, "values must not be empty"),
    ],
)
def test_bad_input(values, codec, parameters, message):
    with pytest.raises(fanin.InputError, match=f"^{message}"):
        fanin.compress(values, codec, **parameters)


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(fanin.InputError, match="cannot be read"):
        fanin.decompress(tmp_path / "nothing")
    (tmp_path / "words").write_text("no codec")
    with pytest.raises(fanin.InputError, match="is not a file of fanin codec"):
        fanin.decompress(tmp_path / "words")
