"""Groups of frames: a group that a batch does not fill is completed with dummy frames."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.layers.interface import FRAME_BITS, LayerControl, Mode, word_stream


class GroupGate(wiring.Component):
    """Gate that inserts the dummy frames of a batch's last group into a stream, or removes them.

    A batch of a job that trains, or the whole job in evaluate mode, is followed by as many dummy frames as its
    last group lacks. The gate passes no frame beyond the job's.

    Members
    -------
    ``control`` : In, ``LayerControl``
    ``i`` : In, stream of ``lanes`` words
    ``o`` : Out, stream of ``lanes`` words
    ``done`` : Out(1)
        All frames of the job have passed, dummies included. Low from the cycle after ``start`` on.

    Parameters
    ----------
    ``lanes`` : int, words of a transfer
    ``transfers`` : int, transfers of a frame
    ``group_frames`` : int, frames of a group, a power of two of at least 2
    ``fill`` : int or None
        Word of the dummy frames that are inserted; None: dummy frames are removed.
    ``backward`` : bool
        The stream carries frames in mode TRAIN only.

    Latency
    -------
    0 cycles; a transfer a cycle, with a pause of a cycle after each batch. The first frame passes from the
    second cycle after ``start`` on.

    Source
    ------
    docs/systems/layers.md, "Parameters in memory".
    """

    def __init__(self, *, lanes: int, transfers: int, group_frames: int, fill: int | None, backward: bool):
        if group_frames < 2 or group_frames & (group_frames - 1):
            raise ValueError(f"group_frames must be a power of two of at least 2, not {group_frames!r}")
        self.lanes, self.transfers, self.group_frames = lanes, transfers, group_frames
        self.fill, self.backward = fill, backward
        words = word_stream(lanes)
        super().__init__({"control": In(LayerControl), "i": In(words), "o": Out(words), "done": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """Count the batch's frames and the group's, and pass frames or dummies frame by frame."""
        m = Module()
        control = self.control
        training = control.mode == Mode.TRAIN
        runs = training if self.backward else training | (control.mode == Mode.EVALUATE)
        real = Signal()  # the frame is the stream's
        dummy = Signal()  # the frame is inserted or removed
        job_left = Signal(FRAME_BITS)  # frames of the job that belong to no batch yet
        batch_left = Signal(FRAME_BITS)  # frames of the batch, the current one included
        frame = Signal(range(self.group_frames))  # of the group
        size = Signal(FRAME_BITS)
        m.d.comb += size.eq(Mux(training & (control.batch < job_left), control.batch, job_left))
        frame_ends = self._transfers(m, real, dummy)

        with m.FSM():
            with m.State("idle"):
                m.d.comb += self.done.eq(1)
                with m.If(control.start & runs):
                    m.d.sync += job_left.eq(control.frames)
                    m.next = "batch"
            with m.State("batch"):
                m.d.sync += [batch_left.eq(size), job_left.eq(job_left - size)]
                m.next = "idle"
                with m.If(size != 0):
                    m.next = "frames"
            with m.State("frames"):
                m.d.comb += real.eq(1)
                with m.If(frame_ends):
                    m.d.sync += [batch_left.eq(batch_left - 1), frame.eq(frame + 1)]
                    with m.If(batch_left == 1):
                        m.next = "dummies"
                        with m.If(frame == self.group_frames - 1):
                            m.next = "batch"
            with m.State("dummies"):
                m.d.comb += dummy.eq(1)
                with m.If(frame_ends):
                    m.d.sync += frame.eq(frame + 1)
                    with m.If(frame == self.group_frames - 1):
                        m.next = "batch"
        return m

    def _transfers(self, m: Module, real: Signal, dummy: Signal) -> Any:
        """Connect the streams. Return whether a frame's last transfer passes, is inserted or is removed."""
        removes = self.fill is None
        left = Signal(range(self.transfers), init=self.transfers - 1)
        moves = Signal()
        m.d.comb += [
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & real),
            self.i.ready.eq(self.o.ready & real),
        ]
        with m.If(dummy):
            if removes:
                m.d.comb += self.i.ready.eq(1)
            else:
                m.d.comb += [self.o.payload.as_value().eq(self._fill()), self.o.valid.eq(1)]
        port = self.i if removes else self.o
        m.d.comb += moves.eq(port.valid & port.ready & (real | dummy))
        with m.If(moves):
            m.d.sync += left.eq(Mux(left == 0, self.transfers - 1, left - 1))
        return moves & (left == 0)

    def _fill(self) -> int:
        """Return the payload of a dummy frame's transfer."""
        return sum((self.fill or 0) << (WORD_BITS * lane) for lane in range(self.lanes))
