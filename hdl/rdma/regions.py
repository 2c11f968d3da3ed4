"""Table of the memory regions that other nodes may write."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, RKEY_BITS, index_bits
from fanin.rdma.facts import RdmaConfig

LATENCY = 4


def region_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a region: bytes ``base`` to ``limit`` - 1, for queue pairs whose bit is set."""
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
    """Return the layout of a request to write ``length`` bytes at ``address`` with the key ``rkey``."""
    return data.StructLayout(
        {"index": index_bits(config), "address": REMOTE_BITS, "rkey": RKEY_BITS, "length": LENGTH_BITS}
    )


class RegionTable(wiring.Component):
    """Table that decides whether a message may be written.

    A message is allowed if a region has its key, lists its queue pair and contains all of its bytes. No two
    enabled regions may have the same key. A region without write permission lists no queue pair.

    Members
    -------
    ``region`` : In, stream of :func:`region_layout`, always ready
        Region that replaces the one at its ``index``.
    ``ask`` : In, :func:`ask_layout`
        Request, one a cycle.
    ``allowed`` : Out, 1
        The message of the request may be written.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Numbers of regions and queue pairs.

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
        """Find the region with the key, read it, and compare its bounds, a cycle for each step."""
        m = Module()
        config, region, ask = self.config, self.region.payload, self.ask
        members = {name: region.shape()[name].shape for name in ("base", "limit", "queue_pairs")}
        m.submodules.table = table = Memory(shape=data.StructLayout(members), depth=config.regions, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [write.addr.eq(region.index), write.en.eq(self.region.valid)]
        m.d.comb += [write.data[name].eq(region[name]) for name in members]

        def later(value: Any, cycles: int, name: str) -> Value:
            return delayed(m, value, cycles, name=name)[-1]

        # cycle 1: regions with the key, at most one
        matches = self._match(m)
        # cycle 2: index of that region
        number = Signal.like(region.index)
        bits = (
            Cat(matches[n] for n in range(len(matches)) if n >> bit & 1).any() for bit in range(len(number))
        )
        m.d.sync += number.eq(Cat(bits))
        has_match = later(matches.any(), 2, "has_match")
        # cycle 3: the region, and the first byte after the message
        found_region = Signal(data.StructLayout(members))
        end = Signal(max(config.address_width, LENGTH_BITS) + 1)
        start = later(ask.address[: config.address_width], 2, "start")
        m.d.comb += read.addr.eq(number)
        m.d.sync += [found_region.eq(read.data), end.eq(start + later(ask.length, 2, "length"))]
        # cycle 4: whether the message is inside it
        permitted = Signal()
        starts_below = Signal()
        ends_above = Signal()
        in_memory = later(~ask.address[config.address_width :].any(), 3, "in_memory")
        lists_queue_pair = found_region.queue_pairs.bit_select(later(ask.index, 3, "index"), 1)
        m.d.sync += [
            permitted.eq(has_match & lists_queue_pair & in_memory),
            starts_below.eq(later(start, 1, "start_again") < found_region.base),
            ends_above.eq(end > found_region.limit),
        ]
        m.d.comb += self.allowed.eq(permitted & ~starts_below & ~ends_above)
        return m

    def _match(self, m: Module) -> Signal:
        """Return for each region whether it is enabled and has the key; a cycle later."""
        region = self.region.payload
        matches = Signal(self.config.regions)
        for index in range(self.config.regions):
            key = Signal(RKEY_BITS, name=f"key{index}")
            enable = Signal(name=f"enable{index}")
            with m.If(self.region.valid & (region.index == index)):
                m.d.sync += [key.eq(region.rkey), enable.eq(region.enable)]
            m.d.sync += matches[index].eq(enable & (key == self.ask.rkey))
        return matches
