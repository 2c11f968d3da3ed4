"""The ring's job at its link, and the beats of its payloads."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from amaranth.lib import data

from fanin.hdl.net.link.job import job_layout, payload_beat
from fanin.wire.fields import field_bits
from fanin.wire.ring import RING, RING_LINK

NODE_BITS = field_bits(RING, "nodes")
OPERATION_BITS = field_bits(RING, "operation")
COUNT_BITS = field_bits(RING, "count")
SLICE_BITS = field_bits(RING, "slice")

#: One node's part in one ring: ``job`` numbers the ring, ``nodes`` counts its nodes, ``rank`` and
#: ``previous_rank`` are the places of this node and of the previous one, ``codec`` and ``parameters`` say how
#: payloads are compressed.
RING_JOB = job_layout(RING_LINK)


def link_beat(width: int) -> data.StructLayout:
    """A beat of a frame's payload, ``width`` bits.

    The fields of the frame are steady over its beats: ``operation`` (number of the descriptor), ``count``
    (values of the operation), ``length`` (words of the payload when decompressed), ``slice`` (number of the
    slice in its segment) and ``complete`` (the payload is complete sums, else partial ones).
    """
    return payload_beat(RING_LINK, width)


class Difference(data.Struct):
    """Reasons of a mismatch, as the engine finds them.

    ``operation``, ``count``, ``length``, ``slice``, ``complete``: the field of a frame is not that of the frame
    to come. ``words``: a frame has fewer or more words than its header says. ``totals``: the next node has
    stored other sums.
    """

    operation: 1
    count: 1
    length: 1
    slice: 1
    complete: 1
    words: 1
    totals: 1
