"""A node's network port: one connection for each map received from, or sent to, another device."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn.facts import Stage
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.ingress import Ingress
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.layers.connection import Connection, ConnectionJob
from fanin.hdl.layers.frame_gate import FrameGate
from fanin.hdl.layers.interface import LayerControl, Mode, word_stream
from fanin.hdl.layers.word_select import WordSelect
from fanin.hdl.net.link.job import LinkCounters
from fanin.hdl.net.mac_hub import MacHub
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.connection import MAC_WIDTH
from fanin.wire.ethernet import Encap

MAX_CONNECTIONS = 64  # per node
INDEX_BITS = 6

LINK_COUNTERS = tuple(LinkCounters.as_shape().members)
FAILURE = "failure"  # the word after the counters: a LinkFailure
COUNTER_BITS = 48  # no overflow for 13 days at one frame per cycle
HIGH_WORD = 16  # distance from the number of a counter's low word to that of its high word
LINK_WORD_BITS = 5
_WORDS = 1 << LINK_WORD_BITS  # words per connection, unused ones included

_OWN_FIELDS = ("run", "own_mac", "own_ip", "timeout", "retries", "ack_frames", "ack_delay")
_PEER_FIELDS = ("connection", "priority", "peer_mac", "peer_ip")
_JOB = ConnectionJob.as_shape().members
OwnSettings = data.StructLayout({name: _JOB[name] for name in _OWN_FIELDS})  # common to all connections
PeerSettings = data.StructLayout({"index": INDEX_BITS, **{name: _JOB[name] for name in _PEER_FIELDS}})


@dataclass(frozen=True)
class EndShape:
    """Shape of a connection's local end: words per transfer, words per row of the map, rows per map.

    ``learns``: the end receives gradients, which only a training job has.
    """

    lanes: int
    row: int
    rows: int
    learns: bool = False

    @classmethod
    def of(cls, stage: Stage) -> EndShape:
        """Return the shape of an Ingress or Egress stage."""
        shape = stage.layer.output
        lanes = stage.parallelism.po if isinstance(stage.layer, Ingress) else stage.parallelism.pi
        return cls(lanes, shape.w * shape.c, shape.h, isinstance(stage.layer, Egress))


@dataclass(frozen=True)
class NetworkEnd:
    """Streams of a connection, named as the streams of a layer in its place."""

    stage: Stage
    port: Any  #: streams ``i`` (to the peer) and ``o`` (from the peer)

    @property
    def features(self) -> list[Any]:
        """Feature map sent to another device, of an Egress."""
        return [self.port.i] if isinstance(self.stage.layer, Egress) else []

    @property
    def outputs(self) -> Any:
        """Feature map received from another device, of an Ingress."""
        return self.port.o if isinstance(self.stage.layer, Ingress) else None

    @property
    def gradients(self) -> Any:
        """Gradients sent back by an Ingress; None if no layer of the peer trains."""
        return self.port.i if isinstance(self.stage.layer, Ingress) and self.stage.layer.trains else None

    @property
    def input_gradients(self) -> list[Any]:
        """Gradients received back by an Egress."""
        return [self.port.o] if isinstance(self.stage.layer, Egress) and self.stage.layer.gradient else []


class NetworkPort(wiring.Component):
    """Port that carries maps and gradients between this device and others, over one MAC.

    Members
    -------
    ``ends`` : Out, ``end0``, ``end1``, …: ``i`` and ``o``, streams of ``lanes`` words to and from the peer
    ``mac_tx`` : Out, packet stream, 512 bits
        Frames to the MAC.
    ``mac_rx`` : In, packet stream, 512 bits, with ``error``
        Frames from the MAC.
    ``own`` : In, OwnSettings
        Settings of this node, taken with ``start``.
    ``peer`` : In, PeerSettings
        Settings of the connection ``peer.index``, taken with ``set``.
    ``set`` : In(1)
        Pulse: store ``peer``. Refused while ``blocked``, and for a connection that has a run or does not exist.
    ``start`` : In(1)
        Pulse: all connections begin a run. Refused while ``blocked``, and while a connection has a run or has
        failed. Also refused for the previous run's number, as frames of that run may still arrive.
    ``reset`` : In(1)
        Pulse: all connections forget their run. With ``set`` and ``start`` in the same cycle the order is
        ``reset``, ``set``, ``start``.
    ``control`` : In, LayerControl
        The job. Connections pass on as many frames as the job has, and keep later frames.
    ``blocked`` : In(1)
        The node resets itself; from the cycle after ``set`` or ``start`` on.
    ``refused`` : Out(1)
        The last ``set`` or ``start`` was refused.
    ``watch`` : In(1)
        Probe the peers for liveness.
    ``clear`` : In(1)
        Pulse: all counters become 0.
    ``failed`` : Out(1)
        At least one connection has failed.
    ``first`` : Out(6)
        Lowest index of the failed connections.
    ``unready`` : Out(1)
        A connection has no run, or holds words from its peer.
    ``index`` : In, range(32 · connections)
        Index of ``word``: 32 words per connection, in order of the connections.
    ``word`` : Out(32)
        A counter's low half at its place in LINK_COUNTERS, its bits 47…32 16 places later. The connection's
        LinkFailure follows the low halves.

    Parameters
    ----------
    ``ends`` : tuple of EndShape, at least one
        Shapes of the connections, in order of their indices.
    ``encap``, ``published`` : encapsulation and mode of the connections, see Connection

    Latency
    -------
    The latency of Connection and MacHub; ``word`` follows ``index`` after the latency of WordSelect.

    Source
    ------
    docs/systems/cluster.md, "Several devices".
    """

    def __init__(self, *, ends: tuple[EndShape, ...], encap: Encap = Encap.L2, published: bool = False):
        if not 1 <= len(ends) <= MAX_CONNECTIONS:
            raise ValueError(f"there must be 1 to {MAX_CONNECTIONS} connections, not {len(ends)}")
        self.shapes = ends
        self.encap = encap
        self.published = published
        super().__init__(
            {
                "ends": Out(
                    wiring.Signature(
                        {
                            f"end{n}": Out(
                                wiring.Signature(
                                    {"i": In(word_stream(end.lanes)), "o": Out(word_stream(end.lanes))}
                                )
                            )
                            for n, end in enumerate(ends)
                        }
                    )
                ),
                "mac_tx": Out(packet_stream(MAC_WIDTH)),
                "mac_rx": In(packet_stream(MAC_WIDTH, error=True)),
                "own": In(OwnSettings),
                "peer": In(PeerSettings),
                "control": In(LayerControl),
                **dict.fromkeys(("set", "start", "reset", "blocked", "watch", "clear"), In(1)),
                "refused": Out(1),
                "failed": Out(1),
                "first": Out(INDEX_BITS),
                "unready": Out(1),
                "index": In(range(_WORDS * len(ends))),
                "word": Out(WORD_BITS),
            }
        )

    def end(self, number: int) -> Any:
        """Return the streams of the connection with index ``number``."""
        return getattr(self.ends, f"end{number}")

    def elaborate(self, platform: Any) -> Module:
        """Connect all connections in parallel to the hub."""
        m = Module()
        m.submodules.hub = hub = MacHub(connections=len(self.shapes), encap=self.encap)
        m.submodules.select = select = WordSelect(count=_WORDS * len(self.shapes))
        connections = [self._build_connection(shape) for shape in self.shapes]
        begin, settings, takes_peer = self._commands(m, connections)
        for number, connection in enumerate(connections):
            m.submodules[f"connection{number}"] = connection
            self._connection(m, number, connection, hub, begin, settings, takes_peer[number])
            self._count(m, number, connection, select)
        connect_typed(m, hub.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), hub.mac_rx)
        failed = Cat(connection.status.failed for connection in connections)
        m.d.sync += self.failed.eq(failed.any())
        for number in reversed(range(len(connections))):
            with m.If(failed[number]):
                m.d.sync += self.first.eq(number)
        m.d.sync += self.unready.eq(
            Cat(~connection.status.running | connection.o.valid for connection in connections).any()
        )
        m.d.comb += [select.index.eq(self.index), self.word.eq(select.o)]
        return m

    def _build_connection(self, shape: EndShape) -> Connection:
        return Connection(
            lanes=shape.lanes,
            row=shape.row,
            rows=shape.rows,
            encap=self.encap,
            published=self.published,
        )

    def _commands(self, m: Module, connections: Sequence[Connection]) -> tuple[Signal, Any, Signal]:
        """Return the pulse that starts a run, the run's settings, and a bit per connection that takes ``peer``.

        ``set`` takes effect one cycle after ``reset``, ``start`` one cycle after ``set``.
        """
        setting, starting, start_next, begin, started = (
            Signal(name=name) for name in ("setting", "starting", "start_next", "begin", "started")
        )
        settings = Signal(OwnSettings)
        last_run = Signal.like(self.own.run)  # number of the last run since power-up
        repeated = Signal()
        takes_peer = Signal(len(connections))
        free = Cat(~(connection.status.running | connection.status.failed) for connection in connections).all()
        may_start = free & ~repeated & ~self.blocked
        m.d.sync += [
            setting.eq(self.set),
            start_next.eq(self.start),
            starting.eq(start_next),
            repeated.eq(started & (self.own.run == last_run)),
            begin.eq(starting & may_start),
        ]
        with m.If(starting & may_start):
            m.d.sync += [settings.eq(self.own), last_run.eq(self.own.run), started.eq(1)]
        m.d.comb += [
            takes.eq(setting & (self.peer.index == number) & ~connection.status.running & ~self.blocked)
            for number, (takes, connection) in enumerate(zip(takes_peer, connections, strict=True))
        ]
        with m.If(starting):
            m.d.sync += self.refused.eq(~may_start)
        with m.If(setting & ~takes_peer.any()):
            m.d.sync += self.refused.eq(1)
        with m.Elif(setting & ~start_next):
            m.d.sync += self.refused.eq(0)
        return begin, settings, takes_peer

    def _connection(
        self, m: Module, number: int, connection: Any, hub: Any, begin: Signal, settings: Any, takes_peer: Any
    ) -> None:
        """Connect one connection's words, frames and settings."""
        end = self.end(number)
        connect_typed(m, flipped(end).i, connection.i)
        self._gate(m, number, connection.o, flipped(end).o)
        connect_typed(m, connection.mac_tx, hub.tx[number])
        connect_typed(m, hub.rx[number], connection.mac_rx)
        peer = Signal(PeerSettings, name=f"peer{number}")
        with m.If(takes_peer):
            m.d.sync += peer.eq(self.peer)
        m.d.comb += [
            *(connection.job[name].eq(settings[name]) for name in _OWN_FIELDS),
            *(connection.job[name].eq(peer[name]) for name in _PEER_FIELDS),
            connection.start.eq(begin),
            connection.reset.eq(self.reset),
            connection.watch.eq(self.watch),
            hub.control[number].eq(connection.control),
            hub.numbers[number].eq(peer.connection),
        ]

    def _gate(self, m: Module, number: int, words: Any, end: Any) -> None:
        """Pass only the frames of the job; later frames wait in the connection."""
        shape, control = self.shapes[number], self.control
        gate = FrameGate(lanes=shape.lanes, transfers=shape.row * shape.rows // shape.lanes)
        m.submodules[f"gate{number}"] = ResetInserter(self.reset)(gate)
        trains = control.mode == Mode.TRAIN
        carries_frames = trains if shape.learns else trains | (control.mode == Mode.EVALUATE)
        connect_typed(m, words, gate.i)
        connect_typed(m, gate.o, end)
        m.d.comb += [gate.start.eq(control.start), gate.frames.eq(Mux(carries_frames, control.frames, 0))]

    def _count(self, m: Module, number: int, connection: Any, select: WordSelect) -> None:
        """Count a connection's events, and expose the counters and its failure as words."""
        for index, name in enumerate(LINK_COUNTERS):
            count = Signal(COUNTER_BITS, name=f"{name}{number}")
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Elif(connection.counters[name]):
                m.d.sync += count.eq(count + 1)
            low, high = (select.words[_WORDS * number + index + offset] for offset in (0, HIGH_WORD))
            m.d.comb += Cat(low, high).eq(count)
        m.d.comb += select.words[_WORDS * number + len(LINK_COUNTERS)].eq(connection.status.cause)


def drive_network(m: Module, registers: Any, port: NetworkPort, *, clear: Any) -> None:
    """Connect ``port`` to the registers of a cluster node; ``clear`` is the node's reset."""
    own, peer = port.own, port.peer
    index = Cat(registers.link_word, registers.link_index)
    exists = Signal()  # the selected connection exists; the select drops an index's upper bits
    m.d.sync += exists.eq(registers.link_index < len(port.shapes))
    m.d.comb += [
        own.run.eq(registers.run),
        own.own_mac.eq(registers.own_mac),
        own.own_ip.eq(registers.own_ip),
        own.timeout.eq(registers.link_timeout),
        own.retries.eq(registers.link_retries),
        own.ack_frames.eq(registers.ack_frames),
        own.ack_delay.eq(registers.ack_delay),
        peer.index.eq(registers.connection_index),
        peer.connection.eq(registers.connection_number),
        peer.priority.eq(registers.priority),
        peer.peer_mac.eq(registers.peer_mac),
        peer.peer_ip.eq(registers.peer_ip),
        port.set.eq(registers.set_peer),
        port.start.eq(registers.start_links),
        port.reset.eq(registers.reset_links | clear),
        port.clear.eq(registers.clear_counters),
        port.index.eq(index),
        registers.link_count.eq(Mux(exists, port.word, 0)),
        registers.links_refused.eq(port.refused),
        registers.failed_connection.eq(port.first),
    ]
