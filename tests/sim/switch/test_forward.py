"""The forwarding switch: by destination, to one port, or nowhere."""

import pytest

from fanin.job import Job, Member
from fanin.sim.switch.forward import Forwarder
from fanin.wire.ethernet import Endpoint

MACS = (0x02_00_00_00_00_01, 0x02_00_00_00_00_02)


def frame(destination, size=60):
    return destination.to_bytes(6, "big") + bytes(size - 6)


def test_a_frame_goes_to_the_port_of_its_destination_and_nowhere_else():
    switch = Forwarder.of(MACS)
    for port, mac in enumerate(MACS):
        sent = frame(mac)
        assert switch.inject(1 - port, sent, 77) == [(port, sent, 77)]
    assert switch.counters().forwarded == 2


@pytest.mark.parametrize("destination", [0x02_00_00_00_00_03, 0xFFFF_FFFF_FFFF])
def test_an_unknown_address_and_broadcast_are_dropped_and_counted(destination):
    switch = Forwarder.of(MACS)
    assert switch.inject(0, frame(destination), 0) == []
    assert (switch.counters().foreign, switch.counters().forwarded) == (1, 0)


def test_a_frame_without_a_whole_destination_is_malformed():
    switch = Forwarder.of(MACS)
    assert switch.inject(0, b"\x02\0\0\0\0", 0) == []
    assert switch.counters().malformed == 1


def test_it_has_no_jobs():
    switch = Forwarder.of(MACS)
    with pytest.raises(ValueError, match="does not aggregate"):
        switch.add_job(Job(1, 0, 4, (Member(0, 1, Endpoint(mac=MACS[0])),)))
    with pytest.raises(ValueError, match="does not aggregate"):
        switch.remove_job(1)
    with pytest.raises(ValueError, match="does not aggregate"):
        switch.job_counters(1)
