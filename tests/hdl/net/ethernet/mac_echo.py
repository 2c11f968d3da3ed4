"""A MAC whose core sends back what it gets, with GMII pin by pin."""

from types import MappingProxyType

from amaranth import ClockSignal, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.ethernet.mac import EthernetMac, MacEvents
from fanin.hdl.stream.connect import connect_typed


class MacEcho(wiring.Component):
    domains = MappingProxyType(
        {name: name[:2] for name in ("rx_data", "rx_dv", "rx_er", "tx_data", "tx_en", "tx_er")}
    )

    def __init__(self):
        super().__init__(
            {
                "rx_data": In(8),
                "rx_dv": In(1),
                "rx_er": In(1),
                "tx_data": Out(8),
                "tx_en": Out(1),
                "tx_er": Out(1),
                "gtx_clk": Out(1),
                "events": Out(MacEvents),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac = mac = EthernetMac()
        connect_typed(m, mac.rx, mac.tx)
        m.d.comb += [
            mac.gmii_rx.data.eq(self.rx_data),
            mac.gmii_rx.valid.eq(self.rx_dv),
            mac.gmii_rx.error.eq(self.rx_er),
            mac.gmii_rx_enable.eq(1),
            mac.gmii_tx_enable.eq(1),
            self.tx_data.eq(mac.gmii_tx.data),
            self.tx_en.eq(mac.gmii_tx.valid),
            self.tx_er.eq(mac.gmii_tx.error),
            self.gtx_clk.eq(~ClockSignal("tx")),  # rises in the middle of a byte
            self.events.eq(mac.events),
        ]
        return m
