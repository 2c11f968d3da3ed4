"""INCEPTIONN's NIC as its NumPy twin, with two ports: in the place of a served switch."""

from __future__ import annotations

from fanin.codec.facts import Inceptionn
from fanin.codec.golden.nic import InceptionnNicModel
from fanin.host.alignment import Alignment

HOST, WIRE = 0, 1  #: ports


class InceptionnPorts:
    """Frames from ``HOST`` leave by ``WIRE`` compressed, those from ``WIRE`` leave by ``HOST`` restored."""

    def __init__(self, codec: Inceptionn):
        self.nic = InceptionnNicModel(codec)
        self.alignment = Alignment()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """What a frame that comes in at a port becomes, as (port, frame); nothing where the NIC drops it."""
        if port == HOST:
            to, left = WIRE, self.nic.transmit(self.alignment.checked(frame))
        else:
            to, left = HOST, self.nic.receive(frame)
        return [] if left is None else [(to, left)]
