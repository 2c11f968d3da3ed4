"""Limits of jobs: each is stated in one place, and the others follow it."""

import pytest
from amaranth.hdl import Shape

from fanin.glm.facts import GlmConfig
from fanin.hdl.aggregation.job import JobConfig
from fanin.hdl.aggregation.slots import check_slots
from fanin.job import SLOTS, Job, Member, worker_endpoint
from fanin.p4.aggregation import ProgramConfig
from fanin.wire.aggregation import AGGREGATION
from fanin.wire.fields import field_bits


def _job(slots):
    return Job(1, 0, slots, (Member(0, 1, worker_endpoint(0)),))


def test_the_slots_of_a_switch_are_those_that_a_packet_can_name():
    assert 1 << field_bits(AGGREGATION, "slot") == SLOTS
    for takes in (
        _job,
        lambda slots: ProgramConfig(slots=slots, values=1),
        check_slots,
        lambda slots: GlmConfig(name="most", slots=slots),
    ):
        takes(SLOTS)
        with pytest.raises(ValueError, match=str(SLOTS)):
            takes(2 * SLOTS)


def test_a_nodes_register_can_name_all_of_a_switchs_slots():
    bits = Shape.cast(JobConfig.as_shape()["log2_slots"].shape).width
    assert 1 << bits > SLOTS.bit_length() - 1
