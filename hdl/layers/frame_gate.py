"""Gate of a connection: passes the frames of a job, and holds later frames."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.layers.interface import FRAME_BITS, word_stream


class FrameGate(wiring.Component):
    """Gate that passes ``frames`` frames after ``start``, and then none until the next ``start``.

    Members
    -------
    ``start`` : In(1)
        Pulse: open the gate; only after all frames have passed, or after a reset.
    ``frames`` : In(24)
        Frames to pass; taken with ``start``.
    ``i`` : In, stream of ``lanes`` words
    ``o`` : Out, stream of ``lanes`` words

    Parameters
    ----------
    ``lanes`` : int, words of a transfer
    ``transfers`` : int, at least 1
        Transfers of a frame.

    Latency
    -------
    None; the first frame passes from the cycle after ``start`` on.

    Source
    ------
    docs/systems/cluster.md, "The life of a node".
    """

    def __init__(self, *, lanes: int, transfers: int):
        if transfers < 1:
            raise ValueError(f"transfers must be at least 1, not {transfers!r}")
        self.lanes, self.transfers = lanes, transfers
        words = word_stream(lanes)
        super().__init__({"start": In(1), "frames": In(FRAME_BITS), "i": In(words), "o": Out(words)})

    def elaborate(self, platform: Any) -> Module:
        """Close ``is_open``, a register, only with a transfer, so that no offered word is withdrawn."""
        m = Module()
        is_open = Signal()  # frames are still to pass
        frames_left = Signal(FRAME_BITS)  # frames still to pass
        transfers_left = Signal(range(self.transfers), init=self.transfers - 1)  # left in the frame, less one
        m.d.comb += [
            self.o.p.eq(self.i.p),
            self.o.valid.eq(self.i.valid & is_open),
            self.i.ready.eq(self.o.ready & is_open),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += transfers_left.eq(transfers_left - 1)
            with m.If(transfers_left == 0):
                m.d.sync += [
                    transfers_left.eq(transfers_left.init),
                    frames_left.eq(frames_left - 1),
                    is_open.eq(frames_left != 1),
                ]
        with m.If(self.start):
            m.d.sync += [
                frames_left.eq(self.frames),
                is_open.eq(self.frames != 0),
                transfers_left.eq(transfers_left.init),
            ]
        return m
