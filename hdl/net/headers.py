"""RTL layouts of the wire formats, derived from :mod:`fanin.wire`.

A header is one big-endian number: its first field is its most significant. On a packet stream the first byte
on the wire has the lowest bits, so :func:`swap_bytes` lies between the two views.
"""

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Value, signed
from amaranth.lib import data

from fanin.hdl.net.job import ROUND_BITS, SLOT_BITS
from fanin.wire import (
    AGGREGATION,
    ETHERNET,
    IPV4,
    UDP,
    VALUE_BITS,
    Encap,
    Field,
    field_bits,
    frame_length,
    header_length,
    payload_length,
)

MAC_WIDTHS = (8, 16, 32, 64, 128, 256, 512)
MAX_VALUES = 256


def header_layout(fields: Sequence[Field]) -> data.StructLayout:
    """The header as a big-endian number: the last field has the lowest bits."""
    return data.StructLayout({f.name: f.bits for f in reversed(fields)})


def frame_layout(encap: Encap, values: int) -> data.StructLayout:
    """A whole frame, padding included, as a big-endian number.

    Members ``ethernet``, ``ipv4`` and ``udp`` (UDP only), ``aggregation``, ``values`` (an array, **last value
    first**) and ``padding``.
    """
    padding = 8 * frame_length(encap, values) - 8 * (header_length(encap) + payload_length(values))
    members: dict[str, Any] = {
        "padding": padding,
        "values": data.ArrayLayout(VALUE_BITS, values),
        "aggregation": header_layout(AGGREGATION),
    }
    if encap is Encap.UDP:
        members |= {"udp": header_layout(UDP), "ipv4": header_layout(IPV4)}
    return data.StructLayout(members | {"ethernet": header_layout(ETHERNET)})


def swap_bytes(word: Any) -> Value:
    """The same bytes in opposite order: big-endian number to wire order, and back."""
    bits = Value.cast(word)
    return Cat(*(bits[at : at + 8] for at in reversed(range(0, len(bits), 8))))


def values_layout(values: int) -> data.ArrayLayout:
    """Partial or full activations: ``values`` signed 32-bit numbers."""
    return data.ArrayLayout(signed(VALUE_BITS), values)


def packet_fields(values: int) -> data.StructLayout:
    """What differs from packet to packet of a job: ``kind``, ``slot`` (absolute), ``round``, ``values``."""
    kind = field_bits(AGGREGATION, "kind")
    return data.StructLayout(
        {"kind": kind, "slot": SLOT_BITS, "round": ROUND_BITS, "values": values_layout(values)}
    )


def check_framing(*, mac_width: int, values: int) -> None:
    """Raises ValueError unless a frame of ``values`` values can travel in beats of ``mac_width`` bits."""
    if mac_width not in MAC_WIDTHS:
        raise ValueError(f"mac_width must be a power of two from 8 to 512, not {mac_width!r}")
    if not 1 <= values <= MAX_VALUES:
        raise ValueError(f"values must be 1 to {MAX_VALUES}, not {values!r}")
