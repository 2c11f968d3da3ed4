"""``fanin ring run``: gradients of files, added up by models and in RTL, and bad input."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from fanin.cli.main import main
from fanin.codec.facts import Bf16, Bfp, Inceptionn, Mx
from fanin.codec.formats import Element, Rounding
from fanin.ring.facts import PRESETS, TENSORS, RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from tests.support import new_seed


@pytest.fixture
def gradients(tmp_path):
    """Three files, and what they hold: one is raw."""
    rng = np.random.default_rng(new_seed())
    vectors = [(rng.standard_normal(1001) * 0.1).astype(np.float32) for _ in range(3)]
    paths = [str(tmp_path / name) for name in ("a.npy", "b.npy", "c.f32")]
    for path, vector in zip(paths[:2], vectors, strict=False):
        np.save(path, vector)
    vectors[2].tofile(paths[2])
    return paths, vectors


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ([], None),
        (["--codec", "bfp", "--mantissa", "5"], Bfp(mantissa=5)),
        (["--codec", "inceptionn", "--bound", "2^-8"], Inceptionn(bound=8, group=16)),
        (["--codec", "mx", "--element", "e2m3", "--block", "16"], Mx(Element.E2M3, 16)),
        (["--codec", "bf16", "--rounding", "stochastic"], Bf16(Rounding.STOCHASTIC)),
    ],
)
def test_the_sum_is_the_golden_models(gradients, tmp_path, capsys, options, codec):
    paths, vectors = gradients
    output = tmp_path / "sum.npy"
    assert main(["ring", "run", *paths, "--on", "model", "-o", str(output), "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    golden = all_reduce(vectors, RingConfig(codec=codec))
    assert np.load(output).tobytes() == golden.tobytes()
    assert found["largest_error"] == pytest.approx(np.abs(golden - np.sum(vectors, axis=0, dtype=float)).max())
    assert (found["nodes"], found["values"], found["bit_exact"]) == (3, 1001, None)
    assert set(found["seconds"]) == {"model"}


def check_nodes_in_rtl(gradients, folder, capsys, tensor, values, codes):
    """The sum of four files by ``tiny`` nodes, of which the first and the last are alike."""
    paths, vectors = gradients
    output = folder / "sum.npy"
    options = ["--preset", "tiny", "--tensor", tensor, "-o", str(output), "--json"]
    assert main(["ring", "run", *paths, paths[0], *options]) == 0
    found = json.loads(capsys.readouterr().out)
    given = [vector.astype(values).view(codes) for vector in (*vectors, vectors[0])]
    golden = all_reduce(given, replace(PRESETS["tiny"], tensor=TENSORS[tensor]))
    assert np.array_equal(np.load(output), golden.view(values).astype(np.float32))
    assert (found["bit_exact"], found["tensor"]) == (True, tensor)
    assert found["seconds"]["rtl"] == pytest.approx(found["seconds"]["model"], rel=0.15)


@pytest.mark.verilator
@pytest.mark.end_to_end
def test_nodes_in_rtl_have_the_golden_sum(gradients, tmp_path, capsys):
    check_nodes_in_rtl(gradients, tmp_path, capsys, "fp32", np.float32, np.float32)


@pytest.mark.verilator
@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "values"), [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)])
def test_nodes_in_rtl_have_the_golden_sum_of_16_bit_values(gradients, tmp_path, capsys, tensor, values):
    check_nodes_in_rtl(gradients, tmp_path, capsys, tensor, values, np.uint16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a.npy"], "a ring has 2 to 255 nodes, a file each, not 1"),
        (["a.npy", "short.npy"], "short.npy: has 7 values, "),
        (["a.npy", "none.npy"], "none.npy: cannot be read"),
        (["a.npy", "b.npy", "--mantissa", "5"], "--mantissa: needs a --codec"),
        (["a.npy", "b.npy", "--codec", "bfp", "--mantissa", "50"], "mantissa must be 3 to 15 bits, not 50"),
        (["a.npy", "b.npy", "--codec", "bfp", "--block", "64", "--preset", "tiny"], "block"),
        (["a.npy", "b.npy", "--gbps", "0"], "--gbps 0: must be above 0"),
        (["a.npy", "b.npy", "-o", "a.npy/sum.npy"], "a.npy"),
    ],
)
def test_bad_input_is_one_line(gradients, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    np.save("short.npy", np.zeros(7, np.float32))
    assert main(["ring", "run", *options, "--on", "model"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fanin: error: ")
    assert message in line
