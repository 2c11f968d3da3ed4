"""Ring node: engine and link with registers, memory and MAC ports; ready for a board."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.codec.facts import Bfp, Half, Inceptionn, Mx, is_stochastic
from fanin.hdl.bus.axi4 import OUTSTANDING, AXI4LiteSignature, join_memory, memory_signature
from fanin.hdl.bus.common_registers import drive_constants, drive_counters
from fanin.hdl.bus.port_use import PortUse
from fanin.hdl.bus.register_map import RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.net.link.job import LinkHeard
from fanin.hdl.net.link.link import ReliableLink
from fanin.hdl.ring.control import RingControl
from fanin.hdl.ring.engine import RingEngine, RingEvents
from fanin.hdl.ring.link_job import RING_JOB
from fanin.hdl.ring.registers import (
    DIFFERS,
    FRAME_DIFFERENCES,
    HEARD,
    JOB_DIFFERENCES,
    LINK_COUNTERS,
    ring_constants,
    ring_registers,
)
from fanin.hdl.ring.words import BURST
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.ring.facts import MIN_NODES, RingConfig
from fanin.wire.ring import RING_LINK

POST_CYCLES = 6  # from a post to the engine's ``accepted`` or ``refused`` event


class RingNode(wiring.Component):
    """Ring all-reduce node, ready for a board.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Registers of ``ring_registers(config)``.
    ``memory`` : Out, AXI4, 32 · lanes bits; 16 · lanes with a ``tensor``
        Memory with the vectors.
    ``mac_tx`` : Out, packet stream of 32 · lanes bits
        Frames for the MAC.
    ``mac_rx`` : In, packet stream of 32 · lanes bits with ``error``
        Frames from the MAC.
    ``events`` : Out, RingEvents
        Pulses for measurement; a board leaves them open.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths, codec and buffer sizes.
    ``queue`` : int
        Descriptors that may be unfinished, 1…255.

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
        """Register map of the node."""
        return ring_registers(self.config)

    @property
    def port_use(self) -> dict[str, PortUse]:
        """Use of the AXI4 ports, by name. The last word of a vector is written in part."""
        return {"memory": PortUse(burst=BURST, reads=OUTSTANDING, writes=OUTSTANDING, partial=True)}

    def _ports(self) -> dict[str, Any]:
        """Return the members of the signature."""
        config = self.config
        return {
            "axil": In(AXI4LiteSignature(address_width=self.register_map.address_bits)),
            "memory": Out(memory_signature(data_width=config.memory_width, address_width=config.address_width)),
            "mac_tx": Out(packet_stream(config.width)),
            "mac_rx": In(packet_stream(config.width, error=True)),
            "events": Out(RingEvents),
        }

    def elaborate(self, platform: Any) -> Module:
        """Connect registers, control, engine, link, memory and network."""
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
        m.d.comb += [link.told.eq(engine.told), link.news.eq(engine.news), engine.heard.eq(link.peer_told)]
        self._settings(m, registers, control, engine, link)
        self._control(m, registers, control, engine, link)
        self._status(m, registers, control, engine)
        self._record_differences(m, registers, control, engine, link)
        self._counters(m, registers, engine, link, self._network(m, registers, link))
        m.d.comb += self.events.eq(engine.events)
        return m

    def _constants(self) -> dict[str, int]:
        """Return the constant register fields of this node by name."""
        return ring_constants(self.config) | {"queue": self.queue}

    def _network(self, m: Module, registers: Any, link: Any) -> dict[str, Any]:
        """Connect link and MAC; return the event sources of further counters by name."""
        connect_typed(m, link.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), link.mac_rx)
        return {}

    def _settings(self, m: Module, registers: Any, control: Any, engine: Any, link: Any) -> None:
        """Latch the settings at a job's start, hold them, and check that they are valid for a ring."""
        job = link.job
        # computed here; all other members are registers
        computed = ("job", "previous_rank", "codec", "parameters", "tensor")
        names = [name for name in RING_JOB.members if name not in computed]
        codec = self.config.codec
        random = ("rounding_seed",) if codec and is_stochastic(codec) else ()
        of_job = ("job_id", "bound", "mode", "watch", *random, *names)
        settings = Signal(data.StructLayout({name: getattr(registers, name).shape() for name in of_job}))
        with m.If(control.latch):
            m.d.sync += [settings[name].eq(getattr(registers, name)) for name in of_job]
        previous_rank = Signal.like(job.previous_rank)
        m.d.sync += previous_rank.eq(Mux(settings.rank.any(), settings.rank, settings.nodes) - 1)
        m.d.comb += [job[name].eq(settings[name]) for name in names]
        m.d.comb += [
            job.job.eq(settings.job_id),
            job.previous_rank.eq(previous_rank),
            job.codec.eq(self.config.codec_kind.id),
            job.tensor.eq(ring_constants(self.config)["tensor"]),
            job.parameters.eq(self._parameters(settings)),
            engine.nodes.eq(settings.nodes),
            engine.rank.eq(settings.rank),
            engine.settings.bound.eq(settings.bound),
            engine.settings.mode.eq(settings.mode),
            *(engine.settings.seed.eq(settings[name]) for name in random),
            link.watch.eq(engine.unfinished.any() | settings.watch),
        ]
        positive = ("timeout", "retries", "ack_frames", "bound", *random)
        good = Signal(len(positive) + 2)
        m.d.sync += [
            good.eq(
                Cat(
                    settings.nodes >= MIN_NODES,
                    settings.rank < settings.nodes,
                    *(settings[name].any() for name in positive),
                )
            ),
            control.valid_settings.eq(good.all()),
        ]

    def _parameters(self, settings: Any) -> Any:
        """Return the header's ``parameters``: the codec's two bytes, first byte on top; else the lanes."""
        codec = self.config.codec
        match codec:
            case None:
                return Const(self.config.lanes, 16)
            case Bfp() | Mx() | Half():
                return Const(int.from_bytes(codec.pack(), "big"), 16)
            case Inceptionn():  # bound and mode are run-time registers
                return Cat(settings.mode, Const(0, 6), codec.group == 16, settings.bound)
        raise ValueError(f"codec {codec.kind} has no parameters in the ring's header")

    def _control(self, m: Module, registers: Any, control: Any, engine: Any, link: Any) -> None:
        m.d.comb += [
            control.start.eq(registers.start),
            control.stop.eq(registers.stop),
            control.link.eq(link.status),
            control.mismatch.eq(engine.differs.as_value().any()),
            control.memory_error.eq(engine.memory_error),
            control.moving.eq(engine.moving),
            engine.halt.eq(control.halt),
            link.reset.eq(control.reset | control.silence),
            link.start.eq(control.begin),
            engine.post.payload.address.eq(registers.address),
            engine.post.payload.count.eq(registers.count),
        ]
        m.d.sync += engine.post.valid.eq(registers.post_descriptor & ~registers.posted.all())

    def _status(self, m: Module, registers: Any, control: Any, engine: Any) -> None:
        """Drive constants, state, and the counts of the job's descriptors."""
        drive_constants(m, registers, self._constants())
        m.d.comb += [
            getattr(registers, name).eq(getattr(control, name)) for name in ("running", "failed", "cause")
        ]
        command = registers.start | registers.stop
        posting = Signal(POST_CYCLES + 2)  # shift register of posts; the last bits cover the counters' delay
        pending = registers.post_descriptor | posting.any() | engine.unfinished.any()
        m.d.sync += [
            posting.eq(Mux(command, 0, Cat(registers.post_descriptor, posting))),
            registers.busy.eq(control.changing | control.running & pending),
        ]
        is_checked, accepted = posting[POST_CYCLES - 1], engine.events.accepted
        # A descriptor counts as refused if a reset of the engine interrupts its check.
        events = {
            "posted": accepted & ~control.changing,
            "completed": engine.events.finished & ~control.changing,
            "refused": is_checked & ~(accepted & ~control.changing) & ~registers.refused.all(),
        }
        for name, event in events.items():
            count = getattr(registers, name)
            counter = Signal.like(count, name=f"{name}_counter")
            m.d.comb += count.eq(counter)
            with m.If(command):
                m.d.sync += counter.eq(0)
            with m.Elif(event):
                m.d.sync += counter.eq(counter + 1)
        m.d.sync += registers.refused_any.eq(registers.refused.any())
        m.d.comb += registers.completed_low.eq(registers.completed)  # truncated

    def _record_differences(self, m: Module, registers: Any, control: Any, engine: Any, link: Any) -> None:
        """Record the differences that ended the job with MISMATCH, and the neighbours that sent frames."""
        flags = {name: link.differs[name] for name in JOB_DIFFERENCES}
        flags |= {name: engine.differs[name] for name in FRAME_DIFFERENCES}
        flags = {f"{DIFFERS}{name}": bit for name, bit in flags.items()}
        flags |= {f"{HEARD}{name}": link.heard[name] for name in LinkHeard.as_shape().members}
        for name, bit in flags.items():
            recorded = Signal(name=f"recorded_{name}")
            m.d.comb += getattr(registers, name).eq(recorded)
            with m.If(control.reset):
                m.d.sync += recorded.eq(0)
            with m.Elif(control.running):
                m.d.sync += recorded.eq(recorded | bit)

    def _counters(self, m: Module, registers: Any, engine: Any, link: Any, of_network: dict[str, Any]) -> None:
        """Connect every counter to its event source."""
        sources = {
            "cycles": engine.unfinished.any(),
            "added": engine.events.added,
            "stored": engine.events.stored,
            "sent_beats": engine.events.sent,
            "agreed": engine.events.agreed,
        }
        sources |= {name: link.counters[name] for name in LINK_COUNTERS} | of_network
        drive_counters(m, registers, sources)
