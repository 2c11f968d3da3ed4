"""Packet stream: frames as beats of several bytes, with the meaning of AXI4-Stream."""

from amaranth import Cat, Value
from amaranth.lib import data, stream


def packet_layout(width: int, *, error: bool = False) -> data.StructLayout:
    """Return the payload layout of a packet stream.

    - ``data``: ``width`` bits; the first byte on the wire is in the lowest bits.
    - ``keep``: one bit per byte; all ones except on the last beat, where the ones are a run from bit 0.
    - ``last``: high on the last beat of a frame.
    - ``error`` (only with ``error=True``, MAC to core): valid with ``last``; the frame is bad, for example its
      FCS.

    Raises ValueError unless ``width`` is a positive multiple of 8.
    """
    if width < 8 or width % 8:
        raise ValueError(f"width must be a positive multiple of 8, not {width!r}")
    members: dict[str, int] = {"data": width, "keep": width // 8, "last": 1}
    if error:
        members["error"] = 1
    return data.StructLayout(members)


def packet_stream(width: int, *, error: bool = False) -> stream.Signature:
    """Return the signature of a packet stream; see :func:`packet_layout`."""
    return stream.Signature(packet_layout(width, error=error))


def kept_bytes(keep: Value) -> Value:
    """Return the number of kept bytes; ``keep`` is a run of ones from bit 0.

    Bit n of the number is 1 if the run ends at or after an odd multiple of 2^n and before the next even one.
    """
    return Cat(
        Cat(
            keep[end - 1] & (~keep[end + unit - 1] if end + unit <= len(keep) else 1)
            for end in range(unit, len(keep) + 1, 2 * unit)
        ).any()
        for unit in (1 << bit for bit in range(len(keep).bit_length()))
    )
