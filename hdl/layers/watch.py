"""Counters of a layer's working and waiting cycles, and detection of infinities and NaNs."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.codec.facts import FRACTION_BITS, SPECIAL_EXPONENT
from fanin.hdl.layers.interface import FRAME_BITS

COUNTER_BITS = 48  # no overflow for weeks


class Watch(wiring.Component):
    """Watch on one way of a layer: counts its working and waiting cycles, and checks its outgoing words.

    A cycle counts as *blocked* if the layer offers a transfer that is not taken. Any other cycle counts as
    *starved* if the layer is ready and no transfer is offered, and otherwise as *busy*.

    Members
    -------
    ``clear`` : In(1)
        All outputs become 0; the next transfer is the first of frame 0.
    ``enable`` : In(1)
        Count cycles.
    ``input_valid``, ``input_ready`` : In(1)
        Handshake of the layer's incoming stream.
    ``output_valid``, ``output_ready`` : In(1)
        Handshake of the layer's outgoing stream.
    ``payload`` : In, ``ArrayLayout(32, lanes)``
        Words of the layer's outgoing stream.
    ``now`` : In(32)
        Number of the cycle.
    ``timed_first``, ``timed_last`` : In(24)
        Numbers of the frames that begin and end a batch.
    ``updated`` : In(1)
        Pulse: the layer has updated its parameters.
    ``busy``, ``starved``, ``blocked`` : Out(48)
        Cycles of each kind.
    ``frames`` : Out(24)
        Frames that have left in full.
    ``nonfinite`` : Out(1)
        An outgoing word was an infinity or a NaN.
    ``nonfinite_frame`` : Out(24)
        Number of the first frame with an infinity or a NaN, counted from 0.
    ``first``, ``last`` : Out(32)
        ``now``, one cycle after the last transfers of the frames ``timed_first`` and ``timed_last``.
    ``update`` : Out(32)
        ``now``, one cycle after the first ``updated`` after ``last``.

    Parameters
    ----------
    ``lanes`` : int
        Words of a transfer.
    ``transfers`` : int, at least 1
        Transfers of a frame.

    Latency
    -------
    All outputs follow 2 cycles after what they count.

    Source
    ------
    docs/systems/layers.md, "Layers without weights of their own".
    """

    def __init__(self, *, lanes: int, transfers: int):
        if transfers < 1:
            raise ValueError(f"transfers must be at least 1, not {transfers!r}")
        self.lanes, self.transfers = lanes, transfers
        cycles = Out(COUNTER_BITS)
        super().__init__(
            {
                "clear": In(1),
                "enable": In(1),
                "input_valid": In(1),
                "input_ready": In(1),
                "output_valid": In(1),
                "output_ready": In(1),
                "payload": In(data.ArrayLayout(WORD_BITS, lanes)),
                "now": In(WORD_BITS),
                "timed_first": In(FRAME_BITS),
                "timed_last": In(FRAME_BITS),
                "updated": In(1),
                "busy": cycles,
                "starved": cycles,
                "blocked": cycles,
                "frames": Out(FRAME_BITS),
                "nonfinite": Out(1),
                "nonfinite_frame": Out(FRAME_BITS),
                "first": Out(WORD_BITS),
                "last": Out(WORD_BITS),
                "update": Out(WORD_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Register all observed signals first, so that the layer's own paths end in a register."""
        m = Module()
        blocked, starved, enabled, leaves = (Signal(name=name) for name in ("b", "s", "enabled", "leaves"))
        special = Signal(self.lanes, reset_less=True)
        m.d.sync += [
            blocked.eq(self.output_valid & ~self.output_ready),
            starved.eq(self.input_ready & ~self.input_valid),
            enabled.eq(self.enable),
            leaves.eq(self.output_valid & self.output_ready),
        ]
        for bit, word in zip(special, self.payload, strict=True):
            m.d.sync += bit.eq(word[FRACTION_BITS : WORD_BITS - 1] == SPECIAL_EXPONENT)

        with m.If(enabled):
            with m.If(blocked):
                m.d.sync += self.blocked.eq(self.blocked + 1)
            with m.Elif(starved):
                m.d.sync += self.starved.eq(self.starved + 1)
            with m.Else():
                m.d.sync += self.busy.eq(self.busy + 1)

        awaits_update = Signal()
        updated = Signal()
        m.d.sync += updated.eq(self.updated)
        with m.If(updated & awaits_update):
            m.d.sync += [self.update.eq(self.now), awaits_update.eq(0)]

        transfers_left = Signal(range(self.transfers), init=self.transfers - 1)  # left in the frame, less one
        with m.If(leaves):
            m.d.sync += transfers_left.eq(transfers_left - 1)
            with m.If(transfers_left == 0):
                m.d.sync += [transfers_left.eq(transfers_left.init), self.frames.eq(self.frames + 1)]
                with m.If(self.frames == self.timed_first):
                    m.d.sync += self.first.eq(self.now)
                with m.If(self.frames == self.timed_last):
                    m.d.sync += [self.last.eq(self.now), awaits_update.eq(1)]
            with m.If(special.any() & ~self.nonfinite):
                m.d.sync += [self.nonfinite.eq(1), self.nonfinite_frame.eq(self.frames)]
        with m.If(self.clear):
            m.d.sync += [
                transfers_left.eq(transfers_left.init),
                leaves.eq(0),
                enabled.eq(0),
                self.nonfinite.eq(0),
            ]
            m.d.sync += [count.eq(0) for count in (self.busy, self.starved, self.blocked)]
            m.d.sync += [self.frames.eq(0), self.nonfinite_frame.eq(0), awaits_update.eq(0)]
            m.d.sync += [time.eq(0) for time in (self.first, self.last, self.update)]
        return m
