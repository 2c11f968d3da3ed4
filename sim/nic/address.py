"""Software that answers ARP and ping for a node that does not implement them."""

from __future__ import annotations

import time
from typing import Any

from fanin.golden.ping import reply
from fanin.host.ethernet import Interface
from fanin.wire.arp import ARP, ETHERTYPE_ARP, Operation, encode_arp
from fanin.wire.ethernet import ETHERNET, Endpoint
from fanin.wire.fields import byte_length, unpack_fields

_ARP_AT = byte_length(ETHERNET)
_REQUEST_INTERVAL_S = 1.0
MAX_ADDRESSES = 4096  #: known addresses, and also requested ones; beyond it, the oldest is forgotten


class Address:
    """Responder to ARP requests and pings for ``endpoint``, which learns other addresses' MACs by ARP.

    ``passed`` counts the frames passed to the node. An Address may be pickled and used in another process.
    """

    def __init__(self, endpoint: Endpoint):
        self.endpoint = endpoint
        self.passed = 0
        self._macs: dict[int, int] = {}
        self._requests: dict[int, float] = {}  # time of the next ARP request for each address

    def mac_of(self, ip: int) -> int | None:
        """Return the MAC of an address, or None while it is unknown; ARP requests it once a second."""
        if ip not in self._macs:
            self._requests.setdefault(ip, 0.0)
            _forget_oldest(self._requests)
        return self._macs.get(ip)

    def receive(self, interface: Interface) -> list[bytes]:
        """Return the received frames for the node; answer ARP and ping here.

        Raises InterfaceLost.
        """
        self._send_requests(interface)
        frames = []
        for _, frame in interface.receive():
            is_arp = self._learn(frame)
            if (answer := reply(frame, self.endpoint)) is not None:
                interface.send(answer)
            elif not is_arp:
                frames.append(frame)
        self.passed += len(frames)
        return frames

    def _send_requests(self, interface: Interface) -> None:
        time_now = time.monotonic()
        for ip, due in self._requests.items():
            if time_now >= due:
                self._requests[ip] = time_now + _REQUEST_INTERVAL_S
                target = Endpoint(0, ip)
                interface.send(
                    encode_arp(Operation.REQUEST, sender=self.endpoint, target=target).ljust(60, b"\0")
                )

    def _learn(self, frame: bytes) -> bool:
        """Learn the sender's addresses from an ARP packet to ``endpoint``; return whether the frame is ARP."""
        if len(frame) < _ARP_AT or unpack_fields(ETHERNET, frame)["ethertype"] != ETHERTYPE_ARP:
            return False
        if len(frame) >= _ARP_AT + byte_length(ARP):
            arp = unpack_fields(ARP, frame[_ARP_AT:])
            if arp["target_ip"] == self.endpoint.ip and arp["sender_ip"]:
                self._macs.pop(arp["sender_ip"], None)
                self._macs[arp["sender_ip"]] = arp["sender_mac"]
                self._requests.pop(arp["sender_ip"], None)
                _forget_oldest(self._macs)
        return True


def _forget_oldest(addresses: dict[int, Any]) -> None:
    if len(addresses) > MAX_ADDRESSES:
        del addresses[next(iter(addresses))]
