"""The host's side of a NIC: queue pairs end, refusals are named, a new connection's numbers are far away."""

from itertools import pairwise

import pytest

from fanin.host.causes import cause_of
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import PRESETS, Refusal, next_psn

DRIVER = RdmaDriver(PRESETS["tiny"])


def test_a_queue_pair_is_disconnected_by_a_connect_without_enable():
    registers = DRIVER.registers
    writes = dict(DRIVER.disconnect(3).operations)
    pair = registers["pair"].unpack(writes[registers.offset("pair")])
    assert (pair["pair_index"], pair["pair_enable"]) == (3, 0)
    assert registers["control"].unpack(writes[registers.offset("control")])["connect"]
    with pytest.raises(ValueError, match="index must be 0 to 3, not 4"):
        DRIVER.disconnect(4)


@pytest.mark.parametrize("refusal", list(Refusal)[1:])
def test_a_refused_command_is_named_with_its_cause(refusal):
    good = {"connect_refusal": 0, "region_refusal": 0}
    DRIVER.check_refusals([good])
    for field, command in ("connect_refusal", "connect"), ("region_refusal", "set_region"):
        with pytest.raises(ValueError, match=f"{command} was refused: .+") as raised:
            DRIVER.check_refusals([good | {field: int(refusal)}])
        assert str(cause_of(refusal)) in str(raised.value)


@pytest.mark.parametrize("last", [0, 5, (1 << 23) - 1, 1 << 23, (1 << 24) - 1])
def test_a_new_connection_begins_far_ahead_where_old_numbers_are_duplicates(last):
    first = next_psn(last)
    assert 0 <= first < 1 << 24
    assert 1 << 22 < (first - last) % (1 << 24) < 1 << 23
    assert (last - first) % (1 << 24) > 10_000_000  # until new numbers reach the old ones


def test_connections_that_send_nothing_do_not_come_back_to_their_first_numbers():
    firsts = [0]
    for _ in range(999):
        firsts.append(next_psn(firsts[-1]))
    ordered = sorted(firsts)
    gaps = [b - a for a, b in pairwise([*ordered, ordered[0] + (1 << 24)])]
    assert min(gaps) > 10_000
    assert next_psn((1 << 24) - 1) < 1 << 24
