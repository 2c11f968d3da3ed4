# amaranth: UnusedElaboratable=no
"""A small board: what comes in at its RGMII goes out again, through an asynchronous FIFO and two PLL clocks."""

from amaranth import ClockDomain, ClockSignal, Const, Elaboratable, Instance, Module, Mux, Signal
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer
from amaranth.lib.fifo import AsyncFIFO

from fanin.sim.boards.board import PhyConfig

PHY = PhyConfig(
    "rgmii_0_rx_clk", "rgmii_0_rx_ctl", "rgmii_0_rx_data", "rgmii_0_tx_clk", "rgmii_0_tx_ctl", "rgmii_0_tx_data"
)
_PINS = ("tx_clk", "tx_ctl", "tx_data", "rx_clk", "rx_ctl", "rx_data")
_LEAD = 24  # bytes in the FIFO when a frame begins to leave: it may not run empty


class RgmiiLoop(Elaboratable):
    """Sends each frame back as it is, errors too. ``delay`` steps of a delay line stand behind the inputs."""

    def __init__(self, *, delay=0):
        self.delay = delay

    def elaborate(self, platform):
        m = Module()
        crystal = platform.request("clk25", 0, dir="-")
        m.submodules.crystal = buffer = io.Buffer("i", crystal)
        m.domains += [ClockDomain("tx"), ClockDomain("sync"), ClockDomain("rx", reset_less=True)]
        locked = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=1,
            p_CLKFB_DIV=5,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=5,
            p_CLKOP_CPHASE=4,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=11,
            p_CLKOS_CPHASE=12,
            a_FREQUENCY_PIN_CLKI="25",
            i_CLKI=buffer.i,
            i_CLKFB=ClockSignal("tx"),
            i_RST=0,
            i_STDBY=0,
            o_CLKOP=ClockSignal("tx"),
            o_CLKOS=ClockSignal("sync"),
            o_LOCK=locked,
        )
        for domain in ("tx", "sync"):
            m.submodules[f"reset_{domain}"] = ResetSynchronizer(~locked, domain=domain)
        pins = platform.request("rgmii", 0, dir=dict.fromkeys(_PINS, "-"))
        m.submodules.rx_clk = rx_clk = io.Buffer("i", pins.rx_clk)
        m.d.comb += ClockSignal("rx").eq(rx_clk.i)
        low, high = self._receive(m, pins)

        m.submodules.fifo = fifo = AsyncFIFO(width=10, depth=64, r_domain="tx", w_domain="rx")
        data, before = Signal(10), Signal()  # byte, valid, error
        m.d.rx += [
            data.eq(low[1:] | (high[1:] << 4) | (low[0] << 8) | ((low[0] ^ high[0]) << 9)),
            before.eq(data[8]),
        ]
        m.d.comb += [fifo.w_data.eq(data), fifo.w_en.eq(data[8] | before)]  # the first word behind a frame too
        running, out = Signal(), Signal(10)
        m.d.comb += fifo.r_en.eq(running)
        with m.If(~running):
            m.d.tx += running.eq(fifo.r_level >= _LEAD)
        with m.Elif(fifo.r_rdy & ~fifo.r_data[8]):
            m.d.tx += running.eq(0)
        m.d.tx += out.eq(Mux(running & fifo.r_rdy & fifo.r_data[8], fifo.r_data, 0))
        self._send(m, pins, out)
        self._show(m, platform, running)
        return m

    def _receive(self, m, pins):
        halves = [Signal(5), Signal(5)]
        for index, (port, bit) in enumerate([(pins.rx_ctl, 0), *((pins.rx_data, bit) for bit in range(4))]):
            m.submodules[f"in{index}"] = buffer = io.Buffer("i", port[bit])
            wire = buffer.i
            if self.delay:
                wire = Signal()
                m.submodules[f"delay{index}"] = Instance(
                    "DELAYG", p_DEL_MODE="USER_DEFINED", p_DEL_VALUE=self.delay, i_A=buffer.i, o_Z=wire
                )
            m.submodules[f"ddr{index}"] = Instance(
                "IDDRX1F",
                i_SCLK=ClockSignal("rx"),
                i_RST=0,
                i_D=wire,
                o_Q0=halves[0][index],
                o_Q1=halves[1][index],
            )
        return halves

    def _send(self, m, pins, out):
        valid, failed = out[8], out[8] ^ out[9]
        halves = [(pins.tx_clk, 0, Const(1), Const(0)), (pins.tx_ctl, 0, valid, failed)]
        halves += [(pins.tx_data, bit, out[bit], out[bit + 4]) for bit in range(4)]
        for index, (port, bit, first, second) in enumerate(halves):
            m.submodules[f"out{index}"] = buffer = io.Buffer("o", port[bit])
            m.submodules[f"oddr{index}"] = Instance(
                "ODDRX1F",
                i_SCLK=ClockSignal("tx"),
                i_RST=0,
                i_D0=first,
                i_D1=second,
                o_Q=buffer.o,
            )

    def _show(self, m, platform, running):
        """An LED that frames toggle, and a pin for both directions: registers beside the pads."""
        seen, last, toggle = Signal(), Signal(), Signal()
        m.submodules.seen = FFSynchronizer(running, seen)
        m.d.sync += last.eq(seen)
        with m.If(seen & ~last):
            m.d.sync += toggle.eq(~toggle)
        m.submodules.led = led = io.FFBuffer("o", platform.request("led", 0, dir="-"))
        m.submodules.mdio = mdio = io.FFBuffer("io", platform.request("mdio", 0, dir="-"))
        m.d.comb += [led.o.eq(toggle ^ mdio.i), mdio.o.eq(seen), mdio.oe.eq(toggle)]
