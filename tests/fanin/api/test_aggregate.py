"""Sums of arrays through the switch: number formats, what is refused, what is shown."""

import ml_dtypes
import numpy as np
import pytest
import torch
from scapy.utils import rdpcap

import fanin
from fanin.api.aggregate import MAX_FRAC
from tests.support import new_seed


def _rng():
    return np.random.default_rng(new_seed())


def test_bfloat16_tensors_of_pytorch_have_a_sum_in_float32():
    own = torch.tensor([[1.5, -2], [3.25, 2**-7]], dtype=torch.bfloat16)
    total = fanin.aggregate([own, own, own]).values
    assert total.dtype == np.float32
    assert total.tolist() == [[4.5, -6], [9.75, 3 * 2**-7]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e3])
def test_floats_are_added_with_the_finest_format_that_clamps_nothing(dtype, scale):
    arrays = [(scale * _rng().uniform(-1, 1, size=(5, 7))).astype(dtype) for _ in range(3)]
    total = fanin.aggregate(arrays)
    assert total.clamped == 0
    assert total.values.shape == (5, 7)
    assert total.values.dtype == dtype
    exact = np.sum(np.array(arrays, dtype=np.float64), axis=0)
    allowed = 3 * 2.0 ** -(total.frac + 1) + np.abs(exact) * float(ml_dtypes.finfo(dtype).eps)
    assert (np.abs(total.values - exact) <= allowed).all()
    with pytest.warns(UserWarning, match=r"of 105 values exceed the range \[-2\^29, 2\^29\) of 3 workers"):
        assert fanin.aggregate(arrays, frac=total.frac + 1).clamped > 0


@pytest.mark.parametrize("value", [1.0, -1.0, 2.0**29, 2.0**29 - 1, 2.0**29 - 0.4, 1e300, 5e-324, 0.0])
def test_the_largest_value_is_never_clamped(value):
    total = fanin.aggregate([[value, -value / 3]] * 3)
    assert total.clamped == 0
    assert total.values[0] == pytest.approx(3 * value, rel=1e-8)


def test_integers_go_as_they_are_and_are_clamped():
    most = 2**29 - 1
    with pytest.warns(UserWarning, match=r"8 of 16 values exceed the range \[-2\^29, 2\^29\) of 4 workers"):
        total = fanin.aggregate([np.array([7, -7, 2**31 - 1, -(2**31)], dtype=np.int32)] * 4)
    assert total.values.tolist() == [28, -28, 4 * most, -4 * 2**29]
    assert (total.clamped, total.frac) == (8, 0)
    assert total.values.dtype == np.int32


def test_faults_cost_packets_and_change_nothing(tmp_path):
    arrays = list(_rng().normal(size=(3, 200)))
    good = fanin.aggregate(arrays)
    bad = fanin.aggregate(arrays, drop=0.1, corrupt=0.1, seed=5, pcap=tmp_path / "frames.pcap", encap="udp")
    assert (good.values == bad.values).all()
    assert good.retransmissions == 0 < bad.retransmissions
    assert bad.packets > good.packets
    assert len(rdpcap(str(tmp_path / "frames.pcap"))) > good.packets


def test_it_shows_itself():
    total = fanin.aggregate([[1.0, 2.0]] * 2)
    assert repr(total).startswith("sum of 2 × 2 float64\n  time  ")
    assert "<td" in total._repr_html_()


class _Unreadable:
    """Array that raises as a tensor does that requires gradients."""

    def __array__(self, *options, **named):
        raise RuntimeError("use detach()")


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ([], {}, r"arrays must be of 1 to 32 workers, not 0"),
        ([[1.0]] * 33, {}, r"arrays must be of 1 to 32 workers, not 33"),
        ([[1.0], [1.0, 2.0]], {}, r"arrays must have one shape: worker 0's is \(1,\), 1's \(2,\)"),
        ([["a"]], {}, r"arrays must be of real numbers: worker 0's is <U1"),
        ([[1.0], [np.nan]], {}, r"arrays must be finite: worker 1's is not"),
        ([[]], {}, r"arrays must not be empty"),
        ([[1]], {"frac": 3}, r"frac is for floats, not for int64"),
        ([np.array([2**63], dtype=np.uint64)], {}, rf"arrays must be less than 2\^63, not {2**63}"),
        ([[1.0]], {"frac": MAX_FRAC + 1}, rf"frac must be in -{MAX_FRAC}…{MAX_FRAC}, not {MAX_FRAC + 1}"),
        ([[1.0]], {"target": "asic"}, r"target must be one of v1model, tna, not 'asic'"),
        ([[1.0]], {"switch": "asic"}, r"switch must be one of embedded, bmv2, reference, not 'asic'"),
        ([[1.0]], {"slots": 3}, r"slots must be a power of two, not 3: jobs have aligned ranges of them"),
        ([[1.0]], {"slots": 8.0}, r"slots must be an integer, not 8.0"),
        ([[1.0]], {"slots": 1, "protocol": "switchml"}, r"slots must be at least 2, not 1"),
        ([[1.0]], {"values": True}, r"values must be an integer, not True"),
        ([[1.0]], {"frac": 2.5}, r"frac must be an integer, not 2.5"),
        ([[1.0]], {"frac": "8"}, r"frac must be an integer, not '8'"),
        ([[1.0]], {"drop": "0.1"}, r"drop must be a number, not '0.1'"),
        ([[1.0]], {"timeout_ns": np.inf}, r"timeout_ns must be in \(0, 1e\+13\], not inf"),
        ([[1.0]], {"retries": -1}, r"retries must be in 0…65535, not -1"),
        ([[1.0]], {"pcap": 5}, r"pcap must be a path, not 5"),
        (5, {}, r"arrays must be an array for each worker: .*"),
        ([_Unreadable()], {}, r"arrays must be an array for each worker: use detach\(\)"),
        ([[[1], [1, 2]]], {}, r"arrays must be an array for each worker: .*"),
        ([[1.0]], {"drop": 2}, r"drop must be a probability, not 2"),
    ],
)
def test_bad_input(arrays, options, message):
    with pytest.raises(fanin.InputError, match=f"^{message}$"):
        fanin.aggregate(arrays, **options)


def test_numpys_integers_are_taken():
    total = fanin.aggregate(
        [[1.0], [2.0]], slots=np.int64(8), values=np.int8(4), seed=np.uint32(3), frac=np.int16(4)
    )
    assert np.asarray(total.values).tolist() == [3.0]


def test_nothing_is_left_of_a_capture_whose_run_failed(tmp_path):
    with pytest.raises(fanin.CheckFailed):
        fanin.aggregate([[1.0]], drop=1.0, retries=2, pcap=tmp_path / "frames.pcap")
    assert list(tmp_path.iterdir()) == []
