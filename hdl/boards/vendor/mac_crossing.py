"""Crossing between a node's clock and the clocks of a vendor's MAC."""

from typing import Any

from amaranth import DomainRenamer, Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import AsyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from fanin.hdl.boards.vendor.frame_guard import FrameGuard
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.frame_store import FrameStore, store_capacity
from fanin.hdl.stream.packet import packet_layout, packet_stream

DEPTH = 64  # beats of a crossing's FIFO: the depth of LUT RAM


class MacCrossing(wiring.Component):
    """Crossing between a node's packet streams in ``sync`` and a MAC's in the domains ``tx`` and ``rx``.

    A frame to send is stored completely before its first beat is on ``mac_tx``. A frame received while the
    crossing is full ends with ``error``, or leaves nothing (:class:`FrameGuard`).

    Members
    -------
    ``core_tx`` : In, packet stream of ``width`` bits, in ``sync``
        Frames to send.
    ``core_rx`` : Out, packet stream of ``width`` bits with ``error``, in ``sync``
        Received frames.
    ``mac_tx`` : Out, packet stream of ``width`` bits, in ``tx``
        Frames to send; valid in every cycle of a frame.
    ``mac_rx`` : In, packet stream of ``width`` bits with ``error``, always ready, in ``rx``
        Received frames.
    ``cut`` : In(1), in ``rx``
        The MAC's receiver is reset.
    ``lost`` : Out(1), in ``rx``
        Pulse: a received frame was lost.

    Parameters
    ----------
    ``width`` : int
        Bits of a beat, a multiple of 8.
    ``max_frame`` : int
        Bytes of the longest frame to send.

    Latency
    -------
    A crossing takes some cycles of the target's clock (``AsyncFIFOBuffered``), plus those of the store and of
    the guard. One beat a cycle of the slower clock.

    Source
    ------
    docs/systems/boards.md, "Vendor boards".
    """

    def __init__(self, *, width: int, max_frame: int):
        self.width = width
        self.max_frame = max_frame
        super().__init__(
            {
                "core_tx": In(packet_stream(width)),
                "core_rx": Out(packet_stream(width, error=True)),
                "mac_tx": Out(packet_stream(width)),
                "mac_rx": In(stream.Signature(packet_layout(width, error=True), always_ready=True)),
                "cut": In(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a FIFO in each direction; the store and the guard are in the MAC's domains."""
        m = Module()
        store = FrameStore(
            width=self.width,
            max_frame=self.max_frame,
            capacity=store_capacity(self.max_frame, self.width),
            wait=True,
        )
        guard = FrameGuard(width=self.width)
        m.submodules.store = DomainRenamer("tx")(store)
        m.submodules.guard = DomainRenamer("rx")(guard)
        self._cross(m, "tx", self.core_tx, store.i, source="sync", target="tx")
        self._cross(m, "rx", guard.o, self.core_rx, source="rx", target="sync")
        connect_typed(m, store.o, wiring.flipped(self.mac_tx))
        connect_typed(m, wiring.flipped(self.mac_rx), guard.i)
        m.d.comb += [guard.cut.eq(self.cut), self.lost.eq(guard.lost)]
        return m

    @staticmethod
    def _cross(m: Module, name: str, i: Any, o: Any, *, source: str, target: str) -> None:
        """Connect the fields of ``i`` to ``o`` through a FIFO; other fields of ``o`` are 0."""
        fields = i.payload.shape().members
        width = len(Value.cast(i.payload))
        fifo = AsyncFIFOBuffered(width=width, depth=DEPTH, w_domain=source, r_domain=target)
        m.submodules[f"{name}_fifo"] = fifo
        payload = i.payload.shape()(fifo.r_data)
        m.d.comb += [
            fifo.w_data.eq(i.payload),
            fifo.w_en.eq(i.valid),
            i.ready.eq(fifo.w_rdy),
            o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(o.ready),
            *(o.payload[field].eq(payload[field]) for field in fields),
        ]
