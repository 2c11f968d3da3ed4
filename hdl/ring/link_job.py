"""Job of the ring at its link, and the payload beats of its frames."""
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

#: Layout of one node's part in one ring. ``job``: number of the ring. ``nodes``: number of nodes. ``rank`` and
#: ``previous_rank``: ranks of this node and of the previous node. ``codec`` and ``parameters``: compression of
#: the payloads. ``tensor``: format of the values in memory.
RING_JOB = job_layout(RING_LINK)


def link_beat(width: int) -> data.StructLayout:
    """Return the layout of a payload beat with ``width`` bits of data.

    These fields are constant over the beats of a frame:
    ``operation``: number of the descriptor.
    ``count``: values of the operation.
    ``length``: words of the payload when decompressed.
    ``slice``: number of the slice in its segment.
    ``complete``: 1 for complete sums, 0 for partial sums.
    """
    return payload_beat(RING_LINK, width)


class Difference(data.Struct):
    """Reasons of a mismatch that the engine can find.

    ``operation``, ``count``, ``length``, ``slice``, ``complete``: that field of a frame has a wrong value.
    ``words``: a frame has fewer or more words than its header says.
    ``totals``: the next node has stored other sums.
    """

    operation: 1
    count: 1
    length: 1
    slice: 1
    complete: 1
    words: 1
    totals: 1
