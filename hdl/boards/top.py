"""Top of every board with RGMII: pins and clocks, MAC, node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth import (
    ClockDomain,
    ClockSignal,
    Const,
    DomainRenamer,
    Elaboratable,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.build import ResourceError
from amaranth.lib import data, io, wiring
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer

from fanin.boards.sdram import Sdram
from fanin.glm.facts import GlmConfig
from fanin.hdl.boards.board import Board
from fanin.hdl.boards.cells import cells_of
from fanin.hdl.boards.clocks import TX_MHZ
from fanin.hdl.boards.identity import Identity
from fanin.hdl.boards.node import MAC_WIDTH, BoardNode
from fanin.hdl.boards.registers import Leds
from fanin.hdl.boards.sdram.core import FILE, core_verilog
from fanin.hdl.boards.sdram.pins import SdramPins
from fanin.hdl.net.ethernet.mac import EthernetMac
from fanin.hdl.net.ethernet.rgmii import RgmiiReceiver, RgmiiTransmitter, Speed
from fanin.hdl.stream.connect import connect_typed

RX_HZ = TX_MHZ * 1e6
LINE_PPM = 200  # excess of the line's clock over ours: 100 of either oscillator (IEEE 802.3)
LEAST_CORE_MHZ = TX_MHZ * 8 / MAC_WIDTH * (1 + LINE_PPM / 1e6)
PHY_RESET_MS = 20  # more than any supported PHY needs
LED_RESOURCES = ("led", "rgb_led")  # names of LEDs on boards; the first name that a board has is used

EVENTS = "board_events"  #: name of the signal of BOARD_EVENTS, for simulations

#: Pulses of the core's clock for measurement. No pin carries them, so synthesis removes them. ``pa``, ``fa``:
#: as in NodeEvents. ``received``: the MAC delivers a frame's first word. ``sent``: the MAC takes a frame's last
#: word.
BOARD_EVENTS = data.StructLayout(dict.fromkeys(("pa", "fa", "received", "sent"), 1))


def core_dividers(board: Board, platform: Any, core_mhz: float) -> Any:
    """Return the PLL's dividers for a core of at most ``core_mhz``; their ``core_mhz`` is the actual clock.

    Raises ValueError if no PLL setting exists, or if the core would be slower than the line.
    """
    dividers = cells_of(board).choose_dividers(platform.default_clk_frequency / 1e6, core_mhz)
    if dividers.core_mhz < LEAST_CORE_MHZ:
        raise ValueError(
            f"core_mhz is too low: 1 Gb/s needs a core of at least {LEAST_CORE_MHZ:.2f} MHz, "
            f"and for {core_mhz:g} MHz the PLL gives {dividers.core_mhz:.2f} MHz"
        )
    return dividers


class BoardTop(Elaboratable):
    """Top of a board with a node; without ``config`` it is a shell that answers ping and hello.

    ``core_mhz``: highest clock of the core in MHz. Raises the ValueError of :func:`core_dividers`.
    ``sdram``: the board's SDRAM, if it holds the node's memories.
    """

    def __init__(
        self,
        *,
        board: Board,
        config: GlmConfig | None,
        identity: Identity,
        core_mhz: float,
        sdram: Sdram | None = None,
    ):
        self.board = board
        self.config = config
        self.identity = identity
        self.core_mhz = core_mhz
        self.sdram = sdram

    def elaborate(self, platform: Any) -> Module:
        """Connect pins, clocks, MAC and node."""
        m = Module()
        cells = cells_of(self.board)
        dividers = core_dividers(self.board, platform, self.core_mhz)
        for domain in cells.clocks.DOMAINS:
            m.domains += ClockDomain(domain)
        m.submodules.oscillator = oscillator = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        m.submodules.clocks = cells.clocks(
            oscillator=oscillator.i, reset=_reset(m, platform), dividers=dividers
        )
        port = _request(platform, "eth_rgmii", self.board.phy.port)
        m.submodules.pins = pins = cells.pins(
            port=port, rx_delay_ns=self.board.phy.rx_delay_ns, tx_delay_ns=self.board.phy.tx_delay_ns
        )
        m.submodules.node = node = BoardNode(
            config=self.config,
            identity=self.identity,
            clock_hz=round(dividers.core_mhz * 1e6),
            sdram=self.sdram,
        )
        if node.sdram:
            _sdram(m, platform, node)
        platform.add_clock_constraint(port.rx_clk.io, RX_HZ)
        self._receive_clock(m, pins)
        mac = self._mac(m, pins, node)
        _events(m, mac, node)
        self._phy_reset(m, port, dividers.core_mhz)
        _leds(m, platform, node.leds)
        return m

    def _receive_clock(self, m: Module, pins: Any) -> None:
        """Build the domain ``rx``: the PHY's clock, in reset as long as the core."""
        m.domains += ClockDomain("rx")
        m.d.comb += ClockSignal("rx").eq(pins.rx_clock)
        m.submodules.rx_reset = ResetSynchronizer(ResetSignal("sync"), domain="rx")

    def _mac(self, m: Module, pins: Any, node: BoardNode) -> EthernetMac:
        """Build RGMII and the MAC, each half of RGMII in its domain; synchronise the PHY's status."""
        m.submodules.mac = mac = EthernetMac(width=MAC_WIDTH)
        receiver, transmitter = RgmiiReceiver(), RgmiiTransmitter()
        m.submodules.rgmii_rx = DomainRenamer("rx")(receiver)
        m.submodules.rgmii_tx = DomainRenamer("tx")(transmitter)
        m.submodules.link = FFSynchronizer(receiver.status.as_value(), node.link.as_value())
        m.submodules.speed = FFSynchronizer(
            Value.cast(receiver.status.speed),
            Value.cast(transmitter.speed),
            o_domain="tx",
            init=Const.cast(Speed.MBPS_1000).value,
        )
        connect_typed(m, mac.rx, node.mac_rx)
        connect_typed(m, node.mac_tx, mac.tx)
        m.d.comb += [
            node.mac_events.eq(mac.events),
            mac.gmii_rx.eq(receiver.gmii),
            mac.gmii_rx_enable.eq(receiver.enable),
            transmitter.gmii.eq(mac.gmii_tx),
            mac.gmii_tx_enable.eq(transmitter.enable),
        ]
        for half in range(2):
            m.d.comb += [
                getattr(receiver, f"data{half}").eq(pins.rx[half][:4]),
                getattr(receiver, f"ctl{half}").eq(pins.rx[half][4]),
                pins.tx[half][:4].eq(getattr(transmitter, f"data{half}")),
                pins.tx[half][4].eq(getattr(transmitter, f"ctl{half}")),
                pins.tx_clock[half].eq(getattr(transmitter, f"clock{half}")),
            ]
        return mac

    def _phy_reset(self, m: Module, port: Any, core_mhz: float) -> None:
        """Reset the PHY, which then uses the settings of its straps; keep its management port idle."""
        m.submodules.phy_reset = reset = io.Buffer("o", port.rst)
        m.submodules.phy_mdc = mdc = io.Buffer("o", port.mdc)
        wait = Signal(
            range(round(PHY_RESET_MS * 1000 * core_mhz) + 1), init=round(PHY_RESET_MS * 1000 * core_mhz)
        )
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        m.d.comb += [reset.o.eq(wait != 0), mdc.o.eq(0)]


def _events(m: Module, mac: EthernetMac, node: BoardNode) -> None:
    """Drive the events: frames at the MAC, activations in the node."""
    events = Signal(BOARD_EVENTS, name=EVENTS)
    in_frame = Signal()  # a frame that the MAC delivers has begun
    with m.If(mac.rx.valid & mac.rx.ready):
        m.d.sync += in_frame.eq(~mac.rx.p.last)
    m.d.comb += [
        events.pa.eq(node.events.pa),
        events.fa.eq(node.events.fa),
        events.received.eq(mac.rx.valid & mac.rx.ready & ~in_frame),
        events.sent.eq(mac.tx.valid & mac.tx.ready & mac.tx.p.last),
    ]


def _sdram(m: Module, platform: Any, node: BoardNode) -> None:
    """Connect the SDRAM's pins, and add litedram's Verilog to the project."""
    sdram = node.sdram
    assert sdram is not None
    assert node.config is not None
    m.submodules.sdram_pins = pins = SdramPins(port=_request(platform, "sdram", 0), sdram=sdram)
    wiring.connect(m, node.chip, pins.chip)
    timing = sdram.timing(node.clock_hz)
    platform.add_file(FILE, core_verilog(sdram, timing, ports=node.config.read_ports))


def _request(platform: Any, name: str, number: int) -> Any:
    """Request a resource without buffers, for any subsignals."""
    resource = platform.lookup(name, number)
    return platform.request(name, number, dir={ios.name: "-" for ios in resource.ios})


def _reset(m: Module, platform: Any) -> Any:
    """Return the board's reset button, or 0 if it has none."""
    if platform.default_rst is None:
        return Const(0)
    m.submodules.reset_pin = buffer = io.Buffer("i", platform.request(platform.default_rst, dir="-"))
    return buffer.i


def _leds(m: Module, platform: Any, leds: data.View[Any]) -> None:
    """Drive as many LEDs as the board has, in order; a single LED shows the link and is dark after a fault."""
    for name in LED_RESOURCES:
        ports = list(led_ports(platform, name))
        values = Value.cast(leds) if len(ports) > 1 else leds.link & ~leds.fault
        for number, port in enumerate(ports):
            m.submodules[f"led_pin_{number}"] = buffer = io.Buffer("o", port)
            m.d.comb += buffer.o.eq(values[number])
        if ports:
            return


def led_ports(platform: Any, name: str) -> Iterator[Any]:
    """Yield the LEDs of that name; of coloured LEDs the green one."""
    for number in range(len(Leds.members)):
        try:
            port = platform.request(name, number, dir="-" if name == "led" else dict.fromkeys("rgb", "-"))
        except ResourceError:
            return
        yield port if name == "led" else port.g
