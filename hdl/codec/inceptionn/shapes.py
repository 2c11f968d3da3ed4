"""Bursts, positions in them, and what the parts of the decompressor say about groups and frames.

A burst is a beat of the compressed stream, as wide as the values of a group. Bursts are numbered modulo 16,
by the slots in which they are held; a byte's position is its burst's number and its offset there.
"""

from __future__ import annotations

from amaranth.lib import data

from fanin.codec.facts import FLOAT_BITS, TAG_BITS, Inceptionn

LENGTH_BITS = 32  # of a frame's length in bytes
SLOTS = 16  # bursts that are held
BURST_BITS = (SLOTS - 1).bit_length()


def burst_bytes(group: int) -> int:
    """Bytes of a burst."""
    return FLOAT_BITS // 8 * group


def offset_bits(group: int) -> int:
    """Bits of a byte's offset in a burst."""
    return (burst_bytes(group) - 1).bit_length()


def count_bits(group: int) -> int:
    """Bits of a count of bytes: those of the lower half of a group's values, none to all."""
    return (burst_bytes(group) // 2).bit_length()


def position_layout(group: int) -> data.StructLayout:
    """A byte of the compressed stream. As a number it counts the bytes before it, modulo 16 bursts."""
    return data.StructLayout({"offset": offset_bits(group), "burst": BURST_BITS})


def row_layout(group: int) -> data.ArrayLayout:
    """For every offset in a burst: where a group ends that begins there, hence the next group begins.

    It ends at ``offset`` of the burst in which its tags end, or, with ``carry``, of the burst after that one.
    """
    return data.ArrayLayout(data.StructLayout({"offset": offset_bits(group), "carry": 1}), burst_bytes(group))


def frame_end_layout(group: int) -> data.StructLayout:
    """The end of a frame: the ``position`` after its last byte, and the ``next`` frame's first burst."""
    return data.StructLayout({"position": position_layout(group), "next": BURST_BITS})


def located_layout(group: int) -> data.StructLayout:
    """A group that is found but not yet cut out: where it begins, and what is known of it.

    ``last``: it is its frame's last one, of whose beat ``tail`` + 1 bytes are asked for. ``missing``: the frame
    ended before the group did.
    """
    return data.StructLayout(
        {"begin": position_layout(group), "tail": offset_bits(group), "last": 1, "missing": 1}
    )


def group_layout(group: int) -> data.StructLayout:
    """A group that is cut out: its ``tags``, and its values' bytes in ``data``, from the lowest on.

    ``low_bytes``: bytes of the lower half of its values. ``tail``, ``last`` and ``missing``: as above; if it is
    missing all tags are 00 and ``low_bytes`` means nothing.
    """
    return data.StructLayout(
        {
            "tags": TAG_BITS * group,
            "low_bytes": count_bits(group),
            "data": FLOAT_BITS * group,
            "tail": offset_bits(group),
            "last": 1,
            "missing": 1,
        }
    )


def table_stages(group: int) -> int:
    """Cycles of the start table: sums over twice as many tags in each, up to those of a group."""
    return Inceptionn(group=group).tag_bytes.bit_length() - 1
