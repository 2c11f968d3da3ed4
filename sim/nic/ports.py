"""NumPy model of INCEPTIONN's NIC with two ports, which the switch service serves in place of a switch."""

from __future__ import annotations

from fanin.codec.facts import Inceptionn
from fanin.codec.golden.nic import InceptionnNicModel
from fanin.host.alignment import Alignment

HOST, WIRE = 0, 1  #: ports


class InceptionnPorts:
    """NIC between two ports: frames from ``HOST`` leave by ``WIRE`` compressed, the others are restored."""

    def __init__(self, codec: Inceptionn):
        self.nic = InceptionnNicModel(codec)
        self.alignment = Alignment()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frame that an input frame becomes, as [(port, frame)]; empty if the NIC drops it."""
        if port == HOST:
            output_port, output = WIRE, self.nic.transmit(self.alignment.prepare(frame))
        else:
            output_port, output = HOST, self.nic.receive(frame)
        return [] if output is None else [(output_port, output)]
