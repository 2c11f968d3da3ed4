"""Admission of frames to a layer with parameters, and its updates: exactly synchronous SGD."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.layers.interface import FRAME_BITS, LayerControl, Mode
from fanin.hdl.stream.credits import Credits


class BatchControl(wiring.Component):
    """Batch control of a layer: admits the frames of a batch, awaits their gradients, then requests the update.

    A frame of the next batch is admitted only after ``updated``, so every frame uses the weights of its own
    batch. The job's last batch has the remaining frames, and always uses ``last_eta``. Mode EVALUATE admits
    every frame; LOAD and DUMP admit none.

    Members
    -------
    ``control`` : In, ``LayerControl``
    ``admit`` : Out(1)
        The next frame may begin its forward way; stable until ``admitted``.
    ``admitted`` : In(1)
        Pulse: a frame begins its forward way; only while ``admit``.
    ``finished`` : In(1)
        Pulse: the last gradient of a frame is in the velocities.
    ``update`` : Out(1)
        Pulse: update all parameters with ``eta``.
    ``eta`` : Out(32)
        −learning rate / frames of the batch; stable from ``update`` to ``updated``.
    ``updated`` : In(1)
        Pulse: the last parameter is written. From the next cycle on, all parameters may be read.
    ``done`` : Out(1)
        High from the job's last ``updated`` to the next ``start``, and in all modes but TRAIN.

    Parameters
    ----------
    ``group_frames`` : int, a power of two; 1 by default
        Frames that pass as one: ``admitted`` and ``finished`` are of groups. The last group of a batch may have
        fewer frames.

    Latency
    -------
    The first frame is admitted 3 cycles after ``start`` (evaluate: 1), and 3 after ``updated``; then one a
    cycle. ``update`` follows the last ``finished`` of the batch by a cycle.

    Source
    ------
    NADA, section IV-C: weights are updated after the batch; docs/systems/layers.md, "Training".
    """

    def __init__(self, *, group_frames: int = 1) -> None:
        self.group_frames = group_frames
        super().__init__(
            {
                "control": In(LayerControl),
                "admit": Out(1),
                "admitted": In(1),
                "finished": In(1),
                "update": Out(1),
                "eta": Out(WORD_BITS),
                "updated": In(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the batch's frames to admit, and its frames with outstanding gradients."""
        m = Module()
        control = self.control
        m.submodules.waiting = waiting = Credits(limit=(1 << FRAME_BITS) - 1)
        m.submodules.unfinished = unfinished = Credits(limit=(1 << FRAME_BITS) - 1)
        evaluating = Signal()
        remaining = Signal(FRAME_BITS)  # frames of the job that belong to no batch yet
        size = Signal(FRAME_BITS)  # frames of the batch
        begin = Signal()
        m.d.comb += [
            self.admit.eq(evaluating | waiting.ok),
            waiting.take.eq(self.admitted & ~evaluating),
            unfinished.take.eq(self.finished),
        ]
        for counter in waiting, unfinished:
            m.d.comb += [
                counter.restart.eq(begin),
                counter.initial.eq((size + self.group_frames - 1) >> exact_log2(self.group_frames)),
            ]

        with m.FSM():
            with m.State("job done"):
                m.d.comb += self.done.eq(1)
                m.d.sync += remaining.eq(control.frames)
                with m.If(control.start):
                    m.d.sync += evaluating.eq(control.mode == Mode.EVALUATE)
                    with m.If(control.mode == Mode.TRAIN):
                        m.next = "next batch"
            with m.State("next batch"):
                last = remaining <= control.batch
                m.d.sync += [
                    size.eq(Mux(last, remaining, control.batch)),
                    self.eta.eq(Mux(last, control.last_eta, control.eta)),
                    remaining.eq(Mux(last, 0, remaining - control.batch)),
                ]
                m.next = "begin"
                with m.If(remaining == 0):
                    m.next = "job done"
            with m.State("begin"):
                m.d.comb += begin.eq(1)
                m.next = "frames"
            with m.State("frames"), m.If(~unfinished.ok):
                m.d.comb += self.update.eq(1)
                m.next = "update"
            with m.State("update"), m.If(self.updated):
                m.next = "next batch"
        return m
