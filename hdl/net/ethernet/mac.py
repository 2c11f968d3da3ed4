"""Ethernet MAC between GMII and the core: whole frames as words, in the core's clock domain."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from amaranth import DomainRenamer, Module, ResetInserter, Signal
from amaranth.lib import data, wiring
from amaranth.lib.cdc import PulseSynchronizer
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.net.ethernet.crossing import FrameCrossing
from fanin.hdl.net.ethernet.gmii import Cause, Gmii
from fanin.hdl.net.ethernet.mac_receiver import MacReceiver, check_max_frame
from fanin.hdl.net.ethernet.mac_transmitter import MacTransmitter
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.frame_store import FrameStore, store_capacity
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.hdl.stream.packet_width import BytesToWords, WordsToBytes
from fanin.wire.ethernet import FCS_BYTES, MAX_FRAME_BYTES

_CAPACITY = 16  # words of a queue between two domains: enough for the slowest core clock that keeps up

#: Pulses for the fate of a frame.
#:
#: - ``received``: a received frame goes to the core.
#: - ``bad_fcs``, ``runt``, ``long``, ``damaged`` (reported by the PHY): a received frame is bad and dropped.
#: - ``dropped``: a received frame found no room.
#: - ``sent``: a frame has left for the PHY.
#: - ``refused``: a frame to send is too long.
#: - ``underrun``: the core was too slow for a frame to send, which ends with an error.
MacEvents = data.StructLayout(
    dict.fromkeys(
        ("received", "bad_fcs", "runt", "long", "damaged", "dropped", "sent", "refused", "underrun"), 1
    )
)


class EthernetMac(wiring.Component):
    """Ethernet MAC: passes complete, valid frames from the PHY to the core, and the core's frames to the PHY.

    The core's frames have no FCS; padded frames keep their padding. The domains ``rx`` and ``tx`` are those of
    GMII, ``sync`` is the core's. Each domain may be reset without the others, for at least four cycles of the
    slowest. The core keeps up with 1 Gb/s if its clock is a little faster than 1 GHz / ``width``.

    Members
    -------
    ``rx`` : Out, packet stream of ``width`` bits
        Good frames, valid in every cycle of a frame.
    ``tx`` : In, packet stream of ``width`` bits
        Frames to send; may pause.
    ``gmii_rx`` : In, Gmii, in the domain ``rx``
        Bytes from the PHY.
    ``gmii_rx_enable`` : In, 1, in the domain ``rx``
        ``gmii_rx`` has its next byte; also in cycles without a carrier.
    ``gmii_tx`` : Out, Gmii, in the domain ``tx``
        Bytes to the PHY; the next byte follows a cycle after ``gmii_tx_enable``.
    ``gmii_tx_enable`` : In, 1, in the domain ``tx``
        The PHY takes a byte.
    ``events`` : Out, MacEvents
        Pulses for counters.

    Parameters
    ----------
    ``width`` : int, bits, a power of two from 16
        Bits of a word; 32 by default.
    ``max_frame`` : int, bytes; 64 to 2,000
        Longest frame, FCS included.

    Latency
    -------
    At 1 Gb/s, from the last byte on ``gmii_rx`` to the first word on ``rx``: at most 7 cycles of ``rx`` and 5
    of ``sync``. From the last word on ``tx`` to the preamble on ``gmii_tx``: at most 3 cycles of ``sync`` and 7
    of ``tx``.

    Source
    ------
    docs/systems/boards.md, "The MAC".
    """

    #: Domains of the members that are not in ``sync``; :mod:`fanin.hdl.emit` makes ports of their clocks.
    domains = MappingProxyType(
        {"gmii_rx": "rx", "gmii_rx_enable": "rx", "gmii_tx": "tx", "gmii_tx_enable": "tx"}
    )

    def __init__(self, *, width: int = 32, max_frame: int = MAX_FRAME_BYTES):
        check_max_frame(max_frame)
        self.width = width
        self.max_frame = max_frame
        super().__init__(
            {
                "rx": Out(packet_stream(width)),
                "tx": In(packet_stream(width)),
                "gmii_rx": In(Gmii),
                "gmii_rx_enable": In(1),
                "gmii_tx": Out(Gmii),
                "gmii_tx_enable": In(1),
                "events": Out(MacEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the receive path (receiver, queue, store) and the transmit path (store, queue, transmitter)."""
        m = Module()
        self._receive(m)
        self._transmit(m)
        return m

    def _store(self, *, wait: bool) -> FrameStore:
        longest = self.max_frame - FCS_BYTES
        capacity = store_capacity(longest, self.width)
        return FrameStore(width=self.width, max_frame=longest, capacity=capacity, wait=wait)

    def _receive(self, m: Module) -> None:
        """Build words from the receiver's bytes in ``rx``, and pass them through a queue to the store."""
        m.submodules.receiver = receiver = DomainRenamer("rx")(MacReceiver(max_frame=self.max_frame))
        gather = BytesToWords(width=self.width, tail=Cause)
        m.submodules.gather = DomainRenamer("rx")(gather)
        m.submodules.rx_crossing = crossing = DomainRenamer({"write": "rx", "read": "sync"})(
            FrameCrossing(shape=gather.o.p.shape(), capacity=_CAPACITY)
        )
        m.submodules.rx_store = store = self._store(wait=False)
        m.d.comb += [
            receiver.gmii.eq(self.gmii_rx),
            receiver.enable.eq(self.gmii_rx_enable),
            gather.i.valid.eq(receiver.o.valid),
            gather.i.p.data.eq(receiver.o.p.data),
            gather.i.p.keep.eq(1),
            gather.i.p.last.eq(receiver.o.p.last),
            gather.i.p.tail.eq(receiver.o.p.cause),
        ]
        self._write(m, gather.o, crossing.i)
        frame_ended, cause = self._check(m, crossing, store)
        connect_typed(m, store.o, flipped(self.rx))
        dropped = store.events.dropped
        m.d.comb += [
            self.events.received.eq(frame_ended & (cause == Cause.GOOD) & ~dropped),
            self.events.bad_fcs.eq(frame_ended & (cause == Cause.BAD_FCS)),
            self.events.runt.eq(frame_ended & (cause == Cause.RUNT)),
            self.events.long.eq(frame_ended & (cause == Cause.LONG)),
            self.events.damaged.eq(frame_ended & (cause == Cause.ERROR)),
            self.events.dropped.eq(frame_ended & (cause == Cause.LOST) | dropped),
        ]

    def _write(self, m: Module, word: Any, crossing: Any) -> None:
        """Write words to the queue.

        A frame that loses a word ends as LOST; its end waits for room if necessary. Frames that end while such
        an end waits are counted together with it.
        """
        word_lost = Signal()  # this frame has lost a word
        end_due = Signal()  # a frame's end waits for room
        free = Signal()
        m.d.comb += free.eq(~crossing.valid | crossing.ready)
        with m.If(free):
            m.d.rx += [
                crossing.valid.eq(end_due | word.valid & (~word_lost | word.p.last)),
                crossing.p.eq(word.p),
            ]
            with m.If(end_due | word_lost):
                m.d.rx += [crossing.p.last.eq(1), crossing.p.tail.eq(Cause.LOST)]
        m.d.rx += end_due.eq(~free & (end_due | word.valid & word.p.last))
        with m.If(word.valid):
            m.d.rx += word_lost.eq(~word.p.last & (word_lost | end_due | ~free))

    def _check(self, m: Module, crossing: Any, store: Any) -> tuple[Signal, Signal]:
        """Move words from the queue to the store; return whether a frame ended 2 cycles ago, and its cause."""
        in_frame = Signal()
        interrupted = Signal()  # the rest of a frame will not arrive
        valid = Signal()
        frame_ended = Signal()
        word = Signal(crossing.o.p.shape(), reset_less=True)
        cause = Signal(Cause)
        m.d.comb += [crossing.o.ready.eq(1), interrupted.eq(crossing.emptied & in_frame)]
        m.d.sync += [valid.eq(crossing.o.valid | interrupted), word.eq(crossing.o.p)]
        with m.If(crossing.o.valid):
            m.d.sync += in_frame.eq(~crossing.o.p.last)
        with m.If(interrupted):
            m.d.sync += [in_frame.eq(0), word.keep.eq(1), word.last.eq(1), word.tail.eq(Cause.LOST)]
        m.d.comb += [
            store.i.valid.eq(valid),
            store.i.p.data.eq(word.data),
            store.i.p.keep.eq(word.keep),
            store.i.p.last.eq(word.last),
            store.i.p.error.eq(word.tail != Cause.GOOD),
        ]
        m.d.sync += [frame_ended.eq(valid & word.last), cause.eq(word.tail)]
        return frame_ended, cause

    def _transmit(self, m: Module) -> None:
        """Pass whole frames from the store through a queue to ``tx``, where they become bytes."""
        m.submodules.tx_store = store = self._store(wait=True)
        m.submodules.tx_crossing = crossing = DomainRenamer({"write": "sync", "read": "tx"})(
            FrameCrossing(shape=packet_layout(self.width), capacity=_CAPACITY)
        )
        # A frame that the core's reset interrupts ends immediately, without an FCS, so that receivers drop it.
        reset_if_emptied = ResetInserter(crossing.emptied)
        m.submodules.scatter = scatter = DomainRenamer("tx")(reset_if_emptied(WordsToBytes(width=self.width)))
        m.submodules.transmitter = transmitter = DomainRenamer("tx")(reset_if_emptied(MacTransmitter()))
        m.submodules.underrun = underrun = PulseSynchronizer("tx", "sync")
        m.d.comb += [
            store.i.valid.eq(self.tx.valid),
            self.tx.ready.eq(store.i.ready),
            store.i.p.data.eq(self.tx.p.data),
            store.i.p.keep.eq(self.tx.p.keep),
            store.i.p.last.eq(self.tx.p.last),
            store.i.p.error.eq(0),
        ]
        connect_typed(m, store.o, crossing.i)
        connect_typed(m, crossing.o, scatter.i)
        connect_typed(m, scatter.o, transmitter.i)
        m.d.comb += [
            self.gmii_tx.eq(transmitter.gmii),
            transmitter.enable.eq(self.gmii_tx_enable),
            underrun.i.eq(transmitter.underrun),
            self.events.sent.eq(store.events.left),
            self.events.refused.eq(store.events.dropped),
            self.events.underrun.eq(underrun.o),
        ]
