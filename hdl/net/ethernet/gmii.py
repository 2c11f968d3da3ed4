"""GMII: a byte of a frame as a PHY gives or takes it, and what becomes of a frame that came."""

from amaranth.lib import data, enum

#: ``valid``: there is a carrier (RX_DV, TX_EN). ``error``: it is damaged here (RX_ER, TX_ER). The next byte
#: comes in the cycles of an ``enable`` beside it: in all of them at 1 Gb/s, in some at less.
Gmii = data.StructLayout({"data": 8, "valid": 1, "error": 1})

PREAMBLE = 0x55  # each byte of it but the last
START = 0xD5  # the last one: the frame begins behind it


class Cause(enum.Enum, shape=3):  # type: ignore[call-arg]
    """What is wrong with a frame that was received; of several things the last one here."""

    GOOD = 0
    BAD_FCS = 1
    LONG = 2  #: longer than the longest frame
    RUNT = 3  #: shorter than 64 bytes with its FCS; a carrier without a start is one
    ERROR = 4  #: the PHY said that the carrier was damaged
    LOST = 5  #: some of it found no room on its way to the core


#: A byte of a received frame, without FCS. ``cause`` counts with ``last``.
ReceivedByte = data.StructLayout({"data": 8, "last": 1, "cause": Cause})
