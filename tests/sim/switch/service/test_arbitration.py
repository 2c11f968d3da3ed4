"""P4Runtime: client arbitration, and the checks of Write and Read (docs/reference/p4runtime.md)."""

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from tests.sim.switch.service.client import (
    DENIED,
    DEVICE,
    INVALID,
    MISSING,
    NOT_FOUND,
    PRECONDITION,
    status_of,
    wide,
    write_request,
)

# arbitration


def test_all_are_told_of_a_new_primary_and_of_its_higher_id(bidders):
    first, second, third = bidders
    first.bid(5)
    assert first.told() == (5, 0)
    second.bid(3)
    assert second.told() == (5, rpc_code.ALREADY_EXISTS)
    first.bid(9)
    assert [first.told(), second.told()] == [(9, 0), (9, rpc_code.ALREADY_EXISTS)]
    third.bid(2**64 + 1)  # all 128 bits count
    assert third.told() == (2**64 + 1, 0)
    assert [first.told(), second.told()] == [(2**64 + 1, rpc_code.ALREADY_EXISTS)] * 2


def test_all_are_told_when_the_primary_bids_the_same_again(bidders):
    first, second, _ = bidders
    first.bid(5)
    first.told()
    second.bid(3)
    second.told()
    first.bid(5)
    assert [first.told(), second.told()] == [(5, 0), (5, rpc_code.ALREADY_EXISTS)]


def test_a_backups_bid_is_answered_to_it_alone(bidders):
    first, second, third = bidders
    first.bid(5)
    first.told()
    second.bid(3)
    second.told()
    third.bid()
    third.told()
    second.bid(4)
    assert second.told() == (5, rpc_code.ALREADY_EXISTS)
    first.bid(6)  # the next message of all
    assert [b.told() for b in bidders] == [(6, 0)] + [(6, rpc_code.ALREADY_EXISTS)] * 2


def test_the_highest_id_is_named_after_the_primary_has_left_or_stepped_down(bidders):
    first, second, third = bidders
    first.bid(5)
    first.told()
    second.bid(3)
    second.told()
    first.bid(2)  # steps down
    assert [first.told(), second.told()] == [(5, NOT_FOUND)] * 2
    third.bid(5)  # the highest so far is enough
    assert third.told() == (5, 0)
    assert [first.told(), second.told()] == [(5, rpc_code.ALREADY_EXISTS)] * 2
    third.close()
    assert [first.told(), second.told()] == [(5, NOT_FOUND)] * 2
    second.bid(4)
    assert second.told() == (5, NOT_FOUND)


def test_without_an_election_id_nobody_is_primary(bidders):
    first, second, _ = bidders
    first.bid()
    assert first.told() == (None, NOT_FOUND)
    second.bid(0)  # is an id
    assert second.told() == (0, 0)
    assert first.told() == (0, rpc_code.ALREADY_EXISTS)


@pytest.mark.parametrize(
    ("again", "bid", "code"),
    [
        (False, {"device": 8, "election": 1}, NOT_FOUND),
        (True, {"device": 8, "election": 1}, PRECONDITION),
        (False, {"election": 1, "role": p4r.Role(name="some")}, MISSING),
        (True, {"election": 1, "role": p4r.Role(name="some")}, PRECONDITION),
        (False, {"election": 5}, INVALID),
        (True, {"election": 5}, INVALID),
    ],
)
def test_a_wrong_bid_ends_the_stream(bidders, again, bid, code):
    first, second, _ = bidders
    first.bid(5)
    first.told()
    if again:
        second.bid(3)
        second.told()
    second.bid(**bid)
    ended = second.receive()
    assert ended.code().value[0] == code


def test_a_role_configuration_is_refused(bidders):
    role = p4r.Role()
    role.config.SetInParent()
    bidders[0].bid(1, role=role)
    assert bidders[0].receive().code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"device_id": 8, "role": "some"}, NOT_FOUND),
        ({"role": "some", "election_id": wide(2)}, NOT_FOUND),
        ({"election_id": wide(2)}, DENIED),
        ({"election_id": None}, DENIED),
        ({"atomicity": p4r.WriteRequest.ROLLBACK_ON_ERROR}, MISSING),
        ({"atomicity": p4r.WriteRequest.DATAPLANE_ATOMIC}, MISSING),
        ({"atomicity": 77}, MISSING),
        ({}, 0),
    ],
)
def test_a_write_is_checked_for_device_role_and_primary_in_this_order(shared, fields, code):
    assert status_of(shared.stub.Write, write_request([], **fields)) == code


def test_a_read_needs_a_known_device_and_no_stream(shared):
    read = lambda **fields: status_of(lambda asked: list(shared.stub.Read(asked)), p4r.ReadRequest(**fields))  # noqa: E731
    assert [read(device_id=8), read(device_id=DEVICE, role="some"), read(device_id=DEVICE)] == [
        NOT_FOUND,
        NOT_FOUND,
        0,
    ]
