"""Demultiplexer of received frames: to the node, to the board's own services, or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.net.control.headers import (
    IP_BITS,
    MAC_BITS,
    WIDTH,
    Agreement,
    BeatCondition,
    field_conditions,
    field_parts,
)
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.wire.arp import ETHERTYPE_ARP
from fanin.wire.control import (
    CONTROL_PORT,
    IP_AT,
    REST_AT,
)
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP
from fanin.wire.fields import Field
from fanin.wire.icmp import ICMP_ECHO, IP_PROTOCOL_ICMP, EchoType

_DECIDING_BEAT = 9  # number of the beat with the UDP port, the last one that the decision uses
_DEPTH = 16
_MORE_FRAGMENTS = 1


class Target(enum.Enum, shape=2):  # type: ignore[call-arg]
    """Destination of a frame."""

    NOBODY = 0
    NODE = 1
    BOARD = 2


class Demultiplexer(wiring.Component):
    """Demultiplexer that passes each frame to the node or to the board's own services, whole and in order.

    - To the board: ARP; echo requests and UDP to the control port, if they have the board's MAC and IPv4
      addresses and neither options nor fragments.
    - Dropped: frames to another MAC address that is no group address, and frames of less than ten beats.
    - To the node: all other frames.

    Members
    -------
    ``i`` : In, packet stream of 32 bits
        Received frames.
    ``node`` : Out, packet stream of 32 bits
        Frames for the node.
    ``board`` : Out, packet stream of 32 bits
        Frames for the board's services.
    ``own_mac`` : In, 48
        MAC address of the board's services.
    ``own_ip`` : In, 32
        IPv4 address of the board's services.

    Parameters
    ----------
    None.

    Latency
    -------
    From the tenth beat of a frame on ``i`` to its first one out: 3 cycles; one beat a cycle, frames back to
    back.

    Source
    ------
    docs/systems/boards.md, "The network's other services".
    """

    def __init__(self) -> None:
        frames = packet_stream(WIDTH)
        super().__init__(
            {
                "i": In(frames),
                "node": Out(frames),
                "board": Out(frames),
                "own_mac": In(MAC_BITS),
                "own_ip": In(IP_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Queue beats until the deciding beat has arrived, or the frame has ended."""
        m = Module()
        m.submodules.beats = beats = StreamFIFO(shape=packet_layout(WIDTH), depth=_DEPTH)
        m.submodules.targets = targets = StreamFIFO(shape=Target, depth=_DEPTH)
        connect_typed(m, flipped(self.i), beats.i)
        beat_valid = Signal()
        word = Signal(WIDTH)
        last = Signal()
        m.d.sync += [beat_valid.eq(self.i.valid & self.i.ready), word.eq(self.i.p.data), last.eq(self.i.p.last)]
        self._decide(m, beat_valid, word, last, targets.i)
        o = beats.o
        for port, target in ((self.node, Target.NODE), (self.board, Target.BOARD)):
            m.d.comb += [port.valid.eq(o.valid & targets.o.valid & (targets.o.p == target)), port.p.eq(o.p)]
        drops = targets.o.p == Target.NOBODY
        ready = Mux(targets.o.p == Target.NODE, self.node.ready, self.board.ready)
        m.d.comb += [
            o.ready.eq(targets.o.valid & (drops | ready)),
            targets.o.ready.eq(o.valid & o.ready & o.p.last),
        ]
        return m

    def _decide(self, m: Module, beat_valid: Signal, word: Signal, last: Signal, decision: Any) -> None:
        """Check one beat a cycle.

        ``place`` is one-hot, its highest bit is for all beats after the deciding one.
        """
        place = Signal(_DECIDING_BEAT + 2, init=1)
        with m.If(beat_valid):
            m.d.sync += place.eq(Mux(last, 1, Cat(0, place[:-2], place[-2:].any())))
        beat_at = [bit & beat_valid for bit in place]
        own_mac, own_ip = swap_bytes(self.own_mac), swap_bytes(self.own_ip)
        ipv4_form = field_conditions(
            IPV4, IP_AT, version=4, ihl=5, flags=0, fragment=0, masks={"flags": _MORE_FRAGMENTS}
        )
        ipv4_to_board = [
            *_conditions(word, ipv4_form),
            *_conditions(word, field_conditions(ETHERNET, 0, ethertype=ETHERTYPE_IPV4)),
        ]
        for fields, start, address in ((ETHERNET, 0, own_mac), (IPV4, IP_AT, own_ip)):
            ipv4_to_board += _equal(word, fields, start, address)
        echo = [
            *_conditions(word, field_conditions(IPV4, IP_AT, protocol=IP_PROTOCOL_ICMP)),
            *_conditions(word, field_conditions(ICMP_ECHO, REST_AT, type=EchoType.REQUEST, code=0)),
        ]
        control = [
            *_conditions(word, field_conditions(IPV4, IP_AT, protocol=IP_PROTOCOL_UDP)),
            *_conditions(word, field_conditions(UDP, REST_AT, destination_port=CONTROL_PORT)),
        ]
        conditions = {
            "mine": _equal(word, ETHERNET, 0, own_mac),
            "group": [(0, word[0])],
            "arp": _conditions(word, field_conditions(ETHERNET, 0, ethertype=ETHERTYPE_ARP)),
            "ipv4_to_board": ipv4_to_board,
            "echo": echo,
            "control": control,
        }
        agreements = {
            name: Agreement(m, beat_at, beat_conditions, name=name).holds
            for name, beat_conditions in conditions.items()
        }
        decides = beat_at[_DECIDING_BEAT]
        too_short = beat_valid & last & ~place[_DECIDING_BEAT:].any()
        decided = Signal()
        short = Signal()
        m.d.sync += [decided.eq(decides | too_short), short.eq(too_short)]
        for_board = agreements["arp"] | agreements["ipv4_to_board"] & (
            agreements["echo"] | agreements["control"]
        )
        addressed = (agreements["mine"] | agreements["group"]) & ~short
        m.d.comb += [
            decision.valid.eq(decided),
            decision.p.eq(Mux(addressed, Mux(for_board, Target.BOARD, Target.NODE), Target.NOBODY)),
        ]


def _conditions(word: Any, conditions: Iterable[BeatCondition]) -> list[tuple[int, Value]]:
    """Return each condition as its beat and whether ``word``, the beat's data, meets it."""
    return [(condition.beat, condition.holds(word)) for condition in conditions]


def _equal(word: Signal, fields: Sequence[Field], start: int, address: Value) -> list[tuple[int, Value]]:
    """Return conditions that a header's destination is ``address``."""
    return [(p.beat, word[p.word] == address[p.field]) for p in field_parts(fields, start, "destination")]
