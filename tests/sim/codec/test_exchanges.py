"""Exchanges: sums are those of the ring's golden model and of plain addition, bytes those that are sent."""

import numpy as np
import pytest

from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden import bfp, codecs, inceptionn
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.sim.codec.exchanges import AggregatorTree, Ring, RingOfRings, RingsUnderAggregator, WorkerAggregator
from fanin.sim.codec.wire import LegBytes, Traffic, Truncation, transfer

CODECS = [None, Truncation(16), Inceptionn(), Inceptionn(8, Mode.PUBLISHED, 16), Bfp()]
each_codec = pytest.mark.parametrize("codec", CODECS, ids=str)


def _gradients(workers, count, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(count) * 2.0**-7).astype(np.float32) for _ in range(workers)]


@pytest.mark.parametrize("codec", [None, Inceptionn(), Inceptionn(group=16), Bfp(block=32)], ids=str)
@pytest.mark.parametrize("count", [1, 1000, 40_000])
def test_the_ring_is_that_of_the_hardware(codec, count):
    gradients = _gradients(3, count)
    lanes = codec.group if isinstance(codec, Inceptionn) else 16
    expected = all_reduce(gradients, RingConfig(lanes=lanes, codec=codec))
    assert np.array_equal(Ring(codec)(gradients, Traffic()), expected)


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_ring_sends_every_slice_2n_minus_2_times(nodes):
    """Without a codec the bytes are known: all slices, filled up to whole words of 64 bytes, 2(N - 1) times."""
    traffic = Traffic()
    words_of_a_slice = -(-63 // nodes)
    Ring()(_gradients(nodes, 1000), traffic)  # 62.5 words
    size = 2 * (nodes - 1) * words_of_a_slice * nodes * 64
    assert traffic.legs == {"ring": LegBytes(size, size)}


def test_the_total_of_a_slice_is_compressed_once_and_sent_n_minus_1_times():
    """Three nodes, three slices of a word, a gradient of the first node alone: each hop's bytes are known."""
    values, zeros = np.full(48, 0.5, np.float32), np.zeros(48, np.float32)
    traffic = Traffic()
    total = Ring(Inceptionn(group=16))([values, zeros, zeros], traffic)
    assert np.array_equal(total, values)
    full, empty = 4 + 16, 4  # tags, and a byte for each value or none
    begins_at_first = full + full + 2 * full
    begins_at_second = empty + empty + 2 * full
    begins_at_third = empty + full + 2 * full
    assert traffic.legs["ring"].sent == begins_at_first + begins_at_second + begins_at_third


@each_codec
def test_an_aggregator_adds_what_it_received_in_order(codec):
    gradients = _gradients(4, 100)
    traffic = Traffic()
    expected = np.zeros(100, np.float32)
    for gradient in gradients:
        expected += transfer(gradient, codec)[0]
    assert np.array_equal(WorkerAggregator(codec)(gradients, traffic), expected)
    sent = sum(transfer(gradient, codec)[1] for gradient in gradients)
    assert traffic.legs == {"gradients up": LegBytes(1600, sent), "weights down": LegBytes(1600, 1600)}


@pytest.mark.parametrize("kind", [AggregatorTree, RingsUnderAggregator, RingOfRings])
def test_groups_add_up_whole_numbers_exactly(kind):
    rng = np.random.default_rng(2)
    gradients = [rng.integers(-99, 99, 500).astype(np.float32) for _ in range(6)]
    assert np.array_equal(kind(2)(gradients, Traffic()), sum(gradients))


@pytest.mark.parametrize(
    ("kind", "legs"),
    [
        (
            AggregatorTree,
            {"gradients up, groups": 6 * 1920, "gradients up, root": 2 * 1920, "weights down": 8 * 1920},
        ),
        (
            RingsUnderAggregator,
            {"rings of workers": 2 * 4 * 1920, "gradients up": 2 * 1920, "weights down": 6 * 1920},
        ),
        (RingOfRings, {"rings of workers": 2 * 4 * 1920, "ring of groups": 2 * 1920, "sum down": 4 * 1920}),
    ],
)
def test_legs_of_two_groups_of_three_workers(kind, legs):
    traffic = Traffic()
    kind(2)(_gradients(6, 480), traffic)
    assert {name: leg.sent for name, leg in traffic.legs.items()} == legs


@each_codec
def test_figure_1c_compresses_every_leg_and_figure_1b_all_but_the_weights(codec):
    for kind in (RingsUnderAggregator, RingOfRings):
        traffic = Traffic()
        kind(2, codec)(_gradients(4, 4800), traffic)
        for name, leg in traffic.legs.items():
            assert (leg.ratio > 1.5) is (codec is not None and name != "weights down"), name


def test_one_worker_has_nothing_to_exchange():
    (gradient,) = _gradients(1, 10)
    traffic = Traffic()
    assert Ring(Inceptionn())([gradient], traffic) is gradient
    assert traffic.total == LegBytes(0, 0)


def test_groups_must_be_equal():
    with pytest.raises(ValueError, match=r"groups must divide the 4 workers, not be 3"):
        RingOfRings(3)(_gradients(4, 10), Traffic())


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000])
def test_bytes_are_those_of_the_codecs_streams(count):
    (values,) = _gradients(1, count)
    for config in (Inceptionn(), Inceptionn(6, Mode.PUBLISHED, 16)):
        assert transfer(values, config)[1] == len(inceptionn.encode(values, config))
        assert np.array_equal(transfer(values, config)[0], inceptionn.roundtrip(values, config))
    for config in (Bfp(), Bfp(block=4, mantissa=4), Bfp(4, 7, 5, 8)):
        assert transfer(values, config)[1] == len(bfp.encode(values, config))
        assert np.array_equal(transfer(values, config)[0], bfp.roundtrip(values, config))
    for config in (Mx(Element.E2M1, 16), Mx(rounding=Rounding.STOCHASTIC), Bf16(), Fp16()):
        received, sent, _ = transfer(values, config, 5)
        assert sent == len(codecs.encode(values, config, 5))
        assert np.array_equal(received, codecs.roundtrip(values, config, 5))


def test_each_vector_is_rounded_with_other_random_bits():
    (values,), traffic = _gradients(1, 1000), Traffic()
    first, second = (traffic.send("up", values, Bf16(Rounding.STOCHASTIC)) for _ in range(2))
    assert not np.array_equal(first, second)
    repeated = Traffic()
    assert np.array_equal(repeated.send("up", values, Bf16(Rounding.STOCHASTIC)), first)


@pytest.mark.parametrize(("dropped", "size"), [(16, 6), (22, 4), (24, 3)])
def test_truncation_drops_the_lowest_bits(dropped, size):
    values = np.array([0x3FFFFFFF, 0xBFC12345, 0x00FFFFFF], np.uint32).view(np.float32)
    received, sent, _ = transfer(values, Truncation(dropped))
    assert sent == size
    assert received.view(np.uint32).tolist() == [v >> dropped << dropped for v in values.view(np.uint32)]
    with pytest.raises(ValueError, match="dropped must be 1 to 31 bits, not 32"):
        Truncation(32)
