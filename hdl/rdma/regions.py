"""The memory that others may write."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.carry import any_by_carry, sum_with_carry
from fanin.hdl.arith.delay import delayed
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, RKEY_BITS, index_bits
from fanin.rdma import RdmaConfig

LATENCY = 4


def region_layout(config: RdmaConfig) -> data.StructLayout:
    """A region: bytes from ``base`` to in front of ``limit``, for those queue pairs whose bit is set."""
    return data.StructLayout(
        {
            "index": (config.regions - 1).bit_length(),
            "enable": 1,
            "rkey": RKEY_BITS,
            "base": config.address_width,
            "limit": config.address_width + 1,
            "queue_pairs": config.queue_pairs,
        }
    )


def ask_layout(config: RdmaConfig) -> data.StructLayout:
    """May that queue pair write ``length`` bytes from ``address`` on, with that key?"""
    return data.StructLayout(
        {"index": index_bits(config), "address": REMOTE_BITS, "rkey": RKEY_BITS, "length": LENGTH_BITS}
    )


class RegionTable(wiring.Component):
    """Tell whether a message may be written.

    It may if a region has its key, lists its queue pair, and has all its bytes. No two enabled regions may have
    the same key. A region that does not allow writes is one that lists nobody.

    Members
    -------
    ``region`` : In, stream of :func:`region_layout`, always ready
        Replaces the region at its ``index``.
    ``ask`` : In, :func:`ask_layout`
        One question a cycle.
    ``allowed`` : Out, 1

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    4 cycles from ``ask`` to ``allowed``.

    Source
    ------
    docs/systems/rdma.md, "Responder"; InfiniBand Architecture Specification, volume 1, section 10.6.3.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "region": In(stream.Signature(region_layout(config), always_ready=True)),
                "ask": In(ask_layout(config)),
                "allowed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """All keys are compared at once; the one region that has it is read, and compared with the message."""
        m = Module()
        config, region, ask = self.config, self.region.payload, self.ask
        members = {name: region.shape()[name].shape for name in ("base", "limit", "queue_pairs")}
        m.submodules.table = table = Memory(shape=data.StructLayout(members), depth=config.regions, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [write.addr.eq(region.index), write.en.eq(self.region.valid)]
        m.d.comb += [write.data[name].eq(region[name]) for name in members]
        found = self._match(m)
        place = Signal.like(region.index)
        chosen = Signal(data.StructLayout(members))
        known = Signal()
        m.d.comb += read.addr.eq(place)
        bits = [Cat(found[n] for n in range(len(found)) if n >> bit & 1).any() for bit in range(len(place))]
        m.d.sync += [place.eq(Cat(bits)), known.eq(found.any()), chosen.eq(read.data)]
        address = ask.address[: config.address_width]
        starts = delayed(m, address, 3, name="start")
        start = starts[-1]
        end = self._end(m, starts[1])
        index = delayed(m, ask.index, 3, name="index")[-1]
        inside = delayed(m, ~ask.address[config.address_width :].any(), 3, name="inside")[-1]
        listed = Signal()
        above = Signal()
        below = Signal()
        m.d.sync += [
            listed.eq(
                chosen.queue_pairs.bit_select(index, 1) & inside & delayed(m, known, 1, name="known")[-1]
            ),
            below.eq(start < chosen.base),
            above.eq(end > chosen.limit),
        ]
        m.d.comb += self.allowed.eq(listed & ~below & ~above)
        return m

    def _end(self, m: Module, start: Value) -> Value:
        """Of what is asked about, 3 cycles later: the lower half, then the upper one and a carry."""
        length, half = self.ask.length, self.config.address_width // 2
        low = Signal(half + 1)
        m.d.sync += low.eq(self.ask.address[:half] + length[:half])
        length_high = delayed(m, length[half:], 1, name="length_high")[-1]
        high = Signal(max(self.config.address_width, LENGTH_BITS) + 1 - half)
        m.d.sync += high.eq(sum_with_carry(start[half:], length_high, low[half]))
        low_later = delayed(m, low[:half], 1, name="low")[-1]
        return delayed(m, Cat(low_later, high), 1, name="end")[-1]

    def _match(self, m: Module) -> Any:
        """Of each region, whether it is enabled and has the key; a cycle later."""
        region = self.region.payload
        found = Signal(self.config.regions)
        for index in range(self.config.regions):
            key = Signal(RKEY_BITS, name=f"key{index}")
            enable = Signal(name=f"enable{index}")
            with m.If(self.region.valid & (region.index == index)):
                m.d.sync += [key.eq(region.rkey), enable.eq(region.enable)]
            m.d.sync += found[index].eq(~any_by_carry(Cat(key ^ self.ask.rkey, ~enable), 2))
        return found
