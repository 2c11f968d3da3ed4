"""Check of a run's memory addresses before the run starts."""

from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from fanin.glm.facts import MAX_ENGINES
from fanin.hdl.bus.axi_reader import COUNT_BITS

STAGES = 5  # cycles from ``words`` to a port's verdict
MAX_PORTS = 2 * MAX_ENGINES + 1


class AddressCheck(wiring.Component):
    """Check that every memory region is aligned and within the address space.

    A reader would drop the low bits of a misaligned address, and wrap at the end of the address space. It would
    then read wrong data without a bus error. One adder checks all ports in turn.

    Members
    -------
    ``samples`` : In, array of ``address_width`` bits
        Byte addresses of the sample regions; multiples of ``sample_bytes``.
    ``labels`` : In, ``address_width`` bits
        Byte address of the labels; a multiple of ``label_bytes``.
    ``words`` : In, 32; with ``own_lengths`` an array of such
        Length of each sample region, in words of ``sample_bytes``; at least 1, with ``own_lengths`` also 0.
    ``label_words`` : In, 32
        Length of the labels, in words of ``label_bytes``; at least 1.
    ``ok`` : Out, 1
        All regions can be read.

    Parameters
    ----------
    ``sample_ports`` : int, 1…16
        Number of sample regions.
    ``sample_bytes`` : int, a power of two
        Bytes of a sample word.
    ``label_bytes`` : int, a power of two
        Bytes of a label word.
    ``address_width`` : int, bits; 16…64
        Width of an address.
    ``own_lengths`` : bool
        Whether sample regions have different lengths.

    Latency
    -------
    ``latency`` = ``sample_ports`` + 6 cycles after the last change of an input, at most ``LATENCY``.

    Source
    ------
    docs/systems/glm.md, "Start and end".
    """

    LATENCY = MAX_PORTS + STAGES

    def __init__(
        self,
        *,
        sample_ports: int,
        sample_bytes: int,
        label_bytes: int,
        address_width: int,
        own_lengths: bool = False,
    ):
        if not 1 <= sample_ports < MAX_PORTS:
            raise ValueError(f"sample_ports must be from 1 to {MAX_PORTS - 1}, not {sample_ports!r}")
        for name, value in {"sample_bytes": sample_bytes, "label_bytes": label_bytes}.items():
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two, not {value!r}")
        self.sample_ports = sample_ports
        self.sample_bytes = sample_bytes
        self.label_bytes = label_bytes
        self.address_width = address_width
        self.own_lengths = own_lengths
        self.latency = sample_ports + 1 + STAGES
        super().__init__(
            {
                "samples": In(address_width).array(sample_ports),
                "labels": In(address_width),
                "words": In(COUNT_BITS).array(sample_ports) if own_lengths else In(COUNT_BITS),
                "label_words": In(COUNT_BITS),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Check one port a cycle, all ports in rotation.

        Select a port, compute and check the last byte of its region, and keep the result until its next check.
        """
        m = Module()
        label_span = self._span(m, self.label_words, self.label_bytes, name="label_span")
        regions = len(self.samples) + 1
        port = Signal(range(regions))
        m.d.sync += port.eq(Mux(port == regions - 1, 0, port + 1))
        misaligned = [address[: exact_log2(self.sample_bytes)].any() for address in self.samples]
        misaligned.append(self.labels[: exact_log2(self.label_bytes)].any())

        if self.own_lengths:
            spans = [self._span(m, words, self.sample_bytes, name="span") for words in self.words]
            sample_span = Array([*spans, spans[0]])[port]
        else:
            sample_span = self._span(m, self.words, self.sample_bytes, name="sample_span")

        selected_port = Signal(range(regions))
        address = Signal(self.address_width)
        low_bits = max(exact_log2(self.sample_bytes), exact_log2(self.label_bytes))
        span = Signal(COUNT_BITS + low_bits)  # bytes of the region, minus one
        checked_port = Signal(range(regions))
        last_byte = Signal(len(span) + 1)  # low bits of the last byte's address, with a carry
        is_at_top = Signal()  # the address bits above ``last_byte`` are all ones: a carry overflows
        m.d.sync += [
            selected_port.eq(port),
            address.eq(Array([*self.samples, self.labels])[port]),
            span.eq(Mux(port == regions - 1, label_span, sample_span)),
            checked_port.eq(selected_port),
            last_byte.eq(address[: len(span)] + span),
            is_at_top.eq(address[len(span) :].all()),
        ]
        # The bits of ``last_byte`` that are worth 2^address_width or carry into the bits above.
        carries = last_byte[min(len(span), self.address_width) :]
        out_of_range = Signal(regions)
        m.d.sync += out_of_range.bit_select(checked_port, 1).eq(carries.any() & is_at_top)
        m.d.sync += self.ok.eq(~(out_of_range | Cat(misaligned)).any())
        return m

    def _span(self, m: Module, words: Value, word_bytes: int, *, name: str) -> Signal:
        """Return the bytes of a region, minus one; of an empty region those of a word."""
        low = exact_log2(word_bytes)
        span = Signal(COUNT_BITS + low, name=name)
        last_word = (words - 1)[:COUNT_BITS]
        if self.own_lengths:
            last_word = Mux(words == 0, 0, last_word)
        m.d.sync += span.eq(Cat(Const((1 << low) - 1, low), last_word))
        return span
