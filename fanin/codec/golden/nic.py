"""Model of INCEPTIONN's NIC, frame by frame: the effect of its stages, and its counters."""

from __future__ import annotations

from collections import Counter

from fanin.codec.facts import MAX_FRAME, TOS_RAW, Inceptionn
from fanin.codec.golden import packet
from fanin.wire.ethernet import ETHERNET
from fanin.wire.fields import byte_length

_TOS = byte_length(ETHERNET) + 1


class InceptionnNicModel:
    """Model of :class:`fanin.hdl.codec.nic.nic.InceptionnNic`.

    ``counters``: the counters of its register map, by name. Frames are Ethernet without FCS.
    """

    def __init__(self, config: Inceptionn, *, max_frame: int = MAX_FRAME):
        self.config, self.max_frame = config, max_frame
        self.counters: Counter[str] = Counter()

    def transmit(self, frame: bytes) -> bytes | None:
        """Return the frame on the wire for a frame of the host; None if the NIC drops it."""
        sent = packet.transmit(frame, self.config, max_frame=self.max_frame)
        return self._count("tx", frame, sent, on_wire=sent)

    def receive(self, frame: bytes) -> bytes | None:
        """Return the frame for the host for a frame from the wire; None if the NIC drops it."""
        sent = packet.receive(frame, self.config, max_frame=self.max_frame)
        return self._count("rx", frame, sent, on_wire=frame)

    def _count(
        self, direction: str, received: bytes, sent: bytes | None, *, on_wire: bytes | None
    ) -> bytes | None:
        self.counters[f"{direction}_bytes_in"] += len(received)
        self.counters[f"{direction}_bytes_out"] += len(sent or b"")
        if sent is None or on_wire is None:
            kind = "dropped"
        elif sent is received:  # the stages return a new object for every frame that they change
            kind = "bypassed"
        else:
            kind = "raw" if on_wire[_TOS] == TOS_RAW else "coded"
        self.counters[f"{direction}_{kind}"] += 1
        return sent
