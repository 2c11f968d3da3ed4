"""Demultiplexer of received frames: to the node, to the board's own services, or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.net.control.headers import IP_BITS, MAC_BITS, WIDTH, Agreement, Wanted, pieces, wanted
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

_DECIDES = 9  # the beat with the UDP port, the last beat that the decision uses
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
        seen = Signal()
        word = Signal(WIDTH)
        last = Signal()
        m.d.sync += [seen.eq(self.i.valid & self.i.ready), word.eq(self.i.p.data), last.eq(self.i.p.last)]
        self._decide(m, seen, word, last, targets.i)
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

    def _decide(self, m: Module, seen: Signal, word: Signal, last: Signal, decision: Any) -> None:
        """Check one beat a cycle.

        ``place`` is one-hot, its highest bit is for all beats after the deciding one.
        """
        place = Signal(_DECIDES + 2, init=1)
        with m.If(seen):
            m.d.sync += place.eq(Mux(last, 1, Cat(0, place[:-2], place[-2:].any())))
        at = [bit & seen for bit in place]
        own_mac, own_ip = swap_bytes(self.own_mac), swap_bytes(self.own_ip)
        form = wanted(IPV4, IP_AT, version=4, ihl=5, flags=0, fragment=0, only={"flags": _MORE_FRAGMENTS})
        whole = [*_of(word, form), *_of(word, wanted(ETHERNET, 0, ethertype=ETHERTYPE_IPV4))]
        for fields, start, own in ((ETHERNET, 0, own_mac), (IPV4, IP_AT, own_ip)):
            whole += _equal(word, fields, start, own)
        echo = [
            *_of(word, wanted(IPV4, IP_AT, protocol=IP_PROTOCOL_ICMP)),
            *_of(word, wanted(ICMP_ECHO, REST_AT, type=EchoType.REQUEST, code=0)),
        ]
        control = [
            *_of(word, wanted(IPV4, IP_AT, protocol=IP_PROTOCOL_UDP)),
            *_of(word, wanted(UDP, REST_AT, destination_port=CONTROL_PORT)),
        ]
        conditions = {
            "mine": _equal(word, ETHERNET, 0, own_mac),
            "group": [(0, word[0])],
            "arp": _of(word, wanted(ETHERNET, 0, ethertype=ETHERTYPE_ARP)),
            "whole": whole,
            "echo": echo,
            "control": control,
        }
        agrees = {name: Agreement(m, at, some, name=name).later for name, some in conditions.items()}
        decides = at[_DECIDES]
        too_short = seen & last & ~place[_DECIDES:].any()
        found = Signal()
        short = Signal()
        m.d.sync += [found.eq(decides | too_short), short.eq(too_short)]
        ours = agrees["arp"] | agrees["whole"] & (agrees["echo"] | agrees["control"])
        here = (agrees["mine"] | agrees["group"]) & ~short
        m.d.comb += [
            decision.valid.eq(found),
            decision.p.eq(Mux(here, Mux(ours, Target.BOARD, Target.NODE), Target.NOBODY)),
        ]


def _of(word: Any, wants: Iterable[Wanted]) -> list[tuple[int, Value]]:
    return [(want.beat, want.holds(word)) for want in wants]


def _equal(word: Signal, fields: Sequence[Field], start: int, own: Value) -> list[tuple[int, Value]]:
    """Return conditions that a header's destination is the address ``own``."""
    return [(p.beat, word[p.word] == own[p.field]) for p in pieces(fields, start, "destination")]
