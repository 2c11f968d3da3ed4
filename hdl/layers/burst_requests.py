"""Burst requests of a store channel: the next burst, and when it can start."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.port import BURST
from fanin.cnn.memory import ADDRESS_BITS, BEAT_BYTES
from fanin.hdl.layers.interface import FRAME_BITS
from fanin.hdl.stream.credits import Credits

BEAT_ADDRESS_BITS = ADDRESS_BITS - (BEAT_BYTES.bit_length() - 1)
_OFFSET_BITS = BURST.bit_length() - 1


class BurstRequest(data.Struct):
    """Burst of ``length`` + 1 beats from beat ``address`` of memory on; ``last``: the last one of its frame."""

    address: BEAT_ADDRESS_BITS
    length: _OFFSET_BITS
    last: 1


class BurstRequests(wiring.Component):
    """Requester of the bursts of a channel's frames, in order of addresses, each as soon as it can complete.

    A burst ends at a multiple of 16 beats or with its frame, so none crosses 4 KiB. A burst is requested when
    enough beats are ready and its frame has a credit. The request consumes the beats; a frame's last request
    also consumes the credit.

    Members
    -------
    ``restart`` : In(1)
        Pulse: restart at ``base`` with ``frames`` credits; only while no request is offered. Ready beats stay
        ready.
    ``base`` : In, beat of memory at which the first frame begins; stable
    ``frames`` : In, range(2^24)
        Credits after ``restart``.
    ``frame`` : In(1)
        Pulse: a credit for one more frame.
    ``beat`` : In(1)
        Pulse: one more beat is ready. A write channel's queue holds it, or a read channel's queue has room.
    ``request`` : Out, stream of BurstRequest

    Parameters
    ----------
    ``beats`` : int, beats of a frame
    ``wrap`` : int
        Frames after which addresses return to ``base``; 0: never.
    ``ready_beats`` : int, beats ready after reset
    ``limit`` : int, maximum number of ready beats

    Latency
    -------
    A request is valid 2 cycles after the beat, or the credit, that it waited for, and 3 cycles after the
    transfer of the previous request.

    Source
    ------
    docs/systems/cluster.md, "Store".
    """

    def __init__(self, *, beats: int, limit: int, ready_beats: int = 0, wrap: int = 0):
        if limit < BURST:
            raise ValueError(f"limit must be at least a burst, {BURST} beats, not {limit!r}")
        self.beats = beats
        self.limit = limit
        self.ready_beats = ready_beats
        self.wrap = wrap
        super().__init__(
            {
                "restart": In(1),
                "base": In(BEAT_ADDRESS_BITS),
                "frames": In(FRAME_BITS),
                "frame": In(1),
                "beat": In(1),
                "request": Out(stream.Signature(BurstRequest)),
            }
        )

    def required(self) -> dict[str, Value]:
        """Return the rules that simulations check of the user: violation, and its condition."""
        return {"restart while a burst is asked for": ~(self.restart & self.request.valid)}

    def elaborate(self, platform: Any) -> Module:
        """Measure the burst at ``next_address``, wait until it can complete, and offer it."""
        m = Module()
        m.submodules.credits = credits = Credits(limit=(1 << FRAME_BITS) - 1)
        request = self.request.payload
        take = Signal()  # transfer of the request
        next_address = Signal(BEAT_ADDRESS_BITS)
        beats_left = Signal(range(self.beats + 1), init=self.beats)
        ready_beats = Signal(range(self.limit + 1), init=self.ready_beats)
        to_boundary = ~next_address[:_OFFSET_BITS]  # beats to the next multiple of a burst, less one
        with m.FSM(init="WAIT") as fsm:
            m.d.comb += [
                self.request.valid.eq(fsm.ongoing("OFFER")),
                take.eq(self.request.valid & self.request.ready),
            ]
            with m.State("MEASURE"):
                m.d.sync += [
                    request.address.eq(next_address),
                    request.last.eq(beats_left - 1 <= to_boundary),
                    request.length.eq(Mux(beats_left - 1 <= to_boundary, beats_left - 1, to_boundary)),
                ]
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(self.restart):
                    m.d.sync += [next_address.eq(self.base), beats_left.eq(self.beats)]
                    m.next = "MEASURE"
                with m.Elif(credits.ok & (ready_beats > request.length)):
                    m.next = "OFFER"
            with m.State("OFFER"), m.If(self.request.ready):
                m.d.sync += [
                    next_address.eq(next_address + request.length + 1),
                    beats_left.eq(beats_left - request.length - 1),
                ]
                with m.If(request.last):
                    m.d.sync += beats_left.eq(self.beats)
                m.next = "MEASURE"
        m.d.sync += ready_beats.eq(ready_beats + self.beat - Mux(take, request.length + 1, 0))
        m.d.comb += [
            credits.restart.eq(self.restart),
            credits.initial.eq(self.frames),
            credits.give.eq(self.frame),
            credits.take.eq(take & request.last),
        ]
        if self.wrap:
            self._wrap(m, next_address, take & request.last)
        return m

    def _wrap(self, m: Module, next_address: Signal, ends: Any) -> None:
        """Return to ``base`` after the ring's last frame."""
        number = Signal(range(self.wrap))
        with m.If(self.restart):
            m.d.sync += number.eq(0)
        with m.Elif(ends):
            m.d.sync += number.eq(number + 1)
            with m.If(number == self.wrap - 1):
                m.d.sync += [number.eq(0), next_address.eq(self.base)]
