"""NIC for one-sided writes, between memory and MAC."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import AXI4ReadSignature, AXI4WriteSignature
from fanin.hdl.net.vlan import TagRemover
from fanin.hdl.rdma.fetch import PayloadFetch
from fanin.hdl.rdma.header_reader import OwnAddresses
from fanin.hdl.rdma.queue_pair import (
    answer_layout,
    arrival_layout,
    completion_layout,
    connect_layout,
    write_layout,
)
from fanin.hdl.rdma.receiver import Receiver
from fanin.hdl.rdma.regions import RegionTable, region_layout
from fanin.hdl.rdma.requester import Requester, RequesterEvents
from fanin.hdl.rdma.responder import Responder, ResponderEvents
from fanin.hdl.rdma.store import PayloadStore
from fanin.hdl.rdma.timers import TIMEOUT_BITS
from fanin.hdl.rdma.transmitter import Transmitter
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.fork import StreamFork
from fanin.hdl.stream.packet import packet_stream
from fanin.rdma.facts import RdmaConfig
from fanin.wire.rdma import PSN_BITS, Fault

_ANSWERS = 32  # answers that may wait for the requester; a lost ACK is harmless, since later ACKs repeat it


class NicEvents(wiring.Signature):
    """Events of the NIC, one pulse each, for counters. ``lost``: a frame was dropped for lack of room."""

    def __init__(self) -> None:
        super().__init__(
            {
                "requester": Out(RequesterEvents),
                "responder": Out(ResponderEvents),
                "lost": Out(1),
                "memory_error": Out(1),
            }
        )


class RdmaNic(wiring.Component):
    """NIC that sends one-sided writes and receives those of other nodes.

    Members
    -------
    ``own`` : In, OwnAddresses
        Addresses of this NIC.
    ``timeout`` : In, 32
        Cycles without an answer before a queue pair sends again.
    ``connect`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.connect_layout`
        Connect a queue pair anew, or disconnect it. Requester and responder each take it after their memory
        accesses of the old connection have ended.
    ``region`` : In, stream of :func:`~fanin.hdl.rdma.regions.region_layout`, always ready
        Regions to set.
    ``post`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
        Writes to send.
    ``stale`` : In, 1
        The write on ``post`` was posted before its queue pair was connected anew: it completes as flushed.
    ``connected`` : Out, 1
        Pulse: the requester has taken ``connect``.
    ``completion`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        Completions of writes. The requester stalls until a completion is taken.
    ``arrival`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.arrival_layout`
        Received messages with immediate data. Received packets wait until an arrival is taken.
    ``read`` : Out, AXI4 read port
        Reads of payloads to send.
    ``write`` : Out, AXI4 write port
        Writes of received payloads.
    ``mac_tx`` : Out, packet stream of ``width`` bits
        Frames for the MAC.
    ``mac_rx`` : In, packet stream of ``width`` bits with ``error``
        Frames from the MAC; always ready.
    ``ended_psn`` : Out, 24
        Output of the requester: oldest unacknowledged number of the last ended connection.
    ``sending``, ``receiving`` : Out, one bit for each queue pair
        The requester's or responder's half of the queue pair is connected and has not failed.
    ``events`` : Out, NicEvents
        Pulses for counters.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Widths, numbers of queue pairs and regions, buffer sizes.

    Latency
    -------
    At 512 bits, without the memory's latency: 23 cycles from ``post`` to the first word on ``mac_tx`` if the
    payload is one word; 15 from the last word on ``mac_rx`` to ``write.wvalid``, with ``vlan`` 17.

    Source
    ------
    docs/systems/rdma.md; RDMA-wild, section 3.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        axi = {"data_width": config.width, "address_width": config.address_width}
        super().__init__(
            {
                "own": In(OwnAddresses),
                "timeout": In(TIMEOUT_BITS),
                "connect": In(stream.Signature(connect_layout(config))),
                "region": In(stream.Signature(region_layout(config), always_ready=True)),
                "post": In(stream.Signature(write_layout(config))),
                "stale": In(1),
                "connected": Out(1),
                "completion": Out(stream.Signature(completion_layout(config))),
                "arrival": Out(stream.Signature(arrival_layout(config))),
                "read": Out(AXI4ReadSignature(**axi)),
                "write": Out(AXI4WriteSignature(**axi)),
                "mac_tx": Out(packet_stream(config.width)),
                "mac_rx": In(packet_stream(config.width, error=True)),
                "ended_psn": Out(PSN_BITS),
                "sending": Out(config.queue_pairs),
                "receiving": Out(config.queue_pairs),
                "events": Out(NicEvents()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect requester, responder, memory and MAC; acknowledgements go from receiver to requester."""
        m = Module()
        config = self.config
        m.submodules.requester = requester = Requester(config=config)
        m.submodules.responder = responder = Responder(config=config)
        self._connect(m, requester, responder)
        self._send(m, requester, responder)
        self._receive(m, requester, responder)
        connect_typed(m, flipped(self.post), requester.post)
        connect_typed(m, requester.completion, flipped(self.completion))
        connect_typed(m, responder.arrival, flipped(self.arrival))
        m.d.comb += [
            requester.timeout.eq(self.timeout),
            requester.stale.eq(self.stale),
            self.connected.eq(requester.connect.valid & requester.connect.ready),
            self.ended_psn.eq(requester.ended_psn),
            self.sending.eq(requester.enabled),
            self.receiving.eq(responder.enabled),
            self.events.requester.eq(requester.events),
            self.events.responder.eq(responder.events),
        ]
        return m

    def _connect(self, m: Module, requester: Requester, responder: Responder) -> None:
        """Give each connection to both halves; each takes it when ready."""
        m.submodules.connects = fork = StreamFork(shape=self.connect.payload.shape())
        connect_typed(m, flipped(self.connect), fork.i)
        to_requester, to_responder = fork.o
        connect_typed(m, to_requester, requester.connect)
        connect_typed(m, to_responder, responder.connect)

    def _send(self, m: Module, requester: Requester, responder: Responder) -> None:
        config = self.config
        m.submodules.fetch = fetch = PayloadFetch(
            width=config.width,
            address_width=config.address_width,
            depth=config.fetch_words,
            start_words=config.start_words,
        )
        m.submodules.transmitter = transmitter = Transmitter(width=config.width, vlan=config.vlan)
        connect_typed(m, requester.fetch, fetch.command)
        connect_typed(m, requester.headers, transmitter.packets)
        connect_typed(m, responder.answer, transmitter.answers)
        connect_typed(m, fetch.packet, transmitter.payload)
        connect_typed(m, fetch.o, transmitter.words)
        connect_typed(m, fetch.axi, flipped(self.read))
        m.d.comb += [getattr(requester, name).eq(getattr(fetch, name)) for name in ("room", "free", "reading")]
        connect_typed(m, transmitter.o, flipped(self.mac_tx))
        m.d.comb += transmitter.own.eq(self.own)
        self.fetch_error = fetch.error

    def _frames_in(self, m: Module, to: Any) -> None:
        """Connect the MAC to the receiver; remove tags with ``vlan``."""
        if not self.config.vlan:
            connect_typed(m, flipped(self.mac_rx), to)
            return
        m.submodules.tags = tags = TagRemover(width=self.config.width)
        m.d.comb += [
            self.mac_rx.ready.eq(1),
            tags.i.valid.eq(self.mac_rx.valid),
            tags.i.p.eq(self.mac_rx.payload),
            to.valid.eq(tags.o.valid),
            to.payload.eq(tags.o.p),
        ]

    def _receive(self, m: Module, requester: Requester, responder: Responder) -> None:
        """Route acknowledgements to the requester, all other packets to the responder."""
        config = self.config
        m.submodules.receiver = receiver = Receiver(config=config)
        m.submodules.regions = regions = RegionTable(config=config)
        m.submodules.store = store = PayloadStore(width=config.width, address_width=config.address_width)
        m.submodules.answers = answers = StreamFIFO(shape=answer_layout(config), depth=_ANSWERS)
        self._frames_in(m, receiver.i)
        connect_typed(m, flipped(self.region), regions.region)
        connect_typed(m, receiver.words, store.i)
        connect_typed(m, responder.store, store.command)
        connect_typed(m, answers.o, requester.answer)
        connect_typed(m, store.axi, flipped(self.write))
        packet = receiver.o.payload
        is_answer = Signal()
        is_nak = packet.syndrome[5:].any()  # not dropped: a NAK that ends its queue pair is sent only once
        m.d.comb += [
            receiver.own.eq(self.own),
            regions.ask.eq(receiver.ask),
            receiver.allowed.eq(regions.allowed),
            is_answer.eq((packet.fault == Fault.NONE) & packet.answer),
            answers.i.valid.eq(receiver.o.valid & is_answer),
            *(answers.i.payload[name].eq(packet[name]) for name in answers.i.payload.shape().members),
            responder.i.valid.eq(receiver.o.valid & ~is_answer),
            responder.i.payload.eq(packet),
            receiver.o.ready.eq(Mux(is_answer, ~is_nak | answers.i.ready, responder.i.ready)),
            responder.stored.eq(store.done),
            self.events.lost.eq(receiver.lost),
            self.events.memory_error.eq(store.error | self.fetch_error),
        ]
