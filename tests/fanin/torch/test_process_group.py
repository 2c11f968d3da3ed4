"""The process group: the ring's bits for every collective and DDP, what goes by gloo, and ranks that fail."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.distributed as dist

from fanin.codec.golden.codecs import roundtrip
from fanin.golden import scaled
from fanin.link import LinkConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.sim.ring.time import RingTime
from fanin.torch import Options
from tests.fanin.torch import group_ranks
from tests.fanin.torch.ranks import gradients, network

ROOT = Path(__file__).parents[3]
RANKS, OPTIONS = group_ranks.RANKS, group_ranks.OPTIONS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What each rank has got, by name: one start of three processes for all tests."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.fanin.torch.group_ranks", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[0, -9, 0]\n", done.stderr
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return [np.load(folder / f"{rank}.npz") for rank in range(RANKS)]


@pytest.fixture(scope="module")
def failed(folder):
    """Of the ranks that have outlived rank 1."""
    return {rank: np.load(folder / f"{rank}-failed.npz") for rank in (0, 2)}


def _same(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _sum(name, given):
    """By the golden model of what the group stands for."""
    options = OPTIONS[name]
    return scaled.all_reduce(given) if options.collective == "switch" else all_reduce(given, options.ring)


@pytest.mark.parametrize(
    ("name", "count"), [(name, count) for name, counts in group_ranks.LENGTHS.items() for count in counts]
)
def test_every_rank_gets_the_golden_sum_and_mean_bit_for_bit(results, name, count):
    given = group_ranks.vectors(name, count)
    expected = _sum(name, given)
    for found in results:
        assert _same(found[f"sum/{name}/{count}"], expected)
        assert _same(found[f"mean/{name}/{count}"], expected / np.float32(RANKS))
    assert not np.array_equal(expected, given.sum(axis=0)) or count < 500


def test_a_call_returns_before_the_sum_is_there(results):
    assert any(bool(found[key]) for found in results for key in found.files if key.startswith("pending"))


@pytest.mark.parametrize("name", OPTIONS)
def test_ddp_gets_the_golden_sum_of_what_the_ranks_give(results, name):
    """It divides first. All parameters are one bucket, in their order as long as it has not seen another."""
    given = [found[f"own/{name}"] * np.float32(1 / RANKS) for found in results]
    expected = _sum(name, given)
    assert all(_same(found[f"ddp/{name}"], expected) for found in results)


def test_hooks_use_the_groups_nodes(results):
    """Gradients are given undivided, as the codec leaves them, in their order."""
    codec = OPTIONS["bfp"].codec
    given = [roundtrip(found["own/bfp"], codec) for found in results]
    expected = _sum("bfp", given) / np.float32(RANKS)
    assert all(_same(found["hooked"], expected) for found in results)
    assert all(_same(found["power"], results[0]["power"]) for found in results)
    assert results[0]["power"].any()


def _as_type(values, kind):
    """Values after rounding to a type of 16 bits, as float32."""
    with np.errstate(over="ignore"):
        return values.astype({"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[kind]).astype(np.float32)


@pytest.mark.parametrize("kind", group_ranks.NATIVE)
@pytest.mark.parametrize("name", ["none", "bfp"])
def test_values_of_16_bits_are_added_in_float32_and_rounded_once(results, name, kind):
    given = np.stack([_as_type(own, kind) for own in group_ranks.vectors(name, 500)])
    total, part = _sum(name, given), _sum(name, given[:, :6])
    for rank, found in enumerate(results):
        for what, expected in (
            ("sum", total),
            ("mean", _as_type(total, kind) / np.float32(RANKS)),  # the NICs round the sum
            ("part", part[2 * rank :][:2]),
            (
                "across",
                _sum(name, given[:, :6].reshape(RANKS, 3, 2).transpose(0, 2, 1).reshape(RANKS, 6)).reshape(
                    2, 3
                ),
            ),
        ):
            rounded = _as_type(expected, kind)
            assert np.array_equal(found[f"native {what}/{name}/{kind}"], rounded, equal_nan=True), what
    assert [int(found[f"native gloo/{name}"]) for found in results] == [0] * RANKS


@pytest.mark.parametrize("name", ["none", "bfp"])
def test_ddp_trains_bfloat16_parameters(results, name):
    """All replicas have the same gradients, near the mean of the ranks' own."""
    mean = sum(_bfloat16_gradients(rank) for rank in range(RANKS)) / RANKS
    for found in results:
        assert _same(found[f"native ddp/{name}"], results[0][f"native ddp/{name}"])
        assert np.abs(found[f"native ddp/{name}"] - mean).max() <= np.abs(mean).max() * 2**-6


def _bfloat16_gradients(rank):
    model = network(7).bfloat16()
    model(torch.full((16, 20), 0.25 + rank, dtype=torch.bfloat16)).square().mean().backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()]).float().numpy()


def test_reduce_scatter_is_a_part_of_the_rings_sum(results):
    total = all_reduce(gradients(RANKS, 6, 60), OPTIONS["none"].ring)
    for rank, found in enumerate(results):
        assert _same(found["scattered"], np.stack([total[2 * rank :][:2]] * 2))


UNFIT = {
    "reduce_scatter_tensor long": "the input must have 6 values, not 8",
    "reduce_scatter_tensor short": "the input must have 6 values, not 5",
    "reduce_scatter output": "the output must have 2 values, not 1",
    "reduce_scatter inputs": "the inputs must be 3 tensors, one for each rank, not 2",
    "all_gather_into_tensor": "the output must have 6 values, not 5",
    "all_gather output": "the output must have 2 values, not 3",
    "all_gather outputs": "the outputs must be 3 tensors, one for each rank, not 2",
    "broadcast": "the root must be a rank of the group, 0 to 2, not 7",
}


@pytest.mark.parametrize("name", UNFIT)
def test_tensors_that_do_not_fit_are_refused_at_every_rank(results, name):
    assert [str(found[f"unfit/{name}"]) for found in results] == [UNFIT[name]] * RANKS


def test_reduce_scatter_takes_uneven_parts_but_the_same_at_every_rank(results):
    assert [found["uneven"].tolist() for found in results] == [[6], [9, 9], [12, 12, 12]]
    told = "parts of 1, 3, 2, rank 1 reduce_scatter of 6 float32 sum, parts of 1, 2, 3: all ranks must call"
    assert all(told in str(found["parts"]) for found in results)


def test_a_destroyed_group_refuses_collectives(results):
    assert [str(found["destroyed"]) for found in results] == ["the process group has been destroyed"] * RANKS


def test_what_is_handed_on_keeps_every_bit(results):
    special, ones = group_ranks.SPECIAL, np.ones(len(group_ranks.SPECIAL), np.float32)
    for found in results:
        assert _same(found["broadcast"], special)
        assert _same(found["gathered"], np.stack([np.concatenate([ones, special, ones])] * 2))


def test_other_types_reductions_and_strides(results):
    for found in results:
        assert found["whole"].tolist() == [3, 6, 9, 12, 15]
        assert found["largest"].tolist() == [2, 3, 4, 5, 6]
        assert np.array_equal(found["across"], np.full((2, 4), 6))
        assert found["objects"].tolist() == [0, 1, 2]
    assert [found["pair"].tolist() for found in results if "pair" in found] == [[4, 4, 4]] * 2


def test_the_time_is_the_models(results):
    """Two all-reduces of each length, and DDP's behind its broadcast, which doubles the values."""
    (first, *_), config = results, OPTIONS["none"].ring
    lengths = {f"all_reduce {count} 2": count for count in group_ranks.COUNTS}
    lengths |= {"broadcast 785 1": 2 * 785, "all_reduce 785 1": 785}
    assert first["rows"].tolist() == list(lengths)
    for row, count in zip(first["predicted"], lengths.values(), strict=True):
        calls = 2 if count in group_ranks.COUNTS else 1
        for found, gbps in zip(row, (10, 25, 100), strict=True):
            time = RingTime(config=config, nodes=RANKS, count=count, link=LinkConfig(gbps=gbps))
            assert found == pytest.approx(calls * time.total / 250e6)
    gloo_calls, gloo_seconds, other_seconds, seconds = first["other"]
    assert gloo_calls >= 2  # DDP compares shapes
    assert min(gloo_seconds, other_seconds) > 0
    assert seconds == pytest.approx(first["predicted"][:, 2].sum())
    assert "100 Gb/s" in str(first["report"])
    assert str(first["refused"]).startswith("time() needs a process group of the backend 'fanin'")


def test_ranks_that_call_unlike_are_named(failed):
    told = "all_reduce of 5 float32 sum, rank {} all_reduce of {} sum: all ranks must call the same"
    length, kind = told.format(2, "6 float32"), told.format(1, "5 float64")
    for found in failed.values():
        assert str(found["length"]) == str(found["length again"]) == f"collective 1: rank 0 calls {length}"
    assert str(failed[0]["type"]) == f"collective 1: rank 0 calls {kind}"


def test_a_rank_that_does_not_come_is_named(failed):
    for found in failed.values():
        assert str(found["late"]) == "collective 1, barrier: rank 1 has not come in 1 s"


def test_a_rank_that_is_killed_is_named_within_seconds(failed):
    for found in failed.values():
        assert str(found["killed"]).endswith(
            "all_reduce of 9 float32 sum: rank 1 has ended, or stopped answering"
        )
        assert found["seconds"] < 10


def _torchrun(ranks, *arguments, **variables):
    """``torchrun`` of a script of ``examples``, as a user calls it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env=environment
    )


def _trained(ranks, steps):
    """What ``examples/ddp.py`` must end with: its training, with the ring's golden model between the ranks."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    torch.set_num_threads(1)  # as the script: products of matrices depend on it
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    order = list(network.parameters())
    for step in range(1, steps + 1):
        given = []
        for rank in range(ranks):
            images, labels = pixels[rank::ranks] / 16, digits[rank::ranks]
            chosen = np.arange(step * 32, (step + 1) * 32) % len(images)
            optimizer.zero_grad()
            outputs = network(torch.tensor(images[chosen], dtype=torch.float32))
            torch.nn.functional.cross_entropy(outputs, torch.tensor(labels[chosen])).backward()
            given.append(np.concatenate([p.grad.numpy().reshape(-1) for p in order]) / np.float32(ranks))
        total = torch.from_numpy(all_reduce(given, OPTIONS["none"].ring))
        for parameter, part in zip(order, total.split([p.numel() for p in order]), strict=True):
            parameter.grad = part.reshape(parameter.shape).clone()
        optimizer.step()
        if step == 1:  # DDP has seen in which order gradients come: the last layer's first
            order.reverse()
    return network.state_dict()


@pytest.mark.slow
@pytest.mark.verilator
def test_bfloat16_parameters_are_trained_to_the_same_golden_and_in_rtl(tmp_path):
    trained, losses = {}, {}
    for run in ("golden", "rtl"):
        file, report = tmp_path / f"{run}.pt", tmp_path / f"{run}.txt"
        given = ["--steps", "20", "--dtype", "bfloat16", "--save", str(file)]
        done = _torchrun(4, "examples/ddp.py", *given, FANIN_BACKEND=f"{run},report={report}")
        assert done.returncode == 0, done.stderr
        trained[run], losses[run] = torch.load(file), re.findall(r"loss ([\d.]+)", done.stdout)
    assert {values.dtype for values in trained["rtl"].values()} == {torch.bfloat16}
    assert all(torch.equal(trained["rtl"][name], trained["golden"][name]) for name in trained["golden"])
    assert losses["rtl"] == losses["golden"]
    assert float(losses["rtl"][-1]) < 0.6 * float(losses["rtl"][0])
    *_, predicted, measured = re.findall(r"([\d.]+) µs", re.search("total.*", report.read_text())[0])
    assert float(measured) == pytest.approx(float(predicted), rel=0.05)


@pytest.mark.slow
@pytest.mark.verilator
def test_an_ordinary_script_trains_to_the_same_parameters_golden_and_in_rtl(tmp_path):
    trained = {}
    for run in ("golden", "rtl"):
        file = tmp_path / f"{run}.pt"
        report = tmp_path / f"{run}.txt"
        options = f"{run},report={report}"
        done = _torchrun(4, "examples/ddp.py", "--steps", "20", "--save", str(file), FANIN_BACKEND=options)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("loss") == 20
        trained[run] = torch.load(file)
        assert "by gloo" in report.read_text()
    *_, predicted, measured = re.findall(r"([\d.]+) µs", re.search("total.*", report.read_text())[0])
    assert float(measured) == pytest.approx(float(predicted), rel=0.03)
    expected = _trained(4, 20)
    assert all(torch.equal(found[name], expected[name]) for found in trained.values() for name in expected)


def test_pytorch_knows_the_backend_and_loads_nothing_for_it():
    """A program that does not import fanin; NumPy is loaded by PyTorch itself."""
    script = (
        "import sys, torch.distributed as dist; print('fanin' in dist.Backend.backend_list, "
        "sorted(name for name in sys.modules if name.startswith(('fanin.', 'amaranth'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    base = ["fanin.base", "fanin.base.errors", "fanin.base.printable"]
    assert done.stdout == f"True {[*base, 'fanin.torch', 'fanin.torch.autoload']}\n"


def test_a_report_that_cannot_be_written_does_not_stop_the_script(tmp_path, monkeypatch, capfd):
    """The script may save its model next."""
    report = tmp_path / "report.txt"
    dist.init_process_group(
        "fanin", store=dist.HashStore(), rank=0, world_size=1, pg_options=Options(report=str(report))
    )
    monkeypatch.setattr(Path, "write_text", _full)
    dist.destroy_process_group()
    line = f"fanin: report={report}: cannot be written: No space left on device\n"
    assert line in capfd.readouterr().err


def _full(path, text):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
