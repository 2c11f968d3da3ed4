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
        left = packet.transmit(frame, self.config, max_frame=self.max_frame)
        return self._counted("tx", frame, left, on_wire=left)

    def receive(self, frame: bytes) -> bytes | None:
        """Return the frame for the host for a frame from the wire; None if the NIC drops it."""
        left = packet.receive(frame, self.config, max_frame=self.max_frame)
        return self._counted("rx", frame, left, on_wire=frame)

    def _counted(self, way: str, came: bytes, left: bytes | None, *, on_wire: bytes | None) -> bytes | None:
        self.counters[f"{way}_bytes_in"] += len(came)
        self.counters[f"{way}_bytes_out"] += len(left or b"")
        if left is None or on_wire is None:
            kind = "dropped"
        elif left is came:  # the stages return a new object for every frame that they change
            kind = "bypassed"
        else:
            kind = "raw" if on_wire[_TOS] == TOS_RAW else "coded"
        self.counters[f"{way}_{kind}"] += 1
        return left
