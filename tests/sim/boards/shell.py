# amaranth: UnusedElaboratable=no
"""A board without a node: RGMII, MAC, ARP, echo and control, and a memory on its bus."""

from amaranth import ClockDomain, ClockSignal, Const, DomainRenamer, Elaboratable, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer

from fanin.hdl.boards.clocks import Ecp5Clocks, choose_dividers
from fanin.hdl.boards.rgmii_pins import RgmiiPins
from fanin.hdl.bus.axi_lite_decoder import AxiLiteDecoder
from fanin.hdl.bus.block_memory import BlockMemory
from fanin.hdl.net.control.demultiplexer import Demultiplexer
from fanin.hdl.net.control.responder import Responder
from fanin.hdl.net.ethernet.mac import EthernetMac
from fanin.hdl.net.ethernet.rgmii import RgmiiReceiver, RgmiiTransmitter, Speed
from fanin.hdl.stream.connect import connect_typed

MEMORY, SIZE = 0x1000_0000, 4096
_PINS = ("tx_clk", "tx_ctl", "tx_data", "rx_clk", "rx_ctl", "rx_data")


class Shell(Elaboratable):
    """Answers at ``mac`` and ``ip``; the LED is its link."""

    def __init__(self, *, mac, ip, core_mhz=50):
        self.mac, self.ip, self.core_mhz = mac, ip, core_mhz

    def elaborate(self, platform):
        m = Module()
        m.submodules.crystal = crystal = io.Buffer("i", platform.request("clk25", 0, dir="-"))
        dividers = choose_dividers(25, self.core_mhz)
        m.submodules.clocks = Ecp5Clocks(oscillator=crystal.i, reset=Const(0), dividers=dividers)
        port = platform.request("rgmii", 0, dir=dict.fromkeys(_PINS, "-"))
        m.submodules.pins = pins = RgmiiPins(port=port, rx_delay_ns=0, tx_delay_ns=0)
        m.domains += ClockDomain("rx")
        m.d.comb += ClockSignal("rx").eq(pins.rx_clock)
        locked = Signal()
        m.d.sync += locked.eq(1)
        m.submodules.rx_reset = ResetSynchronizer(~locked, domain="rx")

        m.submodules.mac = mac = EthernetMac()
        m.submodules.receiver = receiver = DomainRenamer("rx")(RgmiiReceiver())
        m.submodules.transmitter = transmitter = DomainRenamer("tx")(RgmiiTransmitter())
        up = Signal()
        m.submodules.up = FFSynchronizer(receiver.status.up, up)
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        for half, (data, ctl) in enumerate([(receiver.data0, receiver.ctl0), (receiver.data1, receiver.ctl1)]):
            m.d.comb += [data.eq(pins.rx[half][:4]), ctl.eq(pins.rx[half][4])]
        for half, (data, ctl) in enumerate(
            [(transmitter.data0, transmitter.ctl0), (transmitter.data1, transmitter.ctl1)]
        ):
            m.d.comb += [pins.tx[half][:4].eq(data), pins.tx[half][4].eq(ctl)]
        m.d.comb += [
            led.o.eq(up),
            mac.gmii_rx.eq(receiver.gmii),
            mac.gmii_rx_enable.eq(receiver.enable),
            transmitter.gmii.eq(mac.gmii_tx),
            mac.gmii_tx_enable.eq(transmitter.enable),
            transmitter.speed.eq(Speed.MBPS_1000),
            pins.tx_clock[0].eq(transmitter.clock0),
            pins.tx_clock[1].eq(transmitter.clock1),
        ]
        self._answer(m, mac)
        return m

    def _answer(self, m, mac):
        m.submodules.demultiplexer = demultiplexer = Demultiplexer()
        m.submodules.responder = responder = Responder(lease_cycles=1 << 30)
        m.submodules.decoder = decoder = AxiLiteDecoder(address_width=32, regions=((MEMORY, 24),))
        m.submodules.memory = memory = BlockMemory(size=SIZE)
        connect_typed(m, mac.rx, demultiplexer.i)
        connect_typed(m, demultiplexer.board, responder.i)
        connect_typed(m, responder.o, mac.tx)
        connect_typed(m, responder.axil, decoder.axil)
        connect_typed(m, decoder.m0, memory.axil)
        m.d.comb += demultiplexer.node.ready.eq(1)
        for part in (demultiplexer, responder):
            m.d.comb += [part.own_mac.eq(self.mac), part.own_ip.eq(self.ip)]
