"""Queue of the host's descriptors: checks, numbers and stores them."""

from typing import Any

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.ring.link_job import COUNT_BITS, OPERATION_BITS
from fanin.hdl.ring.orders import word_address_bits
from fanin.hdl.ring.segments import descriptor_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.ring.facts import RingConfig

POST_ADDRESS_BITS = 64  # of the host's registers; addresses from ``address_width`` bits on are refused


class Post(data.Struct):
    """Descriptor as the host posts it: ``count`` values from byte ``address`` on."""

    address: POST_ADDRESS_BITS
    count: COUNT_BITS


class DescriptorQueue(wiring.Component):
    """Queue that checks and numbers the host's descriptors; at most ``queue`` of them may be unfinished.

    A descriptor is refused in these cases: ``enable`` is 0; its count is 0; its address is not a multiple of
    the word; its end is beyond the address space; ``queue`` descriptors are unfinished. Accepted descriptors
    are numbered from 0. A reset empties the queue and restarts the numbers.

    Members
    -------
    ``post`` : In, stream of Post, always ready
        Descriptors of the host; at most one in 4 cycles. The registers of an earlier check would be overwritten
        by a second descriptor, which would be stored in place of the first.
    ``enable`` : In, 1
        0: every descriptor is refused.
    ``finished`` : In, 1
        Pulse: the oldest descriptor is done.
    ``o`` : Out, stream of :func:`descriptor_layout`
        Accepted descriptors, in order.
    ``accepted``, ``refused`` : Out, 1
        Pulses; each descriptor causes one of the two.
    ``unfinished`` : Out, range(queue + 1)
        Descriptors accepted and not finished.

    Parameters
    ----------
    ``config`` : RingConfig
        Word width and address width.
    ``queue`` : int
        Descriptors that may be unfinished, at least 1.

    Latency
    -------
    ``accepted`` or ``refused`` 4 cycles after ``post``, ``o`` 1 cycle later.

    Source
    ------
    docs/systems/ring.md, "The engine"; AI Smart NIC, section IV-A.
    """

    def __init__(self, *, config: RingConfig, queue: int = 8):
        if queue < 1:
            raise ValueError(f"queue must be at least 1, not {queue!r}")
        self.config = config
        self.queue = queue
        super().__init__(
            {
                "post": In(stream.Signature(Post, always_ready=True)),
                "enable": In(1),
                "finished": In(1),
                "o": Out(stream.Signature(descriptor_layout(config))),
                "accepted": Out(1),
                "refused": Out(1),
                "unfinished": Out(range(queue + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Check a descriptor in three steps: add its end, examine the end, combine all conditions.

        Cycles after ``post``:

        - 1, ``end_added``: ``end`` is one past the last byte;
        - 2, ``end_examined``: ``reaches_end`` and ``goes_beyond`` are valid;
        - 3, ``checked``: ``bad`` (the descriptor is wrong) and ``full`` (no descriptor is accepted now) are
          valid;
        - 4, ``accepted`` or ``refused``: an accepted descriptor enters the FIFO.

        A descriptor's end may equal the end of the address space, 2^width. ``reaches_end``: a bit from
        ``width`` up is set, so the end is at least 2^width. ``goes_beyond``: any bit except bit ``width`` is
        set, so the end is not 2^width; in three parts for short paths. An end is wrong if both hold.
        """
        m = Module()
        m.submodules.fifo = fifo = StreamFIFO(shape=self.o.payload.shape(), depth=self.queue)
        connect_typed(m, fifo.o, flipped(self.o))
        post, width = self.post.payload, self.config.address_width
        word_bits = self.config.address_width - word_address_bits(self.config)
        address, upper_address = post.address[:width], post.address[width:]
        size = Cat(Const(0, self.config.value_bytes.bit_length() - 1), post.count)
        end = Signal(max(width, len(size)) + 1)  # one past the last byte
        split = width // 2
        above_space = Signal()
        unaligned = Signal()
        empty = Signal()
        bad = Signal()
        end_added = Signal()
        end_examined = Signal()
        checked = Signal()
        reaches_end = Signal()
        goes_beyond = Signal(3)
        descriptor = fifo.i.payload
        operation = Signal(OPERATION_BITS)
        with m.If(self.post.valid):
            m.d.sync += [
                descriptor.address.eq(address),
                descriptor.count.eq(post.count),
                end.eq(address + size),
                above_space.eq(upper_address.any()),
                unaligned.eq(address[:word_bits].any()),
                empty.eq(post.count == 0),
            ]
        full = Signal()
        m.d.sync += [
            end_added.eq(self.post.valid),
            end_examined.eq(end_added),
            reaches_end.eq(end[width:].any()),
            goes_beyond.eq(Cat(part.any() for part in (end[:split], end[split:width], end[width + 1 :]))),
            checked.eq(end_examined),
            bad.eq(above_space | unaligned | empty | reaches_end & goes_beyond.any()),
            full.eq((self.unfinished == self.queue) | ~self.enable),
            self.accepted.eq(checked & ~bad & ~full),
            self.refused.eq(checked & (bad | full)),
        ]
        m.d.comb += [fifo.i.valid.eq(self.accepted), descriptor.operation.eq(operation)]
        m.d.sync += operation.eq(operation + self.accepted)
        with m.If(self.accepted & ~self.finished):
            m.d.sync += self.unfinished.eq(self.unfinished + 1)
        with m.Elif(self.finished & ~self.accepted):
            m.d.sync += self.unfinished.eq(self.unfinished - 1)
        return m
