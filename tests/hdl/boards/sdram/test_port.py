# amaranth: UnusedElaboratable=no
"""SdramPort by itself, on a memory that takes commands and answers when it likes; as BlockMemory is tested."""

import random

import pytest
from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory

from fanin.hdl.boards.sdram.port import SdramPort
from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.stream.connect import connect_typed
from tests.hdl.bus.test_block_memory import beat_of, run
from tests.support import new_seed, slow

WORD_ADDRESS_BITS = 8
LATENCY = 5  # cycles from a command to its word


class PortOnMemory(wiring.Component):
    """A port at ``base`` with words behind it; a word before it is read as its complement.

    ``stalls``: commands wait, in more than half of all cycles.
    """

    def __init__(self, *, size, base=64, data_width=32, stalls=False):
        self.size, self.data_width, self.stalls = size, data_width, stalls
        self.inner = SdramPort(
            base=base, size=size, word_address_width=WORD_ADDRESS_BITS, beat_width=data_width, address_width=64
        )
        super().__init__({name: self.inner.signature.members[name] for name in ("axil", "axi")})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = self.inner
        for name in ("axil", "axi"):
            connect_typed(m, wiring.flipped(getattr(self, name)), getattr(inner, name))
        m.submodules.memory = memory = Memory(shape=32, depth=1 << WORD_ADDRESS_BITS, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        port, command = inner.port, inner.port.command
        random_bits = Signal(16, init=0xACE1)
        m.d.sync += random_bits.eq(Cat(random_bits[1:], random_bits[0] ^ random_bits[2] ^ random_bits[3]))
        writing = Signal(3)
        m.d.comb += [
            command.ready.eq((writing == 0) & (~random_bits[:3].all() & random_bits[4] if self.stalls else 1)),
            read.addr.eq(command.p.address),
            port.taken.eq(writing == 1),
            write.en.eq(port.taken),
            write.data.eq(port.data),
        ]
        with m.If(writing != 0):
            m.d.sync += writing.eq(writing - 1)
        with m.If(command.valid & command.ready & command.p.write):
            m.d.sync += [writing.eq(1 + random_bits[5:7]), write.addr.eq(command.p.address)]
        before = command.p.address < self.inner.base // 4
        given, word = command.valid & command.ready & ~command.p.write, Mux(before, ~read.data, read.data)
        for _ in range(LATENCY):
            later, later_word = Signal(), Signal(32)
            m.d.sync += [later.eq(given), later_word.eq(word)]
            given, word = later, later_word
        m.d.comb += [port.word.valid.eq(given), port.word.payload.eq(word)]
        return m


@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
@pytest.mark.parametrize(("width", "size"), [(32, 136), *slow((8, 64), (16, 72))])
def test_bursts_and_host_see_the_same_bytes(width, size, stall):
    """While bursts are under way, the host reads all words in any order."""
    rng = random.Random(new_seed())
    count = 8 * size // width
    requests = [(first, rng.randint(1, count - first)) for first in (rng.randrange(count) for _ in range(20))]
    seen = {}

    async def read_all(host):
        for address in rng.sample(range(0, size, 4), size // 4):
            seen[address] = await host.read(address)

    dut = PortOnMemory(size=size, data_width=width, stalls=stall > 0)
    bursts, content = run(dut, requests, host_does=read_all, stall=stall, patience=stall)
    for _, index, data, response in bursts.beats:
        assert (data, response) == (beat_of(content, index, width), Resp.OKAY)
    for address, answer in seen.items():
        assert answer == [int.from_bytes(content[address : address + 4], "little"), Resp.OKAY]
    assert len(seen) == size // 4


@pytest.mark.parametrize("size", [64, 136], ids=["a power of two", "not"])
def test_beyond_the_end_every_beat_and_access_is_an_error(size):
    """Whether a burst runs over the end, begins behind it, or is far away; nothing is written."""
    count, answers = size // 4, []

    async def access(host):
        for address in (size, size + 4, 1 << 20):
            answers.append(await host.write(address, 1))
            answers.append((await host.read(address))[1])
        for address in (1, 2, 7):  # no word's
            answers.append((await host.read(address))[1])

    bursts, content = run(
        PortOnMemory(size=size, base=0),
        [(count - 2, 4), (count, 1), (count << 20, 2), (0, count)],
        host_does=access,
    )
    assert answers == [Resp.SLVERR] * 9
    responses = [response for *_, response in bursts.beats]
    assert responses == [Resp.OKAY] * 2 + [Resp.SLVERR] * 5 + [Resp.OKAY] * count
    assert [data for _, _, data, _ in bursts.beats[-count:]] == [
        beat_of(content, index, 32) for index in range(count)
    ]


def test_only_whole_words_are_written():
    answers = []

    async def access(host):
        answers.append([await host.write(0, 1, strobes) for strobes in (0, 7, 14)])
        answers.append([await host.write(address, 1) for address in (1, 2, 3)])
        answers.append(await host.read(0))

    _, content = run(PortOnMemory(size=64), host_does=access)
    assert answers == [[Resp.SLVERR] * 3, [Resp.SLVERR] * 3, [beat_of(content, 0, 32), Resp.OKAY]]


@pytest.mark.parametrize("beats", [2, 3, 16])
def test_a_beat_a_cycle_across_bursts(beats):
    """The first 2 cycles, 1 for its word and that word's latency behind its request."""
    bursts, _ = run(PortOnMemory(size=256), [(n, beats) for n in range(0, 48, 3)])
    cycles = [cycle for cycle, *_ in bursts.beats]
    first = bursts.taken[0] + 4 + LATENCY
    assert cycles == list(range(first, first + 16 * beats))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beat_width": 64}, "beat_width must be 8, 16 or 32, not 64"),
        ({"base": 6}, "base and size must be multiples of 4, size at least 8, not 6 and 64"),
        ({"base": 1000}, "size must be at most 24, not 64"),
        ({"address_width": 5}, "address_width must be from 6 to 64, not 5"),
    ],
)
def test_what_it_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SdramPort(**{"base": 0, "size": 64, "word_address_width": 8} | changes)
