"""The ring's job at its link, and the beats of its payloads."""

from amaranth.lib import data

from fanin.hdl.net.link.job import job_layout, payload_beat
from fanin.wire.fields import field_bits
from fanin.wire.ring import RING, RING_LINK

NODE_BITS = field_bits(RING, "nodes")
OPERATION_BITS = field_bits(RING, "operation")
COUNT_BITS = field_bits(RING, "count")

#: One node's part in one ring, as registers hold it; ``job`` numbers the ring, ``nodes`` counts its nodes,
#: ``codec`` and ``parameters`` say how payloads are compressed.
RING_JOB = job_layout(RING_LINK)


def link_beat(width: int) -> data.StructLayout:
    """A beat of a frame's payload, ``width`` bits.

    ``operation`` (number of the descriptor), ``count`` (values of the operation) and ``length`` (words of the
    payload when decompressed) are the frame's: steady over its beats.
    """
    return payload_beat(RING_LINK, width)
