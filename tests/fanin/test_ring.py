"""The ring's sizes: what a node may have, and the limits that its memory's addresses share with every NIC."""

import pytest

from fanin.rdma import RdmaConfig
from fanin.ring import RingConfig


@pytest.mark.parametrize("config", [RingConfig, RdmaConfig])
def test_addresses_of_memory_have_12_to_47_bits(config):
    assert config().address_width == 40
    assert [config(address_width=width).address_width for width in (12, 47)] == [12, 47]
    for width in (11, 48):
        with pytest.raises(ValueError, match=f"address_width must be from 12 to 47, not {width}"):
            config(address_width=width)
