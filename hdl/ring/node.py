"""The ring node: engine and link with registers, memory and MAC ports; ready for a board."""

from typing import Any

from amaranth import Cat, Const, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.codec import Bfp, Inceptionn
from fanin.hdl.bus.axi4 import AXI4LiteSignature, join_memory, memory_signature
from fanin.hdl.bus.common_registers import drive_constants, drive_counters
from fanin.hdl.bus.register_map import RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.net.link.link import ReliableLink
from fanin.hdl.ring.control import RingControl
from fanin.hdl.ring.engine import RingEngine, RingEvents
from fanin.hdl.ring.link_job import RING_JOB
from fanin.hdl.ring.registers import LINK_COUNTERS, ring_constants, ring_registers
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.ring import MIN_NODES, RingConfig
from fanin.wire.ring import RING_LINK


class RingNode(wiring.Component):
    """One node of the ring all-reduce, ready for a board.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        The registers of ``ring_registers(config)``.
    ``memory`` : Out, AXI4, 32 · lanes bits
    ``mac_tx`` : Out, packet stream of 32 · lanes bits
    ``mac_rx`` : In, packet stream of 32 · lanes bits with ``error``
    ``events`` : Out, RingEvents
        For measurement; a board leaves them open.

    Parameters
    ----------
    ``config`` : RingConfig
    ``queue`` : int, descriptors that may be unfinished; 1…255

    Latency
    -------
    See docs/systems/ring.md, "The engine".

    Source
    ------
    AI Smart NIC, sections II-B and IV-A; docs/systems/ring.md.
    """

    def __init__(self, *, config: RingConfig, queue: int = 8):
        if queue not in range(1, 256):
            raise ValueError(f"queue must be from 1 to 255, not {queue!r}")
        self.config = config
        self.queue = queue
        super().__init__(self._ports())

    @property
    def register_map(self) -> RegisterMap:
        """The node's registers."""
        return ring_registers(self.config)

    def _ports(self) -> dict[str, Any]:
        """The members."""
        config = self.config
        return {
            "axil": In(AXI4LiteSignature(address_width=self.register_map.address_bits)),
            "memory": Out(memory_signature(data_width=config.width, address_width=config.address_width)),
            "mac_tx": Out(packet_stream(config.width)),
            "mac_rx": In(packet_stream(config.width, error=True)),
            "events": Out(RingEvents),
        }

    def elaborate(self, platform: Any) -> Module:
        """Registers above, memory on the left, network on the right, control beside them."""
        m = Module()
        config = self.config
        m.submodules.registers = registers = RegisterFile(registers=self.register_map)
        m.submodules.control = control = RingControl()
        engine = RingEngine(config=config, queue=self.queue)
        m.submodules.engine = ResetInserter(control.reset)(engine)
        m.submodules.link = link = ReliableLink(
            form=RING_LINK,
            data_width=config.width,
            frame_beats=config.frame_beats,
            buffer_frames=config.buffer_frames,
            replay_frames=config.replay_frames,
        )
        connect_typed(m, flipped(self.axil), registers.axil)
        connect_typed(m, engine.tx, link.tx)
        connect_typed(m, link.rx, engine.rx)
        join_memory(m, read=engine.read, write=engine.write, memory=self.memory)
        self._settings(m, registers, control, engine, link)
        self._control(m, registers, control, engine, link)
        self._status(m, registers, control, engine)
        self._counters(m, registers, engine, link, self._network(m, registers, link))
        m.d.comb += self.events.eq(engine.events)
        return m

    def _constants(self) -> dict[str, int]:
        """What the node says of itself, by field."""
        return ring_constants(self.config) | {"queue": self.queue}

    def _network(self, m: Module, registers: Any, link: Any) -> dict[str, Any]:
        """What lies between the link and the MAC. Returns the sources of counters by name."""
        connect_typed(m, link.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), link.mac_rx)
        return {}

    def _settings(self, m: Module, registers: Any, control: Any, engine: Any, link: Any) -> None:
        """What the registers say, to the parts that need it, and whether a ring can be run so."""
        job = link.job
        made = ("job", "codec", "parameters")  # of the others each is a register
        names = [name for name in RING_JOB.members if name not in made]
        m.d.comb += [job[name].eq(getattr(registers, name)) for name in names]
        m.d.comb += [
            job.job.eq(registers.job_id),
            job.codec.eq(self.config.codec_kind.id),
            job.parameters.eq(self._parameters(registers)),
            engine.nodes.eq(registers.nodes),
            engine.rank.eq(registers.rank),
            engine.settings.bound.eq(registers.bound),
            engine.settings.mode.eq(registers.mode),
        ]
        positive = ("timeout", "retries", "ack_frames", "bound")
        good = Signal(len(positive) + 2)
        m.d.sync += [
            good.eq(
                Cat(
                    registers.nodes >= MIN_NODES,
                    registers.rank < registers.nodes,
                    *(getattr(registers, name).any() for name in positive),
                )
            ),
            control.valid_settings.eq(good.all()),
        ]

    def _parameters(self, registers: Any) -> Any:
        """The header's: two bytes as in a codec's file, the first one above; without a codec, the lanes."""
        codec = self.config.codec
        match codec:
            case None:
                return Const(self.config.lanes, 16)
            case Bfp():
                return Const(int.from_bytes(codec.pack(), "big"), 16)
            case Inceptionn():  # bound and mode are run-time registers
                return Cat(registers.mode, Const(0, 6), codec.group == 16, registers.bound)
        raise ValueError(f"codec {codec.kind} has no parameters in the ring's header")

    def _control(self, m: Module, registers: Any, control: Any, engine: Any, link: Any) -> None:
        m.d.comb += [
            control.start.eq(registers.start),
            control.stop.eq(registers.stop),
            control.link.eq(link.status),
            control.mismatch.eq(engine.mismatch),
            control.memory_error.eq(engine.memory_error),
            control.moving.eq(engine.moving),
            engine.halt.eq(control.halt),
            link.reset.eq(control.reset | control.silence),
            link.start.eq(control.begin),
            link.watch.eq(engine.unfinished.any()),
            engine.post.payload.address.eq(registers.address),
            engine.post.payload.count.eq(registers.count),
        ]
        m.d.sync += engine.post.valid.eq(registers.post_descriptor)

    def _status(self, m: Module, registers: Any, control: Any, engine: Any) -> None:
        """What the node is, what it does, and what has become of the job's descriptors."""
        drive_constants(m, registers, self._constants())
        m.d.comb += [
            getattr(registers, name).eq(getattr(control, name)) for name in ("running", "failed", "cause")
        ]
        posting = Signal(8)  # a descriptor is counted some cycles after its post
        pending = registers.post_descriptor | posting.any() | engine.unfinished.any()
        m.d.sync += [
            posting.eq(Cat(registers.post_descriptor, posting)),
            registers.busy.eq(control.changing | control.running & pending),
        ]
        events = {"posted": "accepted", "completed": "finished", "refused": "refused"}
        for name, event in events.items():
            count = getattr(registers, name)
            counter = Signal.like(count, name=f"{name}_counter")
            m.d.comb += count.eq(counter)
            with m.If(control.reset):
                m.d.sync += counter.eq(0)
            with m.Elif(engine.events[event]):
                m.d.sync += counter.eq(counter + 1)
        m.d.sync += registers.refused_any.eq(registers.refused.any())
        m.d.comb += registers.completed_low.eq(registers.completed)  # truncated

    def _counters(self, m: Module, registers: Any, engine: Any, link: Any, of_network: dict[str, Any]) -> None:
        """Every counter has a source."""
        sources = {
            "cycles": engine.unfinished.any(),
            "added": engine.events.added,
            "stored": engine.events.stored,
            "sent_beats": engine.events.sent,
        }
        sources |= {name: link.counters[name] for name in LINK_COUNTERS} | of_network
        drive_counters(m, registers, sources)
