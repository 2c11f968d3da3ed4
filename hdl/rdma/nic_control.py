"""Between registers and NIC: what every node with a NIC has."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal

from fanin.hdl.bus.common_registers import drive_request
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.rdma.nic import RdmaNic
from fanin.rdma import RdmaConfig


def nic_settings(m: Module, config: RdmaConfig, registers: Any, nic: RdmaNic) -> None:
    """Addresses, queue pairs and regions, from ``endpoint_registers``, ``pair_registers``, ``region_registers``
    and ``NIC_COMMANDS``; and the field ``connecting``.
    """
    pair, region = nic.connect.payload, nic.region.payload
    settings, width = pair.settings, config.address_width
    fits = Signal()  # else the region, cut down to the memory's addresses, would be another
    limit = registers.region_limit  # 2^width at most; a comparison of 64 bits would be one long chain
    over = limit[width + 1 :].any() | (limit[width] & limit[:width].any())
    beyond = registers.region_base[width:].any() | over
    m.d.sync += fits.eq(~beyond)
    m.d.comb += [
        nic.own.mac.eq(registers.own_mac),
        nic.own.ip.eq(registers.own_ip),
        nic.timeout.eq(registers.timeout),
        pair.index.eq(registers.pair_index),
        settings.enable.eq(registers.pair_enable),
        settings.peer.queue_pair.eq(registers.peer_number),
        settings.peer.mac.eq(registers.peer_mac),
        settings.peer.ip.eq(registers.peer_ip),
        settings.peer.port.eq(registers.source_port),
        settings.peer.traffic_class.eq(registers.traffic_class),
        *(settings[n].eq(getattr(registers, n)) for n in ("mtu", "window", "retries")),
        *(settings[n].eq(getattr(registers, n)) for n in ("send_psn", "receive_psn")),
        region.index.eq(registers.region_index),
        region.enable.eq(registers.region_enable & fits),
        region.rkey.eq(registers.region_key),
        region.base.eq(registers.region_base),
        region.limit.eq(limit),
        region.queue_pairs.eq(registers.region_pairs),
        nic.region.valid.eq(registers.set_region),
    ]
    if config.vlan:
        tag = settings.peer.tag
        m.d.comb += [tag.present.eq(registers.tag_present), tag.tci.eq(registers.tag_tci)]
    drive_request(m, registers, command="connect", pending="connecting", request=nic.connect)
    for name in ("sending", "receiving"):
        flag_words(m, getattr(registers, name), getattr(nic, name))


def flag_words(m: Module, port: Any, flags: Any) -> None:
    """A bit for each queue pair to a register of ``registers.flags``."""
    words = [port] if len(flags) <= WORD_BITS else port
    m.d.comb += [word.eq(flags[WORD_BITS * n :]) for n, word in enumerate(words)]


def nic_counters(nic: RdmaNic) -> dict[str, Any]:
    """What counts for each of ``registers.COUNTERS``."""
    events = nic.events
    sources = {"lost": events.lost, "memory_errors": events.memory_error}
    for part in events.requester, events.responder:
        sources |= {name: part[name] for name in part.shape().as_shape().members}
    return sources
