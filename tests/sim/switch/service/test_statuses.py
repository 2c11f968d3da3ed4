"""Each part of a batch has its status, as far as the client has room for them."""

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from fanin.sim.switch.service.statuses import DEFAULT_LIMIT, LIMIT_KEY, encode_details
from tests.sim.switch.service.client import INSERT, INVALID, statuses_of, write_request

EXISTS = rpc_code.ALREADY_EXISTS
MANY = 5000


def _errors(details):
    found = []
    for detail in rpc_status.Status.FromString(details).details:
        error = p4r.Error()
        assert detail.Unpack(error)
        found.append((error.canonical_code, error.message))
    return found


def _statuses(*faults):
    return [p4r.Error(canonical_code=c, message=m).SerializeToString() if c else b"" for c, m in faults]


def test_few_statuses_have_messages():
    faults = [(EXISTS, "there"), (0, ""), (INVALID, "no")]
    details, count = encode_details(_statuses(*faults), DEFAULT_LIMIT)
    assert (count, _errors(details)) == (3, faults)
    assert b"type.googleapis.com/p4.v1.Error" in details


def test_statuses_that_do_not_fit_lose_messages_first_and_then_the_last_of_them():
    faults = [(EXISTS if n % 3 else 0, "a message " * 5 if n % 3 else "") for n in range(300)]
    details, count = encode_details(_statuses(*faults), DEFAULT_LIMIT)
    assert (count, _errors(details)) == (300, [(code, "") for code, _ in faults])
    details, count = encode_details(_statuses(*faults), 1000)
    assert 40 < count < 60
    assert len(details) <= 1000
    assert _errors(details) == [(code, "") for code, _ in faults[:count]]
    assert encode_details(_statuses(*faults), 10**6)[1] == 300


@pytest.mark.parametrize("count", [101, 350])
def test_more_than_a_hundred_faults_are_reported_each(shared, count):
    """To a client of gRPC as it is: without options, whose trailers have 8 KiB."""
    updates = [p4r.Update(type=INSERT, entity={"counter_entry": {"counter_id": 5}})] * count
    updates[7] = p4r.Update(type=4, entity={"table_entry": shared.station(b"\1")})
    codes = statuses_of(shared.stub.Write, write_request(updates))
    assert codes == [INVALID] * count
    entities = [p4r.Entity(table_entry={}), *[p4r.Entity(table_entry={"table_id": 1})] * (count - 1)]
    assert shared.read(*entities)[1] == [0] + [rpc_code.NOT_FOUND] * (count - 1)


def test_a_client_with_room_has_all_statuses_and_another_learns_how(served, client):
    updates = [p4r.Update(type=INSERT, entity={"counter_entry": {"counter_id": 5}})] * MANY
    request = write_request(updates)
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Write(request)
    assert f"({MANY} of {MANY} parts failed; {DEFAULT_LIMIT} bytes have the first " in caught.value.details()
    details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    assert {code for code, _ in _errors(details)} == {INVALID}
    options = [("grpc.max_metadata_size", 1 << 20)]
    with grpc.insecure_channel(served.address, options=options) as channel:
        write = p4r_grpc.P4RuntimeStub(channel).Write
        metadata = ((LIMIT_KEY, str(1 << 20)),)
        codes = statuses_of(lambda asked: write(asked, metadata=metadata), request)
    assert codes == [INVALID] * MANY


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 12, "x", "-1"])
def test_a_limit_that_is_none_changes_nothing(shared, value):
    request = write_request([p4r.Update(type=INSERT, entity={"counter_entry": {"counter_id": 5}})])
    codes = statuses_of(lambda asked: shared.stub.Write(asked, metadata=((LIMIT_KEY, value),)), request)
    assert codes == [INVALID]
