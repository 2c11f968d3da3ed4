"""The packet stream: frames, some bytes a cycle, with AXI4-Stream's meaning."""

from amaranth import Cat, Value
from amaranth.lib import data, stream


def packet_layout(width: int, *, error: bool = False) -> data.StructLayout:
    """Payload of a packet stream.

    ``data`` has ``width`` bits, the first byte on the wire in the lowest; ``keep`` has one bit per byte
    and is all ones but on the last beat, where it is a run of ones from bit 0; ``last`` ends the frame.
    With ``error`` (MAC to core) one more bit, valid with ``last``: the frame is bad, its FCS for instance.

    Raises ValueError unless ``width`` is a positive multiple of 8.
    """
    if width < 8 or width % 8:
        raise ValueError(f"width must be a positive multiple of 8, not {width!r}")
    members: dict[str, int] = {"data": width, "keep": width // 8, "last": 1}
    if error:
        members["error"] = 1
    return data.StructLayout(members)


def packet_stream(width: int, *, error: bool = False) -> stream.Signature:
    """Signature of a packet stream; see :func:`packet_layout`."""
    return stream.Signature(packet_layout(width, error=error))


def kept_bytes(keep: Value) -> Value:
    """How many bytes are kept, a run from the lowest on: a bit is 1 from odd multiples of it to even ones."""
    return Cat(
        Cat(
            keep[at - 1] & (~keep[at + one - 1] if at + one <= len(keep) else 1)
            for at in range(one, len(keep) + 1, 2 * one)
        ).any()
        for one in (1 << bit for bit in range(len(keep).bit_length()))
    )
