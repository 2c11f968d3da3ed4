"""RTL layouts of the aggregation packet and its frame, derived from :mod:`fanin.wire.aggregation`."""

from typing import Any

from amaranth import signed
from amaranth.lib import data

from fanin.hdl.aggregation.job import ROUND_BITS, SLOT_BITS
from fanin.hdl.net.headers import MAC_WIDTHS, header_layout
from fanin.wire.aggregation import AGGREGATION, VALUE_BITS, Encap, frame_length, header_length, payload_length
from fanin.wire.ethernet import ETHERNET, IPV4, UDP
from fanin.wire.fields import field_bits

MAX_VALUES = 256


def frame_layout(encap: Encap, values: int) -> data.StructLayout:
    """Return the layout of a whole frame, padding included, as a big-endian number.

    Members: ``ethernet``, ``ipv4`` and ``udp`` (UDP only), ``aggregation``, ``values`` (an array, **last value
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


def values_layout(values: int) -> data.ArrayLayout:
    """Return the layout of partial or full activations: ``values`` signed 32-bit numbers."""
    return data.ArrayLayout(signed(VALUE_BITS), values)


def packet_fields(values: int) -> data.StructLayout:
    """Return the fields that differ between packets of a job.

    The fields are ``kind``, ``slot`` (absolute), ``round`` and ``values``.
    """
    kind = field_bits(AGGREGATION, "kind")
    return data.StructLayout(
        {"kind": kind, "slot": SLOT_BITS, "round": ROUND_BITS, "values": values_layout(values)}
    )


def check_framing(*, mac_width: int, values: int) -> None:
    """Raise ValueError unless a frame of ``values`` values can be sent in beats of ``mac_width`` bits."""
    if mac_width not in MAC_WIDTHS:
        raise ValueError(f"mac_width must be a power of two from 8 to 512, not {mac_width!r}")
    if not 1 <= values <= MAX_VALUES:
        raise ValueError(f"values must be 1 to {MAX_VALUES}, not {values!r}")
