"""Random bits of the nodes; engines that share a vector: each stripe is an all-reduce of its own."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from fanin.codec.facts import Bf16, Fp16, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden.codecs import RoundTrips
from fanin.codec.golden.rounding import derived_seed
from fanin.golden import fp32
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce, striped
from fanin.ring.golden.random_bits import RandomBits

CONFIG = RingConfig(lanes=8)


def test_stripes_are_reduced_one_by_one():
    given = np.random.default_rng(3).normal(0, 1, (3, 100)).astype(np.float32)
    apart = [all_reduce(list(given[:, part]), CONFIG) for part in (slice(0, 56), slice(56, 100))]
    np.testing.assert_array_equal(striped(list(given), CONFIG, 2), np.concatenate(apart))
    np.testing.assert_array_equal(striped(list(given), CONFIG, 1), all_reduce(list(given), CONFIG))
    # the order of the additions of a value follows from its place in its stripe
    assert not np.array_equal(striped(list(given), CONFIG, 2), all_reduce(list(given), CONFIG))


def test_a_vector_may_have_fewer_words_than_there_are_engines():
    given = [np.full(3, value, np.float32) for value in (1, 2)]
    assert striped(given, CONFIG, 4).tolist() == [3, 3, 3]


@pytest.mark.parametrize("sizes", [(100, 99), (99, 100), (0, 0), ()])
def test_vectors_that_are_not_alike_or_empty_are_refused(sizes):
    with pytest.raises(ValueError, match=r"gradients must have one length|at least one array"):
        striped([np.zeros(size, np.float32) for size in sizes], CONFIG, 4)


CODECS = [Mx(Element.E2M1, 16, Rounding.STOCHASTIC), Bf16(Rounding.STOCHASTIC), Fp16(Rounding.STOCHASTIC)]


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_each_node_uses_up_one_sequence_in_the_order_in_which_it_sends(codec, nodes):
    """Beside it, nodes that send in turn: in step t, node r sends slice r - t, as its NIC does."""
    config, seed = RingConfig(lanes=8, frame_words=2, slice_frames=2, buffer_frames=4, codec=codec), 77
    rng, bits = np.random.default_rng(5), RandomBits(seed)
    senders = [RoundTrips(codec, derived_seed(seed, node)) for node in range(nodes)]
    for count in (1000, 7, 32 * nodes + 1):  # the sequences go on from one vector to the next
        given = [rng.normal(0, 1, count).astype(np.float32) for _ in range(nodes)]
        end = config.padded_values(count, nodes)
        padded = [np.pad(own, (0, end - count)) for own in given]
        expected = np.empty(end, np.float32)
        for segment in config.segments(count, nodes):
            parts = [slice(8 * part.start, 8 * (part.start + part.words)) for part in segment]
            held = [padded[node][parts[node]] for node in range(nodes)]  # what each node sends next
            for step in range(1, nodes + 1):
                arriving = [senders[node](held[node]) for node in range(nodes)]
                for node in range(nodes):
                    own = padded[node][parts[(node - step) % nodes]]
                    held[node] = fp32.add(arriving[node - 1], own)
            for node in range(nodes):  # in its last step it has sent a total
                expected[parts[(node + 1) % nodes]] = arriving[node]
        found = all_reduce(given, config, bits=bits)
        np.testing.assert_array_equal(found, expected[:count])
    assert not np.array_equal(all_reduce(given, config, bits=RandomBits(seed)), found)


@pytest.mark.parametrize("codec", [None, Bf16(), Mx()], ids=str)
@pytest.mark.parametrize(
    ("tensor", "kind"), [(Bf16(), ml_dtypes.bfloat16), (Fp16(), np.float16)], ids=["bf16", "fp16"]
)
def test_sums_of_16_bit_values_are_those_of_binary32_rounded_once(tensor, kind, codec):
    rng, config = np.random.default_rng(9), RingConfig(lanes=8, codec=codec)
    given = [rng.normal(0, 1, 3000).astype(np.float32).astype(kind) for _ in range(4)]
    total = all_reduce([own.astype(np.float32) for own in given], config)
    found = all_reduce([own.view(np.uint16) for own in given], replace(config, tensor=tensor))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found.view(kind), total.astype(kind))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor": Bf16(Rounding.STOCHASTIC)}, "tensor must be none, bf16 or fp16, .* not bf16, stochastic"),
        ({"tensor": Mx()}, "tensor must be none, bf16 or fp16, rounded to nearest, not mx, e4m3"),
        ({"tensor": Bf16(), "lanes": 4}, "lanes must be at least 8 with a tensor, not 4"),
    ],
)
def test_tensors_that_nodes_do_not_have(options, message):
    with pytest.raises(ValueError, match=message):
        RingConfig(**options)
