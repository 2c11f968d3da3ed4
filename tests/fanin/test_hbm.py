"""A pseudo-channel's parameters: what they add up to, and which are refused."""

from dataclasses import replace

import pytest

from fanin.hbm import HBM2, MEMORIES, Hbm, memory_name


def test_a_pseudo_channel_of_the_u280_has_a_32nd_of_460_gigabytes_a_second():
    assert HBM2.gigabytes_a_second == pytest.approx(460.8 / 32, rel=1e-3)


def test_the_numbers_are_all_fields_but_the_address_map():
    assert dict(zip(Hbm.__dataclass_fields__, HBM2.numbers, strict=False)) == {
        name: value for name, value in vars(HBM2).items() if name != "address_map"
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queue": 0}, "queue must be at least 1, not 0"),
        ({"ports_per_channel": 0}, "ports_per_channel must be at least 1, not 0"),
        ({"ports_per_channel": 17}, "ports_per_channel must be in 1…16, not 17"),
        ({"refresh": 336}, "refresh must be more than 336, not 336"),
        ({"address_map": "RGBC"}, "address_map must be of G, B and C, not 'R'"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(HBM2, **changes)


def test_every_memory_has_a_name():
    assert MEMORIES["hbm2"] is HBM2
    assert MEMORIES["constant"] is None


def test_the_name_of_a_memory_is_that_of_its_parameters(monkeypatch):
    other = replace(HBM2, queue=64, ports_per_channel=2)
    monkeypatch.setitem(MEMORIES, "hbm3", other)
    assert {name: memory_name(memory) for name, memory in MEMORIES.items()} == {name: name for name in MEMORIES}
    assert memory_name(replace(HBM2, ports_per_channel=4)) == "hbm2"
    assert memory_name(replace(other, ports_per_channel=1)) == "hbm3"
