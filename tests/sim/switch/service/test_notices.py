"""What the switch tells its controller by itself: digests and idle entries, through finsy's client."""

import contextlib
import time

import pytest
from finsy import p4entity
from finsy.proto import p4r, rpc_code

from fanin.base.errors import ToolFailed
from fanin.sim.switch.bmv2.p4runtime import P4Runtime
from fanin.sim.switch.service.ageing import SCAN
from tests.sim.switch.service.served import SELECTED, Served, frame_to

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
LONG = 10**12  # ns that no test waits
MOVED = 5


@pytest.fixture
def served():
    served = Served(SELECTED)
    yield served
    served.close()


@pytest.fixture
def control(served):
    with contextlib.closing(P4Runtime(served.address, device=7)) as control:
        yield control


def _digest(most=1, timeout=0, acknowledged=0):
    return p4entity.P4DigestEntry(
        "Learned", max_list_size=most, max_timeout_ns=timeout, ack_timeout_ns=acknowledged
    )


def _learn(served, *sources):
    """Let the switch see frames from these stations; by port 1, in order."""
    for source in sources:
        served.send(1, frame_to(0x10, source=source))
        served.receive(0)


def _received(control):
    return control._run(control._client.receive())


def _list(control):
    """The next list: its number, and the stations in it."""
    message = p4entity.P4DigestList.decode(_received(control), control.schema)
    assert all((learned["port"], learned["reason"]) == (1, MOVED) for learned in message)
    return message.list_id, [learned["source"] for learned in message]


def _acknowledge(control, number):
    ack = p4entity.P4DigestListAck("Learned", number)
    control._run(control._client.send(ack.encode_update(control.schema)))


def test_each_digest_is_sent_at_once_where_no_list_is_asked_for(served, control):
    _learn(served, 1)  # nobody has asked yet
    control._write(INSERT, _digest())
    _learn(served, 2, 3, 2)
    assert [_list(control) for _ in range(3)] == [(1, [2]), (2, [3]), (3, [2])]
    assert control._read(p4entity.P4DigestEntry("")) == [_digest()]
    control._write(DELETE, _digest())
    assert control._read(p4entity.P4DigestEntry("")) == []


def test_a_list_holds_distinct_messages_and_goes_when_it_is_full(served, control):
    control._write(INSERT, _digest(most=3, timeout=LONG))
    _learn(served, 1, 2, 1, 2, 3, 4)
    assert _list(control) == (1, [1, 2, 3])
    control._write(MODIFY, _digest(most=1, timeout=LONG))
    assert _list(control) == (2, [4])


def test_a_list_goes_when_its_first_message_is_old_enough(served, control):
    timeout = 0.3
    control._write(INSERT, _digest(most=100, timeout=int(timeout * 1e9)))
    began = time.monotonic()
    _learn(served, 1, 2)
    assert _list(control) == (1, [1, 2])
    assert time.monotonic() - began >= timeout


def test_what_is_not_acknowledged_is_not_sent_again(served, control):
    control._write(INSERT, _digest(acknowledged=LONG))
    _learn(served, 1)
    assert _list(control) == (1, [1])
    _learn(served, 1, 2)
    assert _list(control) == (2, [2])
    _acknowledge(control, 1)
    _acknowledge(control, 77)  # such a list was never sent
    control.entries("I.spread")  # behind the acknowledgements
    _learn(served, 2, 1)
    assert _list(control) == (3, [1])


def test_what_is_never_acknowledged_is_sent_again_after_a_while(served, control):
    timeout = 0.2
    control._write(INSERT, _digest(acknowledged=int(timeout * 1e9)))
    _learn(served, 1)
    assert _list(control) == (1, [1])
    time.sleep(2 * timeout)
    _learn(served, 1)
    assert _list(control) == (2, [1])


@pytest.mark.parametrize(
    ("kind", "entry", "message"),
    [
        (MODIFY, _digest(), "NOT_FOUND: digest Learned is not configured"),
        (DELETE, _digest(), "NOT_FOUND: digest Learned is not configured"),
        (INSERT, _digest(most=-1), "INVALID_ARGUMENT: digest Learned: a timeout or a size below 0"),
    ],
)
def test_a_configuration_that_is_refused(control, kind, entry, message):
    with pytest.raises(ToolFailed, match=message):
        control._write(kind, entry)


def test_an_acknowledgement_of_no_digest_is_answered(control):
    ack = p4r.DigestListAck(digest_id=5, list_id=1)
    control._run(control._client.send(p4r.StreamMessageRequest(digest_ack=ack)))
    error = _received(control).error
    assert error.canonical_code == rpc_code.INVALID_ARGUMENT
    assert error.digest_list_ack.digest_list_ack == ack


# idle timeouts


def _known(source, timeout=0, **more):
    return p4entity.P4TableEntry(
        "I.known",
        match=p4entity.P4TableMatch({"source": source}),
        action=p4entity.P4TableAction("NoAction"),
        idle_timeout_ns=int(timeout * 1e9),
        **more,
    )


def _idle(control):
    """The stations of the next notification."""
    message = p4entity.P4IdleTimeoutNotification.decode(_received(control), control.schema)
    return {entry.match["source"]: entry for entry in message}


def test_an_idle_entry_is_told_of_again_and_again(control):
    control._write(INSERT, _known(1, 0.2, metadata=b"mine"), _known(2, 1000), _known(3))
    found = _idle(control)
    assert (set(found), found[1].metadata, found[1].idle_timeout_ns) == ({1}, b"mine", 200_000_000)
    assert set(_idle(control)) == {1}
    control._write(MODIFY, _known(1), _known(2, 0.2))
    while set(_idle(control)) != {2}:  # one for 1 may have been on its way
        pass


def test_a_hit_begins_the_time_anew(served, control):
    timeout = 0.8
    control._write(INSERT, _known(1, timeout))
    time.sleep(timeout / 4)
    began = time.monotonic()
    _learn(served, 1)
    assert set(_idle(control)) == {1}
    assert time.monotonic() - began >= timeout


def test_the_shortest_timeout_is_that_between_two_looks(control):
    control._write(INSERT, _known(1, 1e-9))
    began = time.monotonic()
    for _ in range(3):
        assert set(_idle(control)) == {1}
    assert time.monotonic() - began >= 2 * SCAN


def test_the_time_since_the_last_hit_is_read_where_it_is_asked_for(served, control):
    control._write(INSERT, _known(1, 1000), _known(2))
    time.sleep(0.05)
    _learn(served, 2)
    asked = p4entity.P4TableEntry("I.known", time_since_last_hit=0)
    old, new = control._read(asked)
    assert old.time_since_last_hit > 0.05e9 > new.time_since_last_hit > 0
    assert old.idle_timeout_ns == 1000 * 10**9
    (plain, _) = control._read(p4entity.P4TableEntry("I.known"))
    assert plain.time_since_last_hit is None
