"""The two ends of litedram's core: a port for each memory, and the chips."""

from __future__ import annotations

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.boards.sdram import WORD_BYTES, Sdram

WORD_BITS = 8 * WORD_BYTES


def native_port(address_width: int) -> wiring.Signature:
    """A port of litedram's crossbar, as its master sees it; commands are carried out in order.

    Members
    -------
    ``command`` : Out, stream of ``write`` and the ``address`` of a word
    ``data`` : Out, 32
        The word to be written; it stays until it is taken.
    ``taken`` : In(1)
        Once for each write, behind its command.
    ``word`` : In, stream of 32 bits, always ready
        Each word that was read.
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
    """The pins of the chips, but the clock; commands are 1 where the pin is low.

    Between them and the pads stands a register each way (:class:`~fanin.hdl.boards.sdram.pins.SdramPins`).
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
