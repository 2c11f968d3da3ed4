"""ARP and ping in software, in front of a node."""

import pytest

from fanin.sim.nic.address import MAX_ADDRESSES, Address
from fanin.wire.arp import ARP, Operation, encode_arp
from fanin.wire.ethernet import ETHERNET, Endpoint
from fanin.wire.fields import byte_length, unpack_fields
from tests.sim.switch.service.served import FakeInterface

OWN, PEER = Endpoint(0x02_00_0A_00_00_01, 0x0A_00_00_01), Endpoint(0x02_00_0A_00_00_02, 0x0A_00_00_02)


@pytest.fixture
def interface():
    interface = FakeInterface()
    interface.host.settimeout(5)
    yield interface
    interface.close()


def _arp(frame):
    return unpack_fields(ARP, frame[byte_length(ETHERNET) :])


def test_it_answers_for_its_address_and_leaves_the_rest_to_the_node(interface):
    address = Address(OWN)
    request = encode_arp(Operation.REQUEST, sender=PEER, target=Endpoint(0, OWN.ip)).ljust(60, b"\0")
    other = encode_arp(Operation.REQUEST, sender=PEER, target=Endpoint(0, 0x0A_00_00_63)).ljust(60, b"\0")
    for frame in (other, request, bytes(60), b"short"):
        interface.host.send(frame)
    assert address.receive(interface) == [bytes(60), b"short"]
    assert address.passed == 2
    answer = interface.host.recv(2000)
    assert unpack_fields(ETHERNET, answer)["destination"] == PEER.mac
    assert (_arp(answer)["operation"], _arp(answer)["sender_mac"]) == (Operation.REPLY, OWN.mac)
    assert address.mac_of(PEER.ip) == PEER.mac  # who asks, says who it is


def test_of_too_many_addresses_the_oldest_is_forgotten(interface):
    """A host that sends ARP from all addresses of a network took 100 bytes for each."""
    address = Address(OWN)
    for number in range(1, MAX_ADDRESSES + 2):
        interface.host.send(encode_arp(Operation.REPLY, sender=Endpoint(number, number), target=OWN))
        address.receive(interface)
    assert [address.mac_of(number) for number in (1, 2, MAX_ADDRESSES + 1)] == [None, 2, MAX_ADDRESSES + 1]
    for number in range(MAX_ADDRESSES + 2, 2 * MAX_ADDRESSES + 9):
        address.mac_of(number)
    assert (len(address._macs), len(address._requests)) == (MAX_ADDRESSES, MAX_ADDRESSES)


def test_it_asks_once_a_second_until_it_knows(interface, monkeypatch):
    now = 100.0
    monkeypatch.setattr("fanin.sim.nic.address.time.monotonic", lambda: now)
    address = Address(OWN)
    for _ in range(3):
        assert address.mac_of(PEER.ip) is None
        address.receive(interface)
    asked = interface.host.recv(2000)
    assert (_arp(asked)["operation"], _arp(asked)["target_ip"]) == (Operation.REQUEST, PEER.ip)
    assert len(asked) == 60
    interface.host.setblocking(False)
    with pytest.raises(BlockingIOError):
        interface.host.recv(2000)
    now += 1.1
    address.receive(interface)
    assert interface.host.recv(2000) == asked
    interface.host.send(
        encode_arp(Operation.REPLY, sender=PEER, target=OWN, destination=OWN.mac).ljust(60, b"\0")
    )
    assert address.receive(interface) == []
    assert address.mac_of(PEER.ip) == PEER.mac
