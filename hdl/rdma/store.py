"""Writer of payloads to memory, beginning at any byte."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.bus.axi4 import OUTSTANDING, AXI4WriteSignature, Resp
from fanin.hdl.rdma.bursts import PAGE_BITS, PayloadBursts, drive_addresses, last_byte
from fanin.hdl.rdma.merge import WordMerge, window, window_sums
from fanin.hdl.rdma.shapes import lane_bits, store_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.lanes import ones_from, rotated
from fanin.rdma.facts import check_path

_COARSE_BITS = 3  # upper bits of a rotation, applied after a register; the lower bits are applied before it
_MAX_ADDRESSES = 16  # payloads whose addresses may be issued before their words
_IN_TRANSIT = 2  # commands that may be taken and not yet in the queues
# Expected responses of a payload: none if it has no bytes, two if it ``crosses`` a page and has two bursts,
# else one.
_RESPONSES = data.StructLayout({"has_bytes": 1, "crosses": 1})


def _position_layout(width: int) -> data.StructLayout:
    """Return the layout of a payload's position in memory.

    ``place``: index of its first word in the 4 KiB page. ``first``, ``last``: lanes of its first and last byte.
    """
    bits = lane_bits(width)
    return data.StructLayout({"place": PAGE_BITS - bits, "first": bits, "last": bits})


class PayloadStore(wiring.Component):
    """Writer of payloads to memory, from any lane to any byte; it can also discard them.

    A payload is one burst, or two if it crosses a 4 KiB boundary. Only its bytes are strobed; they are written
    in address order. All bursts have ID 0, so responses arrive in order; ``bready`` is always high.

    AW and W never wait for each other in an order that a slave may choose. The words of a burst are offered
    whether or not its address has been taken, and addresses of up to 16 payloads are offered before their
    words. A payload must not wrap past the end of the address space.

    Members
    -------
    ``command`` : In, stream of :func:`~fanin.hdl.rdma.shapes.store_layout`
        Payloads to write or discard. ``ready`` is a register.
    ``i`` : In, stream of ``width`` bits
        Words of the payloads: as many as lanes ``lane`` to ``lane + size - 1`` occupy, none if ``size`` is 0.
        One word may be taken before its command. ``ready`` depends combinationally on ``axi.wready``.
    ``axi`` : Out, :class:`~fanin.hdl.bus.axi4.AXI4WriteSignature`
        Memory port, registered.
    ``done`` : Out(1)
        Pulse: the next command with ``keep`` is in memory; all responses to it and to earlier ones have
        arrived.
    ``error`` : Out(1)
        Pulse: a response was not OKAY.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.
    ``address_width`` : int
        Bits of an address, 12 to 47.
    ``outstanding`` : int
        Payloads whose responses may be outstanding, at least 3. Default 64.

    Latency
    -------
    ``awvalid`` comes 4 cycles after the command. ``wvalid`` comes 4 cycles after the command if the word waits
    on ``i``, or 5 cycles if the first byte moves to a lower lane. ``done`` comes 1 cycle after the last
    response; for a command without bytes 2 cycles after the command.

    A payload takes a cycle for each arriving word, and one more if the held word then produces another. The
    next payload's first word shares that cycle if it is only held (its bytes move to lower lanes) or discarded.
    Payloads of one alignment therefore take as many cycles as words arrive, or leave if these are more. A
    command of one burst takes 1 cycle, a command of two bursts 2.

    Source
    ------
    docs/systems/rdma.md; Arm IHI 0022.
    """

    def __init__(self, *, width: int = 512, address_width: int = 40, outstanding: int = OUTSTANDING):
        check_path(width=width, address_width=address_width)
        if not isinstance(outstanding, int) or outstanding <= _IN_TRANSIT:
            raise ValueError(f"outstanding must be at least {_IN_TRANSIT + 1}, not {outstanding!r}")
        self.width = width
        self.address_width = address_width
        self.outstanding = outstanding
        super().__init__(
            {
                "command": In(stream.Signature(store_layout(width=width, address_width=address_width))),
                "i": In(stream.Signature(width)),
                "axi": Out(AXI4WriteSignature(data_width=width, address_width=address_width)),
                "done": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Fork each command: to AW, to W with its words, and to the queue that waits for responses."""
        m = Module()
        path = {"width": self.width, "address_width": self.address_width}
        m.submodules.bursts = bursts = PayloadBursts(**path, tag=0)
        payload = bursts.command.payload.shape()
        m.submodules.payloads = payloads = StreamFIFO(shape=payload, depth=_MAX_ADDRESSES)
        position = _position_layout(self.width)
        m.submodules.merge = merge = WordMerge(
            width=self.width, depth=_MAX_ADDRESSES, coarse=_COARSE_BITS, tag=position
        )
        m.submodules.expected = expected = StreamFIFO(shape=_RESPONSES, depth=self.outstanding)
        connect_typed(m, payloads.o, bursts.command)
        self._take(m, [payloads, merge, expected])
        self._plan(m, payloads.i, merge.command, expected.i)
        drive_addresses(m, self.axi, "aw", bursts.o)
        self._words(m, self._merged(m, merge))
        self._responses(m, expected.o)
        return m

    def _take(self, m: Module, queues: list[Any]) -> None:
        """Take commands while every queue has room for those in transit."""
        has_room = Signal(init=1)
        m.d.sync += has_room.eq(Cat(queue.level < queue.depth - _IN_TRANSIT for queue in queues).all())
        m.d.comb += self.command.ready.eq(has_room)

    def _plan(self, m: Module, payloads: Any, words: Any, expected: Any) -> None:
        """Put a command into the queues: sums before a register, comparisons after it.

        The queues have room for all commands in transit.
        """
        command, bits = self.command.payload, lane_bits(self.width)
        go = Signal()  # a command is taken
        has_bytes = Signal()  # the command has bytes
        m.d.comb += [go.eq(self.command.valid & self.command.ready), has_bytes.eq(command.size != 0)]

        def later(name: str, value: Value, *, reset_less: bool = True) -> Value:
            return delayed(m, value, 1, name=name, reset_less=reset_less)[-1]

        has_bytes_later = later("has_bytes", has_bytes)
        keep = later("keep", command.keep)
        address = later("address", command.address)
        size = later("size", command.size)
        sums = window_sums(
            width=self.width, source=command.lane, target=command.address[:bits], size=command.size
        )
        sums = {name: later(name, value) for name, value in sums.items()}
        fields = window(width=self.width, **sums)
        fields["flush"] &= keep
        m.d.comb += [
            payloads.valid.eq(later("has_burst", go & has_bytes & command.keep, reset_less=False)),
            payloads.payload.address.eq(address),
            payloads.payload.size.eq(size),
            words.valid.eq(later("has_words", go & has_bytes, reset_less=False)),
            *(words.payload.window[name].eq(value) for name, value in fields.items()),
            words.payload.window.drop.eq(~keep),
            words.payload.tag.place.eq(address[bits:PAGE_BITS]),
            words.payload.tag.first.eq(address[:bits]),
            words.payload.tag.last.eq(sums["target_reach"][:bits]),
            expected.valid.eq(later("has_end", go & command.keep, reset_less=False)),
            expected.payload.has_bytes.eq(has_bytes_later),
            expected.payload.crosses.eq(last_byte(address, size)[-1]),
        ]

    def _merged(self, m: Module, merge: WordMerge) -> Any:
        """Rotate words within an eighth of a word and merge neighbours; the coarse rotation follows.

        In a merged word the bytes from ``first_lane`` to ``last_lane`` are valid.
        """
        merged_word, lane = merge.o.payload, range(self.width // 8)
        layout = data.StructLayout(merged_word.shape().members | {"first_lane": lane, "last_lane": lane})
        m.submodules.word = word = StreamFIFO(shape=self.width, depth=1)
        m.submodules.merged = merged = StreamFIFO(shape=layout, depth=1)
        connect_typed(m, wiring.flipped(self.i), word.i)
        m.d.comb += [
            merge.i.valid.eq(word.o.valid),
            merge.i.payload.eq(rotated(word.o.payload, merge.rotation)),
            word.o.ready.eq(merge.i.ready),
            merged.i.valid.eq(merge.o.valid),
            merge.o.ready.eq(merged.i.ready),
            *(merged.i.payload[name].eq(merged_word[name]) for name in merged_word.shape().members),
            merged.i.payload.first_lane.eq(Mux(merged_word.first, merged_word.tag.first, 0)),
            merged.i.payload.last_lane.eq(Mux(merged_word.last, merged_word.tag.last, -1)),
        ]
        return merged.o

    def _words(self, m: Module, words: Any) -> None:
        """Strobe the payload's bytes; end a burst at the payload's end and at the end of a page."""
        axi, size, word = self.axi, self.width // 8, words.payload
        next_place = Signal.like(word.tag.place)
        place = Signal.like(next_place)
        m.d.comb += [
            place.eq(Mux(word.first, word.tag.place, next_place)),
            words.ready.eq(~axi.wvalid | axi.wready),
        ]
        after_end = (ones_from(word.last_lane, size) << 1)[:size]
        with m.If(axi.wready):
            m.d.sync += axi.wvalid.eq(0)
        with m.If(words.valid & words.ready):
            m.d.sync += [
                axi.wvalid.eq(1),
                axi.wdata.eq(rotated(word.data, word.coarse, unit=self.width >> _COARSE_BITS)),
                axi.wstrb.eq(ones_from(word.first_lane, size) & ~after_end),
                axi.wlast.eq(word.last | place.all()),
                next_place.eq(place + 1),
            ]

    def _responses(self, m: Module, expected: Any) -> None:
        """Count the responses, which arrive in the order of the bursts; a payload without bytes has none."""
        m.submodules.responses = responses = Credits(limit=2 * self.outstanding)
        axi = self.axi
        first_answered = Signal()  # the first of the payload's two bursts has been answered
        m.d.comb += [
            axi.bready.eq(1),
            responses.give.eq(axi.bvalid),
            responses.take.eq(expected.valid & expected.payload.has_bytes & responses.ok),
            self.done.eq(
                expected.valid
                & (~expected.payload.has_bytes | responses.ok & (~expected.payload.crosses | first_answered))
            ),
            expected.ready.eq(self.done),
        ]
        with m.If(responses.take):
            m.d.sync += first_answered.eq(expected.payload.crosses & ~first_answered)
        m.d.sync += self.error.eq(axi.bvalid & (axi.bresp != Resp.OKAY))
