"""Signatures of both sides of litedram's core: a port for each memory, and the chips."""

from __future__ import annotations

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.boards.sdram import WORD_BYTES, Sdram

WORD_BITS = 8 * WORD_BYTES


def native_port(address_width: int) -> wiring.Signature:
    """Return the signature of a port of litedram's crossbar, seen by its master; commands execute in order.

    Members
    -------
    ``command`` : Out, stream of ``write`` and ``address``
        Access to the word at ``address``.
    ``data`` : Out, 32
        Word to write; constant until it is taken.
    ``taken`` : In(1)
        Pulse: the word of a write was taken; once for each write, after its command.
    ``word`` : In, stream of 32 bits, always ready
        Words that were read.
    """
    command = data.StructLayout({"write": 1, "address": address_width})
    return wiring.Signature(
        {
            "command": Out(stream.Signature(command)),
            "data": Out(WORD_BITS),
            "taken": In(1),
            "word": In(stream.Signature(WORD_BITS, always_ready=True)),
        }
    )


def chip_pins(sdram: Sdram) -> wiring.Signature:
    """Return the signature of the chips' pins without the clock; commands are 1 when the pin is low.

    A register in each direction is between these signals and the pads
    (:class:`~fanin.hdl.boards.sdram.pins.SdramPins`).
    """
    row_bits, bank_bits = (sdram.rows - 1).bit_length(), (sdram.banks - 1).bit_length()
    return wiring.Signature(
        {
            "ras": Out(1),
            "cas": Out(1),
            "we": Out(1),
            "ba": Out(bank_bits),
            "a": Out(row_bits),
            "dq_o": Out(WORD_BITS),
            "dq_oe": Out(1),
            "dq_i": In(WORD_BITS),
        }
    )
