"""Executor of control requests: performs bus accesses one at a time and stores the words read."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi_lite_master import LiteResult, lite_access
from fanin.hdl.net.control.headers import BODY_BEAT, PLACE_BITS, WIDTH
from fanin.hdl.net.control.request_reader import COUNT_BITS, KIND_BITS
from fanin.hdl.net.crc import CRC_BITS, step
from fanin.hdl.net.headers import swap_bytes
from fanin.wire.control import WORD_BYTES, WRITE_BIT, Kind

_BYTE = 8


class Executor(wiring.Component):
    """Executor that performs a request's accesses up to its end or the first access that fails.

    Members
    -------
    ``start`` : In, 1
        Pulse: execute a request. ``kind``, ``count``, ``address`` and ``number`` are constant until ``done``.
    ``kind`` : In, 4
        Kind of the request.
    ``count`` : In, 16
        Number of accesses, or of words to load or dump.
    ``address`` : In, 32
        First address; unused for accesses.
    ``number`` : In, 16
        Number of words of a checksum.
    ``place`` : Out, 9
        Beat of the request to read.
    ``word`` : In, 32
        The beat at ``place``, two cycles later.
    ``request`` : Out, stream of :func:`~fanin.hdl.bus.axi_lite_master.lite_access`
        Accesses to the bus.
    ``result`` : In, stream of LiteResult, always ready
        Results of the accesses.
    ``write`` : Out, 1
        Write ``data`` to beat ``at`` of the reply.
    ``at`` : Out, 9
        Beat of the reply.
    ``data`` : Out, 32
        Word of the reply, in wire order.
    ``done`` : Out, 1
        Pulse: the request has been executed or has ``failed``.
    ``failed`` : Out, 1
        An access failed; its address is the only word of the reply.
    ``words`` : Out, 9
        Number of words of the reply.

    Parameters
    ----------
    None.

    Latency
    -------
    In addition to the bus' cycles: 6 cycles for each access, 5 for each word loaded, 2 for each word dumped, 6
    for each word of a checksum.

    Source
    ------
    docs/systems/boards.md, "Control".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "kind": In(KIND_BITS),
                "count": In(COUNT_BITS),
                "address": In(WIDTH),
                "number": In(COUNT_BITS),
                "place": Out(PLACE_BITS),
                "word": In(WIDTH),
                "request": Out(stream.Signature(lite_access(WIDTH))),
                "result": In(stream.Signature(LiteResult, always_ready=True)),
                "write": Out(1),
                "at": Out(PLACE_BITS),
                "data": Out(WIDTH),
                "done": Out(1),
                "failed": Out(1),
                "words": Out(PLACE_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Execute the accesses one after the other.

        NEXT starts an access, or ends the request. FETCH, FIRST and SECOND read its address and data from the
        request; a LOAD has data alone, other kinds have neither. BUS performs the access and stores its result.
        CRC adds a word to the checksum, a byte a cycle. END stores the checksum, and CLOSE ends the request.
        """
        m = Module()
        request, result = self.request, self.result
        is_access, is_load, is_checksum = (
            Signal(name=f"is_{kind.name.lower()}") for kind in (Kind.ACCESS, Kind.LOAD, Kind.CHECKSUM)
        )
        m.d.sync += [
            is_access.eq(self.kind == Kind.ACCESS),
            is_load.eq(self.kind == Kind.LOAD),
            is_checksum.eq(self.kind == Kind.CHECKSUM),
        ]
        remaining = Signal(COUNT_BITS)
        read = Signal(WIDTH)
        crc = Signal(CRC_BITS)
        bytes_left = Signal(range(WORD_BYTES))
        m.d.comb += self.words.eq(self.at - BODY_BEAT)
        m.d.sync += [self.write.eq(0), self.done.eq(0)]
        with m.If(self.write):
            m.d.sync += self.at.eq(self.at + 1)
        with m.FSM():
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += [
                    remaining.eq(Mux(self.kind == Kind.CHECKSUM, self.number, self.count)),
                    request.p.address.eq(self.address),
                    request.p.write.eq(self.kind == Kind.LOAD),
                    self.place.eq(Mux(self.kind == Kind.LOAD, BODY_BEAT + 1, BODY_BEAT)),
                    self.at.eq(BODY_BEAT),
                    self.failed.eq(0),
                    crc.eq((1 << CRC_BITS) - 1),
                ]
                m.next = "NEXT"
            with m.State("NEXT"):
                m.d.sync += remaining.eq(remaining - 1)
                with m.If(remaining == 0):
                    m.next = "END"
                with m.Elif(is_access | is_load):
                    m.d.sync += self.place.eq(self.place + 1)
                    m.next = "FETCH"
                with m.Else():
                    m.d.sync += request.valid.eq(1)
                    m.next = "BUS"
            with m.State("FETCH"):
                m.d.sync += self.place.eq(self.place + is_access)
                m.next = "FIRST"
            with m.State("FIRST"):
                m.d.sync += request.p.data.eq(swap_bytes(self.word))
                with m.If(is_access):
                    m.d.sync += [
                        request.p.address.eq(swap_bytes(self.word) & ~WRITE_BIT),
                        request.p.write.eq((swap_bytes(self.word) & WRITE_BIT).any()),
                    ]
                    m.next = "SECOND"
                with m.Else():
                    m.d.sync += request.valid.eq(1)
                    m.next = "BUS"
            with m.State("SECOND"):
                m.d.sync += [request.p.data.eq(swap_bytes(self.word)), request.valid.eq(1)]
                m.next = "BUS"
            with m.State("BUS"):
                with m.If(request.ready):
                    m.d.sync += request.valid.eq(0)
                m.d.sync += [
                    self.data.eq(swap_bytes(result.p.data)),
                    read.eq(result.p.data),
                    bytes_left.eq(WORD_BYTES - 1),
                ]
                with m.If(result.valid):
                    m.next = "CRC"
                    with m.If(result.p.error):
                        m.d.sync += [
                            self.failed.eq(1),
                            self.write.eq(1),
                            self.at.eq(BODY_BEAT),
                            self.data.eq(swap_bytes(request.p.address)),
                        ]
                        m.next = "CLOSE"
                    with m.Elif(~is_checksum):
                        m.d.sync += self.write.eq(~request.p.write)
                        m.d.sync += request.p.address.eq(request.p.address + WORD_BYTES)
                        m.next = "NEXT"
            with m.State("CRC"):
                m.d.sync += [
                    crc.eq(_crc_step(crc, read[:_BYTE])),
                    read.eq(read >> _BYTE),
                    bytes_left.eq(bytes_left - 1),
                ]
                with m.If(bytes_left == 0):
                    m.d.sync += request.p.address.eq(request.p.address + WORD_BYTES)
                    m.next = "NEXT"
            with m.State("END"):
                m.d.sync += [self.write.eq(is_checksum), self.data.eq(swap_bytes(~crc))]
                m.next = "CLOSE"
            with m.State("CLOSE"):
                m.d.sync += self.done.eq(1)
                m.next = "IDLE"
        return m


def _crc_step(crc: Signal, byte: Any) -> Any:
    """Return the CRC state a byte later; each bit is an XOR of bits of the state and the byte."""
    mixed = Cat(crc[:_BYTE] ^ byte, crc[_BYTE:])
    columns = [step(1 << bit, 1) for bit in range(CRC_BITS)]
    rows = [[n for n, column in enumerate(columns) if column >> bit & 1] for bit in range(CRC_BITS)]
    return Cat(Cat(mixed[n] for n in row).xor() for row in rows)
