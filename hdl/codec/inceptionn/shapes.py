"""Bursts, positions in them, and data layouts that describe groups and frames to the decompressor's parts.

A burst is a beat of the compressed stream, as wide as the values of a group. Bursts are numbered modulo 16, by
the slots that hold them. A byte's position is its burst's number and its offset in the burst.
"""

from __future__ import annotations

from amaranth.lib import data

from fanin.codec.facts import FLOAT_BITS, TAG_BITS, Inceptionn

LENGTH_BITS = 32  # bits of a frame's length in bytes
SLOTS = 16  # bursts that can be held
BURST_BITS = (SLOTS - 1).bit_length()


def burst_bytes(group: int) -> int:
    """Return the bytes of a burst."""
    return FLOAT_BITS // 8 * group


def offset_bits(group: int) -> int:
    """Return the bits of a byte's offset in a burst."""
    return (burst_bytes(group) - 1).bit_length()


def count_bits(group: int) -> int:
    """Return the bits of a count of the bytes of half of a group's values."""
    return (burst_bytes(group) // 2).bit_length()


def position_layout(group: int) -> data.StructLayout:
    """Return the layout of a byte's position. As a number it counts the bytes before it, modulo 16 bursts."""
    return data.StructLayout({"offset": offset_bits(group), "burst": BURST_BITS})


def row_layout(group: int) -> data.ArrayLayout:
    """Return the layout of a row: for every offset in a burst, the end of a group that begins there.

    The end is at ``offset`` of the burst in which the group's tags end, or with ``carry`` of the next burst.
    The next group begins there.
    """
    return data.ArrayLayout(data.StructLayout({"offset": offset_bits(group), "carry": 1}), burst_bytes(group))


def frame_end_layout(group: int) -> data.StructLayout:
    """Return the layout of a frame's end: ``position`` after it, and the ``next`` frame's first burst."""
    return data.StructLayout({"position": position_layout(group), "next": BURST_BITS})


def located_layout(group: int) -> data.StructLayout:
    """Return the layout of a group that is found but not cut out.

    ``begin``: position of its first byte.
    ``tail``: bytes of its beat that the frame has, less 1; valid with ``last``.
    ``last``: the group is its frame's last.
    ``missing``: the frame ended before the group.
    """
    return data.StructLayout(
        {"begin": position_layout(group), "tail": offset_bits(group), "last": 1, "missing": 1}
    )


def group_layout(group: int) -> data.StructLayout:
    """Return the layout of a group that is cut out.

    ``tags``: tags of its values; all 00 if the group is missing.
    ``low_bytes``: bytes of the lower half of its values; undefined if the group is missing.
    ``data``: bytes of its values, from the lowest on.
    ``tail``: bytes of its beat that the frame has, less 1; valid with ``last``.
    ``last``: the group is its frame's last.
    ``missing``: the frame ended before the group.
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
    """Return the cycles of the start table; each doubles the number of summed tags, up to a group's."""
    return Inceptionn(group=group).tag_bytes.bit_length() - 1
