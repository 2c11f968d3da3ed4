"""The ring's sizes: what a node may have, and the limits that its memory's addresses share with every NIC."""

import pytest

from fanin.rdma.facts import RdmaConfig
from fanin.ring.facts import RingConfig, Stripe


@pytest.mark.parametrize("config", [RingConfig, RdmaConfig])
def test_addresses_of_memory_have_12_to_47_bits(config):
    assert config().address_width == 40
    assert [config(address_width=width).address_width for width in (12, 47)] == [12, 47]
    for width in (11, 48):
        with pytest.raises(ValueError, match=f"address_width must be from 12 to 47, not {width}"):
            config(address_width=width)


def test_what_is_buffered_toward_memory_is_bounded():
    assert RingConfig(memory_words=1 << 14).memory_words == 1 << 14
    for words in (-1, (1 << 14) + 1):
        with pytest.raises(ValueError, match=f"memory_words must be 0 to 16384, not {words}"):
            RingConfig(memory_words=words)


def test_engines_share_a_vector_in_whole_words():
    config = RingConfig(lanes=8)
    assert config.stripes(8 * 10 - 3, 4) == [Stripe(0, 24), Stripe(24, 16), Stripe(40, 24), Stripe(64, 13)]
    assert config.stripes(9, 4) == [Stripe(0, 8), Stripe(8, 0), Stripe(8, 1), Stripe(9, 0)]
    for count in range(1, 200):
        for engines in (1, 2, 3, 4, 7):
            stripes = config.stripes(count, engines)
            assert sum(stripe.count for stripe in stripes) == count
            words = [config.words(stripe.count) for stripe in stripes]
            assert words[0] == max(words) <= min(words) + 1
