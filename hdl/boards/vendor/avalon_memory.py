"""Bridge from a node's AXI4 memory port to an Avalon-MM memory controller, such as Intel's."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import memory_signature
from fanin.hdl.stream.fifo import StreamFIFO

COMMANDS = 8  # commands of each kind that may wait
BURSTS = 4  # longest bursts that fit the words' queue of each direction


class AxiToAvalonMemory(wiring.Component):
    """Bridge from AXI4 bursts to Avalon-MM bursts, reads and writes in turn.

    A write begins after all of its words have arrived, so memory never waits for the network at the node. A
    read begins when there is room for all of its words, since Avalon-MM read data cannot be stalled. Bursts
    must be INCR, of whole words, and aligned to words, as the node's are.

    Avalon-MM as used here has no responses: all are OKAY. A write's response comes after its last word is
    taken. A later read sees that write, since memory executes commands in order.

    Members
    -------
    ``memory`` : In, AXI4, ``data_width`` bits
        Port of the node.
    ``address`` : Out(address_width)
        Byte address; constant over a burst.
    ``burstcount`` : Out, range(burst + 1)
        Words of the burst; constant over a burst.
    ``read``, ``write`` : Out(1)
        Command of this cycle.
    ``writedata`` : Out(data_width)
        Word to write.
    ``byteenable`` : Out(data_width / 8)
        Bytes of the word to write.
    ``waitrequest`` : In(1)
        The command of this cycle is not taken.
    ``readdatavalid`` : In(1)
        ``readdata`` is valid.
    ``readdata`` : In(data_width)
        Word that was read.

    Parameters
    ----------
    ``data_width`` : int
        Bits of a word; a power of two, 8…1024.
    ``address_width`` : int
        Bits of an address, 1…64.
    ``burst`` : int
        Words of the longest burst; a power of two, 1…128.

    Latency
    -------
    A read is on Avalon-MM 2 cycles after it is on AR; its words come 1 cycle after ``readdatavalid``. One word
    a cycle within a burst; one cycle between bursts.

    Source
    ------
    Intel, Avalon Interface Specifications (MNL-AVABUSREF), "Burst Transfers"; Arm IHI 0022.
    """

    def __init__(self, *, data_width: int, address_width: int, burst: int):
        if burst not in (1 << n for n in range(8)):
            raise ValueError(f"burst must be a power of two from 1 to 128, not {burst!r}")
        self.data_width = data_width
        self.address_width = address_width
        self.burst = burst
        super().__init__(
            {
                "memory": In(memory_signature(data_width=data_width, address_width=address_width)),
                "address": Out(address_width),
                "burstcount": Out(range(burst + 1)),
                "read": Out(1),
                "write": Out(1),
                "writedata": Out(data_width),
                "byteenable": Out(data_width // 8),
                "waitrequest": In(1),
                "readdata": In(data_width),
                "readdatavalid": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Queue commands and words; the state machine issues one burst after the other."""
        m = Module()
        reads, can_read = self._reads(m)
        writes, words, answers, can_write = self._writes(m)
        read_last = Signal()  # the previous burst was a read
        accepted = Signal()
        m.d.comb += [
            accepted.eq(~self.waitrequest),
            self.writedata.eq(words.payload.data),
            self.byteenable.eq(words.payload.strobes),
            answers.payload.eq(writes.payload.id),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(can_write & (read_last | ~can_read)):
                    m.next = "WRITE"
                with m.Elif(can_read):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += [
                    self.read.eq(1),
                    self.address.eq(reads.payload.address),
                    self.burstcount.eq(reads.payload.length + 1),
                    reads.ready.eq(accepted),
                ]
                m.d.sync += read_last.eq(1)
                with m.If(accepted):
                    m.next = "IDLE"
            with m.State("WRITE"):
                ends = accepted & words.payload.last
                m.d.comb += [
                    self.write.eq(1),
                    self.address.eq(writes.payload.address),
                    self.burstcount.eq(writes.payload.length + 1),
                    words.ready.eq(accepted),
                    writes.ready.eq(ends),
                    answers.valid.eq(ends),
                ]
                m.d.sync += read_last.eq(0)
                with m.If(ends):
                    m.next = "IDLE"
        return m

    def _queue(self, m: Module, name: str, shape: Any, depth: int) -> Any:
        m.submodules[name] = queue = StreamFIFO(shape=shape, depth=depth)
        return queue

    def _commands(self, m: Module, name: str, prefix: str) -> Any:
        """Build the queue of an address channel's bursts."""
        lengths = range(max(self.burst, 2))
        shape = data.StructLayout({"address": self.address_width, "length": lengths, "id": 1})
        queue = self._queue(m, name, shape, COMMANDS)
        channel = {
            field: getattr(self.memory, f"{prefix}{field}") for field in ("addr", "len", "id", "valid", "ready")
        }
        m.d.comb += [
            queue.i.payload.address.eq(channel["addr"]),
            queue.i.payload.length.eq(channel["len"]),
            queue.i.payload.id.eq(channel["id"]),
            queue.i.valid.eq(channel["valid"]),
            channel["ready"].eq(queue.i.ready),
        ]
        return queue

    def _reads(self, m: Module) -> tuple[Any, Signal]:
        """Return the stream of reads, and whether the first one's words have room; connect R to memory."""
        memory, depth = self.memory, BURSTS * self.burst
        commands = self._commands(m, "reads", "ar")
        words = self._queue(m, "read_words", self.data_width, depth)
        ends_shape = data.StructLayout({"length": commands.o.payload.length.shape(), "id": 1})
        ends = self._queue(m, "read_ends", ends_shape, BURSTS * self.burst)  # lengths of bursts in flight
        reserved = Signal(range(depth + 1))  # words requested, or in the queue
        number = Signal.like(commands.o.payload.length)  # index of R's word in its burst
        has_room = Signal()
        ready = Signal()
        command = commands.o
        started, delivered = command.valid & command.ready, memory.rvalid & memory.rready
        m.d.sync += reserved.eq(reserved + _masked(started, command.payload.length + 1) - delivered)
        m.d.comb += [
            has_room.eq(reserved + command.payload.length < depth),
            ready.eq(command.valid & has_room & ends.i.ready),
            ends.i.valid.eq(started),
            ends.i.payload.length.eq(command.payload.length),
            ends.i.payload.id.eq(command.payload.id),
            words.i.payload.eq(self.readdata),
            words.i.valid.eq(self.readdatavalid),
            memory.rdata.eq(words.o.payload),
            memory.rvalid.eq(words.o.valid),
            memory.rid.eq(ends.o.payload.id),
            memory.rlast.eq(number == ends.o.payload.length),
            words.o.ready.eq(memory.rready),
            ends.o.ready.eq(delivered & memory.rlast),
        ]
        with m.If(delivered):
            m.d.sync += number.eq(_masked(~memory.rlast, number + 1))
        return command, ready

    def _writes(self, m: Module) -> tuple[Any, Any, Any, Signal]:
        """Return the streams of writes, words and responses, and whether the first write is complete."""
        memory, depth = self.memory, BURSTS * self.burst
        commands = self._commands(m, "writes", "aw")
        strobes = self.data_width // 8
        shape = data.StructLayout({"data": self.data_width, "strobes": strobes, "last": 1})
        words = self._queue(m, "write_words", shape, depth)
        answers = self._queue(m, "write_answers", 1, COMMANDS)
        complete_bursts = Signal(range(depth + 1))  # bursts whose words are all in the queue
        burst_enters = words.i.valid & words.i.ready & memory.wlast
        burst_leaves = words.o.valid & words.o.ready & words.o.payload.last
        ready = Signal()
        m.d.sync += complete_bursts.eq(complete_bursts + burst_enters - burst_leaves)
        m.d.comb += [
            words.i.payload.data.eq(memory.wdata),
            words.i.payload.strobes.eq(memory.wstrb),
            words.i.payload.last.eq(memory.wlast),
            words.i.valid.eq(memory.wvalid),
            memory.wready.eq(words.i.ready),
            memory.bid.eq(answers.o.payload),
            memory.bvalid.eq(answers.o.valid),
            answers.o.ready.eq(memory.bready),
            ready.eq(commands.o.valid & complete_bursts.any() & answers.i.ready),
        ]
        return commands.o, words.o, answers.i, ready


def _masked(condition: Any, value: Any) -> Any:
    """Return ``value`` if ``condition`` is 1, else 0."""
    return value & condition.replicate(len(value))
