"""Requests are divided at protobuf's outer level as a parser would read them."""

import random
import time
import tracemalloc

import pytest
from finsy.proto import p4r
from google.protobuf.message import DecodeError

from fanin.sim.switch.service.protobuf import (
    LimitError,
    MalformedError,
    batches,
    field_value,
    fields,
    join,
    prefix,
    remove_fields,
    split,
    varint,
)
from tests.support import new_seed

UPDATES, CONFIG = 4, 5


def _request(rng, count):
    entries = [{"table_id": number, "metadata": rng.randbytes(rng.randrange(300))} for number in range(count)]
    updates = [p4r.Update(type=1, entity={"table_entry": entry}) for entry in entries]
    return p4r.WriteRequest(
        device_id=7, election_id={"high": 1, "low": 2**64 - 1}, updates=updates, atomicity=2, role="a"
    )


def test_a_request_is_divided_without_loss():
    rng = random.Random(new_seed())
    request = _request(rng, 300)
    data = request.SerializeToString()
    largest = max(update.ByteSize() for update in request.updates)
    rest = remove_fields(data, UPDATES, "updates", count=300, size=largest)
    for limits in ({"count": 299, "size": largest}, {"count": 300, "size": largest - 1}):
        with pytest.raises(LimitError, match="updates"):
            remove_fields(data, UPDATES, "updates", **limits)
    parts = [p4r.WriteRequest.FromString(part) for part in batches(data, UPDATES, count=64, size=4000)]
    assert [update for part in parts for update in part.updates] == list(request.updates)
    assert all(len(part.updates) <= 64 and part.ByteSize() <= 4000 for part in parts)
    request.ClearField("updates")
    assert p4r.WriteRequest.FromString(rest) == request


def test_an_element_that_is_too_large_is_a_part_of_its_own():
    data = join([b"a", bytes(100), b"b"])
    assert [split(part) for part in batches(data, 1, count=9, size=10)] == [[b"a"], [bytes(100)], [b"b"]]


def test_parts_of_one_message_merge_as_a_parser_merges_them():
    one = p4r.SetForwardingPipelineConfigRequest(config={"p4_device_config": b"x"})
    two = p4r.SetForwardingPipelineConfigRequest(config={"cookie": {"cookie": 5}})
    data = one.SerializeToString() + two.SerializeToString()
    merged = p4r.SetForwardingPipelineConfigRequest.FromString(data)
    assert p4r.ForwardingPipelineConfig.FromString(field_value(data, CONFIG, count=2)) == merged.config
    assert field_value(data, 4, count=2) is None


@pytest.mark.parametrize("unit", [b"\x12\x00\x08\x00", b"\x08\x00", b"\x12\x00"])
def test_a_request_of_very_many_fields_is_refused_early_and_in_its_own_memory(unit):
    data = unit * ((8 << 20) // len(unit))
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(LimitError):
            remove_fields(data, 2, "entities", count=8192, size=1 << 15)
        with pytest.raises(LimitError):
            field_value(data, 2, count=1024)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("number", "written"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2"), (2**35, b"\x80\x80\x80\x80\x80\1")],
)
def test_numbers_are_written_as_protobuf_has_them(number, written):
    assert varint(number) == written
    assert prefix(2, number) == b"\x12" + written  # field 2, length-delimited


@pytest.mark.parametrize(
    "data", [b"\x22", b"\x22\5abc", b"\x0b", b"\x80" * 11, b"\x22\xff\xff\xff\xff\x7f", b"\x0d\1"]
)
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(MalformedError):
        list(fields(data))


def test_random_bytes_are_no_message_of_the_parser_either():
    """The parser looks further: it may refuse what is accepted here, never the reverse."""
    rng = random.Random(new_seed())
    for _ in range(3000):
        data = bytes(
            rng.choice((0x22, 0x08, 1, 2, 0x80, 0x2A, rng.randrange(256))) for _ in range(rng.randrange(9))
        )
        try:
            list(fields(data))
        except MalformedError:
            with pytest.raises(DecodeError):
                p4r.WriteRequest.FromString(data)
