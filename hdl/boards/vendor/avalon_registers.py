"""Bridge from an Avalon-MM host to registers with AXI4-Lite."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp

BAD_READ = 0xFFFF_FFFF  # data of a refused read, as with PCIe


class AvalonToAxiLite(wiring.Component):
    """Bridge from an Avalon-MM host with single accesses to AXI4-Lite, one access after the other.

    A write is taken when the registers have answered, a read immediately. Avalon-MM as used here has no
    responses: a refused write is lost, a refused read returns all ones.

    Members
    -------
    ``address`` : In(address_width)
        Byte address.
    ``read``, ``write`` : In(1)
        Command of this cycle.
    ``writedata`` : In(32)
        Word to write.
    ``byteenable`` : In(4)
        Bytes of the word to write.
    ``waitrequest`` : Out(1)
        The command of this cycle is not taken.
    ``readdatavalid`` : Out(1)
        ``readdata`` is valid.
    ``readdata`` : Out(32)
        Word that was read.
    ``axil`` : Out, AXI4-Lite, 32 bits
        Port of the registers.

    Parameters
    ----------
    ``address_width`` : int
        Bits of an address, 1…64.

    Latency
    -------
    A read's data come 2 cycles after the earliest possible AXI4-Lite response. A write is taken a cycle after
    its response.

    Source
    ------
    Intel, Avalon Interface Specifications (MNL-AVABUSREF), "Pipelined Transfers"; Arm IHI 0022, B1.
    """

    def __init__(self, *, address_width: int):
        self.address_width = address_width
        super().__init__(
            {
                "address": In(address_width),
                "read": In(1),
                "write": In(1),
                "writedata": In(32),
                "byteenable": In(4),
                "waitrequest": Out(1),
                "readdata": Out(32),
                "readdatavalid": Out(1),
                "axil": Out(AXI4LiteSignature(address_width=address_width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Issue a write's address and data on their own channels, each until it is taken."""
        m = Module()
        axil = self.axil
        m.d.comb += self.waitrequest.eq(1)
        m.d.sync += self.readdatavalid.eq(0)
        for channel in ("aw", "w", "ar"):
            valid = getattr(axil, f"{channel}valid")
            with m.If(getattr(axil, f"{channel}ready")):
                m.d.sync += valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.write):
                    m.d.sync += [
                        axil.awaddr.eq(self.address),
                        axil.wdata.eq(self.writedata),
                        axil.wstrb.eq(self.byteenable),
                        axil.awvalid.eq(1),
                        axil.wvalid.eq(1),
                    ]
                    m.next = "WRITE"
                with m.Elif(self.read):
                    m.d.comb += self.waitrequest.eq(0)
                    m.d.sync += [axil.araddr.eq(self.address), axil.arvalid.eq(1)]
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.comb += axil.bready.eq(1)
                with m.If(axil.bvalid):
                    m.next = "WRITTEN"
            with m.State("WRITTEN"):
                m.d.comb += self.waitrequest.eq(0)
                m.next = "IDLE"
            with m.State("READ"):
                m.d.comb += axil.rready.eq(1)
                with m.If(axil.rvalid):
                    m.d.sync += [self.readdata.eq(axil.rdata), self.readdatavalid.eq(1)]
                    with m.If(axil.rresp != Resp.OKAY):
                        m.d.sync += self.readdata.eq(BAD_READ)
                    m.next = "IDLE"
        return m
