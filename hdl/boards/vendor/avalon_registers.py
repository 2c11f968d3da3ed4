"""A host behind Avalon-MM to registers behind AXI4-Lite."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp

BAD_READ = 0xFFFF_FFFF  # what a read gives that the registers refuse, as PCIe has it


class AvalonToAxiLite(wiring.Component):
    """An Avalon-MM host of single accesses to AXI4-Lite, one after the other.

    A write is taken when the registers have answered, a read at once. Avalon-MM as used here has no
    responses: a refused write is lost, a refused read gives all ones.

    Members
    -------
    ``address`` : In(address_width), of bytes
    ``read``, ``write`` : In(1)
    ``writedata`` : In(32)
    ``byteenable`` : In(4)
    ``waitrequest``, ``readdatavalid`` : Out(1)
    ``readdata`` : Out(32)
    ``axil`` : Out, AXI4-Lite, 32 bits

    Parameters
    ----------
    ``address_width`` : int, bits; 1…64

    Latency
    -------
    A read's data 2 cycles after AXI4-Lite could give them, a write taken a cycle after its response.

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
        """A write's address and data leave on their own channels, each when it is taken."""
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
