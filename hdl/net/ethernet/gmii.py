"""GMII bytes to and from a PHY, and the outcome of a received frame."""

from amaranth.lib import data, enum

#: A byte on GMII. ``valid``: carrier is present (RX_DV, TX_EN). ``error``: the carrier is damaged here (RX_ER,
#: TX_ER). A separate ``enable`` marks the cycles with a new byte: all cycles at 1 Gb/s, some at lower speeds.
Gmii = data.StructLayout({"data": 8, "valid": 1, "error": 1})

PREAMBLE = 0x55  # each byte of the preamble except the last
START = 0xD5  # last byte of the preamble; the frame starts after it


class Cause(enum.Enum, shape=3):  # type: ignore[call-arg]
    """Outcome of a received frame; if several apply, the last one in this list."""

    GOOD = 0
    BAD_FCS = 1
    LONG = 2  #: longer than the longest frame
    RUNT = 3  #: shorter than 64 bytes with its FCS; also a carrier without a start
    ERROR = 4  #: the PHY reported damage of the carrier
    LOST = 5  #: a part of the frame found no room before the core


#: A byte of a received frame, without FCS. ``cause`` is valid with ``last``.
ReceivedByte = data.StructLayout({"data": 8, "last": 1, "cause": Cause})
