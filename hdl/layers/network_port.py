"""A node's side of the network: a connection for each map that comes from, or goes to, another device."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn import Stage
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.layers.connection import Connection, ConnectionJob
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.word_select import WordSelect
from fanin.hdl.net.link.job import LinkCounters
from fanin.hdl.net.mac_hub import MacHub
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.layers.ends import Egress, Ingress
from fanin.wire.connection import MAC_WIDTH
from fanin.wire.ethernet import Encap

MAX_CONNECTIONS = 64  # of a node
INDEX_BITS = 6

_WORDS = 16  # of each connection, those that are none included
LINK_COUNTERS = tuple(LinkCounters.as_shape().members)
FAILURE = "failure"  # the word behind the counters: a LinkFailure

_OWN = ("run", "own_mac", "own_ip", "timeout", "retries", "ack_frames", "ack_delay")
_PEER = ("connection", "priority", "peer_mac", "peer_ip")
_JOB = ConnectionJob.as_shape().members
OwnSettings = data.StructLayout({name: _JOB[name] for name in _OWN})  # alike of all connections
PeerSettings = data.StructLayout({"index": INDEX_BITS, **{name: _JOB[name] for name in _PEER}})


@dataclass(frozen=True)
class EndShape:
    """A connection here: words of a transfer, words of a row of the map, and its rows."""

    lanes: int
    row: int
    rows: int

    @classmethod
    def of(cls, stage: Stage) -> EndShape:
        """That of a stage that is an Ingress or an Egress."""
        shape = stage.layer.output
        lanes = stage.parallelism.po if isinstance(stage.layer, Ingress) else stage.parallelism.pi
        return cls(lanes, shape.w * shape.c, shape.h)


@dataclass(frozen=True)
class NetworkEnd:
    """The streams of a connection, called as those of a layer that stands where it does."""

    stage: Stage
    port: Any  #: ``i`` and ``o``

    @property
    def features(self) -> list[Any]:
        """What leaves for another device."""
        return [self.port.i] if isinstance(self.stage.layer, Egress) else []

    @property
    def outputs(self) -> Any:
        """What has come from one."""
        return self.port.o if isinstance(self.stage.layer, Ingress) else None

    @property
    def gradients(self) -> Any:
        """What goes back to it; None where nothing learns there."""
        return self.port.i if isinstance(self.stage.layer, Ingress) and self.stage.layer.trains else None

    @property
    def input_gradients(self) -> list[Any]:
        """What has come back from there."""
        return [self.port.o] if isinstance(self.stage.layer, Egress) and self.stage.layer.gradient else []


class NetworkPort(wiring.Component):
    """Carry maps and gradients between this device and others, over one MAC.

    Members
    -------
    ``ends`` : Out, ``end0``, ``end1``, …: ``i`` and ``o``, streams of ``lanes`` words to and from the peer
    ``mac_tx`` : Out, packet stream, 512 bits
    ``mac_rx`` : In, the same with ``error``
    ``own`` : In, OwnSettings; stands still from ``start`` on
    ``peer`` : In, PeerSettings; becomes that of the connection ``index`` with ``set``
    ``set``, ``start``, ``reset`` : In(1), pulses
    ``watch`` : In(1), peers are asked whether they live
    ``clear`` : In(1), pulse: all counters become 0
    ``failed`` : Out(1), ``first`` : Out(6)
        Whether connections have failed, and the lowest number of these.
    ``index`` : In, ``word`` : Out(32)
        A counter, or why a connection has failed: LINK_COUNTERS and FAILURE of each connection, padded to 16
        words, one connection after the other.

    Parameters
    ----------
    ``ends`` : tuple of EndShape, at least one
    ``encap``, ``published`` : see Connection

    Latency
    -------
    That of Connection and MacHub; ``word`` follows ``index`` after that of WordSelect.

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
                **dict.fromkeys(("set", "start", "reset", "watch", "clear"), In(1)),
                "failed": Out(1),
                "first": Out(INDEX_BITS),
                "index": In(range(_WORDS * len(ends))),
                "word": Out(WORD_BITS),
            }
        )

    def end(self, number: int) -> Any:
        """The streams of a connection."""
        return getattr(self.ends, f"end{number}")

    def elaborate(self, platform: Any) -> Module:
        """Connections side by side behind the hub."""
        m = Module()
        m.submodules.hub = hub = MacHub(connections=len(self.shapes), encap=self.encap)
        m.submodules.select = select = WordSelect(count=_WORDS * len(self.shapes))
        connections = []
        for number, shape in enumerate(self.shapes):
            connection = Connection(
                lanes=shape.lanes,
                row=shape.row,
                rows=shape.rows,
                encap=self.encap,
                published=self.published,
            )
            m.submodules[f"connection{number}"] = connection
            connections.append(connection)
            self._connection(m, number, connection, hub)
            self._count(m, number, connection, select)
        connect_typed(m, hub.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), hub.mac_rx)
        failed = Cat(connection.status.failed for connection in connections)
        m.d.sync += self.failed.eq(failed.any())
        for number in reversed(range(len(connections))):
            with m.If(failed[number]):
                m.d.sync += self.first.eq(number)
        m.d.comb += [select.index.eq(self.index), self.word.eq(select.o)]
        return m

    def _connection(self, m: Module, number: int, connection: Any, hub: Any) -> None:
        """One connection: its words, its frames, its settings."""
        end = self.end(number)
        connect_typed(m, flipped(end).i, connection.i)
        connect_typed(m, connection.o, flipped(end).o)
        connect_typed(m, connection.mac_tx, hub.tx[number])
        connect_typed(m, hub.rx[number], connection.mac_rx)
        peer = Signal(PeerSettings, name=f"peer{number}")
        with m.If(self.set & (self.peer.index == number)):
            m.d.sync += peer.eq(self.peer)
        m.d.comb += [
            *(connection.job[name].eq(self.own[name]) for name in _OWN),
            *(connection.job[name].eq(peer[name]) for name in _PEER),
            connection.start.eq(self.start),
            connection.reset.eq(self.reset),
            connection.watch.eq(self.watch),
            hub.control[number].eq(connection.control),
            hub.numbers[number].eq(peer.connection),
        ]

    def _count(self, m: Module, number: int, connection: Any, select: WordSelect) -> None:
        """Counters of what it sent and received, and why it has failed."""
        for place, name in enumerate(LINK_COUNTERS):
            count = Signal(WORD_BITS, name=f"{name}{number}")
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Elif(connection.counters[name]):
                m.d.sync += count.eq(count + 1)
            m.d.comb += select.words[_WORDS * number + place].eq(count)
        m.d.comb += select.words[_WORDS * number + len(LINK_COUNTERS)].eq(connection.status.cause)


def drive_network(m: Module, registers: Any, port: NetworkPort) -> None:
    """Settings, commands and counters, from and to the registers of a cluster node."""
    own, peer = port.own, port.peer
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
        port.reset.eq(registers.reset_links),
        port.clear.eq(registers.clear_counters),
        port.index.eq(Cat(registers.link_word, registers.link_index)),
        registers.link_count.eq(port.word),
        registers.failed_connection.eq(port.first),
    ]
