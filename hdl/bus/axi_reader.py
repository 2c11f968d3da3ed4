"""AXI4 read master: streams a run of memory, once or repeatedly."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import (
    CACHE_BUFFERABLE_MODIFIABLE,
    OUTSTANDING,
    AXI4ReadSignature,
    Burst,
    Resp,
    check_bursts,
)
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO

COUNT_BITS = 32  # width of counts of beats and of repeats
BLOCK_BITS = 40  # counted bits of a block's number: a longer carry chain would be slow


def command_layout(address_width: int) -> data.StructLayout:
    """Return the layout of a reader's command.

    The command reads ``beats`` words from byte ``address`` on, ``repeats`` times.
    """
    return data.StructLayout({"address": address_width, "beats": COUNT_BITS, "repeats": COUNT_BITS})


class BurstSplitter(wiring.Component):
    """Splitter that cuts the runs of an :class:`AxiReader`'s commands into bursts.

    Memory consists of aligned blocks of ``burst`` words. A burst is the part of a block that the run covers.

    Members
    -------
    ``command`` : In, stream of :func:`command_layout`
        Runs to split.
    ``o`` : Out, stream of ``address``, ``length`` and ``last``
        Bursts: ``address`` in bytes, ``length`` in words minus one, ``last`` for the last burst of a command.
    ``busy`` : Out(1)
        A command is in progress. Its last burst may still wait on ``o`` when ``busy`` falls.

    Parameters
    ----------
    ``word_bytes`` : int, a power of two
        Bytes of a word.
    ``address_width`` : int, bits
        Width of an address.
    ``burst`` : int, words; a power of two
        Words of a block, the longest burst.

    Latency
    -------
    The first burst is on ``o`` 4 cycles after the command; then one a cycle, across repeats. The next command
    is taken in the cycle in which the last burst appears on ``o``.

    Source
    ------
    docs/reference/buses.md.
    """

    def __init__(self, *, word_bytes: int, address_width: int, burst: int):
        for name, value in ("word_bytes", word_bytes), ("burst", burst):
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two, not {value!r}")
        self.word_bytes = word_bytes
        self.address_width = address_width
        self.burst = burst
        burst_layout = data.StructLayout({"address": address_width, "length": range(max(burst, 2)), "last": 1})
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(address_width))),
                "o": Out(stream.Signature(burst_layout)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compute the end and number of blocks of a run in ADD and MEASURE; cut off one block a cycle in RUN.

        The run may cover only parts of its first and last block. ``start`` is the position of its first word in
        the first block, ``last_position`` the position of its last word in the last block. At the last block of
        a pass, ``block`` and ``blocks_left`` are reloaded for the next pass. No carry chain follows another
        within a cycle.
        """
        m = Module()
        word_bits = (self.word_bytes - 1).bit_length()
        offset_bits = (self.burst - 1).bit_length()
        command = Signal.like(self.command.payload)
        first_word = command.address[word_bits:]
        start = first_word[:offset_bits]  # position of the first word in its block
        run_end = Signal(COUNT_BITS + 1)  # one past the run's last word, counted from the first block
        last_position = Signal(offset_bits)  # position of the last word in its block
        block = Signal(self.address_width - word_bits - offset_bits)
        block_counter = block[:BLOCK_BITS]
        # blocks after the next one in this pass; negative if the next block is the last
        blocks_left = Signal(signed(COUNT_BITS + 2 - offset_bits))
        first_blocks_left = Signal.like(blocks_left)
        passes_left = Signal(signed(COUNT_BITS + 1))  # passes after this one; negative in the last pass
        empty = Signal(2)  # no beats, no repeats
        is_first = Signal()
        is_last = blocks_left[-1]
        length = Mux(is_last, last_position, self.burst - 1)
        first_length = Mux(is_last, last_position - start, ~start)[:offset_bits]

        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM() as fsm:
            m.d.comb += [self.command.ready.eq(fsm.ongoing("IDLE")), self.busy.eq(~fsm.ongoing("IDLE"))]
            with m.State("IDLE"), m.If(self.command.valid):
                m.d.sync += command.eq(self.command.payload)
                m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += [run_end.eq(start + command.beats), passes_left.eq(command.repeats - 2)]
                m.d.sync += empty.eq(Cat(command.beats == 0, command.repeats == 0))
                m.next = "MEASURE"
            with m.State("MEASURE"):
                after_first = (run_end - (self.burst + 1))[offset_bits:].as_signed()
                m.d.sync += [
                    last_position.eq(run_end - 1),
                    blocks_left.eq(after_first),
                    first_blocks_left.eq(after_first),
                ]
                m.d.sync += [block.eq(first_word[offset_bits:]), is_first.eq(1)]
                m.next = "RUN"
                with m.If(empty.any()):
                    m.next = "IDLE"
            with m.State("RUN"), m.If(self.o.ready | ~self.o.valid):
                offset = Mux(is_first, start, 0)[:offset_bits]
                m.d.sync += [
                    self.o.valid.eq(1),
                    self.o.payload.address.eq(Cat(Const(0, word_bits), offset, block)),
                    self.o.payload.length.eq(Mux(is_first, first_length, length)),
                    self.o.payload.last.eq(is_last & passes_left[-1]),
                    block_counter.eq(block_counter + 1),
                    blocks_left.eq(blocks_left - 1),
                    is_first.eq(0),
                ]
                with m.If(is_last):
                    m.d.sync += [block.eq(first_word[offset_bits:]), blocks_left.eq(first_blocks_left)]
                    m.d.sync += is_first.eq(1)
                    m.d.sync += passes_left.eq(passes_left - 1)
                    with m.If(passes_left[-1]):
                        m.next = "IDLE"
        return m


class AxiReader(wiring.Component):
    """AXI4 read master that streams a run of consecutive words, repeatedly without a pause (epochs).

    A command reads ``beats`` words from ``address`` on, ``repeats`` times; zero of either does nothing.
    ``address`` counts bytes and must be a multiple of the word; its lower bits are taken as 0. The run must not
    wrap past the end of the address space, nor cross a multiple of 2^40 bursts, which is 4 PiB with bursts of 4
    KiB.

    Bursts are INCR and end at multiples of ``burst`` words. ``burst`` is at most 4 KiB, so no burst crosses a 4
    KiB boundary. All bursts have the ID 0, so data return in order. A burst is requested only if the FIFO has
    room for two bursts beyond all that are in flight, so ``rready`` is always high.

    Members
    -------
    ``command`` : In, stream of :func:`command_layout`
        Runs to read.
    ``o`` : Out, stream of ``data_width`` bits
        Words of the runs.
    ``busy`` : Out(1)
        High from the cycle after a command is taken until 2 cycles after its last word has left on ``o``.
    ``error`` : Out(1)
        A response was not OKAY since the last command that was taken while not ``busy``. Its data are
        delivered.
    ``stop`` : In(1)
        Pulse: request no more bursts. Words of bursts in flight are still delivered on ``o``.
    ``axi`` : Out, :class:`AXI4ReadSignature`
        Port to memory.

    Parameters
    ----------
    ``data_width`` : int, bits; a power of two, 8…1024
        Width of a word; 256 by default.
    ``address_width`` : int, bits; 12…64
        Width of an address; 40 by default.
    ``burst`` : int, words; a power of two, 1…256, and at most 4 KiB
        Longest burst; 16 by default.
    ``outstanding`` : int, bursts in flight; at least 1
        Maximum number of bursts in flight; 64 by default.
    ``fifo_depth`` : int, words; at least two bursts
        Words that the output FIFO holds; 512 by default.

    Latency
    -------
    - The first ``arvalid`` is 6 cycles after the command.
    - The first word is on ``o`` 1 cycle after it is on ``axi``.
    - One word a cycle, across bursts and repeats, while the memory answers within ``fifo_depth - 2 * burst -
      4`` cycles and ``outstanding`` bursts cover that time. The defaults cover 476 cycles.
    - Between two commands 3 cycles pass without a request.

    Source
    ------
    docs/reference/buses.md; Arm IHI 0022.
    """

    def __init__(
        self,
        *,
        data_width: int = 256,
        address_width: int = 40,
        burst: int = 16,
        outstanding: int = OUTSTANDING,
        fifo_depth: int = 512,
    ):
        axi = AXI4ReadSignature(data_width=data_width, address_width=address_width)
        check_bursts(data_width=data_width, address_width=address_width, burst=burst, outstanding=outstanding)
        if fifo_depth < 2 * burst:
            raise ValueError(f"fifo_depth must be at least two bursts, {2 * burst} words, not {fifo_depth!r}")
        self.data_width = data_width
        self.address_width = address_width
        self.burst = burst
        self.outstanding = outstanding
        self.fifo_depth = fifo_depth
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(address_width))),
                "o": Out(stream.Signature(data_width)),
                "busy": Out(1),
                "error": Out(1),
                "stop": In(1),
                "axi": Out(axi),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Issue a burst when the FIFO has room for it, for any latency of the memory."""
        m = Module()
        splitter = BurstSplitter(
            word_bytes=self.data_width // 8, address_width=self.address_width, burst=self.burst
        )
        bursts = RegisterSlice(shape=splitter.o.payload.shape())
        m.submodules.splitter = ResetInserter(self.stop)(splitter)
        m.submodules.bursts = ResetInserter(self.stop)(bursts)
        m.submodules.fifo = fifo = StreamFIFO(shape=self.data_width, depth=self.fifo_depth)
        connect_typed(m, wiring.flipped(self.command), splitter.command)
        connect_typed(m, splitter.o, bursts.i)
        connect_typed(m, fifo.o, wiring.flipped(self.o))
        axi = self.axi
        m.d.comb += [
            fifo.i.valid.eq(axi.rvalid),
            fifo.i.payload.eq(axi.rdata),
            axi.rready.eq(1),
            axi.arsize.eq((self.data_width // 8).bit_length() - 1),
            axi.arburst.eq(Burst.INCR),
            axi.arcache.eq(CACHE_BUFFERABLE_MODIFIABLE),
        ]
        issue = self._issue(m, bursts.o)
        all_free = self._reserve(m, bursts.o.ready, issue, bursts.o.payload.length)
        accept = self.command.valid & self.command.ready
        m.d.sync += self.busy.eq(accept | splitter.busy | splitter.o.valid | bursts.o.valid | ~all_free)
        with m.If(axi.rvalid & (axi.rresp != Resp.OKAY)):
            m.d.sync += self.error.eq(1)
        with m.Elif(accept & ~self.busy):
            m.d.sync += self.error.eq(0)
        return m

    def _issue(self, m: Module, bursts: Any) -> Signal:
        """Move bursts into the AR registers; return whether one moves in this cycle."""
        axi = self.axi
        issue = Signal()
        m.d.comb += issue.eq(bursts.valid & bursts.ready)
        with m.If(axi.arready):
            m.d.sync += axi.arvalid.eq(0)
        with m.If(issue):
            m.d.sync += [
                axi.arvalid.eq(1),
                axi.araddr.eq(bursts.payload.address),
                axi.arlen.eq(bursts.payload.length),
            ]
        return issue

    def _reserve(self, m: Module, allow: Any, issue: Signal, length: Any) -> Any:
        """Drive ``allow``, which permits a burst if the FIFO has room for it and not too many are in flight.

        Return whether all words of the FIFO are free, so that nothing is in flight.

        ``free_words`` counts the FIFO's words that no burst has reserved. A burst reserves its words when it is
        issued (adding ~length, which is -length - 1). A word that leaves the FIFO (``word_sent``) returns its
        place a cycle later, as the carry of the same addition. ``has_room`` describes the previous cycle, in
        which another burst may have been issued, so it requires room for two.
        """
        axi = self.axi
        # ``free_words`` covers two bursts if any bit from this one up is set.
        two_bursts_bit = self.burst.bit_length()
        free_words = Signal(range(self.fifo_depth + 1), init=self.fifo_depth)
        has_room = Signal()
        word_sent = Signal()
        reserved = Cat(Mux(issue, ~length, 0)[: len(length)], issue.replicate(len(free_words)))
        m.d.sync += [word_sent.eq(self.o.valid & self.o.ready), has_room.eq(free_words[two_bursts_bit:] != 0)]
        m.d.sync += free_words.eq((Cat(1, free_words) + Cat(word_sent, reserved))[1:])
        in_flight = Signal(range(self.outstanding + 1))
        may_issue = Signal(init=1)  # in_flight != outstanding
        finished = axi.rvalid & axi.rlast
        with m.If(issue & ~finished):
            m.d.sync += [in_flight.eq(in_flight + 1), may_issue.eq(in_flight != self.outstanding - 1)]
        with m.Elif(finished & ~issue):
            m.d.sync += [in_flight.eq(in_flight - 1), may_issue.eq(1)]
        m.d.comb += allow.eq((axi.arready | ~axi.arvalid) & has_room & may_issue)
        return free_words == self.fifo_depth
