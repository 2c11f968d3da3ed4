"""Connection of registers and NIC, common to all nodes with a NIC."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal

from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.registers import REFUSAL_BITS
from fanin.rdma.facts import MAX_WINDOW_BITS, RdmaConfig, Refusal
from fanin.wire.rdma import PATH_MTUS


def nic_settings(m: Module, config: RdmaConfig, registers: Any, nic: RdmaNic) -> None:
    """Connect addresses, queue pairs and regions of the registers to the NIC; drive ``connecting``.

    The registers are ``endpoint_registers``, ``pair_registers``, ``region_registers`` and ``NIC_COMMANDS``.
    """
    m.d.comb += [
        nic.own.mac.eq(registers.own_mac),
        nic.own.ip.eq(registers.own_ip),
        nic.timeout.eq(registers.timeout),
    ]
    _connections(m, config, registers, nic)
    _regions(m, config, registers, nic)
    for name in ("sending", "receiving"):
        flag_words(m, getattr(registers, name), getattr(nic, name))


def is_beyond(index: Any, count: int) -> Any:
    """Return whether an index in the registers is at least ``count``, a power of two."""
    return index[(count - 1).bit_length() :].any()


def _connections(m: Module, config: RdmaConfig, registers: Any, nic: RdmaNic) -> None:
    """Execute ``connect``: copy the registers of a queue pair, which the host may then write again."""
    pair = Signal(nic.connect.payload.shape())
    connect = nic.connect
    settings, pulse = pair.settings, registers.connect
    unknown = Signal()  # a setting is out of range; valid a cycle after the registers are written
    refusal = Signal(REFUSAL_BITS)
    m.d.comb += [
        pair.index.eq(registers.pair_index),
        settings.enable.eq(registers.pair_enable),
        settings.peer.queue_pair.eq(registers.peer_number),
        settings.peer.mac.eq(registers.peer_mac),
        settings.peer.ip.eq(registers.peer_ip),
        settings.peer.port.eq(registers.source_port),
        settings.peer.traffic_class.eq(registers.traffic_class),
        *(settings[n].eq(getattr(registers, n)) for n in ("mtu", "window", "retries")),
        *(settings[n].eq(getattr(registers, n)) for n in ("send_psn", "receive_psn")),
        registers.connecting.eq(connect.valid | pulse),
        registers.connect_refusal.eq(refusal),
        registers.ended_psn.eq(nic.ended_psn),
    ]
    if config.vlan:
        tag = settings.peer.tag
        m.d.comb += [tag.present.eq(registers.tag_present), tag.tci.eq(registers.tag_tci)]
    out_of_range = (registers.window > MAX_WINDOW_BITS) | (registers.mtu >= len(PATH_MTUS))
    m.d.sync += unknown.eq(registers.pair_enable & out_of_range)
    with m.If(connect.ready):
        m.d.sync += connect.valid.eq(0)
    with m.If(pulse):
        m.d.sync += refusal.eq(Refusal.NONE)
        with m.If(connect.valid):
            m.d.sync += refusal.eq(Refusal.BUSY)
        with m.Elif(is_beyond(registers.pair_index, config.queue_pairs)):
            m.d.sync += refusal.eq(Refusal.PLACE)
        with m.Elif(unknown):
            m.d.sync += refusal.eq(Refusal.SETTINGS)
        with m.Else():
            m.d.sync += [connect.valid.eq(1), connect.payload.eq(pair)]


def _regions(m: Module, config: RdmaConfig, registers: Any, nic: RdmaNic) -> None:
    """Execute ``set_region``; a region beyond the memory's addresses is refused and its place disabled."""
    region, width = nic.region.payload, config.address_width
    fits = Signal()  # without it, truncation to the memory's addresses would make another region
    limit = registers.region_limit  # at most 2^width; comparing 64 bits would be one long carry chain
    limit_outside = limit[width + 1 :].any() | (limit[width] & limit[:width].any())
    outside_memory = registers.region_base[width:].any() | limit_outside
    bad_index = is_beyond(registers.region_index, config.regions)
    refusal = Signal(REFUSAL_BITS)
    m.d.sync += fits.eq(~outside_memory)
    with m.If(registers.set_region):
        range_refusal = Mux(registers.region_enable & ~fits, Refusal.RANGE, Refusal.NONE)
        m.d.sync += refusal.eq(Mux(bad_index, Refusal.PLACE, range_refusal))
    m.d.comb += [
        region.index.eq(registers.region_index),
        region.enable.eq(registers.region_enable & fits),
        region.rkey.eq(registers.region_key),
        region.base.eq(registers.region_base),
        region.limit.eq(limit),
        region.queue_pairs.eq(registers.region_pairs),
        nic.region.valid.eq(registers.set_region & ~bad_index),
        registers.region_refusal.eq(refusal),
    ]


def flag_words(m: Module, port: Any, flags: Any) -> None:
    """Drive a register of ``registers.flags`` with one bit for each queue pair."""
    words = [port] if len(flags) <= WORD_BITS else port
    m.d.comb += [word.eq(flags[WORD_BITS * n :]) for n, word in enumerate(words)]


def nic_counters(nic: RdmaNic) -> dict[str, Any]:
    """Return the event source of each of ``registers.COUNTERS``."""
    events = nic.events
    sources = {"lost": events.lost, "memory_errors": events.memory_error}
    for part in events.requester, events.responder:
        sources |= {name: part[name] for name in part.shape().as_shape().members}
    return sources
